package tests

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestStopStoppedSupervisor: a supervisor that can't answer holds up nobody for
// long, and --force does without it.
func TestStopStoppedSupervisor(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.start(nil, app{name: "x", script: "echo up; sleep 1000"})
	p.running()
	id := p.uuid()
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	res := h.rkt("stop", id)
	lines := strings.Split(strings.TrimSuffix(res.stderr, "\n"), "\n")
	if res.code != 254 || res.stdout != "" || len(lines) != 2 ||
		!strings.HasPrefix(lines[0], "stop: pod "+id+": supervisor: process ") || !strings.HasSuffix(lines[0], ": does not answer") ||
		!strings.HasPrefix(lines[1], "stop: hint: ") || !strings.Contains(lines[1], "rkt stop --force") {
		t.Errorf("want one error and one hint: %s", res)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
	begin = time.Now()
	res = h.rkt("stop", "--force", id)
	if res.code != 0 || res.stdout != `"`+id+"\"\n" || res.stderr != "" {
		t.Errorf("want no error: %s", res)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("with --force it took %s", took)
	}
	if s := h.status(id); s.State != "exited" || s.Exit == nil || s.Exit.Cause != "aborted" {
		t.Errorf("state %s, %+v", s.State, s.Exit)
	}
	if res := p.wait(); res.code != -1 {
		t.Errorf("the supervisor was not killed: %s", res)
	}
}
