package launchtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/launch/cell"
)

// gone waits for a process to end, by its pidfd.
func gone(t *testing.T, pidfd int) {
	t.Helper()
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 10_000)
	if n != 1 || err != nil {
		t.Errorf("the process still runs: %d, %v", n, err)
	}
}

// leafPIDs are the processes in a leaf of the test app.
func (p *pod) leafPIDs(leaf string) []string {
	p.t.Helper()
	data, err := os.ReadFile(filepath.Join(p.cgroups()[0], "apps/web", leaf, "cgroup.procs"))
	p.must(err)
	return strings.Fields(string(data))
}

// testDestroyDaemons leaves processes behind that are no child of the app's
// any more, ignore what can be ignored and keep forking.
func testDestroyDaemons(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	app := p.app("/bin/sh", "-c", `
		(setsid sh -c 'trap "" TERM HUP INT; echo up; while :; do sleep 0.01; done' &)
		sleep 0.2; exit 3`)
	proc := p.start(app)
	exit, err := proc.Wait()
	p.must(err)
	if exit.Status.ExitStatus() != 3 {
		t.Errorf("exit: %#x", exit.Status)
	}
	daemon := 0
	for _, pid := range p.leafPIDs(cell.MainLeaf) {
		if comm, _ := statOf("/proc/" + pid); comm == "sh" { // not one of its short-lived children
			daemon, err = strconv.Atoi(pid)
			p.must(err)
		}
	}
	if daemon == 0 {
		t.Fatal("the daemon is gone before Destroy")
	}
	fd, err := unix.PidfdOpen(daemon, 0)
	p.must(err)
	defer unix.Close(fd)
	p.must(proc.Destroy())
	gone(t, fd)
	p.must(proc.Destroy())
	if err := proc.Signal(unix.SIGTERM); !errs.Is(err, errs.NotFound) {
		t.Errorf("signal after the end: %v", err)
	}
	p.checkClean()
}

// testDestroyLeaves kills what runs beside an app and not the app.
func testDestroyLeaves(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	app := p.app("/bin/sh", "-c", "echo up; exec sleep 1000")
	main := p.start(app)
	defer p.end(main)
	r, w, err := os.Pipe()
	p.must(err)
	defer r.Close()
	beside, err := p.launcher.Exec(t.Context(), p.stateDir, app.ID, launch.Exec{
		Argv: []string{"sh", "-c", "sleep 1000 & sleep 1000 & echo up; wait"}, Stdio: launch.Stdio{Stdout: w},
	})
	w.Close()
	p.must(err)
	_, err = r.Read(make([]byte, 3))
	p.must(err)
	if pids := p.leafPIDs("exec-0"); len(pids) != 3 {
		t.Errorf("in exec-0: %v", pids)
	}
	p.must(beside.Signal(unix.SIGKILL))
	_, err = beside.Wait()
	p.must(err)
	p.must(beside.Destroy())
	if pids := p.leafPIDs(cell.MainLeaf); len(pids) != 1 {
		t.Errorf("in main: %v", pids)
	}
}

// testPodInitDies kills PID 1 of the pod: the kernel kills the app, and pod
// init's end waits for the app to be reaped.
func testPodInitDies(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	main := p.start(p.app("/bin/sh", "-c", "echo up; exec sleep 1000"))
	p.must(p.init.Process.Kill())
	exit, err := main.Wait()
	p.must(err)
	if exit.Status.Signal() != unix.SIGKILL {
		t.Errorf("the app: %#x", exit.Status)
	}
	p.must(main.Destroy())
	_ = p.init.Wait()

	// The pod is dying: nothing can be started in it, and nothing is left of
	// the try.
	_, err = p.run(p.app("/bin/true"))
	if !errs.Is(err, errs.Unavailable) || err.Error() != "set up app web: pid namespace: pod init has ended, or memory is used up" {
		t.Errorf("start in a dead pod: %v", err)
	}
}

