package launchtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/testkit"
	"github.com/rkt-pods/rkt/stage1/launch"
)

// What execPart is to run: see partExec.
const (
	execStateEnv = "RKT_TEST_STATE"
	execIDEnv    = "RKT_TEST_ID"
	execArgvEnv  = "RKT_TEST_ARGV"
	execHideEnv  = "RKT_TEST_HIDE" // a folder that it does not see the content of
)

// execPart is `enter`: another process than the supervisor, with streams of
// its own, in another mount namespace and so without the app's rootfs.
func execPart(l launch.Launcher) int {
	if err := unix.Mount("tmpfs", os.Getenv(execHideEnv), "tmpfs", 0, ""); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 254
	}
	p, err := l.Exec(context.Background(), os.Getenv(execStateEnv), os.Getenv(execIDEnv), launch.Exec{
		Argv:  strings.Split(os.Getenv(execArgvEnv), "\n"),
		Stdio: launch.Stdio{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 254
	}
	exit, err := p.Wait()
	if err == nil {
		err = p.Destroy()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 254
	}
	return exit.Status.ExitStatus()
}

// start starts the app with its output in a pipe whose first line, which is
// the app's sign that it is there, has been read.
func (p *pod) start(app launch.App) launch.Process {
	p.t.Helper()
	r, w, err := os.Pipe()
	p.must(err)
	p.t.Cleanup(func() { r.Close() })
	app.Stdio = launch.Stdio{Stdout: w, Stderr: os.Stderr}
	proc, err := p.launcher.Start(p.t.Context(), app)
	w.Close()
	p.must(err)
	if line, err := bufio.NewReader(r).ReadString('\n'); line != "up\n" {
		p.t.Fatalf("the app wrote %q: %v", line, err)
	}
	return proc
}

func (p *pod) end(proc launch.Process) {
	p.t.Helper()
	if err := proc.Signal(unix.SIGKILL); err != nil && !errs.Is(err, errs.NotFound) {
		p.t.Error(err)
	}
	_, err := proc.Wait()
	p.must(errors.Join(err, proc.Destroy(), proc.Destroy()))
}

// exec runs something beside the app.
func (p *pod) exec(id string, e launch.Exec) (result, error) {
	p.t.Helper()
	return p.output(func(s launch.Stdio) (launch.Process, error) {
		e.Stdio = s
		return p.launcher.Exec(p.t.Context(), p.stateDir, id, e)
	})
}

func testExec(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	// With children, and some of them orphans: the leaf then is a cgroup with
	// processes, below which v2 would allow no other.
	app := p.app("/bin/sh", "-c", "(sleep 1000 &); sleep 1000 & echo up; wait")
	app.UID, app.GID, app.Gids = 1000, 1001, []int{1002}
	nofile := uint64(512)
	app.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: nofile, Hard: nofile}}
	main := p.start(app)
	defer p.end(main)

	for _, code := range []int{0, 1, 125, 126, 127, 255} {
		r, err := p.exec(app.ID, launch.Exec{Argv: []string{"sh", "-c", "exit " + strconv.Itoa(code)}})
		if err != nil || r.exit.Status.ExitStatus() != code || r.stderr != "" {
			t.Errorf("exit %d: %v, %v", code, r, err)
		}
	}
	mains, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", main.PID()))
	p.must(err)
	r, err := p.exec(app.ID, launch.Exec{Argv: []string{"cat", "/proc/self/status"}})
	p.must(err)
	want, got := status(string(mains)), status(r.stdout)
	for _, k := range []string{"Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Umask"} {
		if got[k] != want[k] {
			t.Errorf("%s: %q, the app's is %q", k, got[k], want[k])
		}
	}
	for script, want := range map[string]string{
		"echo $FROM $ADDED; pwd":                   "app too\n/tmp",
		"ulimit -n; ulimit -Hn":                    "512\n512",
		"exec ls /proc/self/fd":                    "0\n1\n2\n3",
		"hostname":                                 podHostname,
		"grep 0:: /proc/self/cgroup | cut -d: -f3": "/../exec-0",
		"cat /proc/self/oom_score_adj":             "0",
	} {
		r, err := p.exec(app.ID, launch.Exec{Argv: []string{"sh", "-c", script}, Env: []string{"ADDED=too"}, Cwd: "/tmp"})
		if err != nil || r.stdout != want+"\n" || r.stderr != "" {
			t.Errorf("%s: %v, %v", script, r, err)
		}
	}
	for _, ns := range []string{"cgroup", "ipc", "mnt", "net", "pid", "user", "uts"} {
		want, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", main.PID(), ns))
		p.must(err)
		r, err := p.exec(app.ID, launch.Exec{Argv: []string{"readlink", "/proc/self/ns/" + ns}})
		if err != nil || strings.TrimSpace(r.stdout) != want {
			t.Errorf("namespace %s: %v, %v, the app's is %s", ns, r, err, want)
		}
	}
}

