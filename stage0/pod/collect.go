package pod

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/cgroup"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/lock"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/stage0/uids"
)

// emptyDeadline is how long killed processes may take to be gone. Only one in
// an uninterruptible sleep takes longer.
const emptyDeadline = 10 * time.Second

// Collect removes a pod and everything it holds, from its own records and
// without any code of the pod. It may be called for a pod in any state but
// preparing and running, again after any failure, and by several at once: the
// one who finds it locked gets an error of class Busy, the one who finds it
// gone gets none.
//
// The order is: no process, kernel resources, files, and refs.json last of the
// files, so that what a half removed pod may use stays.
func (p Pods) Collect(ctx context.Context, uuid string) error {
	pod, err := p.Get(uuid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := p.Dismiss(ctx, uuid); err != nil {
		return err
	}
	if err := p.SyncFolders(pod.Folder, poddir.Garbage); err != nil {
		return podErr(pod, err)
	}
	return p.Remove(uuid)
}

// Dismiss is the first half of Collect: it ends the pod and moves it to
// pods/garbage. The move is safe from power loss only after SyncFolders, which
// must come before Remove; for many pods one is enough.
func (p Pods) Dismiss(ctx context.Context, uuid string) error {
	return p.follow(uuid, func(pod Pod) error {
		switch pod.State {
		case Preparing, Running:
			return errs.Newf(errs.Busy, "is %s", pod.State)
		case Exiting, Exited:
			if err := p.leaveRun(ctx, pod); err != nil {
				return err
			}
			return fs.ErrNotExist // it lies elsewhere now
		case Deleting, Garbage:
			return nil
		case Embryo, AbortedPrepare, Prepared, ExitedDeleting, ExitedGarbage:
		}
		l, err := tryLock(pod.Dir)
		if err != nil {
			return err
		}
		o := &owned{pods: p, uuid: pod.UUID, dir: pod.Dir, lock: l}
		return errors.Join(p.dismiss(ctx, o, pod), l.Close())
	})
}

// Remove is the second half of Collect. It leaves alone what is not garbage.
func (p Pods) Remove(uuid string) error {
	return p.follow(uuid, func(pod Pod) error {
		if pod.Folder != poddir.Garbage {
			return errs.Newf(errs.Busy, "is %s", pod.State)
		}
		l, err := tryLock(pod.Dir)
		if err != nil {
			return err
		}
		return errors.Join(p.remove(pod.Dir), l.Close())
	})
}

// SyncFolders makes the renames into and out of the folders survive a power
// loss.
func (p Pods) SyncFolders(folders ...poddir.Folder) error {
	for i, f := range folders {
		if slices.Contains(folders[:i], f) {
			continue
		}
		if err := atomicfile.SyncDir(filepath.Join(poddir.PodsDir(p.Data), string(f))); err != nil {
			return err
		}
	}
	return nil
}

// follow runs a step on a pod, again if the pod was moved under it. One that
// is gone has been collected, which is what was wanted.
func (p Pods) follow(uuid string, step func(Pod) error) error {
	for range maxMoves {
		pod, err := p.Get(uuid)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		err = step(pod)
		if err == nil {
			return nil
		}
		if exists(string(pod.Dir)) || !errors.Is(err, fs.ErrNotExist) {
			return podErr(pod, err)
		}
	}
	return errs.Newf(errs.Busy, "pod %s: keeps moving", uuid)
}

// CollectInherited is Collect for a pod in pods/run whose lock this process
// got from its supervisor: the pod is over, but nobody else knows yet.
func (p Pods) CollectInherited(ctx context.Context, uuid string, fd int) error {
	dir := poddir.Dir(poddir.Path(p.Data, poddir.Run, uuid))
	l, err := lock.Inherit(fd, dir.Lock())
	if err != nil {
		return fmt.Errorf("pod %s: %w", uuid, err)
	}
	o := &owned{pods: p, uuid: uuid, dir: dir, lock: l}
	err = p.killProcesses(ctx, dir)
	if err == nil {
		err = o.rename("pod.exited", poddir.ExitedGarbage, atomicfile.Renamed)
	}
	if err == nil {
		err = p.collectLocked(ctx, o, Pod{UUID: uuid, Folder: poddir.ExitedGarbage, Dir: o.dir, State: ExitedDeleting})
	}
	return errors.Join(err, l.Close())
}

// Discard removes a pod that could not be prepared to the end.
func (p *PreparingPod) Discard(ctx context.Context) error {
	pod := Pod{UUID: p.uuid, Folder: poddir.Prepare, Dir: p.dir, State: Preparing}
	return errors.Join(p.pods.collectLocked(ctx, &p.owned, pod), p.Close())
}

// collectLocked removes a pod whose lock is held.
func (p Pods) collectLocked(ctx context.Context, o *owned, pod Pod) error {
	if err := p.dismiss(ctx, o, pod); err != nil {
		return err
	}
	if err := p.SyncFolders(pod.Folder, poddir.Garbage); err != nil {
		return err
	}
	return p.remove(o.dir)
}

// Mark takes an exited pod out of pods/run, writes down how it ended and gives
// back what it has of the kernel and the networks, if its supervisor could not.
// Done by another meanwhile is done. The move is safe from power loss only after
// SyncFolders.
//
// A pod whose networks could not be given back then is marked again for that.
func (p Pods) Mark(ctx context.Context, uuid string) error {
	return p.mark(ctx, uuid, func(pod Pod) error { return p.release(pod.Dir) })
}

// mark runs a function on the pod, which has ended and is locked, once it is
// known how it ended.
func (p Pods) mark(ctx context.Context, uuid string, then func(Pod) error) error {
	pod, err := p.Get(uuid)
	if errors.Is(err, fs.ErrNotExist) || err == nil && pod.State != Exited && pod.State != Exiting && pod.State != ExitedGarbage {
		return nil
	}
	if err != nil {
		return err
	}
	if pod.State != ExitedGarbage {
		if err := p.leaveRun(ctx, pod); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return podErr(pod, err)
		}
	}
	pod.Folder, pod.State = poddir.ExitedGarbage, ExitedDeleting
	pod.Dir = poddir.Dir(poddir.Path(p.Data, poddir.ExitedGarbage, uuid))
	l, err := tryLock(pod.Dir)
	if errs.Is(err, errs.Busy) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return podErr(pod, err)
	}
	err = p.Finish(pod)
	if err == nil {
		err = then(pod)
	}
	if err = errors.Join(err, l.Close()); err != nil {
		return podErr(pod, err)
	}
	return nil
}

