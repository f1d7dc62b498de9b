package supervise

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/crilog"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/stage1/launch"
)

const waitForSignal = `trap 'echo got it; exit %s' TERM; echo up; while :; do sleep 0.02; done`

// whenUp calls f once the app has printed something.
func (tp *testPod) whenUp(app string, f func()) {
	log := tp.records.dir.App(app).Attempt(0).Log()
	tp.when(f, func() bool {
		data, err := os.ReadFile(log)
		return err == nil && strings.Contains(string(data), "up")
	})
}

// whenRunning calls f once the pod has put down that the app runs, which can be
// after the app has printed something.
func (tp *testPod) whenRunning(app string, f func()) {
	status := tp.records.dir.App(app).Attempt(0).Status()
	tp.when(f, func() bool {
		var s poddir.Status
		return atomicfile.ReadJSON(status, &s) == nil && s.State == poddir.Running
	})
}

func (tp *testPod) when(f func(), holds func() bool) {
	tp.watchers.Go(func() {
		deadline := time.Now().Add(time.Minute)
		for tick := range time.Tick(5 * time.Millisecond) {
			if holds() || tick.After(deadline) {
				f()
				return
			}
		}
	})
}

// ask does what a client of the control socket does, and gives the last answer.
func (tp *testPod) ask(r request) (reply, error) {
	c, err := dial(tp.runDir)
	if err != nil {
		return reply{}, err
	}
	defer c.conn.Close()
	if err := c.ask(r); err != nil {
		return reply{}, err
	}
	answer, err := c.answer(time.Minute)
	if err == nil && answer.WithinMs > 0 {
		answer, err = c.answer(time.Minute)
	}
	return answer, err
}

func TestOneAppUntouched(t *testing.T) {
	tp := newTestPod(t, poddir.RunOptions{}, "", spec{name: "a", script: `printf 'a\nb'; printf 'e\n\nf' >&2; exit 42`})
	tp.wantCode(42)
	if tp.stdout != "a\nb" || tp.stderr != "e\n\nf" {
		t.Errorf("stdout %q, stderr %q", tp.stdout, tp.stderr)
	}
	s := tp.statusOf("a")
	if s.State != poddir.Exited || *s.ExitCode != 42 || s.Reason != poddir.Error || s.LogLines != 5 ||
		s.StartedAt == nil || s.FinishedAt == nil || s.PID != 0 {
		t.Errorf("status %s", text(s))
	}
	want := map[crilog.Stream]string{crilog.Stdout: "a\nb", crilog.Stderr: "e\n\nf"}
	for stream, bytes := range logOf(t, tp, "a") {
		if bytes != want[stream] {
			t.Errorf("log of %s: %q", stream, bytes)
		}
	}
}

func logOf(t *testing.T, tp *testPod, app string) map[crilog.Stream]string {
	t.Helper()
	r, err := crilog.Open(tp.records.dir.App(app).Attempt(0).Log())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out := map[crilog.Stream]string{}
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out[e.Stream] += string(e.Bytes(nil))
	}
}

func TestLinesOfSeveralAppsStayWhole(t *testing.T) {
	script := `i=0; while [ $i -lt 300 ]; do printf 'one '; printf 'two\n'; i=$((i+1)); done; printf last`
	tp := newTestPod(t, poddir.RunOptions{}, "", spec{name: "a", script: script}, spec{name: "b", script: script})
	tp.wantCode(0)
	count := map[string]int{}
	for line := range strings.Lines(tp.stdout) {
		count[line]++
	}
	want := map[string]int{"a: one two\n": 300, "b: one two\n": 300, "a: last\n": 1, "b: last\n": 1}
	if text(count) != text(want) {
		t.Errorf("got %s", text(count))
	}
}

func TestPrefixOption(t *testing.T) {
	for option, want := range map[string]string{"": "x", "auto": "x", "never": "x", "always": "a: x\n"} {
		tp := newTestPod(t, poddir.RunOptions{LogPrefix: option}, "", spec{name: "a", script: "printf x"})
		tp.wantCode(0)
		if tp.stdout != want {
			t.Errorf("%q: %q, want %q", option, tp.stdout, want)
		}
	}
}

