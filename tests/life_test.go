package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// attempt is what the file of one execution's status says.
type attempt struct {
	State      string     `json:"state"`
	ExitCode   *int       `json:"exitCode"`
	Reason     string     `json:"reason"`
	Message    string     `json:"message"`
	Restarts   int        `json:"restarts"`
	PID        int        `json:"pid"`
	StartedAt  *time.Time `json:"startedAt"`
	ReadyAt    *time.Time `json:"readyAt"`
	FinishedAt *time.Time `json:"finishedAt"`
}

// attempts reads the statuses of all executions of an app.
func (p *pod) attempts(app string) []attempt {
	p.t.Helper()
	var list []attempt
	for n := 0; ; n++ {
		files, _ := filepath.Glob(filepath.Join(p.dir, "pods", "*", p.uuid(), "apps", app, strconv.Itoa(n), "status.json"))
		if len(files) == 0 {
			return list
		}
		data, err := os.ReadFile(files[0])
		if err != nil {
			p.t.Fatal(err)
		}
		var a attempt
		if err := json.Unmarshal(data, &a); err != nil {
			p.t.Fatal(err)
		}
		list = append(list, a)
	}
}

func (p *pod) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// logged waits until the app has written the text.
func (p *pod) logged(app, text string) {
	p.t.Helper()
	until(p.t, fmt.Sprintf("%s has written %q", app, text), func() bool {
		return strings.Contains(p.rkt("logs", "--app="+app, p.uuid()).stdout, text)
	})
}

const serve = `trap 'echo stopped; exit 0' TERM; echo up; while :; do sleep 0.1; done`

// TestChain: each app starts as soon as what it waits for holds, by the check
// of a page in the pod's own network; they stop the other way round.
func TestChain(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.start([]string{"--exit-policy=all"},
		app{name: "web", script: serve, flags: []string{"--after=migrate:succeeded", "--ready=exec:/bin/true"}},
		app{name: "migrate", script: `wget -q -O - http://127.0.0.1:8080/ok && echo migrated`, flags: []string{"--after=db:ready"}},
		app{name: "db", script: `mkdir /www; sleep 1; echo fine > /www/ok; httpd -p 127.0.0.1:8080 -h /www; ` + serve,
			flags: []string{"--ready=http:8080/ok", "--live=tcp:8080,delay=2s,period=1s"}},
	)
	p.logged("web", "up")
	web, migrate, db := p.attempts("web")[0], p.attempts("migrate")[0], p.attempts("db")[0]
	if migrate.StartedAt == nil || db.ReadyAt == nil || migrate.StartedAt.Before(*db.ReadyAt) || web.StartedAt.Before(*migrate.FinishedAt) {
		t.Errorf("order: db %+v, migrate %+v, web %+v", db, migrate, web)
	}
	if migrate.StartedAt.Sub(*db.ReadyAt) > 10*time.Second {
		t.Errorf("migrate waited for %s", migrate.StartedAt.Sub(*db.ReadyAt))
	}
	p.signal(syscall.SIGTERM)
	if res := p.wait(); res.code != 0 {
		t.Fatal(res)
	}
	web, db = p.attempts("web")[0], p.attempts("db")[0]
	if db.FinishedAt.Before(*web.FinishedAt) {
		t.Errorf("db ended at %s, web, which needs it, at %s", db.FinishedAt, web.FinishedAt)
	}
}

