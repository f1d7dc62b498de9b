package tests

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestClosedStdout: as in `rkt run … | head -1`, the pod goes on when nobody
// reads its output any more, and the log gets all of it.
func TestClosedStdout(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	const lines = 20_000
	args := runArgs("/dev/null", nil, app{name: "x", script: fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo line $i; i=$((i+1)); done; echo end >&2; exit 5", lines)})
	cmd := h.command(args...)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stdout, cmd.Stderr = w, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close() // the pod has its own
	if _, err := r.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // the code says all
	if code := cmd.ProcessState.ExitCode(); code != 5 || stderr.String() != "end\n" {
		t.Errorf("code %d, stderr %q", code, stderr.String())
	}
	id := strings.Fields(h.must("list", "--no-legend"))[0]
	if got := strings.Count(h.must("logs", id), "line "); got != lines {
		t.Errorf("%d of %d lines are in the log", got, lines)
	}
}

// TestNoStdout: with a stdout that is closed a result is lost, which is an error;
// a pod has its log, and goes on.
func TestNoStdout(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	closed := func(args ...string) result {
		cmd := exec.Command("/bin/sh", append([]string{"-c", `exec "$@" >&-`, "sh", filepath.Join(bin, "rkt"), "--dir=" + h.dir}, args...)...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		return h.finish(cmd, args, cmd.Run(), new(bytes.Buffer), &stderr)
	}
	for _, args := range [][]string{{"version"}, {"help"}, {"list"}, {"image", "list", "--format=json"}, {"config"}, {"completion", "bash"}} {
		if res := closed(args...); res.code != 254 || !strings.Contains(res.stderr, "write to stdout: bad file descriptor") {
			t.Error(res)
		}
	}
	if res := closed(runArgs("/dev/null", nil, app{name: "x", script: "echo said; exit 5"})...); res.code != 5 || res.stderr != "" {
		t.Error(res)
	}
	if id := strings.Fields(h.must("list", "--no-legend"))[0]; h.must("logs", id) != "said\n" {
		t.Errorf("log %q", h.must("logs", id))
	}
}
