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
	backoff
	ended
)

type app struct {
	App
	needs    []need
	below    map[*app]bool // what it needs, and what that needs
	phase    phase
	stopping poddir.Reason // Stopped or PodEnded once it is to be stopped
	how      Stopping      // and how
	asked    int           // the signal by which it was, 0: not yet
	killed   poddir.Reason // why it was killed, once it was
	unfit    string        // and what of, with AppUnfit
	left     bool          // it was stopped by request: finished, not failed
	again    bool          // it was asked to start anew once it has ended

	startedAt, readyAt   time.Time
	ready                bool
	wasStarted, wasReady bool
	restarts             int // executions before this one
	streak               int // of those, in a row
	end                  FinishApp
}

// failed says whether the ended app counts as a failure.
func (a *app) failed() bool { return a.end.Code != 0 && !a.left }

// weight is the app's exit code in terms of the pod's.
func (a *app) weight() int {
	switch {
	case a.left && a.stoppedWell():
		return 0
	case a.end.Code == NoCode:
		return CodeSetup
	}
	return a.end.Code
}

// fine says whether the app does not keep the pod from being ready.
func (a *app) fine() bool {
	return a.phase == running && a.ready || a.phase == ended && a.end.Code == 0
}

// Machine is the state of one pod's life. It is not safe for concurrent use.
type Machine struct {
	policy   Policy
	apps     []*app
	finished []*app // by time
	begun    bool
	ran      bool // some app's program has run
	ready    bool
	stopAt   *time.Time
	verdict  *EndPod // set once the end is decided by policy or by failure
	over     bool
	out      []Action
}

