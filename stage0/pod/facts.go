package pod

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/idrange"
	"github.com/rkt-pods/rkt/pkg/lock"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/pkg/proc"
)

// AbortedCode is the exit code of a pod whose supervisor died.
const AbortedCode = 254

// Facts is everything that can be said of a pod.
type Facts struct {
	Pod
	Reason     string // why the state is not the plain one, "" if it is
	CreatedAt  time.Time
	Supervisor *poddir.Supervisor
	Exit       *poddir.Exit // nil while the pod can still run
	Manifest   *podspec.Pod // nil if it isn't written yet
	Options    poddir.RunOptions
	Stores     map[string]string // frozen stores that it needs: id → folder
	Addresses  []poddir.Address  // while it has any
	IDs        *idrange.Range    // of its user namespace, nil if it has none
	Apps       []AppFacts
	Live       *poddir.Summary // what the supervisor says of a running pod, nil before its first word
}

// AppFacts is one app of a pod.
type AppFacts struct {
	Name   string
	Image  podspec.Image
	Status *poddir.Status // nil before the pod has run
}

// Facts reads a pod's records. Where the supervisor died before it could
// write them, it returns what gc would write, marked as derived.
func (p Pods) Facts(pod Pod) (f Facts, err error) {
	err = p.Read(pod, func(now Pod) error {
		f, err = facts(now)
		return err
	})
	if err == nil && f.State == Running && f.Supervisor != nil {
		// Missing or torn, it says as much as before the first word.
		if s, rerr := ReadPublic(p.StoreID, f.UUID); rerr == nil && s.Supervisor != nil {
			f.Live = &s
		}
	}
	return f, err
}

// facts reads the records in the folder where the pod was. They are told only
// by those who know that it did not move meanwhile.
func facts(pod Pod) (Facts, error) {
	f := Facts{Pod: pod}
	if pod.Damage != nil {
		f.Reason = "nobody can tell whether it is locked"
		return f, pod.Damage
	}
	var refs poddir.Refs
	err := read(pod.Dir.Refs(), &refs)
	if err != nil {
		return f, err
	}
	f.CreatedAt, f.Stores = refs.CreatedAt, refs.Stores
	if err := read(pod.Dir.Run(), &f.Options); err != nil {
		return f, err
	}
	var net poddir.NetRecord
	if err := read(pod.Dir.Network(), &net); err != nil {
		return f, err
	}
	f.Addresses = net.Addresses()
	if f.IDs, err = pod.Dir.ReadIDs(); err != nil {
		return f, damaged(err)
	}
	var sup poddir.Supervisor
	if err := read(pod.Dir.Supervisor(), &sup); err != nil {
		return f, err
	}
	if sup.PID != 0 {
		f.Supervisor = &sup
	}
	if pod.State == Exiting {
		f.Reason = "the supervisor is gone, processes of the pod are still ending"
	}
	if pod.Folder == poddir.Garbage {
		f.Reason = "being removed"
	}
	data, err := atomicfile.ReadFile(pod.Dir.Manifest())
	if errors.Is(err, fs.ErrNotExist) {
		if pod.Folder == poddir.Garbage {
			f.Exit, err = readExit(pod) // it may be there without the manifest
			return f, err
		}
		return f, nil
	}
	if err != nil {
		return f, err
	}
	if f.Manifest, err = podspec.Parse(data); err != nil {
		return f, errs.WithClass(errs.Corrupt, err)
	}
	if f.Exit, err = readExit(pod); err != nil {
		return f, err
	}
	for _, a := range f.Manifest.Apps {
		status, err := readStatus(pod, a.Name)
		if err != nil {
			return f, err
		}
		f.Apps = append(f.Apps, AppFacts{Name: a.Name, Image: a.Image, Status: status})
	}
	if pod.Folder == poddir.Garbage && !exists(pod.Dir.Manifest()) {
		// The manifest is removed before the apps are: these are half of them.
		f.Manifest, f.Apps = nil, nil
	}
	return f, nil
}

