package lifecycle

import (
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

// Policy says when a pod ends and with which code.
type Policy string

// The exit policies.
const (
	All          Policy = "all"          // when every app has finished; the first failure's code
	Any          Policy = "any"          // when one app has finished; its code
	AnyOnFailure Policy = "anyOnFailure" // when one app has failed, or all have finished
)

// Exit codes that rkt gives of its own.
const (
	CodeSetup = 254 // rkt could not do its part
	NoCode    = -1  // the app has no exit code: its program never ran
)

const sigKill = 9

// secondSignal is how long after the first stop request another one means
// "now": a terminal's ^C often comes twice within moments.
const secondSignal = time.Second

// App is what the machine has to know of an app.
type App struct {
	Name       string
	StopSignal int
}

// Exit is how a process ended. Code is 128 + Signal if a signal ended it.
type Exit struct {
	Code       int
	Signal     int
	CoreDumped bool
	OOMKilled  bool // the kernel's OOM killer took a process of the app
}

// Event is something that happened.
type Event interface{ event() }

type (
	// Start lets the pod begin.
	Start struct{}
	// AppStarted says that the app's program runs.
	AppStarted struct{ App string }
	// AppExited says that the app's main process has ended.
	AppExited struct {
		App string
		Exit
	}
	// AppStartFailed says that the app's program will never run: it can't be
	// executed (Code 127 or 126), its pre-start handler failed (the handler's
	// Code), or rkt could not set the app up (NoCode).
	AppStartFailed struct {
		App     string
		Reason  poddir.Reason
		Code    int
		Message string
	}
	// StopRequested asks the pod to stop in good order. Unless it is Patient,
	// one that comes well after another means: now.
	StopRequested struct {
		At      time.Time
		Patient bool
	}
	// KillRequested asks the pod to end without more ado.
	KillRequested struct{}
	// StopTimeout says that the timer of ArmStopTimer has run out.
	StopTimeout struct{ App string }
	// Failed says that rkt itself can't go on with the pod.
	Failed struct{ Message string }
)

func (Start) event()          {}
func (AppStarted) event()     {}
func (AppExited) event()      {}
func (AppStartFailed) event() {}
func (StopRequested) event()  {}
func (KillRequested) event()  {}
func (StopTimeout) event()    {}
func (Failed) event()         {}

// Action is something to be done, in the order given.
type Action interface{ action() }

type (
	// StartApp starts the app; AppStarted or AppStartFailed must follow.
	StartApp struct{ App string }
	// SignalApp sends a signal to the app's main process only.
	SignalApp struct {
		App    string
		Signal int
	}
	// ArmStopTimer starts the app's stop timeout; StopTimeout must follow
	// unless the app ends before.
	ArmStopTimer struct{ App string }
	// KillApp kills all processes of the app, or gives up its start.
	KillApp struct{ App string }
	// FinishApp records how the app ended. Code is NoCode if its program
	// never ran.
	FinishApp struct {
		App     string
		Reason  poddir.Reason
		Message string
		Exit
	}
	// EndPod records how the pod ended.
	EndPod struct {
		Code    int
		Cause   poddir.Cause
		App     string // the deciding one, if there is one
		Message string
	}
)

func (StartApp) action()     {}
func (SignalApp) action()    {}
func (ArmStopTimer) action() {}
func (KillApp) action()      {}
func (FinishApp) action()    {}
func (EndPod) action()       {}

// ParsePolicy returns the policy of the name; "" means AnyOnFailure.
func ParsePolicy(s string) (Policy, error) {
	switch p := Policy(s); p {
	case "":
		return AnyOnFailure, nil
	case All, Any, AnyOnFailure:
		return p, nil
	}
	return "", errs.WithHint(errs.Newf(errs.Usage, "exit policy: %q: unknown", s),
		"the policies are all, any and anyOnFailure")
}