// TestRestartedRootFS: a restart starts from a clean root file system, unless
// it is to be kept; volumes stay.
func TestRestartedRootFS(t *testing.T) {
	t.Parallel()
	script := `echo x >> /own; echo x >> /data/shared; n=$(wc -l < /data/shared); echo own $(wc -l < /own) of $n; [ $n -lt 3 ] || exit 0; exit 1`
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--restart=on-failure"}, "own 1 of 1\nown 1 of 2\nown 1 of 3\n"},
		{[]string{"--restart-on=1", "--restart-keep-rootfs"}, "own 1 of 1\nown 2 of 2\nown 3 of 3\n"},
		{[]string{"--restart=always:1"}, "own 1 of 1\nown 1 of 2\n"},
	} {
		h := newHost(t)
		p := h.start([]string{"--volume=data,kind=empty", "--mount=volume=data,target=/data"}, app{name: "x", script: script, flags: c.flags})
		res := p.wait()
		if res.stdout != c.want {
			t.Errorf("%v: %s", c.flags, res)
		}
		list := p.attempts("x")
		for n, a := range list {
			if a.State != "exited" || a.Restarts != n {
				t.Errorf("%v: execution %d: %+v", c.flags, n, a)
			}
		}
		if logs := h.must("logs", p.uuid()); logs != c.want {
			t.Errorf("%v: logs %q", c.flags, logs)
		}
	}
}

// TestBackoff: 100 ms doubled each time; nothing is left of what a crashing app
// started, however it daemonized.
func TestBackoff(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.start(nil, app{name: "x", script: `(sleep 1234 & sleep 1234 &) & (setsid sleep 1234 &); ps | grep -c ' [s]leep 1234$'; kill -9 $$`, flags: []string{"--restart=on-failure:4"}})
	res := p.wait()
	if res.code != 137 {
		t.Fatal(res)
	}
	list := p.attempts("x")
	if len(list) != 5 {
		t.Fatalf("executions: %+v", list)
	}
	for n := 1; n < len(list); n++ {
		least := 100 * time.Millisecond << (n - 1)
		if gap := list[n].StartedAt.Sub(*list[n-1].FinishedAt); gap < least || gap > least+20*time.Second {
			t.Errorf("execution %d began %s after the last, want %s and a little", n, gap, least)
		}
	}
	for line := range strings.Lines(res.stdout) {
		if n, _ := strconv.Atoi(strings.TrimSpace(line)); n > 3 {
			t.Errorf("%d processes: some were left of the execution before", n)
		}
	}
}

// TestForgottenExecutions: an app that restarts again and again fills no disk.
// What is left of its logs is whole, a follower has seen them all, and status
// says what is gone.
func TestForgottenExecutions(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.start([]string{"--log-max-size=4Ki", "--log-max-files=2", "--volume=data,kind=empty", "--mount=volume=data,target=/data"},
		app{name: "x", script: `echo x >> /data/n; n=$(wc -l < /data/n); for i in $(seq 101 160); do echo $n $i; done; exit 3`, flags: []string{"--restart=on-failure:5"}})
	var seen bytes.Buffer
	follower := h.command("logs", "-f", p.uuid())
	follower.Stdout = &seen
	if err := follower.Start(); err != nil {
		t.Fatal(err)
	}
	if res := p.wait(); res.code != 3 {
		t.Fatal(res)
	}
	if err := follower.Wait(); err != nil {
		t.Error(err)
	}
	lines := func(from int) string {
		var all strings.Builder
		for n := from; n <= 6; n++ {
			for i := 101; i <= 160; i++ {
				fmt.Fprintf(&all, "%d %d\n", n, i)
			}
		}
		return all.String()
	}
	if got := seen.String(); got != lines(1) {
		t.Errorf("the follower saw %d lines", strings.Count(got, "\n"))
	}
	// 60 lines are about 2800 bytes: those of two ended executions fit in.
	if got := h.must("logs", p.uuid()); got != lines(4) {
		t.Errorf("%d lines are left:\n%.200s", strings.Count(got, "\n"), got)
	}
	if text := h.must("status", p.uuid()); !strings.Contains(text, "app-x-forgotten=executions before 3, with 180 lines of log\n") {
		t.Errorf("%s", text)
	}
	if text := h.must("events", p.uuid()); strings.Contains(text, "x/2") || !strings.Contains(text, "app-exited x/3") {
		t.Errorf("%s", text)
	}
}

