package lifecycle

import (
	"cmp"
	"slices"
	"time"

	"github.com/rkt-pods/rkt/pkg/poddir"
)

// stop begins the good end of every app that has not ended. advanceStop does
// the rest.
func (m *Machine) stop(reason poddir.Reason, how Stopping) {
	for _, a := range m.apps {
		if a.stopping == "" {
			a.stopping, a.how = reason, how
		}
	}
}

// advanceStop goes on with the end of the pod: what nothing needs any more is
// asked to end, the last first. What does not run ends here.
func (m *Machine) advanceStop() {
	for changed := true; changed; {
		changed = false
		for _, a := range slices.Backward(m.apps) {
			switch {
			case a.phase == waiting:
				m.never(a, a.stopping, "")
				changed = true
			case a.phase == backoff:
				m.finish(a) // as its last execution ended
				changed = true
			case a.phase != ended && a.asked == 0 && !m.needed(a):
				m.ask(a)
			}
		}
	}
}

// ask sends the app its stop signal, or will once there is a process to get it.
func (m *Machine) ask(a *app) {
	a.asked = cmp.Or(a.how.Signal, a.StopSignal)
	if a.phase == running && a.killed == "" {
		m.do(SignalApp{a.Name, a.asked})
	}
	m.do(ArmStopTimer{a.Name, a.restarts, a.how.Timeout})
}

// hasten is for an app that is asked to end once more: the time that is named
// then counts as well, and the first to be over kills. A signal is sent once.
func (m *Machine) hasten(a *app, how Stopping) {
	if a.stopping == "" || how.Timeout == nil {
		return
	}
	if a.asked == 0 {
		a.how.Timeout = how.Timeout
	} else if a.phase == starting || a.phase == running {
		m.do(ArmStopTimer{a.Name, a.restarts, how.Timeout})
	}
}

// halt asks one app to end that starts or runs.
func (m *Machine) halt(a *app, how Stopping) {
	if a.asked != 0 {
		m.hasten(a, how)
		return
	}
	a.stopping, a.how = poddir.Stopped, how
	m.ask(a)
}

func (m *Machine) stopApp(a *app, how Stopping) {
	if a == nil || m.Ending() {
		return
	}
	switch a.phase {
	case waiting:
		a.left = true
		m.never(a, poddir.Stopped, "")
	case backoff:
		a.left = true
		m.finish(a)
	case starting, running:
		a.left, a.again = true, false
		m.halt(a, how)
	case ended:
	}
}

func (m *Machine) kill(a *app, reason poddir.Reason) {
	if a.killed != "" || a.phase != starting && a.phase != running {
		return
	}
	a.killed = reason
	m.do(KillApp{a.Name})
}

func (m *Machine) stopRequested(e StopRequested) {
	if m.stopAt != nil {
		if !e.Patient && e.At.Sub(*m.stopAt) >= secondSignal {
			m.killRequested()
			return
		}
	} else {
		m.stopAt = &e.At
	}
	for _, a := range slices.Backward(m.apps) {
		m.hasten(a, e.Stopping)
	}
	m.stop(poddir.Stopped, e.Stopping)
}

func (m *Machine) killRequested() {
	if m.stopAt == nil {
		m.stopAt = &time.Time{}
	}
	m.killAll(poddir.Stopped)
}

// killAll ends every app at once. One that is being stopped already keeps the
// reason it is being stopped for.
func (m *Machine) killAll(reason poddir.Reason) {
	m.stop(reason, Stopping{})
	for _, a := range slices.Backward(m.apps) {
		a.asked = cmp.Or(a.asked, a.StopSignal) // without a signal and a timer of its own
		m.kill(a, a.stopping)
	}
}

func (m *Machine) fail(message string) {
	// A pod that its policy has ended keeps the code that decided.
	if m.verdict == nil {
		m.verdict = &EndPod{Code: CodeSetup, Cause: poddir.CauseSetup, Message: message}
	}
	for _, a := range m.apps {
		if a.phase == waiting {
			m.never(a, poddir.StartFailed, message)
		}
	}
	m.killAll(poddir.PodEnded)
}

// stoppedWell says whether the app's end is a good one for an app that was
// asked to stop. Death by the stop signal is none if nobody had asked yet.
func (a *app) stoppedWell() bool {
	switch {
	case a.end.Code == 0:
		return true
	case a.end.Reason != poddir.Stopped:
		return false
	case a.end.Code == NoCode:
		return true // it was stopped before its turn, rather than failed
	}
	return a.end.Code == 128+cmp.Or(a.asked, a.StopSignal)
}
