package tests

import (
	"bufio"
	"path/filepath"
	"strings"
	"testing"
)

// TestEnterKilled: what was sent into an app ends with who sent it, with all
// that it has started, and the app goes on.
func TestEnterKilled(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.start([]string{"--net=none"}, app{name: "x", script: "exec sleep 1000"})
	p.running()
	folders := func() []string {
		var all []string
		for _, path := range h.record(p.uuid()).Paths {
			found, err := filepath.Glob(filepath.Join(path.Path, "apps", "x", "exec-*"))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, found...)
		}
		return all
	}
	for range 5 {
		enter := h.command("enter", p.uuid(), "/bin/sh", "-c", "trap '' HUP; sleep 1234 & (sleep 1234 &); echo up; wait")
		var said strings.Builder
		enter.Stderr = &said
		out, err := enter.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := enter.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "up\n" {
			_ = enter.Wait()
			t.Fatalf("%q, %v: %s", line, err, &said)
		}
		until(t, "the supervisor knows of it", func() bool { return len(folders()) > 0 })
		if res := h.rkt("enter", p.uuid(), "/bin/true"); res.code != 0 {
			t.Errorf("beside it: %s", res)
		}
		if err := enter.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = enter.Wait()
		until(t, "nothing of it is left", func() bool { return len(folders()) == 0 })
		if res := h.rkt("enter", p.uuid(), "/bin/ps"); res.code != 0 || strings.Contains(res.stdout, "1234") || !strings.Contains(res.stdout, "sleep 1000") {
			t.Errorf("left in the pod: %s", res)
		}
	}
	if res := h.rkt("stop", "--force", p.uuid()); res.code != 0 {
		t.Error(res)
	}
	if res := p.wait(); strings.Contains(res.stderr, "sent into it") {
		t.Error(res)
	}
}
