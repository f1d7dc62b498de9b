package cgroup

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

func TestParseMounts(t *testing.T) {
	const hybrid = `20 1 0:19 / /sys/fs/cgroup rw - tmpfs tmpfs rw
21 20 0:20 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct
22 20 0:20 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpu,cpuacct
23 20 0:21 / /sys/fs/cgroup/systemd rw shared:9 - cgroup cgroup rw,name=systemd
24 20 0:22 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw
25 20 0:22 /a /elsewhere rw - cgroup2 cgroup2 rw
`
	h, err := parseMounts(strings.NewReader(hybrid))
	if err != nil {
		t.Fatal(err)
	}
	if h.Unified != "/sys/fs/cgroup/unified" || strings.Join(h.V1, " ") != "/sys/fs/cgroup/cpu /sys/fs/cgroup/systemd" {
		t.Errorf("got %+v", h)
	}
}

func newPod(t *testing.T) poddir.Cgroup {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test makes cgroups: run it as root")
	}
	rec, err := Plan("00test0000test00", uuid.NewString())
	if err != nil {
		t.Fatal(err)
	}
	if err := Create(&rec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Remove(rec); err != nil {
			t.Error(err)
		}
	})
	return rec
}

func TestKillAndRemove(t *testing.T) {
	rec := newPod(t)
	// A process that forks another: both must die.
	cmd := exec.Command("sh", "-c", "sleep 1000 & sleep 1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := Attach(rec, Helpers, cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if ok, err := Populated(rec); err != nil || !ok {
		t.Fatalf("populated: %v, %v", ok, err)
	}
	short, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := WaitEmpty(short, rec); !errs.Is(err, errs.Busy) {
		t.Errorf("wait on a populated cgroup: %v", err)
	}
	if err := Kill(rec); err != nil {
		t.Fatal(err)
	}
	long, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := WaitEmpty(long, rec); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if ok, err := Populated(rec); err != nil || ok {
		t.Errorf("populated after the kill: %v, %v", ok, err)
	}
	if err := Remove(rec); err != nil {
		t.Fatal(err)
	}
	if err := Remove(rec); err != nil {
		t.Errorf("second removal: %v", err)
	}
	for _, p := range rec.Paths {
		if _, err := os.Stat(p.Path); err == nil {
			t.Errorf("%s is still there", p.Path)
		}
	}
}

// TestOldKernel uses what stands in for cgroup.kill before Linux 5.14.
func TestOldKernel(t *testing.T) {
	rec := newPod(t)
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := Attach(rec, Helpers, cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	if err := killEach(rec.Paths[0].Path); err != nil {
		t.Fatal(err)
	}
	<-done
}

// TestDamagedRecord: what a record names is killed and removed only if it is
// this pod's cgroup.
func TestDamagedRecord(t *testing.T) {
	rec := newPod(t)
	for name, path := range map[string]string{
		"the hierarchy's root": filepath.Dir(filepath.Dir(rec.Paths[0].Path)),
		"not a cgroup":         filepath.Join(t.TempDir(), "rkt-00", uuid.NewString()),
		"relative":             "rkt-00/" + uuid.NewString(),
	} {
		if strings.HasPrefix(path, "/") {
			_ = os.MkdirAll(path, 0o755)
		}
		bad := poddir.Cgroup{BootID: rec.BootID, Paths: []poddir.CgroupPath{{Path: path}}}
		if err := Kill(bad); !errs.Is(err, errs.Corrupt) {
			t.Errorf("%s: kill gave %v", name, err)
		}
	}
	other := rec
	other.Paths = []poddir.CgroupPath{{Path: rec.Paths[0].Path, Inode: rec.Paths[0].Inode + 1}}
	if err := Remove(other); !errs.Is(err, errs.Corrupt) {
		t.Errorf("another inode: remove gave %v", err)
	}
	other.BootID = "another boot"
	if err := Kill(other); err != nil {
		t.Errorf("a record of another boot: %v", err)
	}
	if _, err := os.Stat(rec.Paths[0].Path); err != nil {
		t.Error("the cgroup was removed by a record that doesn't fit")
	}
}
