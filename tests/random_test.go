package tests

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/lifecycle"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

// TestRandomPods runs random pods and checks that what their records tell is a
// history that the pure lifecycle allows, with the end that it leads to.
func TestRandomPods(t *testing.T) {
	t.Parallel()
	pods := 50
	if testing.Short() {
		pods = 8
	}
	for seed := range uint64(pods) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			flags, apps := randomApps(rand.New(rand.NewPCG(seed, 5)))
			h := newHost(t)
			p := h.start(flags, apps...)
			res := p.wait()
			hist := readHistory(t, p)
			if res.code != hist.exit.Code {
				t.Errorf("exit.json says %d: %s", hist.exit.Code, res)
			}
			if !hist.allowed() {
				t.Errorf("%v %+v:\n%s\nis not allowed: %s", flags, apps, hist, hist.why)
			}
			if hist.exit.Code, hist.tries = hist.exit.Code+1, 0; hist.allowed() {
				t.Errorf("%v %+v: another code is allowed as well", flags, apps)
			}
		})
	}
}

func randomApps(rng *rand.Rand) (flags []string, apps []app) {
	flags = []string{"--exit-policy=" + []string{"all", "any", "anyOnFailure"}[rng.IntN(3)], "--stop-timeout=30s"}
	var waitable []string // those that end by themselves
	for i := range 1 + rng.IntN(4) {
		a := app{name: string(rune('a' + i))}
		role := []string{"app", "app", "app", "init", "sidecar"}[rng.IntN(5)]
		if i == 0 {
			role = "app" // one at least
		}
		a.flags = append(a.flags, "--role="+role)
		if role == "sidecar" {
			a.script = "sleep 1000"
			apps = append(apps, a)
			continue
		}
		a.script = fmt.Sprintf("sleep 0.%d; ", rng.IntN(7)) + []string{"exit 0", "exit 0", "exit 3", "kill -9 $$"}[rng.IntN(4)]
		switch k := rng.IntN(6); {
		case k == 0:
			a.flags = append(a.flags, "--restart=on-failure:1")
		case k == 1 && role == "app":
			a.flags = append(a.flags, "--restart=always:1")
		case k == 2:
			a.flags = append(a.flags, "--restart-on=3,137", "--restart=on-failure:2")
		case k == 3 && rng.IntN(3) == 0:
			a.script = "" // its program is not there
			a.flags = append(a.flags, "--exec=/nothing")
		}
		if len(waitable) > 0 && role == "app" && rng.IntN(2) == 0 {
			on := waitable[rng.IntN(len(waitable))]
			a.flags = append(a.flags, "--after="+on+":"+[]string{"started", "ready", "succeeded", "exited"}[rng.IntN(4)])
		}
		if role == "app" {
			waitable = append(waitable, a.name)
		}
		apps = append(apps, a)
	}
	return flags, apps
}

// history is what the records of an ended pod tell.
type history struct {
	policy lifecycle.Policy
	apps   []lifecycle.App
	status map[string][]poddir.Status
	exit   poddir.Exit
	events []past
	tries  int
	why    string // the first disagreement
}

// past is something that has happened to an execution.
type past struct {
	at    time.Time
	event lifecycle.Event
	app   string
	n     int
}

func readHistory(t *testing.T, p *pod) *history {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(p.dir, "pods", "*", p.uuid()))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("%v, %v", dirs, err)
	}
	dir := poddir.Dir(dirs[0])
	data, err := atomicfile.ReadFile(dir.Manifest())
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := podspec.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	h := &history{status: map[string][]poddir.Status{}}
	if h.policy, h.apps, err = lifecycle.Of(manifest); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.ReadJSON(dir.Exit(), &h.exit); err != nil {
		t.Fatal(err)
	}
	for i := range h.apps {
		name := h.apps[i].Name
		h.apps[i].StopSignal = podspec.DefaultStopSignal
		attempts, err := dir.App(name).Attempts()
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range attempts {
			var s poddir.Status
			if err := atomicfile.ReadJSON(dir.App(name).Attempt(n).Status(), &s); err != nil {
				t.Fatal(err)
			}
			if s.State != poddir.Exited || s.Attempt != n || s.FinishedAt == nil {
				t.Errorf("app %s, execution %d: %+v", name, n, s)
			}
			h.status[name] = append(h.status[name], s)
			h.add(name, n, s)
		}
	}
	slices.SortStableFunc(h.events, func(a, b past) int { return a.at.Compare(b.at) })
	return h
}

