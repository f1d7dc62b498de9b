package lifecycle

import (
	"slices"
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// restart says whether and when an app whose execution has just ended gets
// another one. That is decided first: an app that will be restarted has not
// finished.
func (m *Machine) restart(a *app, at time.Time) (time.Duration, bool) {
	switch {
	case m.Ending() || a.left:
		return 0, false
	case a.again:
		a.streak = 0
		return 0, true
	}
	if !a.startedAt.IsZero() && a.wellFor(at) {
		a.streak = 0
	}
	// What was started once is not what failed to start now.
	a.startedAt = time.Time{}
	wanted := false
	switch a.Restart.Mode {
	case Always:
		wanted = true
	case OnFailure:
		wanted = a.end.Code != 0
	case OnCodes:
		wanted = slices.Contains(a.Restart.Codes, a.end.Code)
	case Never:
	}
	if !wanted || a.Restart.Max > 0 && a.streak >= a.Restart.Max {
		return 0, false
	}
	delay := lastBackoff
	if a.streak < 10 { // 100 ms times 2^10 is beyond it
		delay = min(firstBackoff<<a.streak, lastBackoff)
	}
	a.streak++
	return delay, true
}

func (a *app) wellFor(at time.Time) bool {
	return at.Sub(a.startedAt) >= wellAfter || a.Checked && a.ready && at.Sub(a.readyAt) >= wellWhenReady
}

// next prepares another execution.
func (m *Machine) next(a *app, delay time.Duration) {
	a.phase = backoff
	a.restarts++
	m.do(ArmBackoff{a.Name, a.restarts, delay})
}

// CanRestart says why AppRestart of the app would be ignored.
func (m *Machine) CanRestart(name string) error {
	a := m.find(name)
	switch {
	case a == nil:
		return errs.Newf(errs.NotFound, "app %s: not in this pod", name)
	case m.Ending():
		return errs.Newf(errs.Unavailable, "app %s: the pod is being stopped", name)
	case a.phase == waiting:
		return errs.Newf(errs.Unavailable, "app %s: not started yet", name)
	case a.Role == RoleInit && a.phase == ended:
		return errs.Newf(errs.Unavailable, "app %s: an init that has finished", name)
	}
	return nil
}

func (m *Machine) restartApp(a *app, how Stopping) {
	if a == nil || m.CanRestart(a.Name) != nil {
		return
	}
	switch a.phase {
	case starting, running:
		a.again, a.left = true, false
		m.halt(a, how)
	case backoff:
		m.launch(a)
	case ended:
		m.finished = slices.DeleteFunc(m.finished, func(o *app) bool { return o == a })
		a.streak, a.left = 0, false
		m.next(a, 0)
	case waiting:
	}
}
