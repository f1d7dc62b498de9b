package lifecycle

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

func machine(t *testing.T, policy Policy, names ...string) *Machine {
	t.Helper()
	var apps []App
	for _, n := range names {
		apps = append(apps, App{Name: n, StopSignal: sigTerm})
	}
	m, err := New(policy, apps)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func expect(t *testing.T, m *Machine, e Event, want ...Action) {
	t.Helper()
	if got := m.Handle(e); len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
		t.Fatalf("%#v:\n got %#v\nwant %#v", e, got, want)
	}
}

func at(seconds float64) StopRequested {
	return StopRequested{At: time.Unix(0, int64(seconds*1e9))}
}

func TestSecondSignalKills(t *testing.T) {
	m := machine(t, AnyOnFailure, "a")
	expect(t, m, Start{}, StartApp{App: "a"})
	expect(t, m, AppStarted{App: "a"}, PodReady{true})
	expect(t, m, at(10), SignalApp{"a", sigTerm}, ArmStopTimer{App: "a"})
	expect(t, m, at(10.9)) // the same key, twice
	expect(t, m, StopRequested{At: time.Unix(20, 0), Patient: true})
	expect(t, m, at(11), KillApp{"a"})
	expect(t, m, at(12)) // killed already
	x := Exit{Code: 137, Signal: 9}
	expect(t, m, AppExited{App: "a", Exit: x}, FinishApp{App: "a", Reason: poddir.Stopped, Exit: x},
		EndPod{Code: 137, Cause: poddir.CauseStopped, App: "a"})
}

// A stop that names its time counts too for what is being stopped already, and
// for what is still to be asked.
func TestHasten(t *testing.T) {
	soon := time.Second
	again := StopRequested{At: time.Unix(100, 0), Patient: true, Stopping: Stopping{Timeout: &soon, Signal: 2}}
	m := newMachine(t, AnyOnFailure, App{Name: "db"}, App{Name: "web", After: []After{{App: "db", Condition: OnStarted}}})
	m.Handle(Start{})
	for _, name := range []string{"db", "web"} {
		m.Handle(AppStarted{App: name})
	}
	expect(t, m, at(1), SignalApp{"web", sigTerm}, ArmStopTimer{App: "web"})
	expect(t, m, StopRequested{At: time.Unix(99, 0), Patient: true})
	expect(t, m, again, ArmStopTimer{App: "web", Timeout: &soon})
	expect(t, m, AppExited{App: "web", Exit: term}, FinishApp{App: "web", Reason: poddir.Stopped, Exit: term},
		SignalApp{"db", sigTerm}, ArmStopTimer{App: "db", Timeout: &soon})

	m = machine(t, All, "a", "b")
	m.Handle(Start{})
	m.Handle(AppStarted{App: "a"})
	expect(t, m, AppStop{App: "a"}, SignalApp{"a", sigTerm}, ArmStopTimer{App: "a"})
	expect(t, m, AppStop{App: "a", Stopping: Stopping{Timeout: &soon}}, ArmStopTimer{App: "a", Timeout: &soon})
	expect(t, m, again, ArmStopTimer{App: "a", Timeout: &soon}, ArmStopTimer{App: "b", Timeout: &soon})
}

// A stop while an app starts must neither be lost nor signal another process.
func TestStopWhileStarting(t *testing.T) {
	m := machine(t, AnyOnFailure, "a")
	expect(t, m, Start{}, StartApp{App: "a"})
	expect(t, m, at(1), ArmStopTimer{App: "a"})
	expect(t, m, AppStarted{App: "a"}, SignalApp{"a", sigTerm})
	x := Exit{Code: 143, Signal: sigTerm}
	expect(t, m, AppExited{App: "a", Exit: x}, FinishApp{App: "a", Reason: poddir.Stopped, Exit: x},
		EndPod{Cause: poddir.CauseStopped})
}

func TestKillWhileStarting(t *testing.T) {
	m := machine(t, AnyOnFailure, "a", "b")
	expect(t, m, Start{}, StartApp{App: "a"}, StartApp{App: "b"})
	expect(t, m, KillRequested{}, KillApp{"b"}, KillApp{"a"})
	expect(t, m, AppStarted{App: "a"}, KillApp{"a"})
	expect(t, m, AppStartFailed{App: "b", Reason: poddir.StartFailed, Code: NoCode, Message: "killed"},
		FinishApp{App: "b", Reason: poddir.Stopped, Exit: Exit{Code: NoCode}})
	x := Exit{Code: 137, Signal: 9}
	expect(t, m, AppExited{App: "a", Exit: x}, FinishApp{App: "a", Reason: poddir.Stopped, Exit: x},
		EndPod{Code: 137, Cause: poddir.CauseStopped, App: "b"})
}

func TestStopBeforeStart(t *testing.T) {
	m := machine(t, All, "a", "b")
	expect(t, m, at(1),
		FinishApp{App: "b", Reason: poddir.Stopped, Exit: Exit{Code: NoCode}},
		FinishApp{App: "a", Reason: poddir.Stopped, Exit: Exit{Code: NoCode}},
		EndPod{Cause: poddir.CauseStopped})
	expect(t, m, Start{})
}

