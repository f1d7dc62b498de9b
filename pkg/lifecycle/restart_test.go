package lifecycle

import (
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/poddir"
)

// crash ends an execution at the given second and returns the back-off, 0 if
// there is none.
func crash(t *testing.T, m *Machine, x Exit, at float64) time.Duration {
	t.Helper()
	for _, a := range m.Handle(AppExited{App: "a", Exit: x, At: sec(at)}) {
		if b, ok := a.(ArmBackoff); ok {
			return b.Delay
		}
	}
	return 0
}

// again takes the app out of its back-off.
func again(t *testing.T, m *Machine, n int, at float64) {
	t.Helper()
	if got := m.Handle(BackoffOver{"a", n}); len(got) == 0 || got[0] != (StartApp{"a", n}) {
		t.Fatalf("restart %d: %v", n, got)
	}
	m.Handle(AppStarted{App: "a", At: sec(at)})
}

func TestBackoff(t *testing.T) {
	m := newMachine(t, All, App{Name: "a", Restart: Restart{Mode: OnFailure}})
	m.Handle(Start{})
	m.Handle(AppStarted{App: "a", At: sec(0)})
	now := 0.0
	for i := range 12 {
		want := min(100*time.Millisecond<<i, time.Minute)
		now++
		if got := crash(t, m, three, now); got != want {
			t.Fatalf("back-off %d: %v, want %v", i, got, want)
		}
		again(t, m, i+1, now)
	}
	// A minute of running and it is well again.
	if got := crash(t, m, three, now+60); got != firstBackoff {
		t.Errorf("after a minute: %v", got)
	}
	again(t, m, 13, now+61)
	if got := crash(t, m, three, now+62); got != 2*firstBackoff {
		t.Errorf("soon after: %v", got)
	}
	again(t, m, 14, now+63)
	expect(t, m, AppExited{App: "a", At: sec(now + 64)}, done("a", zero), EndPod{Cause: poddir.CausePolicy})
}

func TestBackoffOfAReadyApp(t *testing.T) {
	m := newMachine(t, All, App{Name: "a", Checked: true, Restart: Restart{Mode: Always}})
	m.Handle(Start{})
	m.Handle(AppStarted{App: "a", At: sec(0)})
	crash(t, m, zero, 1)
	again(t, m, 1, 2)
	m.Handle(AppReady{App: "a", Ready: true, At: sec(3)})
	if got := crash(t, m, three, 12); got != 2*firstBackoff {
		t.Errorf("nine seconds of ready: %v", got)
	}
	again(t, m, 2, 13)
	m.Handle(AppReady{App: "a", Ready: true, At: sec(14)})
	if got := crash(t, m, three, 24); got != firstBackoff {
		t.Errorf("ten seconds of ready: %v", got)
	}
}

func TestRestartRules(t *testing.T) {
	for _, c := range []struct {
		r    Restart
		x    Exit
		want bool
	}{
		{Restart{}, three, false}, {Restart{Mode: Never}, three, false},
		{Restart{Mode: OnFailure}, zero, false}, {Restart{Mode: OnFailure}, term, true},
		{Restart{Mode: Always}, zero, true},
		{Restart{Mode: OnCodes, Codes: []int{0, 137}}, zero, true},
		{Restart{Mode: OnCodes, Codes: []int{0, 137}}, three, false},
		{Restart{Mode: OnCodes, Codes: []int{0, 137}}, Exit{Code: 137, Signal: 9}, true},
	} {
		m := newMachine(t, All, App{Name: "a", Restart: c.r})
		m.Handle(Start{})
		m.Handle(AppStarted{App: "a", At: sec(0)})
		if got := crash(t, m, c.x, 1) != 0; got != c.want || m.Over() == c.want {
			t.Errorf("%v, %v: restarted %v", c.r, c.x, got)
		}
	}
}

func TestRestartMaximum(t *testing.T) {
	m := newMachine(t, AnyOnFailure, App{Name: "a", Restart: Restart{Mode: OnFailure, Max: 2}})
	m.Handle(Start{})
	for i := range 2 {
		m.Handle(AppStartFailed{App: "a", Reason: poddir.StartFailed, Code: 127, At: sec(float64(i))})
		m.Handle(BackoffOver{"a", i + 1})
	}
	expect(t, m, AppStartFailed{App: "a", Reason: poddir.StartFailed, Code: 127, At: sec(3)},
		FinishApp{App: "a", Reason: poddir.StartFailed, Exit: Exit{Code: 127}}, EndPod{Code: 127, Cause: poddir.CausePolicy, App: "a"})
}

