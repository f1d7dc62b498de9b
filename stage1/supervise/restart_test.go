package supervise

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

func annotations(pairs ...string) appc.Annotations {
	var a appc.Annotations
	for i := 0; i < len(pairs); i += 2 {
		a.Set(pairs[i], pairs[i+1])
	}
	return a
}

// TestRestart: each execution has its own status and log; the last one counts.
func TestRestart(t *testing.T) {
	count := filepath.Join(t.TempDir(), "n")
	script := `echo x >> ` + count + `; n=$(wc -l < ` + count + `); echo run $n; [ $n = 3 ] && exit 0; exit 7`
	tp := newTestPod(t, poddir.RunOptions{}, "", spec{name: "a", script: script, ann: annotations(podspec.AnnRestart, "on-failure:5")})
	begin := time.Now()
	tp.wantCode(0)
	if took := time.Since(begin); took < 300*time.Millisecond {
		t.Errorf("two restarts took %s: no back-off of 100 and 200 ms", took)
	}
	for n, want := range []int{7, 7, 0} {
		s := tp.attemptOf("a", n)
		if s.State != poddir.Exited || s.ExitCode == nil || *s.ExitCode != want || s.Attempt != n || s.Restarts != n {
			t.Errorf("execution %d: %s", n, text(s))
		}
		log, err := os.ReadFile(tp.records.dir.App("a").Attempt(n).Log())
		if err != nil || !strings.Contains(string(log), "run "+strconv.Itoa(n+1)) {
			t.Errorf("log %d: %q, %v", n, log, err)
		}
	}
	if tp.stdout != "run 1\nrun 2\nrun 3\n" {
		t.Errorf("stdout %q", tp.stdout)
	}
}

// TestStopInBackoff: nothing is started any more, and the last end counts.
func TestStopInBackoff(t *testing.T) {
	tp := newTestPod(t, poddir.RunOptions{}, "", spec{name: "a", script: `echo up; exit 3`, ann: annotations(podspec.AnnRestart, "always")})
	tp.watchers.Go(func() {
		for range time.Tick(time.Millisecond) {
			if _, err := os.Stat(tp.records.dir.App("a").Attempt(2).Status()); err == nil {
				tp.signals <- syscall.SIGTERM
				return
			}
		}
	})
	tp.wantCode(3)
	if s := tp.attemptOf("a", 2); s.State != poddir.Exited || s.ExitCode == nil || *s.ExitCode != 3 {
		t.Errorf("status %s", text(s))
	}
}

// TestOrder: an app starts when what it waits for holds, and the service
// manager hears what is awaited.
func TestOrder(t *testing.T) {
	m := newManager(t)
	tp := newTestPod(t, poddir.RunOptions{}, "all",
		spec{name: "web", script: `echo web`, ann: annotations(podspec.AnnAfter, "migrate:succeeded")},
		spec{name: "migrate", script: `echo migrate`, ann: annotations(podspec.AnnAfter, "db:ready")},
		spec{name: "db", script: `echo db; while [ ! -e ` + m.dir + `/done ]; do sleep 0.02; done`,
			ann: annotations(podspec.AnnReady, "exec:test -e "+m.dir+"/go")},
	)
	m.attach(tp)
	tp.watchers.Go(func() {
		m.until(t, "db (running)")
		touch(t, m.dir, "go")
		m.until(t, "READY=1")
		touch(t, m.dir, "done")
	})
	tp.wantCode(0)
	if want := "db: db\nmigrate: migrate\nweb: web\n"; tp.stdout != want {
		t.Errorf("stdout %q, want %q", tp.stdout, want)
	}
	said := m.all()
	for _, want := range []string{"migrate after db is ready", "READY=1", "STATUS=ready", "STOPPING=1"} {
		if !strings.Contains(said, want) {
			t.Errorf("the manager did not hear %q in\n%s", want, said)
		}
	}
	if s := tp.statusOf("db"); s.ReadyAt == nil {
		t.Errorf("status %s", text(s))
	}
}

