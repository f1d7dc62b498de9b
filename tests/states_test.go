package tests

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestStopInEachState stops a pod while an app waits in its back-off, while its
// pre-stop or post-start hook hangs, while a probe runs and while it is paused;
// and kills the supervisor in each of these states. (TestFault does that at each step of the start.) The statuses are true, and nothing is left.
func TestStopInEachState(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		app   app
		until func(*pod) bool
		code  int // of the stop
	}{
		"backoff": {
			app{name: "x", script: `exit 3`, flags: []string{"--restart=always"}},
			func(p *pod) bool {
				list := p.attempts("x")
				return len(list) > 4 && list[len(list)-1].State == "backoff"
			}, 3,
		},
		"pre-stop": {
			app{name: "x", script: serve, flags: []string{"--pre-stop=exec:sleep 1000,timeout=10m", "--stop-timeout=1s"}},
			func(p *pod) bool { return strings.Contains(p.rkt("logs", p.uuid()).stdout, "up") }, 137,
		},
		"post-start": {
			app{name: "x", script: `sleep 1000`, flags: []string{"--post-start=exec:sleep 1000,timeout=10m"}},
			func(p *pod) bool { return len(p.attempts("x")) > 0 && p.attempts("x")[0].State == "running" }, 0,
		},
		"paused": {
			app{name: "x", script: serve},
			func(p *pod) bool {
				return strings.Contains(p.rkt("logs", p.uuid()).stdout, "up") && p.rkt("pause", p.uuid()).code == 0
			}, 0,
		},
		"not ready": {
			app{name: "x", script: `sleep 1000`, flags: []string{"--ready=exec:sleep 100,timeout=50s", "--live=tcp:1,delay=50s"}},
			func(p *pod) bool { return len(p.attempts("x")) > 0 && p.attempts("x")[0].State == "running" }, 0,
		},
	} {
		for _, kill := range []bool{false, true} {
			t.Run(name+map[bool]string{false: " stop", true: " SIGKILL"}[kill], func(t *testing.T) {
				t.Parallel()
				h := newHost(t)
				p := h.start(nil, c.app)
				p.uuid()
				until(t, "the state is reached", func() bool { return c.until(p) })
				if name == "pre-stop" && kill {
					p.signal(syscall.SIGTERM) // so that the hook runs
				}
				if kill {
					p.signal(syscall.SIGKILL)
				} else {
					h.must("stop", p.uuid())
				}
				res := p.wait()
				if !kill && (res.code != c.code || strings.Contains(res.stderr, "has ended")) {
					t.Errorf("%s", res)
				}
				s := h.status(p.uuid())
				until(t, "no process is left", func() bool { s = h.status(p.uuid()); return s.State == "exited" })
				want := "Aborted"
				if !kill {
					want = map[string]string{"backoff": "Error", "pre-stop": "KilledAfterTimeout", "not ready": "Stopped", "post-start": "Stopped", "paused": "Stopped"}[name]
				}
				if st := s.Apps[0].Status; st.State != "exited" || st.Reason != want {
					t.Errorf("status %+v, want %s", st, want)
				}
				if s.Exit == nil || s.Exit.Derived != kill {
					t.Errorf("exit %+v", s.Exit)
				}
			})
		}
	}
}

// TestCodesSurviveReboot: what status says of an ended pod is on disk, and not
// in the folder that a reboot empties.
func TestCodesSurviveReboot(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.start([]string{"--exit-policy=all", "--pod-name=old"},
		app{name: "a", script: `exit 3`, flags: []string{"--restart=on-failure:1"}}, app{name: "b", script: `kill -9 $$`}, app{name: "c", script: "", flags: []string{"--exec=/nothing"}})
	if res := p.wait(); res.code == 0 {
		t.Fatal(res)
	}
	before := h.must("status", "--format=json", "old")
	id, err := os.ReadFile(h.dir + "/store/id")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll("/run/rkt/" + strings.TrimSpace(string(id))); err != nil {
		t.Fatal(err)
	}
	if after := h.must("status", "--format=json", "old"); after != before {
		t.Errorf("status\n%s, before\n%s", after, before)
	}
	if res := h.rkt("wait", "old"); res.code != h.status(p.uuid()).Exit.Code {
		t.Errorf("%s", res)
	}
}

// TestStopWhileStarting stops a pod, and kills its supervisor, while an app's
// pre-start handler hangs.
func TestStopWhileStarting(t *testing.T) {
	t.Parallel()
	for _, kill := range []bool{false, true} {
		h := newHost(t)
		manifest := filepath.Join(t.TempDir(), "pod")
		prepared := strings.TrimSpace(h.must("prepare", "--insecure-options=image", "--quiet", image("busybox.aci"), "--name=x", "--stop-timeout=1s", "--exec=/bin/true"))
		text := h.must("cat-manifest", "--pretty-print=false", prepared)
		hang := `"app":{"eventHandlers":[{"name":"pre-start","exec":["/bin/sh","-c","echo begun; sleep 1000"]}],`
		if err := os.WriteFile(manifest, []byte(strings.Replace(text, `"app":{`, hang, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		p := h.launch("run", "--pod-manifest="+manifest)
		p.logged("x", "begun")
		if s := p.attempts("x")[0]; s.State != "starting" {
			t.Errorf("status %+v", s)
		}
		want, code := "KilledAfterTimeout", 137
		if kill {
			want, code = "Aborted", 254
			p.signal(syscall.SIGKILL)
		} else {
			h.must("stop", p.uuid())
		}
		p.wait()
		var s status
		until(t, "no process is left", func() bool { s = h.status(p.uuid()); return s.State == "exited" })
		if s.Apps[0].Status.Reason != want || s.Apps[0].Status.ExitCode != nil || s.Exit == nil || s.Exit.Code != code {
			t.Errorf("status %+v, exit %+v", s.Apps[0].Status, s.Exit)
		}
	}
}
