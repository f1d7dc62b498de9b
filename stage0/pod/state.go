// Package pod knows the pods of one data folder: their states, which are two
// facts on disk and one table, the transitions between them, and what anyone
// may say about a pod while others work on it.
package pod

import "github.com/rkt-pods/rkt/pkg/poddir"

// State is what a pod's folder, lock and cgroup together mean.
type State string

// The states in the order of a pod's life.
const (
	Embryo         State = "embryo"
	Preparing      State = "preparing"
	AbortedPrepare State = "aborted prepare"
	Prepared       State = "prepared"
	Running        State = "running"
	Exiting        State = "exiting" // the supervisor is gone, its processes are not yet
	Exited         State = "exited"
	ExitedDeleting State = "exited deleting"
	ExitedGarbage  State = "exited garbage"
	Deleting       State = "deleting"
	Garbage        State = "garbage"
)

// States lists all states in the order of a pod's life.
func States() []State {
	return []State{
		Embryo, Preparing, AbortedPrepare, Prepared, Running, Exiting, Exited,
		ExitedDeleting, ExitedGarbage, Deleting, Garbage,
	}
}

// row is one line of the table.
type row struct {
	folder    poddir.Folder
	locked    bool
	populated bool // asked only where it makes a difference
	state     State
}

// table is the whole truth about states. Documentation/devel/pod-lifecycle.md
// shows the same one.
var table = []row{
	{poddir.Embryo, false, false, Embryo},
	{poddir.Embryo, true, false, Embryo},
	{poddir.Prepare, true, false, Preparing},
	{poddir.Prepare, false, false, AbortedPrepare},
	{poddir.Prepared, false, false, Prepared},
	{poddir.Prepared, true, false, Prepared}, // about to move on
	{poddir.Run, true, false, Running},
	{poddir.Run, true, true, Running},
	{poddir.Run, false, true, Exiting},
	{poddir.Run, false, false, Exited},
	{poddir.ExitedGarbage, true, false, ExitedDeleting},
	{poddir.ExitedGarbage, false, false, ExitedGarbage},
	{poddir.Garbage, true, false, Deleting},
	{poddir.Garbage, false, false, Garbage},
}

// stateOf looks the facts up in the table.
func stateOf(f poddir.Folder, locked, populated bool) State {
	for _, r := range table {
		if r.folder == f && r.locked == locked && r.populated == (populated && f == poddir.Run) {
			return r.state
		}
	}
	return Garbage
}

// Over says whether no process of the pod can run any more.
func (s State) Over() bool {
	switch s {
	case Exited, ExitedDeleting, ExitedGarbage, Deleting, Garbage, AbortedPrepare:
		return true
	case Embryo, Preparing, Prepared, Running, Exiting:
	}
	return false
}

// HasRun says whether the pod was started.
func (s State) HasRun() bool {
	switch s {
	case Running, Exiting, Exited, ExitedDeleting, ExitedGarbage:
		return true
	case Embryo, Preparing, AbortedPrepare, Prepared, Deleting, Garbage:
	}
	return false
}