// TestLivenessProbeThatHangs: the probe forks, ignores SIGTERM and hangs: it is
// killed whole each time, and at last the app is.
func TestLivenessProbeThatHangs(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	probe := `exec:sh -c "trap '' TERM INT; (while :; do sleep 4321; done) & setsid sleep 4321 & for i in $(seq 100); do (sleep 0.01 &) & done; wait",timeout=500ms,period=1s,failures=3`
	p := h.start(nil, app{name: "x", script: `ps -o comm,args > /dev/null; sleep 1000`, flags: []string{"--live=" + probe}})
	res := p.wait()
	if res.code != 137 {
		t.Fatal(res)
	}
	a := p.attempts("x")[0]
	if a.Reason != "LivenessFailed" || !strings.Contains(a.Message, "no answer within 500ms") {
		t.Errorf("status %+v", a)
	}
	out, _ := exec.Command("pgrep", "-f", "sleep 4321").Output() // none is no success
	if len(out) > 0 {
		t.Errorf("processes of the probe are left: %s", out)
	}
}

// TestOrphansAreReaped: what a thousand double forks leave behind is reaped, in
// an app that doesn't do it.
func TestOrphansAreReaped(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.start(nil, app{name: "x", script: `for i in $(seq 1000); do (sleep 0.01 &); done; sleep 1; echo zombies $(ps -o stat | grep -c Z); echo left $(ps -o comm | grep -c '^sleep$')`})
	if res := p.wait(); res.code != 0 || !strings.Contains(res.stdout, "zombies 0\nleft 0\n") {
		t.Errorf("%s", res)
	}
}

// TestSaysReady: the app's own word, by a program that waits for it to be
// taken, as another user, in a read-only root file system.
func TestSaysReady(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	say := filepath.Join(t.TempDir(), "say")
	build := exec.Command("go", "build", "-o", say, "./images/cmd/say")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p := h.start([]string{"--volume=say,kind=host,source=" + say + ",readOnly=true"},
		app{name: "x", script: `sleep 0.3; /say STATUS=soon && echo said; /say READY=1 && echo up; sleep 1000`,
			flags: []string{"--mount=volume=say,target=/say", "--ready=notify", "--user=1234", "--group=1234", "--readonly-rootfs"}},
		app{name: "y", script: `echo after; sleep 1000`, flags: []string{"--after=x:ready"}})
	p.logged("y", "after")
	if a := p.attempts("x")[0]; a.State != "ready" || a.ReadyAt == nil {
		t.Errorf("status %+v", a)
	}
	p.signal(syscall.SIGQUIT)
	p.wait()
}

// TestRoles: inits run before anything else, sidecars serve the apps and end
// last; a failed init ends the pod.
func TestRoles(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.start([]string{"--exit-policy=all"},
		app{name: "main", script: `echo main; sleep 1; exit 3`},
		app{name: "init1", script: `echo init1`, flags: []string{"--role=init"}},
		app{name: "side", script: serve, flags: []string{"--role=sidecar"}},
		app{name: "init2", script: `echo init2`, flags: []string{"--role=init"}},
	)
	if res := p.wait(); res.code != 3 {
		t.Fatal(res)
	}
	at := func(name string) attempt { return p.attempts(name)[0] }
	if at("side").StartedAt.Before(*at("init1").FinishedAt) || at("main").StartedAt.Before(*at("init2").FinishedAt) || at("side").Reason != "PodEnded" {
		t.Errorf("init1 %+v, side %+v, init2 %+v, main %+v", at("init1"), at("side"), at("init2"), at("main"))
	}
	if at("side").FinishedAt.Before(*at("main").FinishedAt) {
		t.Error("the sidecar ended before the app")
	}
	failed := h.start(nil, app{name: "a", script: "echo never"}, app{name: "i", script: "exit 9", flags: []string{"--role=init"}})
	if res := failed.wait(); res.code != 9 || strings.Contains(res.stdout, "never") {
		t.Error(res)
	}
	if a := failed.attempts("a")[0]; a.ExitCode != nil {
		t.Errorf("an app after a failed init: %+v", a)
	}
}
