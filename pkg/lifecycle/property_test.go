package lifecycle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/poddir"
)

// observer knows of a pod's life what the actions and the events tell, and
// nothing of the machine.
type observer struct {
	t    *testing.T
	seed uint64
	m    *Machine
	apps []App
	now  time.Time

	phase    map[string]phase
	restarts map[string]int // of the execution that was begun or armed last
	was      map[string]map[Condition]bool
	code     map[string]int
	alone    map[string]bool // asked to end by itself
	signaled map[string]bool // in this execution
	killed   bool            // no order any more
	ending   bool
	ready    bool
	ends     int
	log      []string
}

func (o *observer) fail(format string, args ...any) {
	o.t.Helper()
	for _, line := range o.log {
		o.t.Log(line)
	}
	o.t.Fatalf("seed %d: %+v: %s", o.seed, o.apps, fmt.Sprintf(format, args...))
}

// needs lists what an app waits for, by its own word, by that of others and by
// the roles as the design has them.
func (o *observer) needs(name string) []After {
	var list []After
	var me App
	var ordered []App // inits and sidecars before me
	seen := false
	for _, a := range o.apps {
		if a.Name == name {
			me, seen = a, true
			list = append(list, a.After...)
		} else if !seen && (a.Role == RoleInit || a.Role == RoleSidecar) {
			ordered = append(ordered, a)
		}
		for _, b := range a.Before {
			if b.App == name {
				list = append(list, After{a.Name, b.Condition})
			}
		}
	}
	if me.Role == RoleApp || me.Role == "" {
		ordered = nil
		for _, a := range o.apps {
			if a.Role == RoleInit || a.Role == RoleSidecar {
				ordered = append(ordered, a)
			}
		}
	}
	for _, a := range ordered {
		c := OnStarted
		if a.Role == RoleInit {
			c = OnSucceeded
		}
		list = append(list, After{a.Name, c})
	}
	return list
}

func (o *observer) holds(n After) bool {
	over := o.phase[n.App] == ended
	switch n.Condition {
	case OnSucceeded:
		return over && o.code[n.App] == 0
	case OnExited:
		return over
	case OnStarted, OnReady:
	}
	return o.was[n.App][n.Condition]
}

// depends says whether a waited for b, be it through others.
func (o *observer) depends(a, b string) bool {
	for _, n := range o.needs(a) {
		if n.App == b || o.depends(n.App, b) {
			return true
		}
	}
	return false
}

func (o *observer) feed(e Event) {
	o.t.Helper()
	o.log = append(o.log, fmt.Sprintf("%T%+v", e, e))
	actions := o.m.Handle(e)
	for _, a := range actions {
		o.log = append(o.log, fmt.Sprintf("    %T%+v", a, a))
		if o.ends > 0 {
			o.fail("%+v after the end", a)
		}
		o.act(a)
	}
	if o.ends == 0 && o.m.Over() {
		o.fail("over without an end")
	}
	if !o.m.Ending() && o.ready != o.m.Ready() {
		o.fail("ready is %v, and was told to be %v", o.m.Ready(), o.ready)
	}
}

func (o *observer) act(a Action) {
	switch a := a.(type) {
	case StartApp:
		o.start(a)
	case SignalApp:
		if o.phase[a.App] != running || o.signaled[a.App] {
			o.fail("%+v: the app does not run, or has been asked", a)
		}
		o.signaled[a.App] = true
		for _, b := range o.apps {
			if o.m.Ending() && !o.killed && !o.alone[a.App] && o.phase[b.Name] != ended && o.depends(b.Name, a.App) {
				o.fail("%+v, which %s needs", a, b.Name)
			}
		}
	case KillApp:
		if p := o.phase[a.App]; p != running && p != starting {
			o.fail("%+v: the app is not there", a)
		}
	case FinishApp:
		if o.phase[a.App] == ended {
			o.fail("%+v: it had ended", a)
		}
		o.phase[a.App] = ended
		if a.Again {
			o.phase[a.App] = backoff
		}
		o.code[a.App] = a.Code
	case ArmBackoff:
		if a.Delay < 0 || a.Delay > time.Minute || a.Restarts != o.restarts[a.App]+1 || o.ending {
			o.fail("%+v after %d restarts", a, o.restarts[a.App])
		}
		o.phase[a.App], o.restarts[a.App] = backoff, a.Restarts
	case PodReady:
		if a.Ready == o.ready {
			o.fail("%+v: it was", a)
		}
		o.ready = a.Ready
	case EndPod:
		o.ends++
		for _, b := range o.apps {
			if o.phase[b.Name] != ended {
				o.fail("%+v before %s", a, b.Name)
			}
		}
	}
}

