//go:build fault

package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/stage1/plan"
)

// life takes a sandbox from Open to Close and returns the first error.
func life(f *fixture) (err error) {
	image := f.layer("var/db/x=1", "file=x", "etc/")
	f.named("db")
	key := filepath.Join(f.layer("key=1"), "key")
	p, err := Open(Config{
		Plan: plan.Pod{
			Sysctls:  []plan.Sysctl{{Key: "kernel/domainname", Value: "x"}},
			Hostname: os.Getenv("RKT_TEST_LIFE"),
			Files:    []plan.File{{Target: "/etc/hosts", Content: "x"}},
			Volumes: []plan.Volume{
				{Name: "empty", Kind: "empty", Mode: 0o755, SeedApp: "web", SeedPath: "/var/db"}, {Name: "host", Kind: "host", Source: f.TempDir()},
				{Name: "mem", Kind: "tmpfs", Mode: 0o700}, {Name: "keys", Kind: "secret", Source: key, Mode: 0o400},
				{Name: "db", Kind: "named", Source: "db", SeedApp: "web", SeedPath: "/var/db"},
			},
		},
		Dir: f.dir, RunDir: f.runDir, InitPath: os.Getenv(childEnv),
	})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		// The second time it is not made to fail.
		if e := p.KillInit(); e != nil {
			err = e
			f.must(p.KillInit())
		}
		f.must(p.WaitInit(ctx))
		if e := p.Close(); e != nil {
			err = e
			f.must(p.Close())
		}
	}()
	if err := startInit(soon(f.T), p); err != nil {
		return err
	}
	app := plan.App{Name: "web", Lowers: []string{image}, Cwd: "/", Mounts: []plan.Mount{
		bind("empty", "/var/db", false), bind("host", "/file", true), bind("host", "/new", true),
		bind("mem", "/mem", false), bind("keys", "/keys", true), bind("db", "/db", false),
	}}
	root, err := p.MountRootFS(app, f.attempt("web", 0))
	if err != nil {
		return err
	}
	if _, err := p.Prepare(app, root); err != nil {
		return err
	}
	return p.UnmountRootFS(root)
}

// TestHelperLife is no test: it is run by the one below.
func TestHelperLife(t *testing.T) {
	if os.Getenv("RKT_TEST_LIFE") == "" {
		return
	}
	f := newFixture(t)
	before, err := os.ReadFile("/proc/self/mountinfo")
	f.must(err)
	fmt.Printf("life: %v\n", life(f))
	after, err := os.ReadFile("/proc/self/mountinfo")
	f.must(err)
	left, err := os.ReadDir(f.runDir)
	f.must(err)
	fmt.Printf("left: %v %v\n", string(before) != string(after), left)
}

// lifeName is in the command line of every pod init of this test.
func lifeName() string { return fmt.Sprintf("life-%d", os.Getpid()) }

// waitForInits waits until none of the pod inits is left.
func waitForInits(t *testing.T) {
	t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range procs {
		line, err := os.ReadFile(name)
		if err != nil || !strings.HasPrefix(string(line), "podinit\x00"+lifeName()) {
			continue
		}
		var pid int
		fmt.Sscanf(name, "/proc/%d/", &pid)
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		if err := ended(fd); err != nil {
			t.Errorf("pod init %d outlived its supervisor: %v", pid, err)
		}
		_ = unix.Close(fd)
	}
}

func runLife(t *testing.T, env ...string) string {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestHelperLife$")
	cmd.Env = append(append(os.Environ(), "RKT_TEST_LIFE="+lifeName()), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out)
}

// Each step is made to fail: the error comes out, and nothing is left once the
// sandbox is closed. Each is a place to be killed: nothing is left at all, for
// the mounts and the processes go with the supervisor.
func TestEveryStepMayFail(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "trace")
	if out := runLife(t, "RKT_FAULT_TRACE="+trace); !strings.Contains(out, "life: <nil>\nleft: false []\n") {
		t.Fatalf("without a fault:\n%s", out)
	}
	steps := strings.Fields(read(t, trace))
	if len(steps) < 20 {
		t.Fatalf("only %d steps: %v", len(steps), steps)
	}
	seen := map[string]int{}
	for _, step := range steps {
		seen[step]++
		at := fmt.Sprintf("%s@%d", step, seen[step])
		out := runLife(t, "RKT_FAULT="+at+":EIO")
		if !strings.Contains(out, "life: ") || !strings.Contains(out, "fault injected at "+step) || !strings.Contains(out, "left: false []\n") {
			t.Errorf("%s fails:\n%s", at, out)
		}
		if out := runLife(t, "RKT_FAULT="+at+":KILL"); strings.Contains(out, "left:") {
			t.Errorf("%s: was not killed:\n%s", at, out)
		}
		waitForInits(t)
	}
}
