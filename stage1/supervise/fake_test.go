package supervise

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/cgroup"
	"github.com/rkt-pods/rkt/pkg/limits"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/pkg/proc"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// fakeLauncher runs the apps' programs as plain processes of the host, each in
// a process group of its own, which stands for its cgroup.
type fakeLauncher struct {
	onStart func(launch.App) error

	mu     sync.Mutex
	groups map[string][]int // by app
}

type fakeProcess struct{ cmd *exec.Cmd }

func (l *fakeLauncher) Start(_ context.Context, a launch.App) (launch.Process, error) {
	if l.onStart != nil {
		if err := l.onStart(a); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command(a.Argv[0], a.Argv[1:]...)
	cmd.Stdout, cmd.Stderr = a.Stdio.Stdout, a.Stdio.Stderr
	if a.Stdio.Stdin != nil {
		cmd.Stdin = a.Stdio.Stdin
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, &launch.StartError{ExitCode: 127, Err: err}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.groups[a.Name] = append(l.groups[a.Name], cmd.Process.Pid)
	return &fakeProcess{cmd}, nil
}

// Exec runs a probe's program, which is in no app's group.
func (l *fakeLauncher) Exec(_ context.Context, _, _ string, e launch.Exec) (launch.Process, error) {
	cmd := exec.Command(e.Argv[0], e.Argv[1:]...)
	cmd.Stdout, cmd.Stderr = e.Stdio.Stdout, e.Stdio.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, &launch.StartError{ExitCode: 127, Err: err}
	}
	return &fakeProcess{cmd}, nil
}

func (p *fakeProcess) PID() int                   { return p.cmd.Process.Pid }
func (p *fakeProcess) Cgroup() string             { return "" }
func (p *fakeProcess) Console() *os.File          { return nil }
func (p *fakeProcess) Isolators() []limits.Result { return nil }
func (p *fakeProcess) Wait() (launch.Exit, error) {
	_ = p.cmd.Wait() // the state says all
	return launch.Exit{Status: p.cmd.ProcessState.Sys().(syscall.WaitStatus)}, nil
}
func (p *fakeProcess) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }
func (p *fakeProcess) Destroy() error {
	_ = unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL)
	return nil
}

// fakeKernel stands for the sandbox and the cgroups, and notes what is left.
type fakeKernel struct {
	launcher  *fakeLauncher
	fail      map[string]error // by the name of the step
	created   bool
	opened    bool
	init      bool
	lookupErr error
	frozen    []bool // what freeze was told
	rebounds  []string
	results   []limits.Result
	dir       string // of the notify sockets
}

func (k *fakeKernel) create() error {
	k.created = k.fail["create"] == nil
	return k.fail["create"]
}
func (k *fakeKernel) adopt(int) error                         { return nil }
func (k *fakeKernel) path(app string) string                  { return "/pod/apps/" + app }
func (k *fakeKernel) limit(plan.Pod) ([]limits.Result, error) { return nil, nil }
func (k *fakeKernel) kill(app string) error {
	k.launcher.mu.Lock()
	defer k.launcher.mu.Unlock()
	for _, group := range k.launcher.groups[app] {
		_ = unix.Kill(-group, unix.SIGKILL)
	}
	return nil
}
func (k *fakeKernel) clearVisit(context.Context, visitor) error { return nil }

func (k *fakeKernel) clear(_ context.Context, app string) error {
	if err := k.fail["clear"]; err != nil {
		return err
	}
	return k.kill(app)
}
func (k *fakeKernel) freeze(_ context.Context, on bool) error {
	k.frozen = append(k.frozen, on)
	return k.fail["freeze"]
}
func (k *fakeKernel) use(string) (cgroup.Use, error) {
	return cgroup.Use{Memory: 50 << 20, Pids: 5}, nil
}
func (k *fakeKernel) rebound(app string, want limits.Set) ([]limits.Result, error) {
	k.rebounds = append(k.rebounds, app+" "+text(want))
	return k.results, k.fail["rebound"]
}
func (k *fakeKernel) killAll() error {
	for app := range k.launcher.groups {
		_ = k.kill(app)
	}
	return nil
}
func (k *fakeKernel) waitEmpty(context.Context) error { return nil }
func (k *fakeKernel) enter() error                    { return k.fail["enter"] }
func (k *fakeKernel) leave() error                    { return nil }
func (k *fakeKernel) remove() error                   { k.created = false; return nil }

func (k *fakeKernel) open(plan.Pod, *records) (box, error) {
	if err := k.fail["open"]; err != nil {
		return nil, err
	}
	k.opened = true
	return k, nil
}
func (k *fakeKernel) startInit(context.Context) (proc.ID, error) {
	k.init = k.fail["init"] == nil
	return proc.ID{PID: 1}, k.fail["init"]
}
func (k *fakeKernel) prepare(plan.App, poddir.AttemptDir) (string, error) {
	return "/", k.fail["prepare"]
}
func (k *fakeKernel) release(string) error { return k.fail["release"] }
func (k *fakeKernel) hear(app string) (*net.UnixConn, error) {
	return net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(k.dir, app), Net: "unixgram"})
}
func (k *fakeKernel) resolve(a plan.App, rootfs string) (launch.App, error) {
	return launch.App{App: a, RootFS: rootfs, Namespaces: launch.Namespaces{Net: -1}, UID: os.Getuid(), GID: os.Getgid()}, k.fail["resolve"]
}
func (k *fakeKernel) lookup(launch.App) error { return k.lookupErr }
func (k *fakeKernel) netns() int              { return -1 }

