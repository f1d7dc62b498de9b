// Package gc removes what no one needs any more: pods that ended long enough
// ago, what killed commands left behind, and layers of the store that neither
// an image nor a pod names. It makes a plan first, which can be printed
// instead of carried out.
package gc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/lock"
	"github.com/rkt-pods/rkt/pkg/network"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/proc"
	"github.com/rkt-pods/rkt/stage0/netctl"
	"github.com/rkt-pods/rkt/stage0/pod"
	"github.com/rkt-pods/rkt/stage0/store"
	"github.com/rkt-pods/rkt/stage0/uids"
	"github.com/rkt-pods/rkt/stage0/volume"
)

// Action is what is to be done with one pod.
type Action string

// The actions.
const (
	Mark           Action = "mark"            // note an exited pod's end and set it aside
	Collect        Action = "collect"         // remove an exited pod
	CollectFailed  Action = "collect-failed"  // remove what was never prepared to the end
	CollectExpired Action = "collect-expired" // remove a prepared pod that nobody started
	CollectGarbage Action = "collect-garbage" // go on removing
)

// Step is one action on one pod.
type Step struct {
	UUID   string    `json:"uuid"`
	State  pod.State `json:"state"`
	Action Action    `json:"action"`
}

// Kept is a pod that stays, and why.
type Kept struct {
	UUID   string    `json:"uuid"`
	State  pod.State `json:"state"`
	Reason string    `json:"reason"`
}

// Failure is a pod, or "store", that was due and could not be collected.
type Failure struct {
	What string `json:"what"`
	Err  error  `json:"-"`
	Text string `json:"error"`
}

// Plan is what is to be done. It can be carried out once.
type Plan struct {
	Steps    []Step        `json:"steps"`
	Kept     []Kept        `json:"kept"`
	Store    store.Garbage `json:"store"`
	Volumes  []string      `json:"volumes"` // named ones
	Failures []Failure     `json:"failures"`

	pods  pod.Pods
	gone  map[string]bool // the pods that will be collected
	store *store.Store
	opts  Options
	used  bool
}

// Report is what was done.
type Report struct {
	Done     []Step        `json:"done"`
	Kept     []Kept        `json:"kept"`
	Freed    int64         `json:"freed"` // bytes of the removed pods' files, if they were counted
	Store    store.Garbage `json:"store"`
	Volumes  []string      `json:"volumes"`
	Failures []Failure     `json:"failures"`
}

// NothingPlanned and NothingDone are what there is to do, and to report, where
// no data folder was ever made.
var (
	NothingPlanned = Plan{Steps: []Step{}, Kept: []Kept{}, Store: listed(store.Garbage{}), Volumes: []string{}, Failures: []Failure{}}
	NothingDone    = Report{Done: []Step{}, Kept: []Kept{}, Store: listed(store.Garbage{}), Volumes: []string{}, Failures: []Failure{}}
)

// Lock keeps a second gc out. The error is of class Busy if there is one that is
// not done within wait.
func Lock(ctx context.Context, s *store.Store, wait time.Duration) (*lock.Lock, error) {
	path := filepath.Join(s.Data(), "store", "gc.lock")
	l, err := lock.TryExclusive(path)
	if errs.Is(err, errs.Busy) && wait > 0 {
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		l, err = lock.Exclusive(ctx, path)
	}
	if errs.Is(err, errs.Busy) {
		return nil, fmt.Errorf("another gc is at work: %w", err)
	}
	return l, err
}

// Held tells the store what the pods hold.
func Held(pods pod.Pods) store.HeldFunc { return heldWithout(pods, nil) }

// heldWithout is Held for the time when the given pods will be gone.
func heldWithout(pods pod.Pods, gone map[string]bool) store.HeldFunc {
	return func() (store.Held, error) {
		h, err := pods.Held()
		if err != nil {
			return store.Held{}, err
		}
		for _, m := range []map[string][]string{h.Images, h.Layers} {
			for key, holders := range m {
				m[key] = slices.DeleteFunc(holders, func(u string) bool { return gone[u] })
				if len(m[key]) == 0 {
					delete(m, key)
				}
			}
		}
		return store.Held{Images: h.Images, Layers: h.Layers, Unknown: slices.Sorted(maps.Keys(h.Unknown))}, nil
	}
}

// VolumesHeld tells which named volumes the pods hold.
func VolumesHeld(pods pod.Pods) volume.HeldFunc { return volumesHeldWithout(pods, nil) }

