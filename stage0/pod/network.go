package pod

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/network"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

// releaseDeadline bounds the release of one pod's network.
const releaseDeadline = 2 * time.Minute

// Network reads the pod's network record. The error of a pod that has none is
// fs.ErrNotExist.
func (p Pods) Network(dir poddir.Dir) (poddir.NetRecord, error) {
	var rec poddir.NetRecord
	err := atomicfile.ReadJSON(dir.Network(), &rec)
	if err == nil && rec.ContainerID != poddir.ContainerID(p.StoreID, dir.UUID()) {
		// Another pod's would be released.
		err = fmt.Errorf("%s: is of container %q", dir.Network(), rec.ContainerID)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return rec, err
	}
	return rec, damaged(err)
}

// releaseNetwork gives back what a supervisor that died could not. Without a
// record there is nothing, since that came first.
func (p Pods) releaseNetwork(dir poddir.Dir, abandon bool) error {
	rec, unread := p.Network(dir)
	if errors.Is(unread, fs.ErrNotExist) {
		return nil
	}
	if unread != nil {
		// What an unreadable record was about is found by the pod's name.
		rec = poddir.NetRecord{ContainerID: poddir.ContainerID(p.StoreID, dir.UUID())}
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseDeadline)
	defer cancel()
	left, err := network.Release(ctx, rec, network.Released{Abandon: abandon})
	if err == nil {
		return nil
	}
	err = errs.WithHint(fmt.Errorf("release the network: %w", err), "\"rkt net gc --force\" gives up what a plugin does not release")
	if unread != nil {
		return err
	}
	return errors.Join(err, atomicfile.WriteJSON(dir.Network(), left, 0o600, atomicfile.Renamed))
}

// HoldsNetwork says whether the pod has a network record still.
func (p Pods) HoldsNetwork(pod Pod) bool { return exists(pod.Dir.Network()) }

// ReleaseNetwork gives back what an ended pod still holds of networks, and
// leaves the pod otherwise as it is. With abandon, what plugins of others made
// is left to them. A pod that has not ended keeps everything.
func (p Pods) ReleaseNetwork(ctx context.Context, uuid string, abandon bool) error {
	if err := p.mark(ctx, uuid, func(Pod) error { return nil }); err != nil {
		return err
	}
	return p.follow(uuid, func(pod Pod) error {
		switch pod.State {
		case ExitedGarbage, Garbage:
		case ExitedDeleting, Deleting:
			return errs.Newf(errs.Busy, "is being removed")
		default:
			return nil
		}
		l, err := tryLock(pod.Dir)
		if err != nil {
			return err
		}
		if err = p.releaseNetwork(pod.Dir, abandon); err == nil {
			err = p.forgetNetwork(pod.Dir)
		}
		return errors.Join(err, l.Close())
	})
}

func (p Pods) forgetNetwork(dir poddir.Dir) error {
	if err := fault.Step("network.forget"); err != nil {
		return err
	}
	if err := os.Remove(dir.Network()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
