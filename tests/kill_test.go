package tests

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// hostMounts returns the mounts of the host's namespace that belong to rkt.
func hostMounts(t testing.TB) []string {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, "/run/rkt/") || strings.Contains(line, "/pods/run/") || strings.Contains(line, "/store/layers/") {
			found = append(found, line)
		}
	}
	return found
}

// storeID is the id that the data folder's host-wide names carry.
func (h *host) storeID() string {
	data, _ := os.ReadFile(filepath.Join(h.dir, "store", "id"))
	return strings.TrimSpace(string(data))
}

// processes lists what runs in cgroups of this data folder's pods.
func (h *host) processes() []string {
	id := h.storeID()
	if id == "" {
		return nil
	}
	var found []string
	groups, _ := filepath.Glob("/proc/[0-9]*/cgroup")
	for _, g := range groups {
		if data, err := os.ReadFile(g); err == nil && strings.Contains(string(data), "rkt-"+id) {
			name, _ := os.ReadFile(filepath.Join(filepath.Dir(g), "comm"))
			state, _ := os.ReadFile(filepath.Join(filepath.Dir(g), "stat"))
			if !strings.Contains(string(state), ") Z ") {
				found = append(found, filepath.Base(filepath.Dir(g))+" "+strings.TrimSpace(string(name)))
			}
		}
	}
	return found
}

// listed is one pod of `rkt list --format=json`.
type listed struct {
	UUID  string `json:"uuid"`
	State string `json:"state"`
}

func (h *host) list() []listed {
	h.t.Helper()
	var pods []listed
	if err := json.Unmarshal([]byte(h.must("list", "--format=json")), &pods); err != nil {
		h.t.Fatal(err)
	}
	return pods
}

// TestKilledSupervisor: SIGKILL of the supervisor ends every process of the pod
// and leaves a truthful record and nothing else.
func TestKilledSupervisor(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.start(nil, app{name: "x", script: "(setsid sleep 1000 &) ; sleep 1000"}, app{name: "y", script: "sleep 1000"})
	p.running()
	if m := hostMounts(t); len(m) > 0 {
		t.Errorf("mounts on the host: %v", m)
	}
	if len(h.processes()) < 3 { // the apps'
		t.Errorf("processes %v", h.processes())
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.wait()
	until(t, "no process is left", func() bool { return len(h.processes()) == 0 })
	s := h.status(p.uuid())
	if s.State != "exited" || s.Exit == nil || s.Exit.Cause != "aborted" || s.Exit.Code != 254 {
		t.Errorf("status %+v, exit %+v", s, s.Exit)
	}
	for _, a := range s.Apps {
		if a.Status == nil || a.Status.Reason != "Aborted" {
			t.Errorf("app %s: %+v", a.Name, a.Status)
		}
	}
	h.must("gc", "--grace-period=0s")
	if err := leftovers(h.dir); err != nil {
		t.Error(err)
	}
}

// TestKilledAtRandom kills the supervisor at random points of start and stop;
// list must be true at every moment.
func TestKilledAtRandom(t *testing.T) {
	rounds := 100
	if testing.Short() {
		rounds = 20
	}
	h := newHost(t)
	h.must("fetch", "--insecure-options=image", image("busybox.aci"))
	for i := range rounds {
		p := h.start(nil, app{name: "x", script: "sleep 1000"}, app{name: "y", script: "trap 'sleep 0.1; exit 0' TERM; while :; do sleep 0.05; done"})
		if i%3 == 2 {
			// In the middle of a stop.
			p.running()
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
			time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
		} else {
			time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond)
		}
		_ = p.cmd.Process.Kill()
		p.wait()
		for _, l := range h.list() {
			ok := l.State == "exited" || l.State == "exiting" || l.State == "aborted prepare" || l.State == "embryo"
			if !ok {
				t.Fatalf("round %d: a killed pod is listed as %q; processes %v", i, l.State, h.processes())
			}
			if l.State == "exited" && i == 0 && len(h.processes()) > 0 {
				t.Fatalf("exited with processes %v", h.processes())
			}
		}
		if m := hostMounts(t); len(m) > 0 {
			t.Fatalf("mounts on the host: %v", m)
		}
	}
	until(t, "no process is left", func() bool { return len(h.processes()) == 0 })
	for _, l := range h.list() {
		if l.State != "exited" && l.State != "aborted prepare" && l.State != "embryo" {
			t.Errorf("pod %s is %s", l.UUID, l.State)
		}
	}
	h.must("gc", "--grace-period=0s")
	if err := leftovers(h.dir); err != nil {
		t.Error(err)
	}
}

// TestConcurrentRunsAndGC: runs, gc and list beside each other never fail.
func TestConcurrentRunsAndGC(t *testing.T) {
	h := newHost(t)
	h.must("fetch", "--insecure-options=image", image("busybox.aci"))
	stop := make(chan struct{})
	var loops sync.WaitGroup
	loop := func(codes []int, args ...string) {
		loops.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				res := h.rkt(args...)
				if fmt.Sprint(res.code) != fmt.Sprint(codes[0]) && (len(codes) < 2 || res.code != codes[1]) {
					t.Errorf("%s", res)
					return
				}
			}
		})
	}
	loop([]int{0, 11}, "gc", "--grace-period=0s")
	loop([]int{0, 11}, "gc", "--grace-period=0s")
	loop([]int{0}, "list")
	limit := make(chan struct{}, 4)
	var runs sync.WaitGroup
	number := 20
	if testing.Short() {
		number = 8
	}
	for i := range number {
		runs.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			want := i % 4
			res := h.start(nil, app{name: "x", script: fmt.Sprintf("echo %d; exit %d", i, want)}).wait()
			if res.code != want || res.stdout != fmt.Sprintln(i) {
				t.Errorf("run %d: %s", i, res)
			}
		})
	}
	runs.Wait()
	close(stop)
	loops.Wait()
	h.must("gc", "--grace-period=0s")
	if err := leftovers(h.dir); err != nil {
		t.Error(err)
	}
}