// New returns the machine of a pod with these apps in manifest order. The
// error is of class Usage for apps that could never run: it says which.
func New(policy Policy, apps []App) (*Machine, error) {
	policy, err := ParsePolicy(string(policy))
	if err != nil {
		return nil, err
	}
	m := &Machine{policy: policy}
	counts := false
	for _, a := range apps {
		if m.find(a.Name) != nil {
			return nil, errs.Newf(errs.Usage, "pod: app %s: name used twice", a.Name)
		}
		if a.Role == "" {
			a.Role = RoleApp
		}
		counts = counts || a.Role == RoleApp
		m.apps = append(m.apps, &app{App: a})
	}
	switch {
	case len(apps) == 0:
		return nil, errs.Newf(errs.Usage, "pod: no apps")
	case !counts:
		return nil, errs.Newf(errs.Usage, "pod: no app among its inits and sidecars")
	}
	return m, m.connect()
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
		m.begun = true
	case AppStarted:
		m.started(m.find(e.App), e.At)
	case AppReady:
		m.checked(m.find(e.App), e)
	case AppExited:
		m.exited(m.find(e.App), e)
	case AppStartFailed:
		m.startFailed(m.find(e.App), e)
	case AppUnfit:
		m.unfit(m.find(e.App), e)
	case BackoffOver:
		if a := m.find(e.App); a != nil && a.phase == backoff && a.restarts == e.Restarts {
			m.launch(a)
		}
	case AppStop:
		m.stopApp(m.find(e.App), e.Stopping)
	case AppRestart:
		m.restartApp(m.find(e.App), e.Stopping)
	case StopRequested:
		m.stopRequested(e)
	case KillRequested:
		m.killRequested()
	case StopTimeout:
		if a := m.find(e.App); a != nil && a.asked != 0 && a.restarts == e.Restarts {
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

// Ready says whether the pod is ready: each app and sidecar is, or has
// finished with 0 for good, and so has each init.
func (m *Machine) Ready() bool { return m.ready }

// Ending says whether the pod is on its way to its end: nothing starts any more.
func (m *Machine) Ending() bool { return m.stopAt != nil || m.verdict != nil }

func (m *Machine) find(name string) *app {
	i := slices.IndexFunc(m.apps, func(a *app) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return m.apps[i]
}

func (m *Machine) do(a Action) { m.out = append(m.out, a) }

// launch begins an execution.
func (m *Machine) launch(a *app) {
	a.phase = starting
	a.stopping, a.how, a.asked, a.killed, a.unfit, a.again, a.left = "", Stopping{}, 0, "", "", false, false
	m.do(StartApp{a.Name, a.restarts})
}

func (m *Machine) started(a *app, at time.Time) {
	if a == nil || a.phase != starting {
		return
	}
	a.phase, a.startedAt, a.wasStarted = running, at, true
	m.ran = true
	if !a.Checked {
		a.ready, a.readyAt, a.wasReady = true, at, true
	}
	switch {
	case a.killed != "":
		// The kill came too early for this process: its cgroup was empty.
		m.do(KillApp{a.Name})
	case a.asked != 0:
		m.do(SignalApp{a.Name, a.asked})
	}
}

func (m *Machine) checked(a *app, e AppReady) {
	if a == nil || a.phase != running || !a.Checked || a.ready == e.Ready {
		return
	}
	a.ready, a.readyAt = e.Ready, e.At
	a.wasReady = a.wasReady || e.Ready
	m.do(ShowReady{a.Name, e.Ready})
}

func (m *Machine) exited(a *app, e AppExited) {
	if a == nil || a.phase != running {
		return
	}
	x, end := e.Exit, FinishApp{Reason: poddir.Completed, Exit: e.Exit}
	switch {
	case a.killed != "" && x.Signal == sigKill:
		end.Reason, end.Message = a.killed, a.unfit
	case a.asked != 0:
		end.Reason = a.stopping
	case x.OOMKilled && x.Signal == sigKill:
		end.Reason = poddir.OOMKilled
	case x.Signal != 0:
		end.Reason = poddir.Signaled
	case x.Code != 0:
		end.Reason = poddir.Error
	}
	m.conclude(a, end, e.At)
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
	m.conclude(a, end, e.At)
}

// unfit ends an app that runs and is not well; restart decides what follows.
func (m *Machine) unfit(a *app, e AppUnfit) {
	if a == nil || a.phase != running || a.asked != 0 || a.killed != "" {
		return
	}
	a.unfit = e.Message
	m.kill(a, e.Reason)
}

// conclude ends an execution, and the app with it unless another one follows.
func (m *Machine) conclude(a *app, end FinishApp, at time.Time) {
	end.App = a.Name
	a.end = end
	delay, again := m.restart(a, at)
	a.ready = false
	if !again {
		m.finish(a)
		return
	}
	end.Again = true
	m.do(end)
	m.next(a, delay)
}

// finish ends the app for good.
func (m *Machine) finish(a *app) {
	a.phase = ended
	m.finished = append(m.finished, a)
	m.do(a.end)
}

// never ends an app whose program did not run and will not.
func (m *Machine) never(a *app, reason poddir.Reason, message string) {
	a.end = FinishApp{App: a.Name, Reason: reason, Message: message, Exit: Exit{Code: NoCode}}
	m.finish(a)
}

// advance starts what waits for nothing any more, and ends what waits in vain.
func (m *Machine) advance() (changed bool) {
	for _, a := range m.apps {
		if a.phase != waiting {
			continue
		}
		i := slices.IndexFunc(a.needs, need.hopeless)
		switch {
		case i >= 0:
			n := a.needs[i]
			m.never(a, poddir.DependencyFailed, "after "+n.app.Name+": it will not be "+string(n.condition))
			changed = true
		case !slices.ContainsFunc(a.needs, func(n need) bool { return !n.met() }):
			m.launch(a)
			changed = true
		}
	}
	return changed
}

// settle draws the consequences of what has changed, and ends the pod if it is
// due.
func (m *Machine) settle() {
	for changed := m.begun; changed && !m.Ending(); {
		if m.verdict = m.judge(); m.verdict != nil {
			m.stop(poddir.PodEnded, Stopping{})
			break
		}
		changed = m.advance()
	}
	if m.Ending() {
		m.advanceStop()
	} else if ready := !slices.ContainsFunc(m.apps, func(a *app) bool { return !a.fine() }); ready != m.ready {
		m.ready = ready
		m.do(PodReady{ready})
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
