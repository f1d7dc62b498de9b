package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// outcome is one way for an app to end, and the code that it must give.
type outcome struct {
	name string
	app  app
	code int
}

func outcomes() []outcome {
	var all []outcome
	for _, code := range []int{0, 1, 125, 126, 127, 254, 255} {
		all = append(all, outcome{fmt.Sprint(code), app{script: fmt.Sprintf("exit %d", code)}, code})
	}
	all = append(all,
		outcome{"SIGKILL", app{script: "kill -KILL $$"}, 137},
		outcome{"SIGSEGV", app{script: "kill -SEGV $$"}, 139},
		outcome{"missing", app{flags: []string{"--exec=/bin/nosuch"}}, 127},
		outcome{"missing-in-path", app{flags: []string{"--exec=nosuch"}}, 127},
		outcome{"not-executable", app{flags: []string{"--exec=/etc/passwd"}}, 126},
		outcome{"folder", app{flags: []string{"--exec=/etc"}}, 126},
	)
	if testing.Short() { // what the kernel and the launcher have most to do with
		few := []string{"SIGKILL", "missing"}
		all = slices.DeleteFunc(all, func(o outcome) bool { return !slices.Contains(few, o.name) })
	}
	return all
}

// TestExitCodes: rkt run's code, the status text and its JSON agree, for one
// app and for three under each policy.
func TestExitCodes(t *testing.T) {
	for _, o := range outcomes() {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			first := o.app
			first.name = "x"
			checkEnd(t, h.start(nil, first), o.code)
			for _, policy := range []string{"all", "any", "anyOnFailure"} {
				// The others end only if the policy waits for them.
				others := "sleep 1000"
				if policy == "all" || (policy == "anyOnFailure" && o.code == 0) {
					others = "exit 0"
				}
				p := h.start([]string{"--exit-policy=" + policy}, app{name: "y", script: others}, first, app{name: "z", script: others})
				if policy == "any" {
					checkEnd(t, p, o.code)
					continue
				}
				checkEnd(t, p, o.code)
				for _, a := range h.status(p.uuid()).Apps {
					if a.Name != "x" && others != "exit 0" && a.Status.Reason != "PodEnded" {
						t.Errorf("%s: app %s: reason %s", policy, a.Name, a.Status.Reason)
					}
				}
			}
		})
	}
}

// checkEnd waits for the pod and compares its three accounts of app x's end.
func checkEnd(t *testing.T, p *pod, code int) {
	t.Helper()
	res := p.wait()
	if res.code != code {
		t.Errorf("want %d: %s", code, res)
	}
	s := p.status(p.uuid())
	if s.State != "exited" || s.Exit == nil || s.Exit.Code != code || s.Exit.Cause != "policy" {
		t.Errorf("want %d: status %+v", code, s)
		return
	}
	for _, a := range s.Apps {
		if a.Name == "x" && (a.Status == nil || a.Status.ExitCode == nil || *a.Status.ExitCode != code) {
			t.Errorf("want %d: app status %+v", code, a.Status)
		}
	}
	text := p.must("status", p.uuid())
	if want := fmt.Sprintf("app-x=%d\n", code); !strings.Contains(text, want) {
		t.Errorf("status has no %q:\n%s", want, text)
	}
	if (code == 126 || code == 127) && s.Apps[0].Status != nil && len(s.Apps) == 1 {
		if s.Apps[0].Status.Reason == "StartFailed" && !strings.Contains(res.stderr, "nosuch") && !strings.Contains(res.stderr, "/etc") {
			t.Errorf("the message doesn't name the program: %s", res)
		}
	}
}

// TestSetUpFailure: rkt's own error is 254, and told apart from an app's 254.
func TestSetUpFailure(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.start(nil, app{name: "x", script: "exit 0", flags: []string{"--working-dir=/no/such/folder"}})
	res := p.wait()
	if res.code != 254 || !strings.Contains(res.stderr, "/no/such/folder") {
		t.Errorf("got %s", res)
	}
	if s := h.status(p.uuid()); s.Exit == nil || s.Exit.Code != 254 {
		t.Errorf("status %+v", s)
	}
}

// TestRunRm: the pod is gone when run ends, the code is the app's.
func TestRunRm(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	res := h.start([]string{"--rm"}, app{name: "x", script: "echo out; exit 7"}).wait()
	if res.code != 7 || res.stdout != "out\n" {
		t.Errorf("got %s", res)
	}
	for _, folder := range []string{"run", "exited-garbage", "garbage", "prepare", "embryo"} {
		if left, _ := os.ReadDir(h.dir + "/pods/" + folder); len(left) > 0 {
			t.Errorf("left in %s: %v", folder, left)
		}
	}
}

// TestPlainChroot: where stage1 can't have mounts of its own, nothing begins.
func TestPlainChroot(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, name := range []string{"rkt", "stage1", "podinit", "applaunch"} {
		if out, err := exec.Command("cp", filepath.Join(bin, name), root).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if out, err := exec.Command("cp", image("busybox.aci"), root).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Mkdir(filepath.Join(root, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "--mount", "sh", "-c", `mount -t proc proc "$0/proc" && exec chroot "$0" /rkt --dir=/data run --insecure-options=image /busybox.aci`, root)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 254 || !strings.Contains(string(out), "the root folder is no mount point") {
		t.Errorf("%v: %s", err, out)
	}
	if left, _ := os.ReadDir(filepath.Join(root, "data", "pods", "run")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
