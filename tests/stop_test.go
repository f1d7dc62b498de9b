package tests

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestStop: SIGTERM to rkt run stops the pod in order, and each app's end
// counts as the lifecycle says.
func TestStop(t *testing.T) {
	cases := []struct {
		name   string
		script string
		flags  []string
		code   int // of the pod
		reason string
	}{
		{"handles it in time", `trap 'echo got; sleep 3; exit 0' TERM; echo up; while :; do sleep 0.1; done`, nil, 0, "Stopped"},
		{"exits 143", `trap 'exit 143' TERM; echo up; while :; do sleep 0.1; done`, nil, 0, "Stopped"},
		{"dies by it", `echo up; exec sleep 1000`, nil, 137, "KilledAfterTimeout"}, // see below
		{"ends with another code", `trap 'exit 9' TERM; echo up; while :; do sleep 0.1; done`, nil, 9, "Stopped"},
		{"ignores it", `trap '' TERM; echo up; while :; do sleep 0.1; done`, []string{"--stop-timeout=1s"}, 137, "KilledAfterTimeout"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.name == "dies by it" {
				// The app isn't PID 1 of the pod, so SIGTERM's default action holds.
				c.code, c.reason = 0, "Stopped"
			}
			h := newHost(t)
			p := h.start(nil, app{name: "x", script: c.script, flags: c.flags})
			until(t, "the app is up", func() bool { return strings.Contains(h.rkt("logs", p.uuid()).stdout, "up") })
			begin := time.Now()
			if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			res := p.wait()
			if res.code != c.code {
				t.Errorf("want %d: %s", c.code, res)
			}
			if n := strings.Count(res.stdout, "got"); strings.Contains(c.script, "got") && (n != 1 || time.Since(begin) < 3*time.Second) {
				t.Errorf("the app got its signal %d times, %s", n, time.Since(begin))
			}
			s := h.status(p.uuid())
			if s.Exit == nil || s.Exit.Code != c.code || s.Exit.Cause != "stopped" || s.Apps[0].Status.Reason != c.reason {
				t.Errorf("status %+v %+v", s.Exit, s.Apps[0].Status)
			}
		})
	}
}

// TestStopMainProcessOnly: children of the app get no signal before the kill.
func TestStopMainProcessOnly(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.start(nil, app{name: "x", script: `(trap 'echo child' TERM; while :; do sleep 0.1; done) & trap 'sleep 1; exit 0' TERM; echo up; while :; do sleep 0.1; done`})
	until(t, "the app is up", func() bool { return strings.Contains(h.rkt("logs", p.uuid()).stdout, "up") })
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if res := p.wait(); res.code != 0 || strings.Contains(res.stdout, "child") {
		t.Errorf("got %s", res)
	}
}

// TestStopCommand: rkt stop returns when the pod is down; with --force at once.
func TestStopCommand(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for _, flags := range [][]string{nil, {"--force"}} {
		p := h.start(nil, app{name: "x", script: `trap 'sleep 1; exit 0' TERM; echo up; while :; do sleep 0.1; done`}, app{name: "y", script: "sleep 1000"})
		p.running()
		until(t, "the app is up", func() bool { return strings.Contains(h.rkt("logs", p.uuid(), "--app=x").stdout, "up") })
		out := h.must(append(append([]string{"stop"}, flags...), p.uuid())...)
		if !strings.Contains(out, p.uuid()) {
			t.Errorf("stop printed %q", out)
		}
		if s := h.status(p.uuid()); s.State != "exited" {
			t.Errorf("state %s right after stop", s.State)
		}
		want := 0
		if flags != nil {
			want = 137
		}
		if res := p.wait(); res.code != want {
			t.Errorf("stop %v: %s", flags, res)
		}
		// A pod that has stopped is no error.
		h.must("stop", p.uuid())
	}
}

// TestSecondSignal stops at once.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.start(nil, app{name: "x", script: `trap 'echo got' TERM; echo up; while :; do sleep 0.1; done`, flags: []string{"--stop-timeout=10m"}})
	until(t, "the app is up", func() bool { return strings.Contains(h.rkt("logs", p.uuid()).stdout, "up") })
	// Signals less than a second apart count as one.
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	time.Sleep(100 * time.Millisecond)
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	until(t, "the app got it", func() bool { return strings.Contains(h.rkt("logs", p.uuid()).stdout, "got") })
	if s := p.running(); s.State != "running" {
		t.Errorf("state %s after two signals at once", s.State)
	}
	time.Sleep(1100 * time.Millisecond)
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if res := p.wait(); res.code != 137 {
		t.Errorf("got %s", res)
	}
}
