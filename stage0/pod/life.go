package pod

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/uuid"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/lock"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

// PreparingPod is a pod that this process fills; it owns the pod's lock.
type PreparingPod struct{ owned }

// PreparedPod is a pod that can be started; it owns the pod's lock.
type PreparedPod struct{ owned }

// RunningPod is a started pod; it owns the pod's lock until that is handed on.
type RunningPod struct{ owned }

type owned struct {
	pods Pods
	uuid string
	dir  poddir.Dir
	lock *lock.Lock
}

// UUID is the pod's id.
func (o *owned) UUID() string { return o.uuid }

// Dir is the pod's folder as it lies now.
func (o *owned) Dir() poddir.Dir { return o.dir }

// Pods are the pods that it belongs to.
func (o *owned) Pods() Pods { return o.pods }

// Lock is the pod's lock, for whoever inherits it.
func (o *owned) Lock() *lock.Lock { return o.lock }

// Close gives the pod up as it is: a pod that isn't prepared is then an aborted
// one, and a started one has ended, unless the lock was inherited.
func (o *owned) Close() error { return o.lock.Close() }

// Create makes a pod that holds refs from its first moment. Until these are on
// disk it is an embryo, which nothing but a removal does anything with.
func (p Pods) Create(refs poddir.Refs) (*PreparingPod, error) {
	for _, f := range poddir.Folders() {
		if err := os.MkdirAll(filepath.Join(poddir.PodsDir(p.Data), string(f)), 0o700); err != nil {
			return nil, err
		}
	}
	// gc takes embryos that nobody has locked, so between mkdir and lock ours
	// may be gone: then another one is made.
	for range 100 {
		pod, err := p.create(uuid.NewString(), refs)
		if err == nil || !errors.Is(err, fs.ErrNotExist) && !errs.Is(err, errs.Busy) {
			return pod, err
		}
	}
	return nil, errs.Newf(errs.Busy, "create pod: somebody keeps removing it")
}

func (p Pods) create(id string, refs poddir.Refs) (*PreparingPod, error) {
	dir := poddir.Dir(poddir.Path(p.Data, poddir.Embryo, id))
	if err := fault.Step("pod.mkdir"); err != nil {
		return nil, err
	}
	if err := os.Mkdir(string(dir), 0o700); err != nil {
		return nil, fmt.Errorf("create pod: %w", err)
	}
	l, err := lock.TryExclusive(dir.Lock())
	if err != nil {
		return nil, fmt.Errorf("create pod: %w", err)
	}
	o := owned{pods: p, uuid: id, dir: dir, lock: l}
	err = atomicfile.WriteJSON(dir.Refs(), refs, 0o600, atomicfile.Synced)
	if err == nil {
		err = o.move("pod.prepare", poddir.Prepare)
	}
	if err != nil {
		// What is left is an embryo without a lock: gc's.
		return nil, errors.Join(fmt.Errorf("create pod: %w", err), l.Close())
	}
	return &PreparingPod{o}, nil
}

// Ready moves the pod to pods/prepared. The lock stays with the result, which
// must be closed, or started.
func (p *PreparingPod) Ready() (*PreparedPod, error) {
	// The manifest and its companions are read in another boot, perhaps.
	if err := fault.Step("pod.sync"); err != nil {
		return nil, err
	}
	if err := atomicfile.SyncFS(string(p.dir)); err != nil {
		return nil, err
	}
	if err := p.move("pod.ready", poddir.Prepared); err != nil {
		return nil, err
	}
	return &PreparedPod{p.take()}, nil
}

// Start moves the pod to pods/run with the lock held, so that no reader ever
// sees it there unlocked and takes it for exited.
func (p *PreparingPod) Start() (*RunningPod, error) { return start(&p.owned) }

// Start moves the pod to pods/run with the lock held.
func (p *PreparedPod) Start() (*RunningPod, error) { return start(&p.owned) }

func start(o *owned) (*RunningPod, error) {
	if err := o.move("pod.start", poddir.Run); err != nil {
		return nil, err
	}
	return &RunningPod{o.take()}, nil
}

// OpenPrepared locks a prepared pod. Of two callers one wins; the other gets
// an error of class Busy or, when it comes later, one that names the state.
func (p Pods) OpenPrepared(id string) (*PreparedPod, error) {
	pod, err := p.Get(id)
	if err != nil {
		return nil, err
	}
	if pod.State != Prepared {
		return nil, errs.WithHint(errs.Newf(errs.Usage, "pod %s: is %s, not prepared", id, pod.State),
			"a pod runs once; \"rkt prepare\" makes another one")
	}
	l, err := tryLock(pod.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errs.WithHint(errs.Newf(errs.Busy, "pod %s: somebody else has just started or removed it", id),
			"\"rkt status %s\" tells what became of it", id)
	}
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", id, err)
	}
	return &PreparedPod{owned{pods: p, uuid: id, dir: pod.Dir, lock: l}}, nil
}

// move renames the pod's folder, and syncs both parents: a pod must not be in
// two states after a power loss.
func (o *owned) move(step string, to poddir.Folder) error {
	return o.rename(step, to, atomicfile.Synced)
}

func (o *owned) rename(step string, to poddir.Folder, d atomicfile.Durability) error {
	next := poddir.Path(o.pods.Data, to, o.uuid)
	if err := atomicfile.Rename(step, string(o.dir), next, d); err != nil {
		return fmt.Errorf("pod %s: %w", o.uuid, err)
	}
	o.dir = poddir.Dir(next)
	return nil
}

// take uses the receiver up: its Close does nothing any more.
func (o *owned) take() owned {
	taken := *o
	o.lock = nil
	return taken
}

// tryLock locks a pod where it lies. The error wraps fs.ErrNotExist if it does
// not lie there any more.
func tryLock(dir poddir.Dir) (*lock.Lock, error) { return lock.TryExclusive(dir.Lock()) }
