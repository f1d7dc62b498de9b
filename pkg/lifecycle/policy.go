package lifecycle

import "github.com/rkt-pods/rkt/pkg/poddir"

// judge applies the exit policy; nil means that the pod goes on. An init that
// failed ends the pod under each policy; only the apps count beside it.
func (m *Machine) judge() *EndPod {
	var first, firstFailed *app
	left := 0
	for _, a := range m.apps {
		if a.Role == RoleApp && a.phase != ended {
			left++
		}
	}
	for _, a := range m.finished {
		switch {
		case a.Role == RoleInit && a.end.Code != 0:
			return m.decidedBy(a)
		case a.Role != RoleApp:
			continue
		}
		if first == nil {
			first = a
		}
		if firstFailed == nil && a.failed() {
			firstFailed = a
		}
	}
	switch {
	case first == nil:
		return nil
	case m.policy == Any:
		return m.decidedBy(first)
	case firstFailed != nil && (left == 0 || m.policy == AnyOnFailure):
		return m.decidedBy(firstFailed)
	case left == 0:
		return &EndPod{Cause: poddir.CausePolicy}
	}
	return nil
}

func (m *Machine) decidedBy(a *app) *EndPod {
	end := &EndPod{Code: a.weight(), Cause: poddir.CausePolicy, App: a.Name, Message: a.end.Message}
	if a.end.Code == NoCode && !m.ran && !a.left {
		end.Cause = poddir.CauseSetup
	}
	return end
}

// judgeStopped gives the end of a pod that was asked to stop: 137 if an app
// had to be killed, else the first code that is no good answer to the stop.
// Sidecars don't count, as for the policy, nor does what was stopped by itself
// before.
func (m *Machine) judgeStopped() *EndPod {
	end := &EndPod{Cause: poddir.CauseStopped}
	for _, a := range m.finished {
		switch {
		case a.Role == RoleSidecar || a.left:
		case a.killed != "" && (a.end.Signal == sigKill || a.end.Code == NoCode):
			return &EndPod{Code: 128 + sigKill, Cause: poddir.CauseStopped, App: a.Name}
		case end.Code == 0 && !a.stoppedWell():
			end.Code, end.App, end.Message = a.weight(), a.Name, a.end.Message
		}
	}
	return end
}
