package cgroup

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/limits"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

// podGroups are those of a pod and of one app of it.
func podGroups(t *testing.T, rec poddir.Cgroup) (pod, app Group) {
	t.Helper()
	h, err := Detect()
	if err != nil {
		t.Fatal(err)
	}
	if pod, err = h.Group(filepath.Join(rec.Rel, Apps)); err != nil {
		t.Fatal(err)
	}
	return pod, pod.Below("web")
}

// apply returns what became of the limits, one line a limit.
func apply(t *testing.T, g Group, want limits.Set) string {
	t.Helper()
	list, err := g.Apply(want)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, r := range list {
		lines = append(lines, r.String())
	}
	return strings.Join(lines, "\n")
}

func isV2(g Group, controller string) bool {
	_, v1 := g.v1(controller)
	return !v1
}

func TestApply(t *testing.T) {
	pod, app := podGroups(t, newPod(t))
	want := limits.Set{Memory: new(int64(16<<20 + 1)), CPU: new(int64(500)), CPUShares: new(int64(512)), Pids: new(int64(20)), CPUs: "0"}
	lines := "changed: memory 16777217, is 16777216: memory is counted in whole pages\n" +
		"enforced: cpu-shares 512\n" + "enforced: cpu 500m\n" + "enforced: pids 20\n" + "enforced: cpuset 0"
	if isV2(app, "cpu") {
		lines = strings.Replace(lines, "cpu-shares 512", "cpu-shares 512, is weight 50", 1)
	}
	if got := apply(t, app, want); got != lines {
		t.Errorf("got\n%s\nwant\n%s", got, lines)
	}
	// Once more, and other values in every direction.
	for _, milli := range []int64{1, 2000, 10, limits.None, 250} {
		if got := apply(t, app, limits.Set{CPU: &milli}); got != "enforced: cpu "+limits.Cores(milli) {
			t.Error(got)
		}
	}
	for _, bytes := range []int64{1 << 30, 8 << 20, limits.None} {
		if got := apply(t, app, limits.Set{Memory: &bytes}); got != "enforced: memory "+limits.Number(bytes) {
			t.Error(got)
		}
	}
	if got := apply(t, app, limits.Set{CPUs: "0-400"}); !strings.HasPrefix(got, "ignored: cpuset 0-400: ") {
		t.Error(got)
	}
	if got := apply(t, app, limits.Set{Hugetlb: map[string]int64{"3MB": 1 << 30}}); !strings.HasPrefix(got, "ignored: hugetlb 3MB 1073741824: ") {
		t.Error(got)
	}
	if got := apply(t, pod, limits.Set{Pids: new(int64(limits.None))}); got != "enforced: pids max" {
		t.Error(got)
	}
}

// TestApplyUnderThePods: an app can't have more of the CPU than its pod. v1
// wants that in the files, too.
func TestApplyUnderThePods(t *testing.T) {
	pod, app := podGroups(t, newPod(t))
	two, one, half := new(int64(2000)), new(int64(1000)), new(int64(500))
	apply(t, app, limits.Set{CPU: two})
	if got := apply(t, pod, limits.Set{CPU: one}); got != "enforced: cpu 1" {
		t.Error(got)
	}
	want := "enforced: cpu 2"
	if !isV2(app, "cpu") {
		want = "changed: cpu 2, is 1: it can't be above the pod's"
	}
	if got := apply(t, app, limits.Set{CPU: two}); got != want {
		t.Error(got)
	}
	if got := apply(t, pod, limits.Set{CPU: half}); got != "enforced: cpu 500m" {
		t.Error(got)
	}
	if runtime.NumCPU() < 2 {
		return
	}
	// The CPUs of the pod shrink and grow below what the apps have.
	for _, cpus := range []string{"0-1", "1", "0-1", "0"} {
		if got := apply(t, pod, limits.Set{CPUs: cpus}); got != "enforced: cpuset "+cpus {
			t.Error(got)
		}
		if cpus == "0-1" {
			if got := apply(t, app, limits.Set{CPUs: cpus}); got != "enforced: cpuset "+cpus {
				t.Error(got)
			}
		}
	}
}

