package lifecycle

import (
	"slices"
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

type phase int

const (
	waiting phase = iota
	starting
	running
	ended
)

type app struct {
	App
	phase    phase
	stopping poddir.Reason // Stopped or PodEnded once it is being stopped
	killed   poddir.Reason // why it was killed, once it was
	end      FinishApp
}

// failed says whether the ended app counts as a failure.
func (a *app) failed() bool { return a.end.Code != 0 }

// weight is the app's exit code in terms of the pod's.
func (a *app) weight() int {
	if a.end.Code == NoCode {
		return CodeSetup
	}
	return a.end.Code
}

// Machine is the state of one pod's life. It is not safe for concurrent use.
type Machine struct {
	policy   Policy
	apps     []*app
	finished []*app // by time
	ran      bool   // some app's program has run
	stopAt   *time.Time
	verdict  *EndPod // set once the end is decided by policy or by failure
	over     bool
	out      []Action
}

// New returns the machine of a pod with these apps in manifest order.
func New(policy Policy, apps []App) (*Machine, error) {
	if len(apps) == 0 {
		return nil, errs.Newf(errs.Usage, "pod: no apps")
	}
	policy, err := ParsePolicy(string(policy))
	if err != nil {
		return nil, err
	}
	m := &Machine{policy: policy}
	for _, a := range apps {
		if m.find(a.Name) != nil {
			return nil, errs.Newf(errs.Usage, "pod: app %s: name used twice", a.Name)
		}
		m.apps = append(m.apps, &app{App: a})
	}
	return m, nil
}

// Handle takes an event and returns what is to be done now. An event that no
// longer means anything, such as the timeout of an app that has ended, is
// ignored.
func (m *Machine) Handle(e Event) []Action {
	if m.over {
		return nil
	}
	m.out = nil
	switch e := e.(type) {
	case Start:
		m.start()
	case AppStarted:
		m.started(m.find(e.App))
	case AppExited:
		m.exited(m.find(e.App), e.Exit)
	case AppStartFailed:
		m.startFailed(m.find(e.App), e)
	case StopRequested:
		m.stopRequested(e)
	case KillRequested:
		m.killRequested()
	case StopTimeout:
		if a := m.find(e.App); a != nil && a.stopping != "" {
			m.kill(a, poddir.KilledAfterTimeout)
		}
	case Failed:
		m.fail(e.Message)
	}
	m.settle()
	return m.out
}

// Over says whether the pod has ended.
func (m *Machine) Over() bool { return m.over }

func (m *Machine) find(name string) *app {
	i := slices.IndexFunc(m.apps, func(a *app) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return m.apps[i]
}

func (m *Machine) do(a Action) { m.out = append(m.out, a) }

func (m *Machine) start() {
	for _, a := range m.apps {
		if a.phase == waiting {
			a.phase = starting
			m.do(StartApp{a.Name})
		}
	}
}

func (m *Machine) started(a *app) {
	if a == nil || a.phase != starting {
		return
	}
	a.phase = running
	m.ran = true
	switch {
	case a.killed != "":
		// The kill came too early for this process: its cgroup was empty.
		m.do(KillApp{a.Name})
	case a.stopping != "":
		m.do(SignalApp{a.Name, a.StopSignal})
	}
}

func (m *Machine) exited(a *app, x Exit) {
	if a == nil || a.phase != running {
		return
	}
	reason := poddir.Completed
	switch {
	case a.killed != "" && x.Signal == sigKill:
		reason = a.killed
	case a.stopping != "":
		reason = a.stopping
	case x.OOMKilled && x.Signal == sigKill:
		reason = poddir.OOMKilled
	case x.Signal != 0:
		reason = poddir.Signaled
	case x.Code != 0:
		reason = poddir.Error
	}
	m.finish(a, FinishApp{Reason: reason, Exit: x})
}

func (m *Machine) startFailed(a *app, e AppStartFailed) {
	if a == nil || a.phase != starting {
		return
	}
	end := FinishApp{Reason: e.Reason, Message: e.Message, Exit: Exit{Code: e.Code}}
	if a.killed != "" {
		// Not its own failure: its start was given up.
		end = FinishApp{Reason: a.killed, Exit: Exit{Code: NoCode}}
	}
	m.finish(a, end)
}

func (m *Machine) finish(a *app, end FinishApp) {
	end.App = a.Name
	a.phase, a.end = ended, end
	m.finished = append(m.finished, a)
	m.do(end)
}

// stop begins the good end of every app that has not ended, the last first.
func (m *Machine) stop(reason poddir.Reason) {
	for _, a := range slices.Backward(m.apps) {
		if a.stopping != "" {
			continue
		}
		a.stopping = reason
		switch a.phase {
		case waiting:
			m.finish(a, FinishApp{Reason: reason, Exit: Exit{Code: NoCode}})
		case starting:
			// The signal follows once there is a process to get it.
			m.do(ArmStopTimer{a.Name})
		case running:
			m.do(SignalApp{a.Name, a.StopSignal})
			m.do(ArmStopTimer{a.Name})
		case ended:
		}
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
		}
		return
	}
	m.stopAt = &e.At
	m.stop(poddir.Stopped)
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
	for _, a := range slices.Backward(m.apps) {
		if a.stopping == "" {
			a.stopping = reason
		}
		if a.phase == waiting {
			m.finish(a, FinishApp{Reason: a.stopping, Exit: Exit{Code: NoCode}})
		}
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
			m.finish(a, FinishApp{Reason: poddir.StartFailed, Message: message, Exit: Exit{Code: NoCode}})
		}
	}
	m.killAll(poddir.PodEnded)
}

