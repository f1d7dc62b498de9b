// Package launchtest is the suite that every launcher must pass: what an app
// may see and do, how programs begin and end, and what is left of them. Only
// tests import it.
package launchtest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/cgroup"
	"github.com/rkt-pods/rkt/pkg/testkit"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// The test binary plays four parts: go test starts it, it starts itself as the
// supervisor in a mount namespace of its own, and the supervisor starts it as
// PID 1 of pods and as another process that runs something beside an app.
const (
	partEnv        = "RKT_TEST_PART"
	partSupervisor = "supervisor"
	partPodInit    = "podinit"
	partExec       = "exec"
	podHostname    = "pod-host"
	busybox        = "/bin/busybox"
	traceEnv       = "RKT_FAULT_TRACE" // see fault_test.go
)

// Main is the TestMain of a launcher's package. What prepare does is undone by
// the function that it returns.
func Main(m *testing.M, launcher func() launch.Launcher, prepare func() (func(), error)) int {
	switch os.Getenv(partEnv) {
	case partSupervisor:
		if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
			return failed(err)
		}
		return m.Run()
	case partPodInit:
		return failed(podInit())
	case partExec:
		return execPart(launcher())
	}
	if os.Geteuid() != 0 {
		return m.Run() // each test skips itself
	}
	trace, err := os.CreateTemp("", "rkt-trace-")
	if err != nil {
		return failed(err)
	}
	undo, err := prepare()
	if err != nil {
		return failed(err)
	}
	defer undo()
	defer func() { _ = os.Remove(trace.Name()) }()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), partEnv+"="+partSupervisor, traceEnv+"="+trace.Name())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	} else if err != nil {
		return failed(err)
	}
	return 0
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// podInit is PID 1 of a test's pod: it reaps, and ends with the supervisor,
// which has the other end of its stdin.
func podInit() error {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0) //nolint:forbidigo // PID 1 of a pod ends from any of its threads
	}()
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	if err := unix.Sethostname([]byte(podHostname)); err != nil {
		return err
	}
	if _, err := os.Stdout.Write([]byte("1")); err != nil {
		return err
	}
	for range children {
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if pid <= 0 || err != nil {
				break
			}
		}
	}
	return nil
}

// pod is a pod as the supervisor would have made it.
type pod struct {
	t        *testing.T
	rootfs   string
	stateDir string
	rel      string
	ns       launch.Namespaces
	init     *exec.Cmd
	launcher launch.Launcher
	starts   int
}

func newPod(t *testing.T, launcher func() launch.Launcher) *pod {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := &pod{
		t:        t,
		rootfs:   filepath.Join(dir, "mnt/rootfs"),
		stateDir: filepath.Join(dir, "state"),
		rel:      fmt.Sprintf("/rkt-test-%d/%s", os.Getpid(), uuid.NewString()),
		launcher: launcher(),
	}
	mounts := mountTable(t)
	p.makeRootFS()
	p.startInit()
	t.Cleanup(func() {
		p.checkClean()
		p.stopInit()
		if now := mountTable(t); !slices.Equal(mounts, now) {
			t.Errorf("mounts before: %q\nafter: %q", mounts, now)
		}
		p.removeCgroups()
	})
	return p
}

// mountTable leaves out what comes from the host meanwhile: only mounts below
// the tests' folders count.
func mountTable(t *testing.T) []string {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, os.TempDir()) {
			all = append(all, line)
		}
	}
	return all
}

func (p *pod) makeRootFS() {
	p.t.Helper()
	for _, dir := range []string{"bin", "proc", "sys", "dev", "tmp", "etc", "root"} {
		p.must(os.MkdirAll(filepath.Join(p.rootfs, dir), 0o755))
	}
	p.must(os.Chmod(filepath.Join(p.rootfs, "tmp"), 0o1777))
	data, err := os.ReadFile(busybox)
	p.must(err)
	testkit.Program(p.t, filepath.Join(p.rootfs, "bin/busybox"), data)
	out, err := exec.Command(busybox, "--list").Output()
	p.must(err)
	for _, applet := range strings.Fields(string(out)) {
		if applet != "busybox" {
			p.must(os.Symlink("busybox", filepath.Join(p.rootfs, "bin", applet)))
		}
	}
}

func (p *pod) startInit() {
	p.t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{partEnv + "=" + partPodInit}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET,
	}
	ready, err := cmd.StdoutPipe()
	p.must(err)
	_, err = cmd.StdinPipe() // stays open until Wait
	p.must(err)
	p.must(cmd.Start())
	p.init = cmd
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		p.t.Fatalf("pod init: %v", err)
	}
	open := func(kind string) int {
		fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/%s", cmd.Process.Pid, kind), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		p.must(err)
		return fd
	}
	p.ns = launch.Namespaces{PID: open("pid"), Net: open("net"), IPC: open("ipc"), UTS: open("uts")}
}

func (p *pod) stopInit() {
	if p.init == nil {
		return
	}
	_ = p.init.Process.Kill()
	// A test that failed leaves apps that pod init's end would wait for.
	for _, pid := range p.children() {
		_, _ = unix.Wait4(pid, nil, 0, nil)
	}
	_ = p.init.Wait()
	for _, fd := range []int{p.ns.PID, p.ns.Net, p.ns.IPC, p.ns.UTS} {
		unix.Close(fd)
	}
	p.init = nil
}

