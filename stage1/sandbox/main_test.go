package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// The tests mount, so they run in a child that has a mount namespace of its
// own: on the host nothing of them is ever to be seen.
const childEnv = "RKT_TEST_SANDBOX_CHILD"

// onMain runs functions on the main thread, which StartInit insists on.
var onMain = make(chan func())

func init() { runtime.LockOSThread() }

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		os.Exit(inChild())
	}
	code := make(chan int)
	go func() { code <- m.Run() }()
	for {
		select {
		case f := <-onMain:
			f()
		case c := <-code:
			os.Exit(c)
		}
	}
}

// inChild runs the tests in a child with another mount namespace.
func inChild() int {
	if os.Getuid() != 0 {
		if os.Getenv("RKT_TEST_UNPRIVILEGED") != "" {
			return 0
		}
		fmt.Fprintln(os.Stderr, "these tests need root; RKT_TEST_UNPRIVILEGED=1 leaves them out")
		return 1
	}
	tmp, err := os.MkdirTemp("", "rkt-sandbox-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(tmp)
	exe := filepath.Join(tmp, "podinit")
	gcc := exec.Command("gcc", "-Os", "-static", "-nostdlib", "-nostartfiles", "-ffreestanding", "-fno-stack-protector",
		"-fno-builtin", "-fno-pie", "-no-pie", "-Wall", "-Wextra", "-Werror", "-s", "-o", exe, "../podinit/podinit.c")
	if out, err := gcc.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build podinit: %v\n%s", err, out)
		return 1
	}
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), childEnv+"="+exe, "TMPDIR="+tmp)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	if err := cmd.Run(); err != nil {
		if cmd.ProcessState != nil {
			return cmd.ProcessState.ExitCode()
		}
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// All that the tests mount lies below their temporary folder.
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), tmp) {
		fmt.Fprintf(os.Stderr, "the tests left mounts on the host: %v\n%s", err, mounts)
		return 1
	}
	return 0
}

// fixture is a pod with a data and a run folder.
type fixture struct {
	*testing.T
	dir    poddir.Dir
	runDir string
	pod    *Pod
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	tmp := t.TempDir()
	f := &fixture{T: t, dir: poddir.Dir(filepath.Join(tmp, "pods/run/f9d1c1a4-0000-4000-8000-000000000001")), runDir: filepath.Join(tmp, "run")}
	for _, d := range []string{string(f.dir), f.runDir} {
		f.must(os.MkdirAll(d, 0o755))
	}
	return f
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// open opens a sandbox that is closed when the test ends.
func (f *fixture) open(pod plan.Pod) *Pod {
	f.Helper()
	if pod.Hostname == "" {
		pod.Hostname = "test"
	}
	p, err := Open(Config{Plan: pod, Dir: f.dir, RunDir: f.runDir, InitPath: os.Getenv(childEnv)})
	f.must(err)
	f.pod = p
	f.Cleanup(func() {
		if err := p.Close(); err != nil {
			f.Error(err)
		}
	})
	return p
}

// layer makes a layer folder from entries: "path/" is a folder, "path ->
// target" a symlink, "path=content" a file, with the mode in front if it does
// not matter: "0755 path=content".
func (f *fixture) layer(entries ...string) string {
	f.Helper()
	top := filepath.Join(f.TempDir(), "fs")
	f.must(os.Mkdir(top, 0o755))
	for _, e := range entries {
		mode := os.FileMode(0)
		if m, rest, ok := strings.Cut(e, " "); ok && len(m) == 4 && m[0] == '0' {
			var n uint32
			_, err := fmt.Sscanf(m, "%o", &n)
			f.must(err)
			mode, e = os.FileMode(n), rest
		}
		name, content, isFile := strings.Cut(e, "=")
		name, link, isLink := strings.Cut(name, " -> ")
		full := filepath.Join(top, name)
		f.must(os.MkdirAll(filepath.Dir(full), 0o755))
		switch {
		case isLink:
			f.must(os.Symlink(link, full))
		case isFile:
			f.must(os.WriteFile(full, []byte(content), 0o644))
		default:
			f.must(os.MkdirAll(full, 0o755))
		}
		if mode != 0 {
			f.must(os.Chmod(full, mode))
		}
	}
	return top
}

// attempt makes the folder of an execution.
func (f *fixture) attempt(app string, n int) poddir.AttemptDir {
	f.Helper()
	att := f.dir.App(app).Attempt(n)
	f.must(os.MkdirAll(string(att), 0o700))
	return att
}

// startInit starts pod init on the main thread.
func startInit(ctx context.Context, p *Pod) error {
	done := make(chan error)
	onMain <- func() { done <- p.StartInit(ctx) }
	return <-done
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// ended waits until the process of a pidfd has.
func ended(pidfd int) error {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 10_000)
		switch {
		case n == 1:
			return nil
		case err == nil:
			return fmt.Errorf("still there after ten seconds")
		case err != unix.EINTR:
			return err
		}
	}
}