// leaveRun kills what is left of a pod whose supervisor is gone and moves it
// out of pods/run. It needs no lock, and takes none, since a locked pod there
// would be shown as running: an unlocked one never comes back to life.
func (p Pods) leaveRun(ctx context.Context, pod Pod) error {
	if err := p.killProcesses(ctx, pod.Dir); err != nil {
		return err
	}
	next := poddir.Path(p.Data, poddir.ExitedGarbage, pod.UUID)
	return atomicfile.Rename("pod.exited", string(pod.Dir), next, atomicfile.Renamed)
}

// killProcesses returns when no process of the pod is left.
func (p Pods) killProcesses(ctx context.Context, dir poddir.Dir) error {
	if inside(dir.UUID()) {
		return errs.Newf(errs.Internal, "this process is in the pod's cgroup")
	}
	ctx, cancel := context.WithTimeout(ctx, emptyDeadline)
	defer cancel()
	rec, err := p.Cgroup(dir)
	var populated bool
	if err == nil {
		populated, err = cgroup.Populated(rec)
	}
	if populated {
		err = cgroup.Kill(rec)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return p.waitGone(ctx, dir)
}

// inside says whether this process is in the pod's cgroup, where it would kill
// itself with the pod.
func inside(uuid string) bool {
	data, err := os.ReadFile("/proc/self/cgroup")
	return err == nil && strings.Contains(string(data), "/"+uuid)
}

// dismiss moves a pod whose lock is held to pods/garbage, when it is over.
func (p Pods) dismiss(ctx context.Context, o *owned, pod Pod) error {
	if pod.State == ExitedGarbage || pod.State == ExitedDeleting {
		if err := p.killProcesses(ctx, o.dir); err != nil {
			return err
		}
	}
	return o.rename("pod.garbage", poddir.Garbage, atomicfile.Renamed)
}

// remove releases what a pod in pods/garbage holds, and deletes it.
func (p Pods) remove(dir poddir.Dir) error {
	if err := p.release(dir); err != nil {
		return err
	}
	if err := p.removeRunDir(dir.UUID()); err != nil {
		return err
	}
	var refs poddir.Refs
	// Unreadable ones name no volume whose use could end now.
	_ = atomicfile.ReadJSON(dir.Refs(), &refs)
	if err := p.bury(dir, refs.Name); err != nil {
		return err
	}
	if err := p.releaseName(refs.Name, dir.UUID()); err != nil {
		return err
	}
	for _, name := range refs.Volumes {
		poddir.NamedVolume(p.Data, name).Touch()
	}
	return p.removeFiles(dir)
}

// release gives back the cgroups and the networks of a pod without processes.
func (p Pods) release(dir poddir.Dir) error {
	rec, err := p.Cgroup(dir)
	if err == nil {
		err = cgroup.Remove(rec)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := p.releaseNetwork(dir, false); err != nil {
		return err
	}
	return p.forgetNetwork(dir)
}

func (p Pods) removeRunDir(uuid string) error {
	if err := fault.Step("pod.remove-run"); err != nil {
		return err
	}
	dir := poddir.RunDir(p.StoreID, uuid)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	// Gone with the last pod; others' folders keep it.
	_ = unix.Rmdir(filepath.Dir(dir))
	return nil
}

// removeFiles deletes the pod's folder: the manifest before the apps, so that a
// reader who finds it has read whole apps; refs.json after all that may need
// what it names, the lock last. The user ids are free once no file has them.
func (p Pods) removeFiles(dir poddir.Dir) error {
	last := []string{filepath.Base(dir.Refs()), filepath.Base(dir.Lock())}
	entries, err := os.ReadDir(string(dir))
	if err != nil {
		return err
	}
	isManifest := func(e fs.DirEntry) bool { return e.Name() == filepath.Base(dir.Manifest()) }
	if i := slices.IndexFunc(entries, isManifest); i > 0 {
		entries[0], entries[i] = entries[i], entries[0]
	}
	for _, e := range entries {
		if e.Name() == last[0] || e.Name() == last[1] {
			continue
		}
		if err := fault.Step("pod.remove-file"); err != nil {
			return err
		}
		if err := os.RemoveAll(filepath.Join(string(dir), e.Name())); err != nil {
			return err
		}
	}
	if err := uids.OfHost().Free(context.Background(), uids.Holder{Data: p.Data, UUID: dir.UUID()}); err != nil {
		return err
	}
	for _, name := range last {
		if err := fault.Step("pod.remove-" + name); err != nil {
			return err
		}
		// A folder may lie there, if somebody has put it.
		if err := os.RemoveAll(filepath.Join(string(dir), name)); err != nil {
			return err
		}
	}
	if err := fault.Step("pod.rmdir"); err != nil {
		return err
	}
	// Whoever opened the lock a moment ago may have made it anew. It is
	// garbage all the same.
	for range 100 {
		err = unix.Rmdir(string(dir))
		if !errors.Is(err, unix.ENOTEMPTY) {
			break
		}
		_ = os.Remove(dir.Lock())
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "rmdir", Path: string(dir), Err: err}
	}
	return nil
}
