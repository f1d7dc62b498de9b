// Package launch is the one seam between the supervisor and whatever starts
// processes in a pod: start an app from its plan, run something else inside
// it, wait, signal. Launchers live in folders below and nothing else knows of
// their libraries.
package launch

import (
	"context"
	"os"
	"syscall"
	"time"

	"github.com/rkt-pods/rkt/pkg/limits"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// Namespaces are descriptors of the pod's namespaces, owned by the supervisor
// and open as long as the pod lives. Net is -1 with host networking, User is
// -1 if the pod has the host's.
type Namespaces struct {
	PID, Net, IPC, UTS, User int
}

// App is one execution of an app, ready to start.
type App struct {
	plan.App
	ID         string // unique in the pod, e.g. "web-0": app and attempt
	UID, GID   int    // plan.App's User and Group as found in the rootfs, ids inside the pod
	Gids       []int  // supplementary groups, all of them
	RootFS     string // the mounted rootfs, in the supervisor's mount namespace
	StateDir   string // where the launcher may keep its state, in the pod's run folder
	CgroupPath string // of the app, relative to each hierarchy's root: …/apps/<app>
	Namespaces Namespaces
	Stdio      Stdio
	Sockets    []Socket // that the program gets, as sd_listen_fds(3) has it
}

// Socket is a descriptor for the program, owned by the supervisor.
type Socket struct {
	FD   int
	Name string
}

// Stdio is what a process gets as its first descriptors. The launcher does not
// close them; the caller closes its copies once Start returned. With TTY the
// three files are unused and the pty's master is handed back.
type Stdio struct {
	Stdin, Stdout, Stderr *os.File
	TTY                   bool
	Width, Height         uint16
}

// StartError says that the program could not be executed, as opposed to a
// failure of rkt to set the app up: ExitCode is 127 (not found) or 126 (found,
// not executable).
type StartError struct {
	ExitCode int
	Err      error
}

func (e *StartError) Error() string { return e.Err.Error() }
func (e *StartError) Unwrap() error { return e.Err }

// Launcher starts processes in a pod. All methods may be called from any
// goroutine.
type Launcher interface {
	// Start sets the app up and lets it go. A *StartError means that the
	// program itself can't be executed; any other error is a failed set-up.
	// On error nothing of the app is left but its cgroup folders.
	Start(ctx context.Context, app App) (Process, error)
	// Exec runs a program beside the app's main process with the app's own
	// user, capabilities, filter, limits and namespaces, in the cgroup leaf
	// exec-<n>. The app must be running. It works from any process, also
	// from one other than the supervisor, given the same StateDir and ID.
	Exec(ctx context.Context, stateDir, id string, e Exec) (Process, error)
}

// Exec is a program to run inside a running app.
type Exec struct {
	Argv  []string
	Env   []string // added to the app's own; nil: the app's
	Cwd   string   // "" means the app's
	Root  bool     // as root of the rootfs: appc event handlers
	User  *User    // nil means the app's
	Stdio Stdio
}

// User is who a program runs as.
type User struct {
	UID, GID int
	Gids     []int // supplementary groups, all of them
}

// Process is a started process, a child of the caller.
type Process interface {
	PID() int
	// Cgroup is the folder in the cgroup2 hierarchy of the process's own leaf.
	Cgroup() string
	// Isolators says what became of the app's, with what the kernel holds.
	// Those of a process that Exec started are the app's, and not told again.
	Isolators() []limits.Result
	// Console is the pty's master if a TTY was asked for; the caller closes it.
	Console() *os.File
	// Wait reaps the process and may be called once.
	Wait() (Exit, error)
	// Signal goes to this process only.
	Signal(syscall.Signal) error
	// Destroy kills what is left in the process's own cgroup leaf, waits for it
	// to be empty, and removes the leaf and the launcher's state. It is called
	// after Wait, also when Start failed half way, and may be called twice.
	Destroy() error
}

// Exit is how a process ended, with what it used.
type Exit struct {
	Status     syscall.WaitStatus
	OOMKilled  bool   // the kernel's OOM killer chose a process of its cgroup
	OOMKills   uint64 // how many of them
	CPU        time.Duration
	MemoryPeak uint64 // bytes; 0 if unknown
	MemoryHits uint64 // how often the memory limit was in the way
}
