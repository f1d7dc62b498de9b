package lifecycle

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/poddir"
)

const sigTerm = 15

// outcome is what an app does if it is left alone.
type outcome struct {
	name   string
	starts bool
	code   int
	signal int
	reason poddir.Reason
}

var outcomes = []outcome{
	{"exit 0", true, 0, 0, poddir.Completed},
	{"exit 3", true, 3, 0, poddir.Error},
	{"SIGSEGV", true, 139, 11, poddir.Signaled},
	{"not found", false, 127, 0, poddir.StartFailed},
	{"set-up", false, NoCode, 0, poddir.StartFailed},
}

// response is what a running app does when it is stopped.
type response struct {
	name    string
	code    int
	signal  int
	timeout bool
}

var responses = []response{
	{"dies of it", 128 + sigTerm, sigTerm, false},
	{"exits 143", 128 + sigTerm, 0, false},
	{"exits 0", 0, 0, false},
	{"exits 7", 7, 0, false},
	{"ignores it", 137, 9, true},
}

type script struct {
	policy    Policy
	outcomes  []outcome
	responses []response
	order     []int // in which the apps end if left alone
	stopAfter int   // so many ends before the stop request; -1: none
}

func (s script) String() string {
	text := fmt.Sprintf("%s order %v stop after %d:", s.policy, s.order, s.stopAfter)
	for i := range s.outcomes {
		text += fmt.Sprintf(" [%s; %s]", s.outcomes[i].name, s.responses[i].name)
	}
	return text
}

func name(i int) string { return string(rune('a' + i)) }

// play drives a machine through the script and returns what it said.
func play(t *testing.T, s script) (map[string]FinishApp, []Action) {
	t.Helper()
	var apps []App
	for i := range s.outcomes {
		apps = append(apps, App{Name: name(i), StopSignal: sigTerm})
	}
	m, err := New(s.policy, apps)
	if err != nil {
		t.Fatal(err)
	}
	var all []Action
	signalled, killed := map[string]bool{}, map[string]bool{}
	feed := func(e Event) {
		for _, a := range m.Handle(e) {
			switch a := a.(type) {
			case SignalApp:
				if signalled[a.App] {
					t.Errorf("%v: app %s got its stop signal twice", s, a.App)
				}
				signalled[a.App] = true
			case KillApp:
				killed[a.App] = true
			}
			all = append(all, a)
		}
	}
	feed(Start{})
	for i, o := range s.outcomes {
		if o.starts {
			feed(AppStarted{App: name(i)})
		}
	}
	for n, i := range s.order {
		if n == s.stopAfter {
			feed(StopRequested{At: time.Unix(1000, 0)})
		}
		o, app := s.outcomes[i], name(i)
		r := s.responses[i]
		switch {
		case !o.starts:
			feed(AppStartFailed{App: app, Reason: o.reason, Code: o.code, Message: o.name})
		case !signalled[app]:
			feed(AppExited{App: app, Exit: Exit{Code: o.code, Signal: o.signal}})
		default:
			if r.timeout {
				feed(StopTimeout{App: app})
				if !killed[app] {
					t.Errorf("%v: app %s not killed at its timeout", s, app)
				}
			}
			feed(AppExited{App: app, Exit: Exit{Code: r.code, Signal: r.signal}})
		}
	}
	ends := map[string]FinishApp{}
	for _, a := range all {
		if f, ok := a.(FinishApp); ok {
			ends[f.App] = f
		}
	}
	return ends, all
}