// TestLiveness: an app whose probe fails is killed, and so is a probe that
// hangs, with what it has started.
func TestLiveness(t *testing.T) {
	dir := t.TempDir()
	probe := filepath.Join(dir, "probe")
	if err := os.WriteFile(probe, []byte("trap '' TERM\nsleep 1000 & echo $! $$ > "+dir+"/pids\necho stuck\nwait\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tp := newTestPod(t, poddir.RunOptions{}, "", spec{name: "a", script: `sleep 1000`,
		ann: annotations(podspec.AnnLive, "exec:/bin/sh "+probe+",timeout=300ms,failures=1")})
	tp.wantCode(137)
	if s := tp.statusOf("a"); s.Reason != poddir.LivenessFailed || !strings.Contains(s.Message, "no answer within 300ms") {
		t.Errorf("status %s", text(s))
	}
	tp.wantTold("app a: liveness probe: exec:/bin/sh ")
	pids, err := os.ReadFile(filepath.Join(dir, "pids"))
	if err != nil {
		t.Fatal(err)
	}
	for pid := range strings.FieldsSeq(string(pids)) {
		if cmdline, err := os.ReadFile("/proc/" + pid + "/cmdline"); err == nil && len(cmdline) > 0 {
			t.Errorf("process %s is left: %q", pid, cmdline)
		}
	}
}

// TestStartup: until the startup probe has gone well, an app is not ready and
// nobody asks whether it lives.
func TestStartup(t *testing.T) {
	dir := t.TempDir()
	begun := dir + "/begun"
	tp := newTestPod(t, poddir.RunOptions{}, "", spec{name: "a", script: `sleep 1.5; touch ` + begun + `; trap 'exit 0' TERM; while :; do sleep 0.02; done`,
		ann: annotations(podspec.AnnStartup, "exec:test -e "+begun+",period=1s", podspec.AnnLive, "exec:test -e "+begun+",failures=1,period=1s")})
	tp.watchers.Go(func() {
		for range time.Tick(time.Millisecond) {
			s, err := tp.records.dir.App("a").ReadStatus()
			if err == nil && s != nil && (s.State == poddir.Ready || s.State == poddir.Exited) {
				break
			}
		}
		if _, err := os.Stat(begun); err != nil {
			t.Error(err)
		}
		tp.signals <- syscall.SIGTERM
	})
	tp.wantCode(0)
}

func TestStartupFails(t *testing.T) {
	tp := newTestPod(t, poddir.RunOptions{}, "", spec{name: "a", script: `sleep 1000`,
		ann: annotations(podspec.AnnStartup, "exec:false,failures=1", podspec.AnnReady, "exec:true")})
	tp.wantCode(137)
	if s := tp.statusOf("a"); s.Reason != poddir.StartFailed || !strings.Contains(s.Message, "startup probe: exec:false") || s.ReadyAt != nil {
		t.Errorf("status %s", text(s))
	}
}

// TestHooks: post-start holds the app's being ready up, pre-stop comes before
// the stop signal and takes part of the stop timeout.
func TestHooks(t *testing.T) {
	dir := t.TempDir()
	tp := newTestPod(t, poddir.RunOptions{}, "", spec{name: "a", script: `trap 'echo term; exit 0' TERM; while :; do sleep 0.02; done`,
		ann: annotations(podspec.AnnPostStart, "exec:touch "+dir+"/started", podspec.AnnPreStop, "exec:touch "+dir+"/stopping")})
	tp.watchers.Go(func() {
		tp.until("a", 0, poddir.Ready)
		if _, err := os.Stat(dir + "/started"); err != nil {
			t.Error(err)
		}
		tp.signals <- syscall.SIGTERM
	})
	tp.wantCode(0)
	if _, err := os.Stat(dir + "/stopping"); err != nil || tp.stdout != "term\n" {
		t.Errorf("%v, stdout %q", err, tp.stdout)
	}
}

func TestPreStopHangs(t *testing.T) {
	tp := newTestPod(t, poddir.RunOptions{}, "", spec{name: "a", script: `echo up; sleep 1000`,
		ann: annotations(podspec.AnnPreStop, "exec:sleep 1000,timeout=10m", podspec.AnnStopTimeout, "200ms")})
	tp.whenUp("a", func() { tp.signals <- syscall.SIGTERM })
	tp.wantCode(137)
	if s := tp.statusOf("a"); s.Reason != poddir.KilledAfterTimeout {
		t.Errorf("status %s", text(s))
	}
	tp.wantTold("app a: pre-stop hook: exec:sleep 1000: the app was killed before")
}

func TestPostStartFails(t *testing.T) {
	tp := newTestPod(t, poddir.RunOptions{}, "", spec{name: "a", script: `sleep 1000`, ann: annotations(podspec.AnnPostStart, "exec:sh -c 'echo why; exit 3'")})
	tp.wantCode(137)
	if s := tp.statusOf("a"); s.Reason != poddir.StartFailed || !strings.Contains(s.Message, "exit code 3: why") {
		t.Errorf("status %s", text(s))
	}
	tp.wantTold("app a: post-start hook: ")
}