// Each state is on disk before what it stands for begins.
func TestStatusesComeInOrder(t *testing.T) {
	tp := newTestPod(t, poddir.RunOptions{}, "", spec{name: "a", script: fmt.Sprintf(waitForSignal, "0")})
	var atStart, whileUp poddir.Status
	tp.launcher.onStart = func(launch.App) error {
		get(t, tp.records.dir.App("a").Attempt(0).Status(), &atStart)
		return nil
	}
	tp.whenUp("a", func() {
		// What it prints may come before the event of its start.
		for whileUp.State != poddir.Running && !t.Failed() {
			s, err := tp.ask(request{Op: opState})
			if err != nil || s.Summary == nil {
				t.Errorf("state: %+v, %v", s, err)
				return
			}
			whileUp = *s.Summary.Apps[0].Status
		}
		r, err := tp.ask(request{Op: opStop})
		if err != nil || r.Exit == nil || r.Exit.Cause != poddir.CauseStopped {
			t.Errorf("stop: %+v, %v", r, err)
			return
		}
		var e poddir.Exit
		get(t, tp.records.dir.Exit(), &e)
		if s := tp.statusOf("a"); s.State != poddir.Exited || s.Reason != poddir.Stopped {
			t.Errorf("at the answer: %s", text(s))
		}
	})
	tp.wantCode(0)
	if atStart.State != poddir.Starting {
		t.Errorf("at the start: %s", text(atStart))
	}
	if whileUp.State != poddir.Running || whileUp.PID == 0 {
		t.Errorf("while it ran: %s", text(whileUp))
	}
	if tp.stdout != "up\ngot it\n" {
		t.Errorf("stdout %q", tp.stdout)
	}
	var sum poddir.Summary
	get(t, filepath.Join(tp.runDir, poddir.SummaryFile), &sum)
	if sum.State != "exited" || sum.Exit == nil || sum.Apps[0].Status.State != poddir.Exited {
		t.Errorf("summary %s", text(sum))
	}
}

func TestStop(t *testing.T) {
	short := appc.Annotations{{Name: podspec.AnnStopTimeout, Value: "50ms"}}
	for name, c := range map[string]struct {
		script string
		ann    appc.Annotations
		op     request
		code   int
		reason poddir.Reason
	}{
		"exits with 143":   {fmt.Sprintf(waitForSignal, "143"), nil, request{Op: opStop}, 0, poddir.Stopped},
		"exits with 3":     {fmt.Sprintf(waitForSignal, "3"), nil, request{Op: opStop}, 3, poddir.Stopped},
		"dies of it":       {"echo up; exec sleep 100", nil, request{Op: opStop}, 0, poddir.Stopped},
		"ignores it":       {`trap "" TERM; echo up; while :; do sleep 0.02; done`, short, request{Op: opStop}, 137, poddir.KilledAfterTimeout},
		"force":            {fmt.Sprintf(waitForSignal, "0"), nil, request{Op: opStop, Force: true}, 137, poddir.Stopped},
		"needs some while": {`trap 'sleep 0.3; exit 0' TERM; echo up; while :; do sleep 0.02; done`, nil, request{Op: opStop}, 0, poddir.Stopped},
	} {
		t.Run(name, func(t *testing.T) {
			tp := newTestPod(t, poddir.RunOptions{}, "", spec{name: "a", script: c.script, ann: c.ann})
			tp.whenUp("a", func() {
				if _, err := tp.ask(c.op); err != nil {
					t.Error(err)
				}
			})
			tp.wantCode(c.code)
			if s := tp.statusOf("a"); s.Reason != c.reason {
				t.Errorf("status %s", text(s))
			}
		})
	}
}

// A stop during the set-up spares the apps their start.
func TestStopBeforeStart(t *testing.T) {
	tp := newTestPod(t, poddir.RunOptions{}, "", spec{name: "a", script: "echo never"})
	tp.signals <- syscall.SIGTERM
	tp.wantCode(0)
	if s := tp.statusOf("a"); s.Reason != poddir.Stopped || s.ExitCode != nil || tp.stdout != "" {
		t.Errorf("status %s, stdout %q", text(s), tp.stdout)
	}
}

func TestSignals(t *testing.T) {
	// A shell can't trap a signal that it was started with as ignored, as
	// nohup(1) leaves this one. Caught here, it is the default in children.
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	script := `trap 'echo usr1' USR1; trap 'echo hup; exit 5' HUP; echo up; while :; do sleep 0.02; done`
	tp := newTestPod(t, poddir.RunOptions{}, "", spec{name: "a", script: script})
	tp.whenUp("a", func() {
		tp.signals <- syscall.SIGPIPE
		tp.signals <- syscall.SIGHUP
	})
	tp.wantCode(5)
	if tp.stdout != "up\nhup\n" {
		t.Errorf("stdout %q", tp.stdout)
	}

	tp = newTestPod(t, poddir.RunOptions{}, "", spec{name: "a", script: script}, spec{name: "b", script: script})
	tp.whenUp("a", func() {
		tp.signals <- syscall.SIGUSR1 // for nobody
		tp.signals <- syscall.SIGINT
	})
	tp.wantCode(0)
	if strings.Contains(tp.stdout, "usr1") {
		t.Errorf("stdout %q", tp.stdout)
	}
}