// TestTwoDataFolders: neither's commands touch the other's pods or cgroups.
func TestTwoDataFolders(t *testing.T) {
	t.Parallel()
	a, b := newHost(t), newHost(t)
	pa := a.start(nil, app{name: "x", script: "sleep 1000"})
	pb := b.start(nil, app{name: "x", script: "exit 0"})
	pa.running()
	pb.wait()
	if l := a.list(); len(l) != 1 || l[0].UUID != pa.uuid() {
		t.Errorf("a lists %v", l)
	}
	if res := b.rkt("stop", pa.uuid()); res.code != 254 {
		t.Errorf("b stopped a's pod: %s", res)
	}
	if res := b.rkt("rm", pa.uuid()); res.code != 254 {
		t.Errorf("b removed a's pod: %s", res)
	}
	b.must("gc", "--grace-period=0s")
	a.must("gc", "--grace-period=0s")
	if s := a.status(pa.uuid()); s.State != "running" || len(a.processes()) == 0 {
		t.Errorf("a's pod is %s", s.State)
	}
	if l := b.list(); len(l) != 0 {
		t.Errorf("b lists %v", l)
	}
	a.must("stop", "--force", pa.uuid())
	pa.wait()
}

// TestGCOfNothing: an empty or never-created data folder is no error.
func TestGCOfNothing(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.must("gc")
	if _, err := os.Stat(h.dir); err == nil {
		t.Error("gc made the data folder")
	}
	if err := os.Mkdir(h.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	h.must("gc")
}

// TestOrdinaryUser: what needs no root works, and shows nothing secret.
func TestOrdinaryUser(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	// The ordinary user must reach the programs and the data folder's names.
	dir, err := os.MkdirTemp("/var/tmp", "rkt-test-user-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.clean)
	h.dir = filepath.Join(dir, "data")
	for _, name := range []string{"rkt", "stage1", "podinit", "applaunch"} {
		if out, err := exec.Command("cp", filepath.Join(bin, name), dir).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
	}
	p := h.start([]string{"--set-env=SECRET=hunter2"}, app{name: "x", script: ": hunter2; sleep 1000"})
	p.running()
	user := func(args ...string) result {
		var stdout, stderr strings.Builder
		cmd := exec.Command(filepath.Join(dir, "rkt"), append([]string{"--dir=" + h.dir}, args...)...)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
			return result{args, -1, "", err.Error()}
		}
		return result{args, cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	}
	for _, args := range [][]string{{"list"}, {"list", "--format=json"}, {"status", p.uuid()}, {"status", "--format=json", p.uuid()}, {"version"}, {"help"}} {
		res := user(args...)
		if res.code != 0 || strings.Contains(res.stdout+res.stderr, "hunter2") {
			t.Errorf("%s", res)
		}
		if (args[0] == "list" || args[0] == "status") && !strings.Contains(res.stdout, "running") {
			t.Errorf("not shown as running: %s", res)
		}
	}
	for _, args := range [][]string{{"gc"}, {"stop", p.uuid()}, {"rm", p.uuid()}, {"run", image("busybox.aci")}, {"prepare", image("busybox.aci")}, {"enter", p.uuid()}, {"logs", p.uuid()}, {"cat-manifest", p.uuid()}, {"run-prepared", p.uuid()}, {"fetch", image("busybox.aci")}} {
		if res := user(args...); res.code != 254 || !strings.Contains(res.stderr, "cannot run as unprivileged user") {
			t.Errorf("%s", res)
		}
	}
	res := user("status", "--wait=300ms", p.uuid())
	if res.code != 124 || !strings.Contains(res.stderr, "status: pod "+p.uuid()+": still running after 300ms\n") {
		t.Errorf("%s", res)
	}
	waited := make(chan result, 1)
	go func() { waited <- user("status", "--wait", p.uuid()) }()
	q := h.start([]string{"--rm"}, app{name: "x", script: "sleep 1000"})
	q.running()
	gone := make(chan result, 2)
	go func() { gone <- user("status", "--wait", q.uuid()) }()
	go func() { gone <- h.rkt("status", "--wait", q.uuid()) }()
	h.must("stop", "--force", p.uuid())
	h.must("stop", "--force", q.uuid())
	if res := <-waited; res.code != 0 || !strings.Contains(res.stdout, "state=exited\n") || !strings.Contains(res.stdout, "exit=137\n") {
		t.Errorf("%s", res)
	}
	// It may be seen in the moment between its end and its removal.
	for range 2 {
		res := <-gone
		seen := res.code == 0 && strings.Contains(res.stdout, "exit=137\n")
		removed := res.code == 254 && strings.Contains(res.stderr, "status: pod "+q.uuid()+": was removed while it was ")
		if !seen && !removed || removed && !strings.Contains(res.stderr, "status: hint: ") {
			t.Errorf("%s", res)
		}
	}
	p.wait()
	q.wait()
}
