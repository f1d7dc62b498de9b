//go:build vm

package tests

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/limits"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

// unit is a service of systemd that runs a pod of one app.
type unit struct {
	*pod
	name string
}

// delegation are the two ways for a unit to hold a pod.
var delegation = []string{"no", "yes"}

// newUnit writes a unit, which is not started. The lines come after those that
// every unit of a pod has; @RKT in them is rkt with its data folder.
func newUnit(t *testing.T, delegate, script string, lines ...string) *unit {
	t.Helper()
	if os.Getenv("RKT_TEST_VM") != "1" {
		t.Fatal("this test makes units of systemd: only the virtual machine of TestVM is for that")
	}
	h := newHost(t)
	u := &unit{pod: &pod{host: h, uuidFile: filepath.Join(t.TempDir(), "uuid")}}
	u.name = "pod-" + strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name())) + ".service"
	args := append([]string{filepath.Join(bin, "rkt"), "--dir=" + h.dir}, runArgs(u.uuidFile, nil, app{name: "x", script: script})...)
	text := "[Service]\nKillMode=mixed\nDelegate=" + delegate + "\nExecStart=" + execLine(args...) + "\n" +
		strings.ReplaceAll(strings.Join(lines, "\n"), "@RKT", execLine(args[:2]...)) + "\n"
	file := filepath.Join("/run/systemd/system", u.name)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	// systemd forgets how a unit ended that no other needs.
	wanted := filepath.Join("/run/systemd/system/multi-user.target.wants", u.name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(wanted), 0o755), os.Symlink(file, wanted)); err != nil {
		t.Fatal(err)
	}
	u.systemctl("daemon-reload")
	t.Cleanup(func() {
		u.systemctl("stop", u.name)
		_ = exec.Command("systemctl", "reset-failed", u.name).Run() // an error if it hasn't failed
		if err := errors.Join(os.Remove(wanted), os.Remove(file)); err != nil {
			t.Error(err)
		}
		u.systemctl("daemon-reload")
	})
	return u
}

// execLine quotes a command as systemd.service(5) wants it.
func execLine(args ...string) string {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", "$$", "%", "%%", "\n", `\n`)
	var words []string
	for _, a := range args {
		words = append(words, `"`+escape.Replace(a)+`"`)
	}
	return strings.Join(words, " ")
}

func (u *unit) systemctl(args ...string) {
	u.t.Helper()
	if out, err := exec.Command("systemctl", args...).CombinedOutput(); err != nil {
		u.t.Fatalf("systemctl %s: %v\n%s\n%s", strings.Join(args, " "), err, out, u.journal())
	}
}

// show reads properties of the unit, as "A=x B=y".
func (u *unit) show(properties ...string) string {
	u.t.Helper()
	out, err := exec.Command("systemctl", "show", u.name, "--property="+strings.Join(properties, ",")).Output()
	if err != nil {
		u.t.Fatal(err)
	}
	got := map[string]string{}
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		got[key] = value
	}
	var all []string
	for _, p := range properties {
		all = append(all, p+"="+got[p])
	}
	return strings.Join(all, " ")
}

// property reads one of the unit's properties.
func (u *unit) property(name string) string {
	u.t.Helper()
	return strings.TrimPrefix(u.show(name), name+"=")
}

// journal is what the unit's processes have printed, and systemd about it.
func (u *unit) journal() string {
	out, err := exec.Command("journalctl", "--no-pager", "--output=cat", "--unit="+u.name).CombinedOutput()
	if err != nil {
		u.t.Errorf("journalctl: %v\n%s", err, out)
	}
	return string(out)
}

// started starts the unit and waits until its app has printed "up".
func (u *unit) started() {
	u.t.Helper()
	u.systemctl("start", u.name)
	until(u.t, "the app is up", func() bool {
		if active := u.property("ActiveState"); active == "failed" || active == "inactive" {
			u.t.Fatalf("the unit is %s: %s", active, u.journal())
		}
		return strings.Contains(u.journal(), "up\n")
	})
}