// checkClean looks for what a destroyed process may have left.
func (p *pod) checkClean() {
	for _, path := range p.cgroups() {
		left, err := filepath.Glob(path + "/apps/*/*/cgroup.procs")
		p.must(err)
		if len(left) > 0 {
			p.t.Errorf("cgroups left: %v", left)
		}
	}
	if left, _ := os.ReadDir(p.stateDir); len(left) > 0 {
		p.t.Errorf("state left: %v", left)
	}
	for _, pid := range p.children() {
		comm, _ := statOf("/proc/" + strconv.Itoa(pid))
		p.t.Errorf("process left: %d %s", pid, comm)
	}
}

// children are the supervisor's, but for pod init.
func (p *pod) children() []int {
	var all []int
	dirs, _ := filepath.Glob("/proc/[1-9]*")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == p.init.Process.Pid {
			continue
		}
		if _, parent := statOf(dir); parent == os.Getpid() {
			all = append(all, pid)
		}
	}
	return all
}

func (p *pod) cgroups() []string {
	h, err := cgroup.Detect()
	p.must(err)
	var all []string
	for _, mount := range append([]string{h.Unified}, h.V1...) {
		all = append(all, filepath.Join(mount, p.rel))
	}
	return all
}

func (p *pod) removeCgroups() {
	for _, path := range p.cgroups() {
		if err := cgroup.RemovePath(path); err != nil {
			p.t.Error(err)
		}
		_ = unix.Rmdir(filepath.Dir(path))
	}
}

func (p *pod) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// app is an app with the settings every app gets, and the argv.
func (p *pod) app(argv ...string) launch.App {
	p.starts++
	return launch.App{
		App: plan.App{
			Name:  "web",
			Argv:  argv,
			Env:   []string{"PATH=/bin", "FROM=app"},
			Cwd:   "/",
			Umask: plan.DefaultUmask,
			Mounts: []plan.Mount{
				{Type: "proc", Target: "/proc", Options: []string{"nosuid", "noexec", "nodev"}},
				{Type: "tmpfs", Target: "/dev", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
				{Type: "devpts", Target: "/dev/pts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
				{Type: "tmpfs", Target: "/dev/shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777"}},
				{Type: "mqueue", Target: "/dev/mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
				{Type: "sysfs", Target: "/sys", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
				{Type: "cgroup", Target: "/sys/fs/cgroup", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
			},
			MaskedPaths:   []string{"/proc/kcore", "/proc/acpi", "/sys/firmware", "/proc/keys"},
			ReadOnlyPaths: []string{"/proc/sys", "/proc/bus", "/proc/irq"},
			Devices:       deviceList(),
			Capabilities:  []string{"CAP_CHOWN", "CAP_KILL", "CAP_SETUID", "CAP_SETGID", "CAP_MKNOD", "CAP_NET_BIND_SERVICE"},
			NoNewPrivs:    true,
		},
		ID:         fmt.Sprintf("web-%d", p.starts),
		RootFS:     p.rootfs,
		StateDir:   p.stateDir,
		CgroupPath: p.rel + "/apps/web",
		Namespaces: p.ns,
	}
}

func deviceList() []plan.Device {
	node := func(path string, major, minor int64) plan.Device {
		return plan.Device{Path: path, Type: 'c', Major: major, Minor: minor, Mode: 0o666, Access: "rwm"}
	}
	rule := func(t rune, major, minor int64, access string) plan.Device {
		return plan.Device{Type: t, Major: major, Minor: minor, Access: access, RuleOnly: true}
	}
	return []plan.Device{
		node("/dev/null", 1, 3), node("/dev/zero", 1, 5), node("/dev/full", 1, 7),
		node("/dev/random", 1, 8), node("/dev/urandom", 1, 9), node("/dev/tty", 5, 0),
		rule('c', 5, 2, "rwm"), rule('c', 136, -1, "rwm"),
		rule('c', -1, -1, "m"), rule('b', -1, -1, "m"),
	}
}

// result is what a process left behind.
type result struct {
	exit   launch.Exit
	stdout string
	stderr string
}

func (r result) String() string {
	return fmt.Sprintf("status %#x, stdout %q, stderr %q", int(r.exit.Status), r.stdout, r.stderr)
}

// output runs start with pipes and collects what it writes until it ends.
func (p *pod) output(start func(launch.Stdio) (launch.Process, error)) (result, error) {
	p.t.Helper()
	stdout, outW, err := os.Pipe()
	p.must(err)
	stderr, errW, err := os.Pipe()
	p.must(err)
	defer stdout.Close()
	defer stderr.Close()
	proc, err := start(launch.Stdio{Stdout: outW, Stderr: errW})
	outW.Close()
	errW.Close()
	var r result
	if err == nil {
		r.exit, err = proc.Wait()
		p.must(err)
		p.must(proc.Destroy())
	}
	out, rerr := io.ReadAll(stdout)
	p.must(rerr)
	msg, rerr := io.ReadAll(stderr)
	p.must(rerr)
	r.stdout, r.stderr = string(out), string(msg)
	return r, err
}

// run starts the app and waits for it.
func (p *pod) run(app launch.App) (result, error) {
	p.t.Helper()
	return p.output(func(s launch.Stdio) (launch.Process, error) {
		app.Stdio = s
		return p.launcher.Start(p.t.Context(), app)
	})
}

// sh runs a script as the app and returns what it wrote.
func (p *pod) sh(script string) string {
	p.t.Helper()
	r, err := p.run(p.app("/bin/sh", "-c", script))
	p.must(err)
	if r.exit.Status != 0 || r.stderr != "" {
		p.t.Fatalf("%s: %v", script, r)
	}
	return strings.TrimSpace(r.stdout)
}

func statOf(dir string) (comm string, parent int) {
	data, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return "", 0
	}
	text := string(data)
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	f := strings.Fields(text[end+1:])
	parent, _ = strconv.Atoi(f[1])
	return text[open+1 : end], parent
}
