// Package uids gives each pod with a user namespace ids of the host that no
// other pod has. All data folders of a host take theirs from the same ones, so
// what is given away stands in one folder of the host:
//
//	/var/lib/rkt-ids/<first id>   whose they are and how many
//	/var/lib/rkt-ids/.lock        held by whoever takes or frees some
//
// The files outlive the boot, as those that the pod wrote do.
package uids

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/idrange"
	"github.com/rkt-pods/rkt/pkg/lock"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/proc"
)

// deadline bounds the wait for the lock, which nobody holds for longer than it
// takes to read and sync a few files.
const deadline = 2 * time.Minute

const lockFile = ".lock"

// Leases are the ranges that are given away.
type Leases struct {
	dir string
	ids subIDs
}

// OfHost are this host's.
func OfHost() Leases {
	return Leases{dir: "/var/lib/rkt-ids", ids: subIDs{"/etc/subuid", "/etc/subgid"}}
}

// Holder is the pod that has a range.
type Holder struct {
	Data string `json:"data"` // its data folder
	UUID string `json:"uuid"`
}

// lease is one file.
type lease struct {
	Holder
	idrange.Range
}

// Take gives the holder, whose folder is there already, the wanted range, or a
// free one if that is nil. It is on disk when it returns.
func (l Leases) Take(ctx context.Context, h Holder, wanted *idrange.Range) (r *idrange.Range, err error) {
	err = l.locked(ctx, true, func() error {
		r, err = l.take(h, wanted)
		if !errs.Is(err, errs.Busy) {
			return err
		}
		// Perhaps for what nobody has any more.
		if serr := l.sweep(); serr != nil {
			return errors.Join(err, serr)
		}
		r, err = l.take(h, wanted)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("user ids: %w", err)
	}
	return r, nil
}

func (l Leases) take(h Holder, wanted *idrange.Range) (*idrange.Range, error) {
	taken, err := l.list()
	if err != nil {
		return nil, err
	}
	r := wanted
	if r == nil {
		if r, err = l.free(taken); err != nil {
			return nil, err
		}
	}
	for _, other := range taken {
		if r.Overlaps(other.Range) {
			err := errs.Newf(errs.Busy, "%s: pod %s has %s of them", r, other.UUID, &other.Range)
			return nil, errs.WithHint(err, "%s takes free ones; \"rkt gc\" frees those of pods that have ended", idrange.Auto)
		}
	}
	return r, atomicfile.WriteJSON(l.path(*r), lease{h, *r}, 0o600, atomicfile.Synced)
}

// free finds the first range that overlaps nobody's.
func (l Leases) free(taken []lease) (*idrange.Range, error) {
	p, err := l.ids.read()
	if err != nil {
		return nil, err
	}
	used := slices.Clone(p.others)
	for _, t := range taken {
		used = append(used, t.Range)
	}
	slices.SortFunc(used, func(a, b idrange.Range) int { return int(a.Start) - int(b.Start) })
	for _, block := range p.blocks {
		if r := firstFree(block, used); r != nil {
			return r, nil
		}
	}
	err = errs.Newf(errs.Busy, "none left: %d pods have theirs", len(taken))
	return nil, errs.WithHint(err, "\"rkt gc\" frees those of pods that have ended; more can be given to %s in %s and %s", Owner, l.ids.user, l.ids.group)
}

// firstFree passes over what is used, which is sorted by its start.
func firstFree(block idrange.Range, used []idrange.Range) *idrange.Range {
	end := uint64(block.Start) + uint64(block.Count)
	next := uint64(block.Start)
	for _, u := range used {
		if uint64(u.Start) >= next+idrange.Size {
			break
		}
		next = max(next, uint64(u.Start)+uint64(u.Count))
	}
	if next+idrange.Size > end {
		return nil
	}
	return &idrange.Range{Start: uint32(next), Count: idrange.Size}
}

func (l Leases) path(r idrange.Range) string {
	return filepath.Join(l.dir, strconv.FormatUint(uint64(r.Start), 10))
}

// Free takes back what the pod has; it need not have any.
func (l Leases) Free(ctx context.Context, h Holder) error {
	return l.remove(ctx, func(other lease) bool { return other.Holder == h })
}

// Sweep takes back what pods have that are gone: a killed command can leave
// that behind, and a data folder that somebody removed by hand.
func (l Leases) Sweep(ctx context.Context) error {
	return l.remove(ctx, func(other lease) bool { return other.gone() })
}

// Held lists what the pods of a data folder have, by their ids.
func (l Leases) Held(data string) (map[string]*idrange.Range, error) {
	all, err := l.list()
	if errors.Is(err, fs.ErrNotExist) || !proc.HostUsers() {
		return nil, nil
	}
	held := map[string]*idrange.Range{}
	for _, one := range all {
		if one.Data == data {
			held[one.UUID] = &one.Range
		}
	}
	return held, err
}

func (l Leases) remove(ctx context.Context, meant func(lease) bool) error {
	if !proc.HostUsers() {
		return nil // the host's root gives them, to his own pods
	}
	err := l.locked(ctx, false, func() error {
		dropped, left, err := l.drop(meant)
		if err != nil || left > 0 || dropped == 0 {
			return err
		}
		if err := fault.Step("uids.rmdir"); err != nil {
			return err
		}
		// Who waits for the lock finds that it is gone, and starts over: if that
		// has made it anew already, the folder stays.
		err = errors.Join(os.Remove(filepath.Join(l.dir, lockFile)), os.Remove(l.dir))
		if errors.Is(err, unix.ENOTEMPTY) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("user ids: %w", err)
	}
	return nil
}

func (l Leases) sweep() error {
	_, _, err := l.drop(lease.gone)
	return err
}

// drop removes the leases that are meant, and counts them and the others.
func (l Leases) drop(meant func(lease) bool) (dropped, left int, err error) {
	all, err := l.list()
	if err != nil {
		return 0, 0, err
	}
	for _, one := range all {
		if !meant(one) {
			left++
			continue
		}
		if err := fault.Step("uids.free"); err != nil {
			return dropped, left, err
		}
		if err := os.Remove(l.path(one.Range)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return dropped, left, err
		}
		dropped++
	}
	// What a kill left of a write is nobody's while the lock is held.
	halves, err := filepath.Glob(filepath.Join(l.dir, ".tmp-*"))
	for _, name := range halves {
		err = errors.Join(err, os.Remove(name))
	}
	return dropped, left, err
}

// gone says whether the holder is no more. Of a data folder that is not there
// nobody knows: its disk may be in a drawer.
func (t lease) gone() bool {
	if _, err := os.Stat(poddir.PodsDir(t.Data)); err != nil {
		return false
	}
	// A pod may move on between two looks, but not back.
	for range 2 {
		for _, f := range poddir.Folders() {
			if _, err := os.Lstat(poddir.Path(t.Data, f, t.UUID)); !errors.Is(err, fs.ErrNotExist) {
				return false
			}
		}
	}
	return true
}

// list reads what is given away. A file that can't be read holds nobody knows
// what: then nothing can be given.
func (l Leases) list() ([]lease, error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, err
	}
	var all []lease
	for _, e := range entries {
		if _, err := strconv.ParseUint(e.Name(), 10, 32); err != nil {
			continue
		}
		var t lease
		path := filepath.Join(l.dir, e.Name())
		if err := atomicfile.ReadJSON(path, &t); err != nil {
			return nil, errs.WithHint(errs.WithClass(errs.Corrupt, fmt.Errorf("%s: %w", path, err)),
				"remove it, if no pod has ids from %s on", e.Name())
		}
		all = append(all, t)
	}
	return all, nil
}

// locked keeps out everybody else who takes or frees ids. Without a folder there
// is nothing to free.
func (l Leases) locked(ctx context.Context, take bool, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	for {
		if take {
			if err := fault.Step("uids.mkdir"); err != nil {
				return err
			}
			if err := os.MkdirAll(l.dir, 0o700); err != nil {
				return err
			}
		}
		held, err := lock.Exclusive(ctx, filepath.Join(l.dir, lockFile))
		if errors.Is(err, fs.ErrNotExist) && !take {
			return nil
		}
		if errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil {
			continue // whoever freed the last ids has just removed the folder
		}
		if err != nil {
			return err
		}
		return errors.Join(f(), held.Close())
	}
}