func TestHandlers(t *testing.T) {
	handlers := func(pre, post string) []appc.EventHandler {
		return []appc.EventHandler{
			{Name: appc.PreStart, Exec: []string{"/bin/sh", "-c", pre}},
			{Name: appc.PostStop, Exec: []string{"/bin/sh", "-c", post}},
		}
	}
	tp := newTestPod(t, poddir.RunOptions{}, "",
		spec{name: "a", script: "echo main; exit 2", handler: handlers("echo before", "echo after; exit 1")})
	tp.wantCode(2)
	if tp.stdout != "before\nmain\nafter\n" {
		t.Errorf("stdout %q", tp.stdout)
	}
	if len(tp.notified) != 1 || !strings.Contains(tp.notified[0].Error(), "app a: post-stop handler: exit code 1") {
		t.Errorf("told: %v", tp.notified)
	}

	tp = newTestPod(t, poddir.RunOptions{}, "",
		spec{name: "a", script: "echo main", handler: handlers("exit 9", "echo after")})
	tp.wantCode(9)
	if s := tp.statusOf("a"); s.Reason != poddir.PreStartFailed || *s.ExitCode != 9 || tp.stdout != "after\n" {
		t.Errorf("status %s, stdout %q", text(s), tp.stdout)
	}

	slow := appc.Annotations{{Name: podspec.AnnStopTimeout, Value: "100ms"}}
	tp = newTestPod(t, poddir.RunOptions{}, "",
		spec{name: "a", script: "echo main", ann: slow, handler: handlers("echo up; sleep 100", "echo after")})
	tp.whenUp("a", func() { tp.signals <- syscall.SIGTERM })
	tp.wantCode(137)
	if s := tp.statusOf("a"); s.Reason != poddir.KilledAfterTimeout || s.ExitCode != nil {
		t.Errorf("stopped in pre-start: status %s", text(s))
	}
}

func TestProgramNotThere(t *testing.T) {
	tp := newTestPod(t, poddir.RunOptions{}, "", spec{name: "a", script: "exit 0"})
	tp.kernel.lookupErr = &launch.StartError{ExitCode: 126, Err: errors.New("program: a folder")}
	tp.wantCode(126)
	if s := tp.statusOf("a"); s.Reason != poddir.StartFailed || *s.ExitCode != 126 || s.Message != "program: a folder" {
		t.Errorf("status %s", text(s))
	}
	if len(tp.notified) != 1 || tp.notified[0].Error() != "app a: program: a folder" {
		t.Errorf("told: %v", tp.notified)
	}
}

// What fails before the first app is undone, recorded and returned.
func TestSetUpFails(t *testing.T) {
	for _, step := range []string{"create", "enter", "open", "init"} {
		t.Run(step, func(t *testing.T) {
			tp := newTestPod(t, poddir.RunOptions{}, "", spec{name: "a", script: "exit 0"}, spec{name: "b", script: "exit 0"})
			cause := errors.New(step + " went wrong")
			tp.kernel.fail[step] = cause
			code, err := tp.run()
			if code != 254 || !errors.Is(err, cause) {
				t.Errorf("code %d, error %v", code, err)
			}
			var e poddir.Exit
			get(t, tp.records.dir.Exit(), &e)
			if e.Code != 254 || e.Cause != poddir.CauseSetup || e.Message != cause.Error() {
				t.Errorf("exit %s", text(e))
			}
			for _, app := range []string{"a", "b"} {
				if s := tp.statusOf(app); s.State != poddir.Exited || s.Reason != poddir.StartFailed || s.ExitCode != nil || s.Message == "" {
					t.Errorf("status %s", text(s))
				}
			}
		})
	}
}

// A set-up of one app that fails is that app's failure.
func TestAppSetUpFails(t *testing.T) {
	for _, step := range []string{"prepare", "resolve"} {
		tp := newTestPod(t, poddir.RunOptions{}, "", spec{name: "a", script: "exit 0"})
		tp.kernel.fail[step] = errors.New("no rootfs")
		tp.wantCode(254)
		var e poddir.Exit
		get(t, tp.records.dir.Exit(), &e)
		if s := tp.statusOf("a"); e.Cause != poddir.CauseSetup || s.Reason != poddir.StartFailed || s.Message != "no rootfs" {
			t.Errorf("%s: exit %s, status %s", step, text(e), text(s))
		}
	}
}