func (h *history) add(app string, n int, s poddir.Status) {
	code := lifecycle.NoCode
	if s.ExitCode != nil {
		code = *s.ExitCode
	}
	switch {
	case s.StartedAt != nil:
		h.events = append(h.events, past{*s.StartedAt, lifecycle.AppStarted{App: app, At: *s.StartedAt}, app, n},
			past{*s.FinishedAt, lifecycle.AppExited{App: app, Exit: lifecycle.Exit{Code: code, Signal: s.Signal}, At: *s.FinishedAt}, app, n})
	case s.Reason == poddir.StartFailed:
		h.events = append(h.events, past{*s.FinishedAt, lifecycle.AppStartFailed{App: app, Reason: s.Reason, Code: code, Message: s.Message, At: *s.FinishedAt}, app, n})
	}
}

func (h *history) String() string {
	var b strings.Builder
	for _, e := range h.events {
		fmt.Fprintf(&b, "%s %s/%d %T%+v\n", e.at.Format("05.000"), e.app, e.n, e.event, e.event)
	}
	fmt.Fprintf(&b, "exit %+v", h.exit)
	return b.String()
}

// apart is by how much the times of two events may be in another order than
// that in which the supervisor heard of them: the end of an app's output lies
// between.
const apart = time.Second

// allowed looks for an order of the events, near that of their times, in which
// the pure lifecycle would have told to do all that was done.
func (h *history) allowed() bool { return h.search(nil, h.events) }

func (h *history) search(done, left []past) bool {
	h.tries++
	if h.tries > 20000 {
		h.why = "no order was found in time; " + h.why
		return false
	}
	over, err := h.replay(done)
	if err != "" {
		if h.why == "" {
			h.why = err
		}
		return false
	}
	if len(left) == 0 {
		return over
	}
	seen := map[string]bool{}
	for i, e := range left {
		if e.at.Sub(left[0].at) > apart {
			break
		}
		if seen[e.app] {
			continue // of one app the order is known
		}
		seen[e.app] = true
		rest := slices.Delete(slices.Clone(left), i, i+1)
		if h.search(append(slices.Clone(done), e), rest) {
			return true
		}
	}
	return false
}

// replay feeds the events to the machine and says what is wrong about them,
// and whether they are all of the pod's life.
func (h *history) replay(events []past) (over bool, wrong string) {
	m, err := lifecycle.New(h.policy, slices.Clone(h.apps))
	if err != nil {
		return false, err.Error()
	}
	started, finished := map[string]bool{}, map[string]lifecycle.FinishApp{}
	running := map[string]int{}
	var end *lifecycle.EndPod
	take := func(e lifecycle.Event) {
		for _, a := range m.Handle(e) {
			switch a := a.(type) {
			case lifecycle.StartApp:
				started[fmt.Sprint(a.App, a.Restarts)] = true
			case lifecycle.FinishApp:
				finished[fmt.Sprint(a.App, running[a.App])] = a
			case lifecycle.EndPod:
				end = &a
			}
		}
	}
	take(lifecycle.Start{})
	for _, e := range events {
		running[e.app] = e.n
		if _, exited := e.event.(lifecycle.AppExited); !exited && e.n > 0 {
			take(lifecycle.BackoffOver{App: e.app, Restarts: e.n})
		}
		if !started[fmt.Sprint(e.app, e.n)] {
			return false, fmt.Sprintf("execution %d of %s must not start yet", e.n, e.app)
		}
		take(e.event)
		s := h.status[e.app][e.n]
		if f, ok := finished[fmt.Sprint(e.app, e.n)]; ok && f.Reason != s.Reason {
			return false, fmt.Sprintf("execution %d of %s: reason %s, want %s", e.n, e.app, s.Reason, f.Reason)
		}
	}
	if end == nil {
		return false, ""
	}
	if end.Code != h.exit.Code || end.Cause != h.exit.Cause || end.App != h.exit.App {
		return false, fmt.Sprintf("the pod's end: %+v, want %+v", h.exit, *end)
	}
	return true, ""
}