func (o *observer) start(a StartApp) {
	if o.ending {
		o.fail("%+v while the pod ends", a)
	}
	switch o.phase[a.App] {
	case waiting:
		for _, n := range o.needs(a.App) {
			if !o.holds(n) {
				o.fail("%+v before %+v", a, n)
			}
		}
	case backoff:
	default:
		o.fail("%+v: it was started", a)
	}
	if a.Restarts != o.restarts[a.App] {
		o.fail("%+v, want execution %d", a, o.restarts[a.App])
	}
	o.phase[a.App], o.signaled[a.App], o.alone[a.App] = starting, false, false
}

// randomPod makes apps whose waits never make a circle.
func randomPod(rng *rand.Rand) []App {
	n := 1 + rng.IntN(5)
	var apps []App
	for i := range n {
		a := App{Name: string(rune('a' + i)), StopSignal: sigTerm, Checked: rng.IntN(3) == 0}
		a.Role = []Role{RoleApp, RoleApp, RoleApp, RoleInit, RoleSidecar}[rng.IntN(5)]
		a.Restart = []Restart{
			{}, {Mode: OnFailure}, {Mode: OnFailure, Max: 1}, {Mode: Always, Max: 2}, {Mode: Always}, {Mode: OnCodes, Codes: []int{0, 3}},
		}[rng.IntN(6)]
		for _, b := range apps {
			c := []Condition{OnStarted, OnReady, OnSucceeded, OnExited}[rng.IntN(4)]
			switch rng.IntN(6) {
			case 0:
				a.After = append(a.After, After{b.Name, c})
			case 1:
				a.Before = append(a.Before, After{b.Name, c})
			}
		}
		apps = append(apps, a)
	}
	return apps
}

// TestRandomLivesWithOrder feeds machines of random pods what may come, in any
// order, and checks by what can be seen from outside that an app starts only
// when what it waits for holds, that an orderly stop takes nothing away from
// those who need it, and that each app, and at last the pod, ends once.
func TestRandomLivesWithOrder(t *testing.T) {
	pods, ended := 0, 0
	for seed := range uint64(30000) {
		rng := rand.New(rand.NewPCG(seed, 7))
		apps := randomPod(rng)
		m, err := New([]Policy{All, Any, AnyOnFailure}[rng.IntN(3)], slices.Clone(apps))
		if err != nil {
			continue // a circle, no app among the roles, or an init that never ends
		}
		pods++
		o := &observer{
			t: t, seed: seed, m: m, apps: apps, now: sec(1), phase: map[string]phase{}, restarts: map[string]int{},
			was: map[string]map[Condition]bool{}, code: map[string]int{}, alone: map[string]bool{}, signaled: map[string]bool{},
		}
		for _, a := range apps {
			o.was[a.Name] = map[Condition]bool{}
		}
		o.live(rng)
		ended += o.ends
	}
	if pods < 10000 || ended != pods {
		t.Errorf("%d of %d pods ended", ended, pods)
	}
}

func (o *observer) live(rng *rand.Rand) {
	o.feed(Start{})
	for range rng.IntN(80) {
		o.step(rng, false)
	}
	if !o.m.Over() {
		o.ending = true
		o.feed(StopRequested{At: o.now})
	}
	// Whatever is left answers in some order.
	for range 1000 {
		if o.m.Over() {
			return
		}
		o.step(rng, true)
	}
	o.fail("the pod does not end")
}

// step lets something happen that can happen now.
func (o *observer) step(rng *rand.Rand, answersOnly bool) {
	a := o.apps[rng.IntN(len(o.apps))]
	o.now = o.now.Add(time.Duration(rng.IntN(3000)) * time.Millisecond)
	switch o.phase[a.Name] {
	case starting:
		if rng.IntN(6) == 0 {
			o.feed(AppStartFailed{App: a.Name, Reason: poddir.StartFailed, Code: []int{127, NoCode}[rng.IntN(2)], At: o.now})
			break
		}
		// What the event means holds already when its actions come.
		o.phase[a.Name] = running
		o.was[a.Name][OnStarted] = true
		o.was[a.Name][OnReady] = o.was[a.Name][OnReady] || !a.Checked
		o.feed(AppStarted{App: a.Name, At: o.now})
	case running:
		o.run(rng, a, answersOnly)
	case backoff:
		o.feed(BackoffOver{a.Name, o.restarts[a.Name]})
	case waiting, ended:
	}
	o.ending = o.ending || o.m.Ending()
	if !answersOnly && !o.m.Over() {
		o.request(rng, a)
	}
}

func (o *observer) run(rng *rand.Rand, a App, answersOnly bool) {
	switch k := rng.IntN(8); {
	case k < 2 && a.Checked:
		ready := rng.IntN(2) == 0
		o.was[a.Name][OnReady] = o.was[a.Name][OnReady] || ready
		o.feed(AppReady{App: a.Name, Ready: ready, At: o.now})
	case k == 2 && !answersOnly:
		o.feed(AppUnfit{a.Name, poddir.LivenessFailed, "x"})
	case k == 3:
		o.feed(StopTimeout{a.Name, o.restarts[a.Name]})
	default:
		code := []int{0, 0, 3, 137}[rng.IntN(4)]
		x := Exit{Code: code}
		if code == 137 {
			x.Signal = 9
		}
		o.feed(AppExited{App: a.Name, Exit: x, At: o.now})
	}
}