// readExit returns exit.json, or what it would say of a pod whose supervisor
// died, nil for a pod that has not ended.
func readExit(pod Pod) (*poddir.Exit, error) {
	var e poddir.Exit
	err := atomicfile.ReadJSON(pod.Dir.Exit(), &e)
	switch {
	case err == nil && (pod.State.Over() || pod.State == Exiting):
		return &e, nil
	case err == nil:
		// Written, but the supervisor still takes things down: not told yet.
		return nil, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, damaged(err)
	case !pod.State.Over() || !pod.State.HasRun():
		return nil, nil
	}
	return new(poddir.Exit{Code: AbortedCode, Cause: poddir.CauseAborted, Message: "the supervisor died", Derived: true}.Now()), nil
}

// Exit is the exit of Facts without all the rest.
func (p Pods) Exit(pod Pod) (e *poddir.Exit, err error) {
	err = p.Read(pod, func(now Pod) error {
		e, err = readExit(now)
		return err
	})
	return e, err
}

// readStatus returns the app's last status; of a pod that is over it is a
// final one in any case.
func readStatus(pod Pod, app string) (*poddir.Status, error) {
	s, err := pod.Dir.App(app).ReadStatus()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, damaged(err)
	}
	if err != nil {
		s = nil // no attempt yet, or one without a status
	}
	if !pod.State.Over() || !pod.State.HasRun() || s != nil && s.State == poddir.Exited {
		return s, nil
	}
	if s == nil {
		s = &poddir.Status{App: app, Attempt: lastAttempt(pod.Dir.App(app))}
	}
	s.State, s.Reason, s.PID, s.Derived = poddir.Exited, poddir.Aborted, 0, true
	s.ExitCode = nil
	now := time.Now().UTC()
	s.FinishedAt = &now
	return s, nil
}

func lastAttempt(a poddir.AppDir) int {
	attempts, err := a.Attempts()
	if err != nil || len(attempts) == 0 {
		return 0
	}
	return attempts[len(attempts)-1]
}

// Finish writes the statuses and the exit that a dead supervisor left out. The
// pod must be over and locked by the caller.
func (p Pods) Finish(pod Pod) error {
	f, err := facts(pod)
	if err != nil {
		return err
	}
	if f.Manifest == nil {
		return nil
	}
	for _, a := range f.Apps {
		if a.Status == nil || !a.Status.Derived {
			continue
		}
		attempt := pod.Dir.App(a.Name).Attempt(a.Status.Attempt)
		if err := os.MkdirAll(string(attempt), 0o700); err != nil {
			return err
		}
		if err := pod.Dir.Reserve().WriteJSON(attempt.Status(), a.Status, 0o600, atomicfile.Synced); err != nil {
			return err
		}
	}
	if f.Exit == nil || !f.Exit.Derived {
		return nil
	}
	return pod.Dir.Reserve().WriteJSON(pod.Dir.Exit(), f.Exit, 0o600, atomicfile.Synced)
}

// SupervisorID names the process that holds the pod: by its own record or,
// before it has written that, by what stands in the lock, since stage0 becomes
// the supervisor by exec.
func (f Facts) SupervisorID() (proc.ID, error) {
	var sup poddir.Supervisor
	if f.Supervisor != nil {
		sup = *f.Supervisor
	}
	return supervisorID(f.Dir, sup)
}

func supervisorID(dir poddir.Dir, sup poddir.Supervisor) (proc.ID, error) {
	if sup.PID != 0 {
		return sup.ID, nil
	}
	h, err := lock.ReadHolder(dir.Lock())
	return h.ID, err
}

// read is ReadJSON for a file that may not be there yet.
func read(path string, v any) error {
	if err := atomicfile.ReadJSON(path, v); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return damaged(err)
	}
	return nil
}

// damaged classes an error of a record that could be read but not understood.
func damaged(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) {
		return err
	}
	return errs.WithClass(errs.Corrupt, err)
}

// podErr names the pod, unless the error does.
func podErr(pod Pod, err error) error {
	if _, ok := errors.AsType[goneError](err); ok {
		return err
	}
	err = fmt.Errorf("pod %s: %w", pod.UUID, err)
	if errs.Is(err, errs.Corrupt) && pod.Damage == nil {
		if pod.State.Over() || pod.State == Prepared {
			return errs.WithHint(err, "\"rkt rm %s\" removes it", pod.UUID)
		}
		return errs.WithHint(err, "\"rkt stop --force %s\" and then \"rkt rm %[1]s\" remove it", pod.UUID)
	}
	return err
}