func volumesHeldWithout(pods pod.Pods, gone map[string]bool) volume.HeldFunc {
	return func() (volume.Held, error) {
		h, err := pods.Held()
		for name, holders := range h.Volumes {
			h.Volumes[name] = slices.DeleteFunc(holders, func(u string) bool { return gone[u] })
		}
		return volume.Held{Volumes: h.Volumes, Unknown: slices.Sorted(maps.Keys(h.Unknown))}, err
	}
}

// Make finds out what is due.
func Make(s *store.Store, pods pod.Pods, o Options) (*Plan, error) {
	p := &Plan{pods: pods, store: s, opts: o, Steps: []Step{}, Kept: []Kept{}, Store: listed(store.Garbage{}), Volumes: []string{}, Failures: []Failure{}}
	held, err := pods.Held()
	if err != nil {
		return nil, err
	}
	all, err := pods.List()
	if err != nil {
		return nil, err
	}
	gone := map[string]bool{}
	last := o.last(pods, all)
	for _, one := range all {
		if unknown := held.Unknown[one.UUID]; unknown != nil {
			err := fmt.Errorf("references can't be read, so it holds everything: %w", unknown)
			p.fail(one.UUID, errs.WithHint(err, "\"rkt rm %s\" removes the pod if it isn't needed", one.UUID))
			continue
		}
		action, why, err := Action(""), "", one.Damage
		if err == nil {
			action, why, err = o.action(pods, one, last[one.UUID])
		}
		if err != nil {
			p.fail(one.UUID, err)
			continue
		}
		if action != "" {
			p.Steps = append(p.Steps, Step{one.UUID, one.State, action})
		}
		if gone[one.UUID] = action != "" && action != Mark; why != "" {
			p.Kept = append(p.Kept, Kept{one.UUID, one.State, why})
		}
	}
	p.gone = gone
	return p, nil
}

// Forecast adds what the plan will leave unneeded in the store. Execute finds
// that out anew, so only who shows the plan needs it.
func (p *Plan) Forecast() {
	if p.opts.MarkOnly {
		return
	}
	garbage, err := p.store.Plan(heldWithout(p.pods, p.gone), p.opts.GracePeriod)
	if err != nil {
		p.fail("store", err)
	}
	p.Store = listed(garbage)
	if !p.opts.Volumes {
		return
	}
	held := VolumesHeld(p.pods)
	if p.opts.GracePeriod == 0 {
		held = volumesHeldWithout(p.pods, p.gone)
	}
	due, err := volume.Of(p.store).Due(p.opts.volumes(), held)
	if err != nil {
		p.fail("volumes", err)
		return
	}
	p.Volumes = due
}

// volumes says which volumes are due. One that a pod held which goes now was
// used until now.
func (o Options) volumes() volume.Rule { return volume.Rule{Grace: o.GracePeriod, Now: o.Now} }

// Execute carries the plan out, each pod on its own: one that can't be
// collected is named, and the others go on. What others collect or lock
// meanwhile is theirs and no failure. All pods are moved away first, made safe
// with one sync, and deleted then.
func (p *Plan) Execute(ctx context.Context, progress func(Step)) Report {
	r := Report{Done: []Step{}, Kept: p.Kept, Store: listed(store.Garbage{}), Volumes: []string{}, Failures: p.Failures}
	if p.used {
		r.fail("plan", errs.Newf(errs.Internal, "carried out already"))
		return r
	}
	p.used = true
	var moved []Step
	for _, s := range p.Steps {
		progress(s)
		switch ok := p.try(&r, s, func() error { return p.move(ctx, s) }); {
		case !ok:
		case s.Action == Mark:
			r.Done = append(r.Done, s)
		default:
			moved = append(moved, s)
		}
	}
	if len(p.Steps) > 0 {
		if err := p.pods.SyncFolders(poddir.Folders()...); err != nil {
			r.fail("pods", err)
			return r
		}
	}
	for i, one := range p.remove(ctx, moved) {
		if p.try(&r, moved[i], func() error { return one.err }) {
			r.Done = append(r.Done, moved[i])
			r.Freed += one.bytes
		}
	}
	if p.opts.MarkOnly {
		return r
	}
	if err := p.pods.SweepEnded(p.opts.GracePeriod, p.opts.Now); err != nil {
		r.fail("ended pods", err)
	}
	if err := p.pods.SweepNames(ctx); err != nil {
		r.fail("pod names", err)
	}
	var err error
	if r.Store, err = p.store.Collect(ctx, Held(p.pods), p.opts.GracePeriod); err != nil {
		r.fail("store", err)
	}
	r.Store = listed(r.Store)
	p.collectVolumes(ctx, &r)
	if err := p.sweepNetworks(ctx); err != nil {
		r.fail("networks", err)
	}
	if err := uids.OfHost().Sweep(ctx); err != nil {
		r.fail("user ids", err)
	}
	return r
}