// oracle says how the pod must end, read off the tables of the design rather
// than off a machine: find the end that triggers, then judge what follows.
func oracle(s script) (code int, cause poddir.Cause, decider string, reasons map[string]poddir.Reason) {
	reasons = map[string]poddir.Reason{}
	weight := func(code int) int {
		if code == NoCode {
			return 254
		}
		return code
	}
	n := len(s.order)
	trigger, stopped := n-1, false // the end after which the others are stopped
	for k, i := range s.order {
		if k == s.stopAfter {
			trigger, stopped = k-1, true
			break
		}
		if s.policy == Any || s.policy == AnyOnFailure && s.outcomes[i].code != 0 {
			trigger = k
			break
		}
	}
	ran := false
	for _, o := range s.outcomes {
		ran = ran || o.starts
	}
	var firstBad, mustKill, firstFailed = -1, -1, -1
	badCode := 0
	for k, i := range s.order {
		o, r := s.outcomes[i], s.responses[i]
		switch {
		case k <= trigger || !o.starts:
			reasons[name(i)] = o.reason
			if o.code != 0 && firstBad < 0 {
				firstBad, badCode = i, weight(o.code)
			}
			if o.code != 0 && firstFailed < 0 && k <= trigger {
				firstFailed = i
			}
		case r.timeout:
			reasons[name(i)] = poddir.KilledAfterTimeout
			if mustKill < 0 {
				mustKill = i
			}
		default:
			reasons[name(i)] = poddir.PodEnded
			if stopped {
				reasons[name(i)] = poddir.Stopped
			}
			if r.code != 0 && r.code != 128+sigTerm && firstBad < 0 {
				firstBad, badCode = i, r.code
			}
		}
	}
	if stopped {
		switch {
		case mustKill >= 0:
			return 137, poddir.CauseStopped, name(mustKill), reasons
		case firstBad >= 0:
			return badCode, poddir.CauseStopped, name(firstBad), reasons
		}
		return 0, poddir.CauseStopped, "", reasons
	}
	d := firstFailed
	if s.policy == Any {
		d = s.order[0]
	}
	if d < 0 {
		return 0, poddir.CausePolicy, "", reasons
	}
	cause = poddir.CausePolicy
	if !ran && s.outcomes[d].code == NoCode {
		cause = poddir.CauseSetup
	}
	return weight(s.outcomes[d].code), cause, name(d), reasons
}

func check(t *testing.T, s script) {
	t.Helper()
	ends, actions := play(t, s)
	code, cause, app, reasons := oracle(s)
	last, ok := actions[len(actions)-1].(EndPod)
	if !ok {
		t.Fatalf("%v: last action %#v, want EndPod", s, actions[len(actions)-1])
	}
	if last.Code != code || last.Cause != cause || last.App != app {
		t.Errorf("%v: pod ended %d %s by %q, want %d %s by %q", s, last.Code, last.Cause, last.App, code, cause, app)
	}
	for i := range s.outcomes {
		if got := ends[name(i)].Reason; got != reasons[name(i)] {
			t.Errorf("%v: app %s: reason %s, want %s", s, name(i), got, reasons[name(i)])
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// product calls f with every tuple of n numbers below base.
func product(base, n int, f func([]int)) {
	tuple := make([]int, n)
	for {
		f(tuple)
		i := 0
		for ; i < n; i++ {
			if tuple[i]++; tuple[i] < base {
				break
			}
			tuple[i] = 0
		}
		if i == n {
			return
		}
	}
}

func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var all [][]int
	for _, p := range permutations(n - 1) {
		for i := range n {
			all = append(all, slices.Insert(slices.Clone(p), i, n-1))
		}
	}
	return all
}

func TestPoliciesAndOutcomes(t *testing.T) {
	var cases int
	for _, policy := range []Policy{All, Any, AnyOnFailure} {
		for n := 1; n <= 3; n++ {
			for _, order := range permutations(n) {
				for stop := -1; stop < n; stop++ {
					product(len(outcomes), n, func(o []int) {
						product(len(responses), n, func(r []int) {
							s := script{policy: policy, order: order, stopAfter: stop}
							for i := range n {
								s.outcomes = append(s.outcomes, outcomes[o[i]])
								s.responses = append(s.responses, responses[r[i]])
							}
							cases++
							check(t, s)
						})
					})
				}
			}
		}
	}
	t.Logf("%d cases", cases)
}
