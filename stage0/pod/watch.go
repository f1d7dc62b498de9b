package pod

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/poddir"
)

// Watch tells when something about any pod may have changed, by the files
// alone: a pod that comes, moves or goes, and each status of an app.
type Watch struct {
	pods Pods
	only string // the one pod whose logs are watched too, "" if all pods are
	fd   int
}

// Watch begins to watch. What happens from then on is told; it must be closed.
func (p Pods) Watch() (*Watch, error) { return p.watch("") }

// WatchLogs is Watch for one pod, with what its apps write to their logs.
func (p Pods) WatchLogs(uuid string) (*Watch, error) { return p.watch(uuid) }

func (p Pods) watch(only string) (*Watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	w := &Watch{p, only, fd}
	if err := w.Refresh(); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// Close ends the watch.
func (w *Watch) Close() error { return unix.Close(w.fd) }

// The events that a record's replacement, and a folder's coming and going,
// make.
const watched = unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_CREATE | unix.IN_DELETE | unix.IN_ONLYDIR

// Refresh takes in the folders that have come since. It is to be called before
// the pods are read: what comes after is told then.
func (w *Watch) Refresh() error {
	if w.only != "" {
		pod, err := w.pods.Get(w.only)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return w.addPod(pod.Dir)
	}
	for _, f := range poddir.Folders() {
		dir := filepath.Join(poddir.PodsDir(w.pods.Data), string(f))
		// Whoever watches before the first pod is there sees it come.
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if err := w.add(dir); err != nil {
			return err
		}
		names, err := w.pods.names(f)
		if err != nil {
			return err
		}
		for _, uuid := range names {
			if err := w.addPod(poddir.Dir(poddir.Path(w.pods.Data, f, uuid))); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *Watch) addPod(dir poddir.Dir) error {
	// The supervisor tells in the run folder that the pod is ready or paused.
	err := errors.Join(w.add(string(dir)), w.add(dir.Apps()), w.add(poddir.RunDir(w.pods.StoreID, dir.UUID())))
	entries, rerr := os.ReadDir(dir.Apps())
	if rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
		return errors.Join(err, rerr)
	}
	for _, e := range entries {
		app := dir.App(e.Name())
		err = errors.Join(err, w.add(string(app)))
		// Only the last execution changes.
		if attempts, aerr := app.Attempts(); aerr == nil && len(attempts) > 0 {
			err = errors.Join(err, w.add(string(app.Attempt(attempts[len(attempts)-1]))))
		}
	}
	return err
}

// add watches a folder; one that is gone is of no interest, and one that is
// watched already is no second one.
func (w *Watch) add(dir string) error {
	mask := uint32(watched)
	if w.only != "" {
		mask |= unix.IN_MODIFY
	}
	_, err := unix.InotifyAddWatch(w.fd, dir, mask)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	return nil
}

// Next returns once something may have changed, or a second has passed, for a
// lock that is released makes no event.
func (w *Watch) Next(ctx context.Context) error {
	if err := poll(ctx, w.fd); err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	for {
		if _, err := unix.Read(w.fd, buf); !errors.Is(err, unix.EINTR) {
			return nil // drained enough: what is left wakes the next call
		}
	}
}