func (k *fakeKernel) replaceFile(plan.File) error { return nil }

func (k *fakeKernel) killInit(context.Context) error { k.init = false; return nil }
func (k *fakeKernel) close() error                   { k.opened = false; return nil }

// testPod is a pod on disk with fakes below it.
type testPod struct {
	*pod
	t        *testing.T
	in       *inputs
	kernel   *fakeKernel
	launcher *fakeLauncher
	stdout   string // what the terminal got, once run has returned
	stderr   string

	watchers sync.WaitGroup // what whenUp does
	mu       sync.Mutex
	notified []error
}

type spec struct {
	name    string
	script  string // for sh -c
	ann     appc.Annotations
	handler []appc.EventHandler
	iso     []appc.Isolator
}

func newTestPod(t *testing.T, options poddir.RunOptions, policy string, specs ...spec) *testPod {
	t.Helper()
	dir := poddir.Dir(filepath.Join(t.TempDir(), "82b6c04b-09e1-4dc0-b496-9ed77322dfa6"))
	manifest := &podspec.Pod{ACVersion: appc.SpecVersion, ACKind: podspec.Kind}
	if policy != "" {
		manifest.Annotations.Set(podspec.AnnExitPolicy, policy)
	}
	const id = "sha512-0000000000000000000000000000000000000000000000000000000000000000" +
		"0000000000000000000000000000000000000000000000000000000000000000"
	for _, s := range specs {
		manifest.Apps = append(manifest.Apps, podspec.App{
			Name: s.name, Image: podspec.Image{ID: id}, Annotations: s.ann,
			App: &appc.App{Exec: []string{"/bin/sh", "-c", s.script}, User: "0", Group: "0", EventHandlers: s.handler, Isolators: s.iso},
		})
		if err := os.MkdirAll(string(dir.App(s.name)), 0o700); err != nil {
			t.Fatal(err)
		}
		img := poddir.AppImage{ID: id, Name: "example.com/x", Lowers: []string{"/"}}
		put(t, dir.App(s.name).Image(), img)
	}
	put(t, dir.Manifest(), manifest)
	put(t, dir.Run(), options)
	put(t, dir.Refs(), poddir.Refs{CreatedAt: time.Unix(1, 0)})
	in, err := readInputs(dir)
	if err != nil {
		t.Fatal(err)
	}
	tp := &testPod{t: t, in: in, launcher: &fakeLauncher{groups: map[string][]int{}}}
	tp.kernel = &fakeKernel{launcher: tp.launcher, fail: map[string]error{}, dir: t.TempDir()}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	tp.pod = newPod(t.Context(), dir, filepath.Join(t.TempDir(), "run"), Env{
		Launcher: tp.launcher, Stdin: null, Stdout: capture(t, &tp.stdout), Stderr: capture(t, &tp.stderr),
		Notify: func(err error) {
			tp.mu.Lock()
			defer tp.mu.Unlock()
			tp.notified = append(tp.notified, err)
		},
	}, in)
	tp.groups = tp.kernel
	return tp
}

// capture returns a file; the text is what was written to it, once the test
// has closed it by reading.
func capture(t *testing.T, text *string) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	*text = f.Name()
	return f
}

// run supervises the pod and checks that nothing is left.
func (tp *testPod) run() (int, error) {
	tp.t.Helper()
	code, err := tp.pod.run(tp.in, nil, tp.kernel.open)
	tp.watchers.Wait()
	if tp.kernel.created || tp.kernel.opened || tp.kernel.init {
		tp.t.Errorf("left: cgroup %v, sandbox %v, pod init %v", tp.kernel.created, tp.kernel.opened, tp.kernel.init)
	}
	for _, text := range []*string{&tp.stdout, &tp.stderr} {
		data, err := os.ReadFile(*text)
		if err != nil {
			tp.t.Fatal(err)
		}
		*text = string(data)
	}
	entries, err2 := os.ReadDir(tp.runDir)
	if err2 != nil || len(entries) != 1 || entries[0].Name() != poddir.SummaryFile {
		tp.t.Errorf("run folder: %v, %v; want the summary alone", entries, err2)
	}
	return code, err
}

func (tp *testPod) wantCode(want int) {
	tp.t.Helper()
	code, err := tp.run()
	if code != want || err != nil {
		tp.t.Fatalf("code %d, error %v; want %d; told: %v", code, err, want, tp.notified)
	}
	var e poddir.Exit
	get(tp.t, tp.records.dir.Exit(), &e)
	if e.Code != want {
		tp.t.Errorf("exit.json says %d, want %d", e.Code, want)
	}
}

// wantTold: the user has heard one thing, which begins so.
func (tp *testPod) wantTold(want string) {
	tp.t.Helper()
	if len(tp.notified) != 1 || !strings.HasPrefix(tp.notified[0].Error(), want) {
		tp.t.Errorf("told: %v, want %q", tp.notified, want)
	}
}

func (tp *testPod) statusOf(app string) poddir.Status { return tp.attemptOf(app, 0) }

func (tp *testPod) attemptOf(app string, n int) poddir.Status {
	tp.t.Helper()
	var s poddir.Status
	get(tp.t, tp.records.dir.App(app).Attempt(n).Status(), &s)
	return s
}

func put(t *testing.T, path string, v any) {
	t.Helper()
	if err := atomicfile.WriteJSON(path, v, 0o600, atomicfile.Renamed); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, path string, v any) {
	t.Helper()
	if err := atomicfile.ReadJSON(path, v); err != nil {
		t.Error(err) // other goroutines may call it
	}
}

func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(err)
	}
	return string(data)
}