func TestFailedBeforeStart(t *testing.T) {
	m := machine(t, AnyOnFailure, "a")
	expect(t, m, Failed{"no cgroup"},
		FinishApp{App: "a", Reason: poddir.StartFailed, Message: "no cgroup", Exit: Exit{Code: NoCode}},
		EndPod{Code: 254, Cause: poddir.CauseSetup, Message: "no cgroup"})
}

func TestOOMKilled(t *testing.T) {
	m := machine(t, AnyOnFailure, "a")
	m.Handle(Start{})
	m.Handle(AppStarted{App: "a"})
	x := Exit{Code: 137, Signal: 9, OOMKilled: true}
	expect(t, m, AppExited{App: "a", Exit: x}, FinishApp{App: "a", Reason: poddir.OOMKilled, Exit: x},
		EndPod{Code: 137, Cause: poddir.CausePolicy, App: "a"})
}

// An app that answers the stop by itself just as it is killed keeps its code.
func TestOwnEndBeatsKill(t *testing.T) {
	m := machine(t, AnyOnFailure, "a")
	m.Handle(Start{})
	m.Handle(AppStarted{App: "a"})
	m.Handle(at(1))
	expect(t, m, StopTimeout{App: "a"}, KillApp{"a"})
	expect(t, m, AppExited{App: "a", Exit: Exit{}}, FinishApp{App: "a", Reason: poddir.Stopped},
		EndPod{Cause: poddir.CauseStopped})
}

// TestRandomLives feeds machines what may come, in any order, and checks what
// holds for every life: each app ends once, the pod ends once and last, a
// signal goes only to a running app, and only a started app is killed.
func TestRandomLives(t *testing.T) {
	for seed := range uint64(20000) {
		life(t, rand.New(rand.NewPCG(seed, 1)), seed)
	}
}

func life(t *testing.T, rng *rand.Rand, seed uint64) {
	t.Helper()
	names := []string{"a", "b", "c", "d"}[:1+rng.IntN(4)]
	m := machine(t, []Policy{All, Any, AnyOnFailure}[rng.IntN(3)], names...)
	state := map[string]phase{} // as the actions and events tell it
	finished, ends, clock := map[string]int{}, 0, 0.0
	feed := func(e Event) {
		for _, a := range m.Handle(e) {
			if ends > 0 {
				t.Fatalf("seed %d: %#v after the end", seed, a)
			}
			switch a := a.(type) {
			case StartApp:
				state[a.App] = starting
			case SignalApp:
				if state[a.App] != running {
					t.Fatalf("seed %d: %#v, which is not running", seed, a)
				}
			case KillApp:
				if s := state[a.App]; s != running && s != starting {
					t.Fatalf("seed %d: %#v, which is not there", seed, a)
				}
			case FinishApp:
				finished[a.App]++
				state[a.App] = ended
			case EndPod:
				ends++
			}
		}
	}
	step := func() {
		app := names[rng.IntN(len(names))]
		clock += rng.Float64()
		switch k := rng.IntN(24); {
		case k < 3:
			feed(Start{})
		case k < 10:
			if state[app] == starting {
				state[app] = running
			}
			feed(AppStarted{App: app})
		case k < 16:
			feed(AppExited{App: app, Exit: Exit{Code: rng.IntN(2)}})
		case k < 18:
			if state[app] == starting {
				feed(AppStartFailed{App: app, Reason: poddir.StartFailed, Code: 127})
			}
		case k < 20:
			feed(StopTimeout{App: app})
		case k < 22:
			feed(at(clock))
		case k < 23:
			feed(KillRequested{})
		default:
			feed(Failed{"x"})
		}
	}
	for range rng.IntN(40) {
		step()
	}
	feed(Start{}) // whatever was left out
	for _, n := range names {
		state[n] = max(state[n], running)
		feed(AppStarted{App: n})
		feed(AppExited{App: n, Exit: Exit{}})
	}
	if ends != 1 || !m.Over() {
		t.Fatalf("seed %d: the pod ended %d times", seed, ends)
	}
	for _, n := range names {
		if finished[n] != 1 {
			t.Fatalf("seed %d: app %s ended %d times", seed, n, finished[n])
		}
	}
}

func TestParsePolicy(t *testing.T) {
	for name, want := range map[string]Policy{"": AnyOnFailure, "all": All, "any": Any, "anyOnFailure": AnyOnFailure} {
		if got, err := ParsePolicy(name); err != nil || got != want {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
	if _, err := ParsePolicy("ALL"); !errs.Is(err, errs.Usage) {
		t.Errorf("an unknown policy gave %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(All, nil); err == nil {
		t.Error("a pod without apps was accepted")
	}
	if _, err := New(All, []App{{Name: "a"}, {Name: "a"}}); err == nil {
		t.Error("a name was accepted twice")
	}
	if _, err := New("some", []App{{Name: "a"}}); err == nil {
		t.Error("an unknown policy was accepted")
	}
}