func (o *observer) request(rng *rand.Rand, a App) {
	switch rng.IntN(40) {
	case 0:
		if !o.ending && (o.phase[a.Name] == starting || o.phase[a.Name] == running) {
			o.alone[a.Name] = true
		}
		o.feed(AppStop{App: a.Name})
	case 1, 2:
		revived := o.phase[a.Name] == ended && o.m.CanRestart(a.Name) == nil
		if revived {
			o.phase[a.Name] = backoff
		}
		if o.phase[a.Name] == starting || o.phase[a.Name] == running {
			o.alone[a.Name] = true
		}
		o.feed(AppRestart{App: a.Name})
	case 3:
		o.ending = true
		o.feed(StopRequested{At: o.now})
	case 4:
		if rng.IntN(4) == 0 {
			o.ending, o.killed = true, true
			o.feed(KillRequested{})
		}
	case 5:
		if rng.IntN(8) == 0 {
			o.ending, o.killed = true, true
			o.feed(Failed{"x"})
		}
	}
	o.ending = o.ending || o.m.Ending()
}

// TestRolesRestartsAndOutcomes: one app of each role, restart policy and
// outcome beside another app, under each exit policy, against the rules as the
// design states them.
func TestRolesRestartsAndOutcomes(t *testing.T) {
	for _, policy := range []Policy{All, Any, AnyOnFailure} {
		for _, role := range []Role{RoleApp, RoleInit, RoleSidecar} {
			for _, r := range []Restart{{Mode: Never}, {Mode: OnFailure, Max: 2}, {Mode: Always, Max: 2}, {Mode: OnCodes, Codes: []int{3}, Max: 1}} {
				for _, out := range outcomes {
					for _, other := range []int{0, 5} {
						c := roleCase{policy, role, r, out, other}
						c.check(t)
					}
				}
			}
		}
	}
}

type roleCase struct {
	policy  Policy
	role    Role
	restart Restart
	outcome outcome
	other   int // the exit code of the other app
}

// want is how often x runs and with what the pod ends.
func (c roleCase) want() (executions, code int) {
	again := map[RestartMode]bool{
		OnFailure: c.outcome.code != 0, Always: true, OnCodes: slices.Contains(c.restart.Codes, c.outcome.code),
	}[c.restart.Mode]
	executions = 1
	if again {
		executions += c.restart.Max
	}
	mine := c.outcome.code
	if mine == NoCode {
		mine = CodeSetup
	}
	switch {
	case c.role == RoleInit && mine != 0:
		return executions, mine
	case c.role == RoleSidecar && !c.outcome.starts:
		return executions, CodeSetup // the app waits for it in vain
	case c.role != RoleApp:
		return executions, c.other
	case c.policy == Any, mine != 0:
		return executions, mine
	}
	return executions, c.other
}

func (c roleCase) check(t *testing.T) {
	t.Helper()
	x := App{Name: "x", StopSignal: sigTerm, Role: c.role, Restart: c.restart}
	m, err := New(c.policy, []App{x, {Name: "y", StopSignal: sigTerm}})
	if c.role == RoleInit && c.restart.Mode == Always {
		if err == nil {
			t.Errorf("%+v: an init that never ends was taken", c)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	executions, code := 0, -1
	queue := []Event{Start{}}
	runsY := false
	for len(queue) > 0 {
		e := queue[0]
		queue = queue[1:]
		for _, a := range m.Handle(e) {
			switch a := a.(type) {
			case StartApp:
				switch {
				case a.App == "y":
					runsY = true
					queue = append([]Event{AppStarted{App: "y"}}, queue...)
				case c.outcome.starts:
					executions++
					queue = append(queue, AppStarted{App: "x"}, AppExited{App: "x", Exit: Exit{Code: c.outcome.code, Signal: c.outcome.signal}})
				default:
					executions++
					queue = append(queue, AppStartFailed{App: "x", Reason: c.outcome.reason, Code: c.outcome.code})
				}
			case ArmBackoff:
				queue = append(queue, BackoffOver{a.App, a.Restarts})
			case SignalApp:
				queue = append(queue, AppExited{App: a.App, Exit: Exit{Code: 128 + sigTerm, Signal: sigTerm}})
			case EndPod:
				code = a.Code
			}
		}
		if len(queue) == 0 && runsY && !m.Over() {
			queue, runsY = append(queue, AppExited{App: "y", Exit: Exit{Code: c.other}}), false
		}
	}
	if wantRuns, wantCode := c.want(); executions != wantRuns || code != wantCode {
		t.Errorf("%+v: ran %d times, pod's code %d; want %d and %d", c, executions, code, wantRuns, wantCode)
	}
}