// TestNotify: the word of a process that is none of the app counts nothing.
func TestNotifyOfAStranger(t *testing.T) {
	tp := newTestPod(t, poddir.RunOptions{}, "", spec{name: "a", script: `echo up; sleep 0.3`, ann: annotations(podspec.AnnReady, "notify")})
	tp.whenUp("a", func() {
		c, err := net.Dial("unixgram", filepath.Join(tp.kernel.dir, "a"))
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		if _, err := c.Write([]byte("STATUS=x\nREADY=1")); err != nil {
			t.Error(err)
		}
	})
	tp.wantCode(0)
	if s := tp.statusOf("a"); s.ReadyAt != nil {
		t.Errorf("status %s", text(s))
	}
	if !strings.Contains(text(len(tp.notified)), "1") {
		t.Errorf("told: %v", tp.notified)
	}
}

// TestProbesOfPorts ask a server of this process, in the host's network.
func TestProbesOfPorts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	answer := make(chan string, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			buf := make([]byte, 1024)
			n, _ := c.Read(buf)
			if n > 0 && strings.HasPrefix(string(buf[:n]), "GET /health HTTP/1.1\r\nHost: localhost:") {
				_, _ = c.Write([]byte(<-answer))
			}
			_ = c.Close()
		}
	}()
	ctx := t.Context()
	if err := connectable(ctx, -1, port); err != nil {
		t.Error(err)
	}
	for text, good := range map[string]bool{
		"HTTP/1.1 200 OK\r\n\r\n": true, "HTTP/1.0 302 Found\r\n\r\n": true, "HTTP/1.1 500 No\r\n\r\n": false,
		"SSH-2.0 x\r\n": false, "": false, strings.Repeat("x", 4096): false, "HTTP/1.1 199\r\n": false,
	} {
		answer <- text
		if err := getPage(ctx, -1, port, "/health"); good != (err == nil) {
			t.Errorf("%.30q: %v", text, err)
		}
	}
	_ = l.Close()
	if err := connectable(ctx, -1, port); !errs.Is(err, errs.Unavailable) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a closed port: %v", err)
	}
}

// TestTimesAreMonotonic: what the lifecycle reckons with carries a reading of
// the monotonic clock, so that nobody who sets the other one moves a back-off.
func TestTimesAreMonotonic(t *testing.T) {
	tp := newTestPod(t, poddir.RunOptions{}, "", spec{name: "a", script: `exit 3`, ann: annotations(podspec.AnnRestart, "on-failure:2", podspec.AnnReady, "exec:true")})
	times := 0
	tp.pod.tell = func(text string) {
		_, what, isEvent := strings.Cut(text, "event ")
		_, at, timed := strings.Cut(what, "At:")
		if !isEvent || !timed {
			return
		}
		times++
		if !strings.Contains(at, " m=") {
			t.Errorf("no monotonic reading in %s", what)
		}
	}
	tp.wantCode(3)
	if times < 6 {
		t.Errorf("%d times were seen", times)
	}
}

// TestWatchdog: the loop says that it lives as often as it was asked to.
func TestWatchdog(t *testing.T) {
	m := newManager(t)
	tp := newTestPod(t, poddir.RunOptions{}, "", spec{name: "a", script: `while [ ! -e ` + m.dir + `/done ]; do sleep 0.02; done`})
	m.attach(tp)
	tp.pod.watchdog = 40 * time.Millisecond
	tp.watchers.Go(func() {
		m.until(t, "WATCHDOG=1\nWATCHDOG=1\nWATCHDOG=1")
		touch(t, m.dir, "done")
	})
	tp.wantCode(0)
}

func TestInteractiveIsNotRestarted(t *testing.T) {
	tp := newTestPod(t, poddir.RunOptions{Interactive: true}, "", spec{name: "a", script: "exit 0", ann: annotations(podspec.AnnRestart, "always")})
	if code, err := tp.run(); code != 254 || !errs.Is(err, errs.Usage) {
		t.Errorf("code %d, %v", code, err)
	}
}

// until waits for the state of an execution.
func (tp *testPod) until(app string, n int, want poddir.State) {
	for range time.Tick(time.Millisecond) {
		var s poddir.Status
		err := atomicfile.ReadJSON(tp.records.dir.App(app).Attempt(n).Status(), &s)
		if err == nil && s.State == want {
			return
		}
	}
}