func testCancel(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.launcher.Start(ctx, p.app("/bin/true")); !errors.Is(err, context.Canceled) {
		t.Errorf("start: %v", err)
	}
	// Cancelled half way, wherever the set-up then is.
	for _, after := range []time.Duration{5, 15, 25, 40} {
		ctx, cancel := context.WithTimeout(t.Context(), after*time.Millisecond)
		proc, err := p.launcher.Start(ctx, p.app("/bin/sleep", "1000"))
		cancel()
		if err == nil {
			p.end(proc)
		} else if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %v: %v", after*time.Millisecond, err)
		}
		p.checkClean()
	}
}

func testOOM(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	memory, file := "", ""
	for _, path := range p.cgroups() {
		for _, f := range []string{"memory.limit_in_bytes", "memory.max"} {
			dir := filepath.Join(path, "apps/web")
			p.must(os.MkdirAll(dir, 0o755))
			// cgroup2 has the controller only where every folder above passes it on.
			for _, above := range []string{"../..", "..", ".", "apps"} {
				_ = os.WriteFile(filepath.Join(path, above, "cgroup.subtree_control"), []byte("+memory"), 0)
			}
			if _, err := os.Stat(filepath.Join(dir, f)); err == nil {
				memory, file = dir, f
			}
		}
	}
	if memory == "" {
		t.Fatal("no memory controller")
	}
	// As the supervisor sets it: on the app's folder, above main.
	p.must(os.WriteFile(filepath.Join(memory, file), []byte("33554432"), 0))
	r, err := p.run(p.app("/bin/sh", "-c", "x=0123456789abcdef; while :; do x=$x$x; done"))
	p.must(err)
	if !r.exit.OOMKilled || r.exit.Status.Signal() != unix.SIGKILL || r.exit.MemoryPeak < 16<<20 || r.exit.MemoryPeak > 34<<20 {
		t.Errorf("%v: %+v", r, r.exit)
	}
}

func testTTY(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	app := p.app("/bin/sh", "-c", "tty; stty size; ls -l /dev/console /proc/self/fd | grep -c pts; read line; echo got $line; exit 5")
	app.UID, app.GID = 1000, 1000
	app.Stdio = launch.Stdio{TTY: true, Width: 100, Height: 40}
	proc, err := p.launcher.Start(t.Context(), app)
	p.must(err)
	console := proc.Console()
	if console == nil {
		t.Fatal("no console")
	}
	defer console.Close()
	_, err = console.WriteString("hello\n")
	p.must(err)
	exit, err := proc.Wait()
	p.must(err)
	p.must(proc.Destroy())
	text := strings.ReplaceAll(drain(console), "\r", "")
	if exit.Status.ExitStatus() != 5 {
		t.Errorf("exit: %#x", exit.Status)
	}
	for _, want := range []string{"/dev/pts/0\n", "40 100\n", "got hello\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q: no %q", text, want)
		}
	}
}

func testExecTTY(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	app := p.app("/bin/sh", "-c", "echo up; exec sleep 1000")
	app.UID, app.GID = 1000, 1000
	main := p.start(app)
	defer p.end(main)
	proc, err := p.launcher.Exec(t.Context(), p.stateDir, app.ID, launch.Exec{
		Argv: []string{"sh", "-c", "stty size; stat -c %u $(tty); exit 6"}, Stdio: launch.Stdio{TTY: true, Width: 90, Height: 30},
	})
	p.must(err)
	defer proc.Console().Close()
	exit, err := proc.Wait()
	p.must(err)
	p.must(proc.Destroy())
	out := drain(proc.Console())
	if exit.Status.ExitStatus() != 6 || out != "30 90\r\n1000\r\n" {
		t.Errorf("exit %#x, %q", exit.Status, out)
	}
}

// drain reads what a terminal still has once the last of its other end is
// closed, which is an EIO.
func drain(console *os.File) string {
	var out strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := console.Read(buf)
		out.Write(buf[:n])
		if err != nil {
			return out.String()
		}
	}
}