// settle ends the pod if it is due.
func (m *Machine) settle() {
	if m.verdict == nil && m.stopAt == nil {
		if m.verdict = m.judge(); m.verdict == nil {
			return
		}
		m.stop(poddir.PodEnded)
	}
	if len(m.finished) < len(m.apps) {
		return
	}
	end := m.verdict
	if end == nil {
		end = m.judgeStopped()
	}
	m.over = true
	m.do(*end)
}

// judge applies the exit policy; nil means that the pod goes on.
func (m *Machine) judge() *EndPod {
	if len(m.finished) == 0 {
		return nil
	}
	all := len(m.finished) == len(m.apps)
	if m.policy == Any {
		return m.decidedBy(m.finished[0])
	}
	i := slices.IndexFunc(m.finished, (*app).failed)
	switch {
	case i >= 0 && (all || m.policy == AnyOnFailure):
		return m.decidedBy(m.finished[i])
	case all:
		return &EndPod{Cause: poddir.CausePolicy}
	}
	return nil
}

func (m *Machine) decidedBy(a *app) *EndPod {
	end := &EndPod{Code: a.weight(), Cause: poddir.CausePolicy, App: a.Name, Message: a.end.Message}
	if a.end.Code == NoCode && !m.ran {
		end.Cause = poddir.CauseSetup
	}
	return end
}

// judgeStopped gives the end of a pod that was asked to stop: 137 if an app
// had to be killed, else the first code that is no good answer to the stop.
func (m *Machine) judgeStopped() *EndPod {
	end := &EndPod{Cause: poddir.CauseStopped}
	for _, a := range m.finished {
		switch {
		case a.killed != "" && (a.end.Signal == sigKill || a.end.Code == NoCode):
			return &EndPod{Code: 128 + sigKill, Cause: poddir.CauseStopped, App: a.Name}
		case end.Code == 0 && !a.stoppedWell():
			end.Code, end.App, end.Message = a.weight(), a.Name, a.end.Message
		}
	}
	return end
}

// stoppedWell says whether the app's end is a good one in a pod that was
// asked to stop. Death by the stop signal is none if nobody had asked yet.
func (a *app) stoppedWell() bool {
	switch a.end.Code {
	case 0:
		return true
	case NoCode:
		// It was stopped before its turn, rather than failed.
		return a.end.Reason == poddir.Stopped
	case 128 + a.StopSignal:
		return a.end.Reason == poddir.Stopped
	}
	return false
}