// removed is what became of a pod that was moved to the garbage.
type removed struct {
	bytes int64
	err   error
}

// remove removes the pods' folders, some at once: most of the time is the file
// system's.
func (p *Plan) remove(ctx context.Context, moved []Step) []removed {
	all := make([]removed, len(moved))
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), 4) {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(moved)); i = next.Add(1) - 1 {
				all[i] = p.removeOne(ctx, moved[i].UUID)
			}
		})
	}
	workers.Wait()
	return all
}

func (p *Plan) removeOne(ctx context.Context, uuid string) (r removed) {
	if r.err = late(ctx); r.err != nil {
		return r
	}
	if p.opts.Measure {
		r.bytes = used(poddir.Path(p.pods.Data, poddir.Garbage, uuid))
	}
	r.err = p.pods.Remove(uuid)
	return r
}

// late is the error of what was not begun in time.
func late(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return errs.WithHint(errs.Newf(errs.Busy, "not reached: %w", context.Cause(ctx)), "the next gc goes on with it")
	}
	return nil
}

// used is how much of the disk a folder takes, as far as it can be read.
func used(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := d.Info(); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok && (d.IsDir() || st.Nlink == 1) {
				bytes += st.Blocks * 512
			}
		}
		return nil
	})
	return bytes
}

// sweepNetworks removes what is left of pods that have no record any more: a
// power loss can take one that was not synced.
func (p *Plan) sweepNetworks(ctx context.Context) error {
	if !proc.HostUsers() {
		return nil // no pod of an ordinary user has one
	}
	if _, err := os.Stat(poddir.NetDir()); err != nil && len(network.HostLocalRoot()) == 0 {
		return nil // no pod of this host has had a network since its boot
	}
	_, err := netctl.Sweep(ctx, p.pods, nil, nil)
	return err
}

// collectVolumes removes named volumes only if that was asked for, and always
// what killed commands left of some.
func (p *Plan) collectVolumes(ctx context.Context, r *Report) {
	vols := volume.Of(p.store)
	if err := vols.Sweep(ctx); err != nil {
		r.fail("volumes", err)
	}
	if !p.opts.Volumes {
		return
	}
	// By the clock of now: a pod that went a moment ago ended its volumes' use.
	rule := p.opts.volumes()
	rule.Now = time.Now()
	gone, err := vols.Collect(ctx, rule, VolumesHeld(p.pods))
	if err != nil {
		r.fail("volumes", err)
	}
	r.Volumes = gone
}

// try runs a part of a step and says whether to go on with the pod.
func (p *Plan) try(r *Report, s Step, part func() error) bool {
	err := part()
	if err != nil && !(errs.Is(err, errs.Busy) && p.takenOver(s.UUID)) {
		r.fail(s.UUID, err)
	}
	return err == nil
}

// move is the part of a step before the sync.
func (p *Plan) move(ctx context.Context, s Step) error {
	if err := late(ctx); err != nil {
		return err
	}
	if s.Action == Mark {
		return p.pods.Mark(ctx, s.UUID)
	}
	return p.pods.Dismiss(ctx, s.UUID)
}

// listed makes empty lists of missing ones: in JSON a list is always a list.
func listed(g store.Garbage) store.Garbage {
	for _, l := range []*[]string{&g.Layers, &g.Blobs, &g.Staging} {
		if *l == nil {
			*l = []string{}
		}
	}
	return g
}

// takenOver says whether somebody else is at work on the pod, or done.
func (p *Plan) takenOver(uuid string) bool {
	one, err := p.pods.Get(uuid)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	switch one.State {
	case pod.Embryo, pod.Preparing, pod.Prepared, pod.Running, pod.ExitedDeleting, pod.Deleting:
		return true
	case pod.AbortedPrepare, pod.Exiting, pod.Exited, pod.ExitedGarbage, pod.Garbage:
	}
	return false
}

func (p *Plan) fail(what string, err error) {
	if err != nil {
		p.Failures = append(p.Failures, Failure{what, err, err.Error()})
	}
}

func (r *Report) fail(what string, err error) {
	r.Failures = append(r.Failures, Failure{what, err, err.Error()})
}

// notGone drops the error of a pod that was collected while it was read.
func notGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