func TestApplyMemory(t *testing.T) {
	_, app := podGroups(t, newPod(t))
	got := apply(t, app, limits.Set{Memory: new(int64(64 << 20)), Swap: new(int64(8 << 20)), MemoryLow: new(int64(8 << 20)), MemoryHigh: new(int64(32 << 20))})
	if isV2(app, "memory") {
		for _, want := range []string{"enforced: memory-high 33554432", "enforced: memory 67108864", "memory.low"} {
			if !strings.Contains(got, want) {
				t.Errorf("%q is not in\n%s", want, got)
			}
		}
		return
	}
	want := "ignored: memory-high 33554432: cgroup v1 has no such limit\nenforced: memory 67108864\nenforced: swap 8388608\n" +
		"changed: memory-low 8388608: cgroup v1 protects nothing, it reclaims beyond this first (soft limit)"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	// The sum has to follow, up and down.
	for _, mib := range []int64{256, 16, 128} {
		got := apply(t, app, limits.Set{Memory: new(mib << 20), Swap: new(int64(0))})
		memory, swap := "enforced: memory "+limits.Number(mib<<20), "enforced: swap 0"
		if got != memory+"\n"+swap && got != swap+"\n"+memory {
			t.Error(got)
		}
	}
	if got := apply(t, app, limits.Set{Memory: new(int64(512 << 20))}); got != "enforced: memory 536870912" {
		t.Error(got)
	}
}

// TestApplyBelowUse: a limit below what is in use and can't be reclaimed is
// refused on v1, and the old one holds. v2 would reclaim, and kill at last.
func TestApplyBelowUse(t *testing.T) {
	rec := newPod(t)
	_, app := podGroups(t, rec)
	if isV2(app, "memory") {
		return
	}
	apply(t, app, limits.Set{Memory: new(int64(64 << 20))})
	dir, _ := app.v1("memory")
	cmd := exec.Command("sh", "-c", "echo 0 > "+dir+"/cgroup.procs && exec dd if=/dev/zero of=/dev/null bs=32M count=1000000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	waitFor(t, "the memory is in use", func() bool {
		n, err := number(filepath.Join(dir, "memory.usage_in_bytes"))
		return err == nil && n > 32<<20
	})
	_, err := app.Apply(limits.Set{Memory: new(int64(1 << 20))})
	if !errs.Is(err, errs.Busy) || len(errs.Hints(err)) == 0 {
		t.Errorf("got %v", err)
	}
	if n, _ := number(filepath.Join(dir, "memory.limit_in_bytes")); n != 64<<20 {
		t.Errorf("the limit is %d now", n)
	}
}

func TestApplyIO(t *testing.T) {
	pod, app := podGroups(t, newPod(t))
	all, err := disks()
	if err != nil || len(all) == 0 {
		t.Fatalf("no disks: %v", err)
	}
	disk := all[0]
	got := apply(t, app, limits.Set{IO: map[string]limits.IO{disk: {ReadBps: new(int64(1 << 20)), WriteIops: new(int64(7))}}})
	if !strings.Contains(got, ": io-limit "+disk+" rbps=1048576 wiops=7") || strings.HasPrefix(got, "ignored") {
		t.Error(got)
	}
	if !isV2(app, "blkio") {
		leaf := app.Below("main")
		dir, _ := leaf.v1("blkio")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		apply(t, pod, limits.Set{IO: map[string]limits.IO{limits.AllDevices: {ReadBps: new(int64(1 << 10)), WriteBps: new(int64(1 << 30))}}})
		for file, want := range map[string]int64{throttleFiles[0]: 1 << 10, throttleFiles[1]: 1 << 30, throttleFiles[3]: 7} {
			if got := throttled(dir, file)[disk]; got != want {
				t.Errorf("the leaf's %s is %d, want %d", file, got, want)
			}
		}
	}
	for _, name := range []string{"/dev/null", "9999:1", "/dev/nothing"} {
		if got := apply(t, app, limits.Set{IO: map[string]limits.IO{name: {ReadBps: new(int64(1))}}}); !strings.HasPrefix(got, "ignored: io-limit "+name) {
			t.Error(got)
		}
	}
}

// TestForeignGroup: no limit is ever written to a cgroup that is no pod's.
func TestForeignGroup(t *testing.T) {
	for _, rel := range []string{"/", "", "/system.slice", "/rkt-0/x", "/init.scope/apps/web"} {
		if _, err := Apply(rel, limits.Set{Pids: new(int64(1))}); err == nil {
			t.Errorf("%q was taken for a pod's cgroup", rel)
		}
	}
	_, app := podGroups(t, newPod(t))
	apply(t, app, limits.Set{Pids: new(int64(10))})
	if err := app.Holds(os.Getpid()); err == nil {
		t.Error("this process is said to be in the app's cgroup")
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 500 {
		if ok() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("not in 10 s: %s", what)
}