func TestUnsupportedManifest(t *testing.T) {
	tp := newTestPod(t, poddir.RunOptions{}, "", spec{
		name: "a", script: "exit 0", ann: appc.Annotations{{Name: podspec.AnnLive, Value: "exec:true"}}, iso: retain("CAP_SYS_PTRACE"),
	})
	if code, err := tp.run(); code != 254 || err == nil || !strings.Contains(err.Error(), "CAP_SYS_PTRACE") {
		t.Errorf("code %d, error %v", code, err)
	}
	if s := tp.statusOf("a"); s.State != poddir.Exited {
		t.Errorf("status %s", text(s))
	}
}

// A full disk at the end: the code can't be kept, so it is not reported.
func TestEndThatCantBeRecorded(t *testing.T) {
	tp := newTestPod(t, poddir.RunOptions{}, "", spec{name: "a", script: "exit 3"})
	// A folder in the file's place: no rename gets over it.
	if err := os.MkdirAll(filepath.Join(tp.records.dir.Exit(), "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if code, err := tp.run(); code != 254 || err == nil || !strings.Contains(err.Error(), "exit.json") {
		t.Errorf("code %d, error %v", code, err)
	}
}

// Nor is a code that an app's status does not tell.
func TestStatusThatCantBeRecorded(t *testing.T) {
	tp := newTestPod(t, poddir.RunOptions{}, "", spec{name: "a", script: "exit 3"})
	tp.launcher.onStart = func(launch.App) error {
		status := tp.records.dir.App("a").Attempt(0).Status()
		return errors.Join(os.Remove(status), os.MkdirAll(filepath.Join(status, "x"), 0o700))
	}
	if code, err := tp.run(); code != 254 || err == nil || !strings.Contains(err.Error(), "app a: status") {
		t.Errorf("code %d, error %v", code, err)
	}
	var e poddir.Exit
	if get(t, tp.records.dir.Exit(), &e); e.Code != 254 || e.Cause != poddir.CauseSetup {
		t.Errorf("exit %s", text(e))
	}
}

// The grandchild has left the app's cgroup, so it lives on, with the pipe.
func TestPipeHeldByDaemon(t *testing.T) {
	tp := newTestPod(t, poddir.RunOptions{}, "",
		spec{name: "a", script: `setsid sleep 20 & echo $!; seq 3000; exit 4`})
	start := time.Now()
	tp.wantCode(4)
	if d := time.Since(start); d > 15*time.Second {
		t.Errorf("waited %v for the daemon", d)
	}
	var daemon int
	if _, err := fmt.Sscan(tp.stdout, &daemon); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(daemon, syscall.SIGKILL); err != nil {
		t.Errorf("the daemon was not there: %v", err)
	}
	if !strings.HasSuffix(tp.stdout, "\n2999\n3000\n") {
		t.Errorf("the end of the output is missing: …%q", tp.stdout[max(0, len(tp.stdout)-20):])
	}
}

func TestControlRefuses(t *testing.T) {
	tp := newTestPod(t, poddir.RunOptions{}, "", spec{name: "a", script: fmt.Sprintf(waitForSignal, "0")})
	tp.whenUp("a", func() {
		defer func() { tp.signals <- syscall.SIGTERM }()
		if _, err := tp.ask(request{Op: "dance"}); err == nil || !strings.Contains(err.Error(), `"dance": unknown`) {
			t.Errorf("unknown operation: %v", err)
		}
		for _, line := range []string{"{\n", strings.Repeat("x", 2*requestLimit) + "\n"} {
			conn, err := net.Dial("unix", filepath.Join(tp.runDir, poddir.SocketFile))
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := conn.Write([]byte(line)); err != nil {
				t.Error(err)
			}
			if data, err := io.ReadAll(conn); strings.Contains(string(data), "exit") {
				t.Errorf("garbage: %q, %v", data, err)
			}
			_ = conn.Close()
		}
		info, err := os.Stat(filepath.Join(tp.runDir, poddir.SocketFile))
		if err != nil || info.Mode().Perm() != 0o600 || info.Mode().Type() != fs.ModeSocket {
			t.Errorf("socket: %v, %v", info, err)
		}
	})
	tp.wantCode(0)
	if err := allowed(os.Geteuid() + 1); err == nil {
		t.Error("another user was let in")
	}
	if err := errors.Join(allowed(0), allowed(os.Geteuid())); err != nil {
		t.Error(err)
	}
}