// A pod that ends starts nothing again, and what was about to be keeps the
// record of its last execution.
func TestStopInBackoff(t *testing.T) {
	m := newMachine(t, AnyOnFailure, App{Name: "a", Restart: Restart{Mode: Always}})
	m.Handle(Start{})
	m.Handle(AppStarted{App: "a", At: sec(0)})
	crash(t, m, three, 1)
	expect(t, m, at(2), done("a", three), EndPod{Code: 3, Cause: poddir.CauseStopped, App: "a"})
}

func TestLivenessFailed(t *testing.T) {
	m := newMachine(t, AnyOnFailure, App{Name: "a", Restart: Restart{Mode: OnFailure}})
	m.Handle(Start{})
	m.Handle(AppStarted{App: "a", At: sec(0)})
	expect(t, m, AppUnfit{"a", poddir.LivenessFailed, "no answer"}, KillApp{"a"})
	expect(t, m, AppUnfit{"a", poddir.LivenessFailed, "no answer"})
	x := Exit{Code: 137, Signal: 9}
	expect(t, m, AppExited{App: "a", Exit: x, At: sec(1)},
		FinishApp{App: "a", Reason: poddir.LivenessFailed, Message: "no answer", Exit: x, Again: true},
		ArmBackoff{"a", 1, firstBackoff}, PodReady{false})
	expect(t, m, BackoffOver{"a", 1}, StartApp{"a", 1})
	expect(t, m, AppStarted{App: "a", At: sec(2)}, PodReady{true})
	expect(t, m, AppExited{App: "a", Exit: Exit{Code: 139, Signal: 11}, At: sec(3)},
		FinishApp{App: "a", Reason: poddir.Signaled, Exit: Exit{Code: 139, Signal: 11}, Again: true},
		ArmBackoff{"a", 2, 2 * firstBackoff}, PodReady{false})
}

func TestRestartByHand(t *testing.T) {
	m := newMachine(t, All, App{Name: "a"}, App{Name: "b"})
	if m.CanRestart("a") == nil || m.CanRestart("z") == nil {
		t.Error("an app that did not start, or is not there, can be restarted")
	}
	m.Handle(Start{})
	m.Handle(AppStarted{App: "a", At: sec(0)})
	m.Handle(AppStarted{App: "b", At: sec(0)})
	expect(t, m, AppRestart{App: "a"}, SignalApp{"a", sigTerm}, ArmStopTimer{App: "a"})
	expect(t, m, AppExited{App: "a", Exit: term, At: sec(1)}, FinishApp{App: "a", Reason: poddir.Stopped, Exit: term, Again: true},
		ArmBackoff{"a", 1, 0}, PodReady{false})
	expect(t, m, BackoffOver{"a", 1}, StartApp{"a", 1})
	m.Handle(AppStarted{App: "a", At: sec(2)})
	expect(t, m, AppExited{App: "a", Exit: three, At: sec(3)}, done("a", three), PodReady{false})
	// One that has finished comes back, and does not count as failed any more.
	expect(t, m, AppRestart{App: "a"}, ArmBackoff{"a", 2, 0})
	expect(t, m, BackoffOver{"a", 2}, StartApp{"a", 2})
	expect(t, m, AppStarted{App: "a", At: sec(4)}, PodReady{true})
	m.Handle(AppExited{App: "a", At: sec(5)})
	expect(t, m, AppExited{App: "b", At: sec(6)}, done("b", zero), EndPod{Cause: poddir.CausePolicy})
}

func TestStopOneApp(t *testing.T) {
	m := newMachine(t, AnyOnFailure, App{Name: "a", Restart: Restart{Mode: Always}}, App{Name: "b"})
	m.Handle(Start{})
	m.Handle(AppStarted{App: "a", At: sec(0)})
	m.Handle(AppStarted{App: "b", At: sec(0)})
	soon := time.Second
	expect(t, m, AppStop{"a", Stopping{Signal: 2, Timeout: &soon}}, SignalApp{"a", 2}, ArmStopTimer{App: "a", Timeout: &soon})
	expect(t, m, AppStop{App: "a"})
	x := Exit{Code: 130, Signal: 2}
	expect(t, m, AppExited{App: "a", Exit: x, At: sec(1)}, FinishApp{App: "a", Reason: poddir.Stopped, Exit: x}, PodReady{false})
	expect(t, m, AppExited{App: "b", At: sec(2)}, done("b", zero), EndPod{Cause: poddir.CausePolicy})
}