// TestSteer: one app is started anew, another is stopped, both by request; the
// pod is paused, and a stop lets it go on.
func TestSteer(t *testing.T) {
	tp := newTestPod(t, poddir.RunOptions{}, "all",
		spec{name: "a", script: `trap 'echo term; exit 3' TERM; trap 'echo usr' USR1; echo up; while :; do sleep 0.02; done`},
		spec{name: "b", script: `trap 'echo int; exit 0' INT; echo up; while :; do sleep 0.02; done`},
	)
	good := func(r request) {
		if answer, err := tp.ask(r); err != nil || answer.Error != "" {
			t.Errorf("%+v: %+v, %v", r, answer, err)
		}
	}
	tp.whenUp("a", func() {
		tp.whenUp("b", func() {
			good(request{Op: opRestart, App: "a"})
			if s := tp.attemptOf("a", 1); s.State != poddir.Running {
				t.Errorf("status %s", text(s))
			}
			if s := tp.statusOf("a"); s.Reason != poddir.Stopped || s.ExitCode == nil || *s.ExitCode != 3 {
				t.Errorf("status %s", text(s))
			}
			good(request{Op: opStop, App: "b", Signal: int(syscall.SIGINT)})
			if s := tp.statusOf("b"); s.State != poddir.Exited || s.Reason != poddir.Stopped {
				t.Errorf("status %s", text(s))
			}
			good(request{Op: opStop, App: "b"}) // has ended
			for _, r := range []request{{Op: opRestart, App: "z"}, {Op: opStop, App: "z"}, {Op: opSignal, Signal: 99}, {Op: opSignal, App: "b", Signal: 1}, {Op: "x"}} {
				if _, err := tp.ask(r); err == nil {
					t.Errorf("%+v was obeyed", r)
				}
			}
			good(request{Op: opPause})
			good(request{Op: opPause})
			good(request{Op: opSignal, App: "a", Signal: int(syscall.SIGUSR1)})
			good(request{Op: opStop})
		})
	})
	code, err := tp.run()
	if code != 3 || err != nil || !strings.Contains(tp.stdout, "b: int\n") || strings.Count(tp.stdout, "a: term\n") != 2 {
		t.Errorf("code %d, %v, stdout %q", code, err, tp.stdout)
	}
	if got := text(tp.kernel.frozen); got != "[true,false]" {
		t.Errorf("frozen %s", got)
	}
}

// TestPauseWhileRestarting: an app that is being restarted is not frozen, for it
// would neither end nor begin.
func TestPauseWhileRestarting(t *testing.T) {
	dir := t.TempDir()
	tp := newTestPod(t, poddir.RunOptions{}, "", spec{name: "a", script: `echo up; sleep 1000`,
		ann: annotations(podspec.AnnPreStop, "exec:sh -c 'while [ ! -e "+dir+"/go ]; do sleep 0.02; done'")})
	tp.whenUp("a", func() {
		defer func() { tp.signals <- syscall.SIGQUIT }()
		restarted := make(chan error)
		go func() {
			_, err := tp.ask(request{Op: opRestart, App: "a"})
			restarted <- err
		}()
		var err error
		for err == nil { // until the restart has begun
			if _, err = tp.ask(request{Op: opPause}); err == nil {
				_, err = tp.ask(request{Op: opPause, Off: true})
			}
		}
		if !errs.Is(err, errs.Busy) || len(errs.Hints(err)) != 1 {
			t.Error(err)
		}
		touch(t, dir, "go")
		if err := <-restarted; err != nil {
			t.Error(err)
		}
		if _, err := tp.ask(request{Op: opPause}); err != nil {
			t.Error(err)
		}
	})
	tp.wantCode(137)
}

func touch(t *testing.T, dir, name string) {
	if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
		t.Error(err)
	}
}

// manager stands for a service manager's socket.
type manager struct {
	dir  string
	conn *net.UnixConn

	mu   sync.Mutex
	said string
}

func newManager(t *testing.T) *manager {
	t.Helper()
	m := &manager{dir: t.TempDir()}
	var err error
	if m.conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(m.dir, "notify"), Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.conn.Close() })
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := m.conn.Read(buf)
			if err != nil {
				return
			}
			m.mu.Lock()
			m.said += string(buf[:n]) + "\n"
			m.mu.Unlock()
		}
	}()
	return m
}

func (m *manager) attach(tp *testPod) {
	var err error
	if tp.pod.herald, err = newHerald(m.conn.LocalAddr().String()); err != nil {
		tp.t.Fatal(err)
	}
}

func (m *manager) all() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.said
}

func (m *manager) until(t *testing.T, word string) {
	for end := time.Now().Add(time.Minute); !strings.Contains(m.all(), word); <-time.After(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("the manager never heard %q in\n%s", word, m.all())
			return
		}
	}
}
