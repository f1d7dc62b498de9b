package lifecycle

import (
	"strings"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

func newMachine(t *testing.T, policy Policy, apps ...App) *Machine {
	t.Helper()
	for i := range apps {
		apps[i].StopSignal = sigTerm
	}
	m, err := New(policy, apps)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func after(s string) []After {
	list, err := ParseAfter(s)
	if err != nil {
		panic(err)
	}
	return list
}

func sec(s float64) time.Time { return time.Unix(1000, 0).Add(time.Duration(s * 1e9)) }

var (
	zero  = Exit{}
	three = Exit{Code: 3}
	term  = Exit{Code: 143, Signal: sigTerm}
)

func done(app string, x Exit) FinishApp {
	r := poddir.Completed
	if x.Code != 0 {
		r = poddir.Error
	}
	return FinishApp{App: app, Reason: r, Exit: x}
}

// TestChain is db → ready → migrate → web: up in order, each as soon as its
// condition holds, and down in reverse.
func TestChain(t *testing.T) {
	m := newMachine(t, AnyOnFailure,
		App{Name: "web", After: after("migrate:succeeded")},
		App{Name: "migrate", After: after("db:ready")},
		App{Name: "db", Checked: true})
	expect(t, m, Start{}, StartApp{App: "db"})
	expect(t, m, AppStarted{App: "db"})
	if w := m.Awaiting(); len(w) != 3 || w[0] != (Wait{"web", "migrate", OnSucceeded}) || w[2] != (Wait{App: "db", Condition: OnReady}) {
		t.Errorf("awaiting %v", w)
	}
	expect(t, m, AppReady{App: "db", Ready: true}, ShowReady{"db", true}, StartApp{App: "migrate"})
	expect(t, m, AppReady{App: "db", Ready: false}, ShowReady{"db", false})
	expect(t, m, AppStarted{App: "migrate"})
	expect(t, m, AppExited{App: "migrate"}, done("migrate", zero), StartApp{App: "web"})
	expect(t, m, AppStarted{App: "web"})
	expect(t, m, AppReady{App: "db", Ready: true}, ShowReady{"db", true}, PodReady{true})
	expect(t, m, at(1), SignalApp{"web", sigTerm}, ArmStopTimer{App: "web"})
	expect(t, m, AppExited{App: "web", Exit: term}, FinishApp{App: "web", Reason: poddir.Stopped, Exit: term},
		SignalApp{"db", sigTerm}, ArmStopTimer{App: "db"})
	expect(t, m, AppExited{App: "db"}, FinishApp{App: "db", Reason: poddir.Stopped}, EndPod{Cause: poddir.CauseStopped})
}

func TestInitsAndSidecars(t *testing.T) {
	m := newMachine(t, All,
		App{Name: "app"},
		App{Name: "setup", Role: RoleInit},
		App{Name: "proxy", Role: RoleSidecar, Restart: Restart{Mode: Always}},
		App{Name: "warm", Role: RoleInit})
	expect(t, m, Start{}, StartApp{App: "setup"})
	m.Handle(AppStarted{App: "setup"})
	expect(t, m, AppExited{App: "setup"}, done("setup", zero), StartApp{App: "proxy"})
	expect(t, m, AppStarted{App: "proxy"}, StartApp{App: "warm"})
	m.Handle(AppStarted{App: "warm"})
	expect(t, m, AppExited{App: "warm"}, done("warm", zero), StartApp{App: "app"})
	expect(t, m, AppStarted{App: "app"}, PodReady{true})
	expect(t, m, AppExited{App: "proxy", Exit: three}, FinishApp{App: "proxy", Reason: poddir.Error, Exit: three, Again: true},
		ArmBackoff{"proxy", 1, firstBackoff}, PodReady{false})
	expect(t, m, BackoffOver{"proxy", 0}) // of another time
	expect(t, m, BackoffOver{"proxy", 1}, StartApp{"proxy", 1})
	expect(t, m, AppStarted{App: "proxy"}, PodReady{true})
	expect(t, m, AppExited{App: "app", Exit: three}, done("app", three), SignalApp{"proxy", sigTerm}, ArmStopTimer{App: "proxy", Restarts: 1})
	expect(t, m, StopTimeout{App: "proxy"}) // of its first execution
	expect(t, m, StopTimeout{"proxy", 1}, KillApp{"proxy"})
	x := Exit{Code: 137, Signal: 9}
	expect(t, m, AppExited{App: "proxy", Exit: x}, FinishApp{App: "proxy", Reason: poddir.KilledAfterTimeout, Exit: x},
		EndPod{Code: 3, Cause: poddir.CausePolicy, App: "app"})
}

// A failed init ends the pod with its code, whatever the policy.
func TestInitFails(t *testing.T) {
	for _, policy := range []Policy{All, Any, AnyOnFailure} {
		m := newMachine(t, policy, App{Name: "app"}, App{Name: "setup", Role: RoleInit})
		m.Handle(Start{})
		m.Handle(AppStarted{App: "setup"})
		expect(t, m, AppExited{App: "setup", Exit: three}, done("setup", three),
			FinishApp{App: "app", Reason: poddir.PodEnded, Exit: Exit{Code: NoCode}},
			EndPod{Code: 3, Cause: poddir.CausePolicy, App: "setup"})
	}
}

func TestDependencyFailed(t *testing.T) {
	m := newMachine(t, All,
		App{Name: "a"}, App{Name: "b", After: after("a:succeeded")}, App{Name: "c", After: after("b")},
		App{Name: "d", After: after("a:exited")})
	m.Handle(Start{})
	m.Handle(AppStarted{App: "a"})
	none := Exit{Code: NoCode}
	expect(t, m, AppExited{App: "a", Exit: three}, done("a", three),
		FinishApp{App: "b", Reason: poddir.DependencyFailed, Message: "after a: it will not be succeeded", Exit: none},
		FinishApp{App: "c", Reason: poddir.DependencyFailed, Message: "after b: it will not be started", Exit: none},
		StartApp{App: "d"})
	m.Handle(AppStarted{App: "d"})
	expect(t, m, AppExited{App: "d"}, done("d", zero), EndPod{Code: 3, Cause: poddir.CausePolicy, App: "a"})
}

// What ended before it was ready will never have been.
func TestNeverReady(t *testing.T) {
	m := newMachine(t, AnyOnFailure, App{Name: "a", Checked: true}, App{Name: "b", After: after("a:ready")})
	m.Handle(Start{})
	m.Handle(AppStarted{App: "a"})
	none := Exit{Code: NoCode}
	expect(t, m, AppExited{App: "a"}, done("a", zero),
		FinishApp{App: "b", Reason: poddir.DependencyFailed, Message: "after a: it will not be ready", Exit: none},
		EndPod{Code: CodeSetup, Cause: poddir.CausePolicy, App: "b", Message: "after a: it will not be ready"})
}

func TestGraphErrors(t *testing.T) {
	for _, c := range []struct {
		apps []App
		text string
	}{
		{[]App{{Name: "a", After: after("b")}}, "app a: after b: no such app in the pod"},
		{[]App{{Name: "a", After: after("a")}}, "app a: waits for itself: a after a"},
		{[]App{{Name: "x"}, {Name: "a", After: after("b")}, {Name: "b", After: after("c:ready")}, {Name: "c", After: after("x,a")}},
			"app a: waits for itself: a after b after c after a"},
		{[]App{{Name: "a"}, {Name: "i", Role: RoleInit, After: after("a")}}, "app a: waits for itself: a after i after a"},
		{[]App{{Name: "i", Role: RoleInit}}, "pod: no app among its inits and sidecars"},
		{[]App{{Name: "a"}, {Name: "i", Role: RoleInit, Restart: Restart{Mode: Always}}}, "app i: an init has to finish: restart always"},
		{[]App{{Name: "a"}, {Name: "a"}}, "pod: app a: name used twice"},
		{nil, "pod: no apps"},
	} {
		_, err := New(All, c.apps)
		if !errs.Is(err, errs.Usage) || err.Error() != c.text {
			t.Errorf("%v: %v, want %q", c.apps, err, c.text)
		}
	}
}

func TestParse(t *testing.T) {
	for s, want := range map[string]Restart{
		"never": {Mode: Never}, "always": {Mode: Always}, "on-failure": {Mode: OnFailure}, "on-failure:3": {Mode: OnFailure, Max: 3},
	} {
		if got, err := ParseRestart(s); err != nil || got.Mode != want.Mode || got.Max != want.Max {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "on-failure:", "on-failure:0", "on-failure:-1", "never:1", "sometimes", "always:x"} {
		if _, err := ParseRestart(s); !errs.Is(err, errs.Usage) {
			t.Errorf("restart %q: %v", s, err)
		}
	}
	for _, s := range []string{"", "a:", "a:done", ":ready", "a,,b"} {
		if _, err := ParseAfter(s); !errs.Is(err, errs.Usage) {
			t.Errorf("after %q: %v", s, err)
		}
	}
	if got, err := ParseCodes("0, 3,137,3"); err != nil || len(got) != 3 {
		t.Errorf("codes: %v, %v", got, err)
	}
	for _, s := range []string{"", "256", "-1", "x", "1,"} {
		if _, err := ParseCodes(s); !errs.Is(err, errs.Usage) {
			t.Errorf("codes %q: %v", s, err)
		}
	}
	if _, err := ParseRole("daemon"); !errs.Is(err, errs.Usage) || !strings.Contains(err.Error(), `"daemon"`) {
		t.Errorf("role: %v", err)
	}
}