func testExecAsRoot(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	app := p.app("/bin/sh", "-c", "echo up; exec sleep 1000")
	app.UID, app.GID, app.Gids = 1000, 1001, []int{1002}
	main := p.start(app)
	defer p.end(main)
	r, err := p.exec(app.ID, launch.Exec{Root: true, Argv: []string{"sh", "-c", "cat /proc/self/status; mknod /tmp/node " + openable(t) + "; </tmp/node"}})
	p.must(err)
	got := status(r.stdout)
	for k, v := range map[string]string{
		"Uid": "0\t0\t0\t0", "Gid": "0\t0\t0\t0", "Groups": "", "NoNewPrivs": "1",
		"CapBnd": testCaps, "CapPrm": testCaps, "CapEff": testCaps,
	} {
		if got[k] != v {
			t.Errorf("%s is %q, not %q", k, got[k], v)
		}
	}
	if !strings.Contains(r.stderr, "can't open /tmp/node: Operation not permitted") {
		t.Errorf("device rules: %v", r)
	}
}

func testExecErrors(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	if _, err := p.exec("web-9", launch.Exec{Argv: []string{"true"}}); !errs.Is(err, errs.NotFound) {
		t.Errorf("no such execution: %v", err)
	}
	testkit.Program(t, filepath.Join(p.rootfs, "bin/garbage"), []byte("\x00\x01garbage"))
	app := p.app("/bin/sh", "-c", "echo up; exec sleep 1000")
	main := p.start(app)
	for name, code := range map[string]int{"nosuch": 127, "/bin/garbage": 126} {
		r, err := p.exec(app.ID, launch.Exec{Argv: []string{name}})
		start, ok := errors.AsType[*launch.StartError](err)
		if !ok || start.ExitCode != code || r.stderr != "" {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
	p.must(main.Signal(unix.SIGKILL))
	_, err := main.Wait()
	p.must(err)
	if _, err := p.exec(app.ID, launch.Exec{Argv: []string{"true"}}); !errs.Is(err, errs.NotFound) {
		t.Errorf("the app has ended: %v", err)
	}
	p.must(main.Destroy())
}

// testExecParallel runs many at once: each has a leaf of its own.
func testExecParallel(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	app := p.app("/bin/sh", "-c", "echo up; exec sleep 1000")
	main := p.start(app)
	defer p.end(main)
	const n = 8
	results := make(chan error, n)
	for i := range n {
		go func() {
			proc, err := p.launcher.Exec(p.t.Context(), p.stateDir, app.ID, launch.Exec{Argv: []string{"sh", "-c", "exit " + strconv.Itoa(i)}})
			if err != nil {
				results <- err
				return
			}
			exit, err := proc.Wait()
			if err == nil && exit.Status.ExitStatus() != i {
				err = fmt.Errorf("exit %d: %#x", i, exit.Status)
			}
			results <- errors.Join(err, proc.Destroy())
		}()
	}
	for range n {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// testExecElsewhere runs beside an app from a process that did not start it,
// has higher limits and other namespaces and writes to a file of its own.
func testExecElsewhere(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	app := p.app("/bin/sh", "-c", "echo up; exec sleep 1000")
	app.UID, app.GID = 1000, 1000
	app.Namespaces.Net = -1 // host networking, from which the caller differs
	app.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 100, Hard: 200}}
	main := p.start(app)
	defer p.end(main)
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	p.must(err)
	defer out.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{
		partEnv + "=" + partExec, execStateEnv + "=" + p.stateDir, execIDEnv + "=" + app.ID,
		execHideEnv + "=" + filepath.Dir(p.rootfs),
		execArgvEnv + "=sh\n-c\nulimit -n; ulimit -Hn; umask; id -u; readlink /proc/self/ns/net; exit 7",
	}
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET}
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 7 {
		t.Errorf("exit: %v", err)
	}
	text, err := os.ReadFile(out.Name())
	p.must(err)
	net, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", main.PID()))
	p.must(err)
	if want := "100\n200\n0022\n1000\n" + net + "\n"; string(text) != want {
		t.Errorf("output: %q, not %q", text, want)
	}
	info, err := out.Stat()
	p.must(err)
	if uid := info.Sys().(*syscall.Stat_t).Uid; uid != 0 {
		t.Errorf("the caller's file belongs to user %d now", uid)
	}
}