// ends waits until the unit is no more active, and checks its result.
func (u *unit) ends(want string) {
	u.t.Helper()
	until(u.t, "the unit has ended", func() bool {
		active := u.property("ActiveState")
		return active == "failed" || active == "inactive"
	})
	if got := u.show("ActiveState", "Result", "ExecMainCode", "ExecMainStatus"); got != want {
		u.t.Errorf("got %s, want %s: %s", got, want, u.journal())
	}
}

// nothingLeft: no process and no cgroup of the pod, even before gc.
func (u *unit) nothingLeft() {
	u.t.Helper()
	until(u.t, "no process is left", func() bool { return len(u.processes()) == 0 })
	if left := podGroups(u.t, u.storeID()); len(left) > 0 {
		u.t.Errorf("cgroups are left: %v", left)
	}
}

// podGroups finds the cgroups of a store's pods wherever they are.
func podGroups(t testing.TB, store string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if err == nil && d.IsDir() && d.Name() == "rkt-"+store {
			found = append(found, path)
			return fs.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// cgroupOf is a process's cgroup as the kernel has it.
func cgroupOf(t *testing.T, pid any) string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%v/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(strings.TrimPrefix(string(data), "0::"))
}

// orderly is an app that says how it ends.
const orderly = `trap 'echo got term; sleep 1; echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done`

// TestUnitStop: systemctl stop ends the pod in order, the unit's result is the
// pod's, and nothing is left. A gc after the pod, as part of the unit, notes
// its end.
func TestUnitStop(t *testing.T) {
	for _, delegate := range delegation {
		for kind, lines := range map[string][]string{"exec": nil, "simple": {"ExecStopPost=@RKT gc --mark-only"}} {
			t.Run(kind+"-"+delegate, func(t *testing.T) {
				t.Parallel()
				u := newUnit(t, delegate, orderly, append(lines, "Type="+kind)...)
				u.started()
				u.systemctl("stop", u.name)
				u.ends("ActiveState=inactive Result=success ExecMainCode=1 ExecMainStatus=0")
				journal := u.journal()
				if !strings.Contains(journal, "got term\nbye\n") || strings.Contains(journal, "run: ") {
					t.Errorf("the journal has:\n%s", journal)
				}
				u.nothingLeft()
				s := u.status(u.uuid())
				if !strings.HasPrefix(s.State, "exited") || s.Exit == nil || s.Exit.Code != 0 || s.Exit.Cause != "stopped" {
					t.Errorf("status %+v, exit %+v", s, s.Exit)
				}
				_, err := os.Stat(filepath.Join(u.dir, "pods", "exited-garbage", u.uuid()))
				if marked := err == nil; marked != (lines != nil) {
					t.Errorf("marked as garbage: %v\n%s", marked, journal)
				}
			})
		}
	}
}

// TestUnitExitCode: the pod's code is that of the unit's main process.
func TestUnitExitCode(t *testing.T) {
	for _, delegate := range delegation {
		t.Run(delegate, func(t *testing.T) {
			t.Parallel()
			u := newUnit(t, delegate, "echo up; exit 7", "Type=exec")
			u.systemctl("start", u.name)
			u.ends("ActiveState=failed Result=exit-code ExecMainCode=1 ExecMainStatus=7")
			if journal := u.journal(); strings.Contains(journal, "run: ") {
				t.Errorf("the journal has:\n%s", journal)
			}
			u.nothingLeft()
			u.must("rm", u.uuid())
		})
	}
}

// TestUnitKilled: SIGKILL of the supervisor fails the unit and ends the pod.
func TestUnitKilled(t *testing.T) {
	for _, delegate := range delegation {
		t.Run(delegate, func(t *testing.T) {
			t.Parallel()
			u := newUnit(t, delegate, "(setsid sleep 1000 &); echo up; sleep 1000", "Type=exec")
			u.started()
			id := u.uuid()
			if len(u.processes()) < 2 { // the app's
				t.Errorf("processes %v", u.processes())
			}
			u.systemctl("kill", "--signal=KILL", "--kill-whom=main", u.name)
			u.ends("ActiveState=failed Result=signal ExecMainCode=2 ExecMainStatus=9")
			until(t, "no process is left", func() bool { return len(u.processes()) == 0 })
			if s := u.status(id); s.State != "exited" || s.Exit == nil || s.Exit.Cause != "aborted" {
				t.Errorf("status %+v, exit %+v", s, s.Exit)
			}
			u.must("gc", "--grace-period=0s")
			if err := leftovers(u.dir); err != nil {
				t.Error(err)
			}
			u.nothingLeft()
		})
	}
}

// TestUnitPlace: a delegated unit's pod is all in the unit's cgroup; without
// delegation the supervisor stays there and the apps are in a scope of the pod's. What the
// kernel says is what is on record.
func TestUnitPlace(t *testing.T) {
	for _, delegate := range delegation {
		t.Run(delegate, func(t *testing.T) {
			t.Parallel()
			u := newUnit(t, delegate, orderly, "Type=exec")
			u.started()
			s := u.running()
			rec := u.record(s.UUID)
			own := u.property("ControlGroup")
			place := "/rkt-" + u.storeID() + "/" + s.UUID
			supervisor := own
			if delegate == "yes" {
				place = own + place
				supervisor = place + "/supervisor"
			} else {
				place = "/machine.slice/rkt-" + s.UUID + ".scope" + place
			}
			if rec.Rel != place || len(rec.Paths) != 1 || rec.Paths[0].Path != "/sys/fs/cgroup"+place {
				t.Errorf("the record has %+v, want %s", rec, place)
			}
			if got := cgroupOf(t, u.property("MainPID")); got != supervisor {
				t.Errorf("the supervisor is in %s, want %s", got, supervisor)
			}
			if got := cgroupOf(t, s.Apps[0].Status.PID); got != place+"/apps/x/main" {
				t.Errorf("the app is in %s, want %s", got, place+"/apps/x/main")
			}
			checkInner(t, rec.Paths[0].Path)
		})
	}
}

// TestUnitLimits: limits hold in a delegated unit and in a scope, and one app
// that memory was the end of does not take another along, nor the unit.
func TestUnitLimits(t *testing.T) {
	for _, delegate := range delegation {
		t.Run(delegate, func(t *testing.T) {
			t.Parallel()
			u := newUnit(t, delegate, "echo up; "+hold(64), "Type=exec")
			args := append([]string{filepath.Join(bin, "rkt"), "--dir=" + u.dir}, runArgs(u.uuidFile, []string{"--exit-policy=all", "--memory=256Mi"},
				app{name: "x", script: "echo up; " + hold(64), flags: []string{"--memory=32Mi", "--pids=20", "--cpu=1"}},
				app{name: "y", script: "sleep 10; exit 0"})...)
			text := "[Service]\nDelegate=" + delegate + "\nExecStart=" + execLine(args...) + "\n"
			if err := os.WriteFile(filepath.Join("/run/systemd/system", u.name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			u.systemctl("daemon-reload")
			u.systemctl("start", u.name)
			u.ends("ActiveState=failed Result=exit-code ExecMainCode=1 ExecMainStatus=137")
			all := u.statuses()
			if x := all["x"]; !x.OOMKilled || x.Usage.OOMKills == 0 || x.Usage.MemoryPeak > 34<<20 {
				t.Errorf("x: %+v", x)
			}
			if y := all["y"]; y.Reason != poddir.Completed {
				t.Errorf("y: %+v", y)
			}
			for _, r := range all["x"].Isolators {
				if r.State != limits.Enforced {
					t.Error(r)
				}
			}
			if n := len(all["x"].Isolators); n != 4 {
				t.Errorf("%d isolators: %v", n, all["x"].Isolators)
			}
			u.nothingLeft()
		})
	}
}

// checkInner: the folders between have no process, and limits can be set.
func checkInner(t *testing.T, pod string) {
	t.Helper()
	for _, dir := range []string{filepath.Dir(filepath.Dir(pod)), filepath.Dir(pod), pod, pod + "/apps", pod + "/apps/x"} {
		procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			t.Error(err)
		}
		if len(procs) > 0 && dir != "/sys/fs/cgroup" {
			t.Errorf("%s has controllers and processes %q", dir, procs)
		}
		control, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
		if err != nil {
			t.Error(err)
		}
		for _, c := range []string{"cpu", "memory", "pids", "io"} {
			if !strings.Contains(" "+strings.TrimSpace(string(control))+" ", " "+c+" ") {
				t.Errorf("%s: no controller %s below, only %q", dir, c, control)
			}
		}
	}
}

// TestUnitBesideShell: a pod and another after it, beside a process in the
// delegated unit's own folder, where there can be no controllers then.
func TestUnitBesideShell(t *testing.T) {
	t.Parallel()
	u := newUnit(t, "yes", "echo never")
	rkt := filepath.Join(bin, "rkt") + " --dir=" + u.dir + " run --insecure-options=image " + image("busybox.aci") + " --name=x --exec=/bin/sh -- -c "
	script := rkt + "'echo one; exit 3'; echo code $?; " + rkt + "'echo two; exit 4'"
	text := "[Service]\nDelegate=yes\nExecStart=" + execLine("/bin/sh", "-c", script+"; exit $?") + "\n"
	if err := os.WriteFile(filepath.Join("/run/systemd/system", u.name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	u.systemctl("daemon-reload")
	u.systemctl("start", u.name)
	u.ends("ActiveState=failed Result=exit-code ExecMainCode=1 ExecMainStatus=4")
	if journal := u.journal(); !strings.Contains(journal, "one\ncode 3\ntwo\n") || strings.Contains(journal, "run: ") {
		t.Errorf("the journal has:\n%s", journal)
	}
	u.nothingLeft()
}

// TestUnitUsage: CPU time and memory of an app are in the status. The third pod
// is not a unit's: it is started from a folder below a delegated unit's.
func TestUnitUsage(t *testing.T) {
	const work = `x=$(head -c 3000000 /dev/zero | tr '\0' x); i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo ${#x} up`
	for _, delegate := range append(delegation, "below") {
		t.Run(delegate, func(t *testing.T) {
			t.Parallel()
			var p *pod
			if delegate == "below" {
				p = newHost(t).start(nil, app{name: "x", script: work + "; sleep 1000"})
				id := p.running().UUID
				want := filepath.Dir(cgroupOf(t, "self")) + "/rkt-" + p.storeID() + "/" + id
				if rec := p.record(id); rec.Rel != want {
					t.Errorf("the pod is in %s, want %s", rec.Rel, want)
				}
				until(t, "the app is up", func() bool { return strings.Contains(p.rkt("logs", id).stdout, "up") })
				p.must("stop", id)
				if res := p.wait(); res.code != 0 || res.stderr != "" {
					t.Errorf("got %s", res)
				}
			} else {
				u := newUnit(t, delegate, work)
				u.systemctl("start", u.name)
				u.ends("ActiveState=inactive Result=success ExecMainCode=1 ExecMainStatus=0")
				p = u.pod
			}
			var s struct {
				Apps []struct {
					Status struct {
						Usage struct{ CPUNs, MemoryPeak uint64 }
					}
				}
			}
			if err := json.Unmarshal([]byte(p.must("status", "--format=json", p.uuid())), &s); err != nil {
				t.Fatal(err)
			}
			// The loop takes longer than a microsecond a round, and the string
			// was there twice at least once.
			if got := s.Apps[0].Status.Usage; got.CPUNs < 2e7 || got.MemoryPeak < 3e6 {
				t.Errorf("usage %+v", got)
			}
		})
	}
}
