package lifecycle

import (
	"time"

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

// Role is what an app is for.
type Role string

// The roles.
const (
	RoleApp     Role = "app"
	RoleInit    Role = "init"    // has to finish with 0, in manifest order, before any app starts
	RoleSidecar Role = "sidecar" // starts in order with the inits, serves the apps, is stopped after them
)

// Condition is what an app waits for in another one. It holds once it has
// held: a restart takes nothing back.
type Condition string

// The conditions.
const (
	OnStarted   Condition = "started"
	OnReady     Condition = "ready"
	OnSucceeded Condition = "succeeded" // finished for good with code 0
	OnExited    Condition = "exited"    // finished for good
)

// After makes an app wait.
type After struct {
	App       string
	Condition Condition
}

// RestartMode says when an app that has ended is started again.
type RestartMode string

// The modes. OnCodes is for rules by exit code alone.
const (
	Never     RestartMode = "never"
	OnFailure RestartMode = "on-failure"
	Always    RestartMode = "always"
	OnCodes   RestartMode = "on-codes"
)

// Restart is an app's restart policy.
type Restart struct {
	Mode  RestartMode
	Max   int   // so many in a row, 0: no limit; what resets the back-off resets the count
	Codes []int // with OnCodes
}

// Exit codes that rkt gives of its own.
const (
	CodeSetup = 254 // rkt could not do its part
	NoCode    = -1  // the app has no exit code: its program never ran
)

const sigKill = 9

// secondSignal is how long after the first stop request another one means
// "now": a terminal's ^C often comes twice within moments.
const secondSignal = time.Second

// The back-off before a restart: doubled each time, up to a limit, and from the
// start again for an app that has been well for a while.
const (
	firstBackoff  = 100 * time.Millisecond
	lastBackoff   = 60 * time.Second
	wellAfter     = 60 * time.Second // of running
	wellWhenReady = 10 * time.Second // of being ready by a check of its own
)

// App is what the machine has to know of an app.
type App struct {
	Name       string
	StopSignal int
	Role       Role // "" means RoleApp
	After      []After
	Before     []After // App is the one that waits, Condition what it waits for in this one
	Restart    Restart // the zero value means Never
	Checked    bool    // it is ready when AppReady says so, else as soon as it runs
}

// Exit is how a process ended. Code is 128 + Signal if a signal ended it.
type Exit struct {
	Code       int
	Signal     int
	CoreDumped bool
	OOMKilled  bool // the kernel's OOM killer took a process of the app
}

// Stopping says how to stop, where it is not as the app says.
type Stopping struct {
	Signal  int            // 0: the app's own
	Timeout *time.Duration // nil: the app's own
}

// Event is something that happened. Times are compared with each other only,
// so they should have a monotonic reading.
type Event interface{ event() }

type (
	// Start lets the pod begin.
	Start struct{}
	// AppStarted says that the app's program runs.
	AppStarted struct {
		App string
		At  time.Time
	}
	// AppReady says that the app's own check or word says that it is ready, or
	// no longer.
	AppReady struct {
		App   string
		Ready bool
		At    time.Time
	}
	// AppExited says that the app's main process has ended.
	AppExited struct {
		App string
		Exit
		At time.Time
	}
	// AppStartFailed says that the app's program will never run: it can't be
	// executed (Code 127 or 126), its pre-start handler failed (the handler's
	// Code), or rkt could not set the app up (NoCode).
	AppStartFailed struct {
		App     string
		Reason  poddir.Reason
		Code    int
		Message string
		At      time.Time
	}
	// AppUnfit says that the running app can't stay: its liveness probe or its
	// post-start handler failed.
	AppUnfit struct {
		App     string
		Reason  poddir.Reason
		Message string
	}
	// BackoffOver says that the timer of ArmBackoff has run out.
	BackoffOver struct {
		App      string
		Restarts int
	}
	// AppStop asks for the end of one app. It is finished then, not failed.
	AppStop struct {
		App string
		Stopping
	}
	// AppRestart asks for a new execution of an app, whatever its policy says.
	AppRestart struct {
		App string
		Stopping
	}
	// StopRequested asks the pod to stop in good order. Unless it is Patient,
	// one that comes well after another means: now.
	StopRequested struct {
		At      time.Time
		Patient bool
		Stopping
	}
	// KillRequested asks the pod to end without more ado.
	KillRequested struct{}
	// StopTimeout says that the timer of ArmStopTimer has run out.
	StopTimeout struct {
		App      string
		Restarts int
	}
	// Failed says that rkt itself can't go on with the pod.
	Failed struct{ Message string }
)

func (Start) event()          {}
func (AppStarted) event()     {}
func (AppReady) event()       {}
func (AppExited) event()      {}
func (AppStartFailed) event() {}
func (AppUnfit) event()       {}
func (BackoffOver) event()    {}
func (AppStop) event()        {}
func (AppRestart) event()     {}
func (StopRequested) event()  {}
func (KillRequested) event()  {}
func (StopTimeout) event()    {}
func (Failed) event()         {}

// Action is something to be done, in the order given.
type Action interface{ action() }

type (
	// StartApp starts the app; AppStarted or AppStartFailed must follow. Each
	// start is of a new execution, whose number is Restarts.
	StartApp struct {
		App      string
		Restarts int
	}
	// ShowReady says that the app is ready by its own check, or no longer.
	ShowReady struct {
		App   string
		Ready bool
	}
	// PodReady says that the pod is ready, or no longer.
	PodReady struct{ Ready bool }
	// SignalApp sends a signal to the app's main process only.
	SignalApp struct {
		App    string
		Signal int
	}
	// ArmStopTimer starts the app's stop timeout; StopTimeout must follow
	// unless the app ends before. Timeout nil means the app's own.
	ArmStopTimer struct {
		App      string
		Restarts int
		Timeout  *time.Duration
	}
	// KillApp kills all processes of the app, or gives up its start.
	KillApp struct{ App string }
	// FinishApp records how the app's execution ended. Code is NoCode if its
	// program never ran. Again says that another one follows; one that was
	// awaited and will not come repeats the record of the last.
	FinishApp struct {
		App     string
		Reason  poddir.Reason
		Message string
		Exit
		Again bool
	}
	// ArmBackoff starts the time until the app's next execution; BackoffOver
	// must follow.
	ArmBackoff struct {
		App      string
		Restarts int
		Delay    time.Duration
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
func (ShowReady) action()    {}
func (PodReady) action()     {}
func (SignalApp) action()    {}
func (ArmStopTimer) action() {}
func (KillApp) action()      {}
func (FinishApp) action()    {}
func (ArmBackoff) action()   {}
func (EndPod) action()       {}
