package pod

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/cgroup"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/proc"
)

// PublicState is the state of a pod for those who can read its summary only. It
// is found by asking the kernel: a summary is as old as its last write.
func PublicState(s poddir.Summary) State {
	if s.Supervisor == nil {
		return Prepared
	}
	if s.Supervisor.Alive() {
		return Running
	}
	if s.Supervisor.PodInit.Alive() {
		return Exiting
	}
	if s.Cgroup != "" {
		// Anyone may read it; where that fails it is gone.
		if populated, err := cgroup.PathPopulated(s.Cgroup); err == nil && populated {
			return Exiting
		}
	}
	return Exited
}

// ReadPublic reads a pod's summary. The error wraps fs.ErrNotExist if there is
// none.
func ReadPublic(storeID, uuid string) (s poddir.Summary, err error) {
	for range 2 {
		s = poddir.Summary{}
		if err = atomicfile.ReadJSON(publicPath(storeID, uuid), &s); err != nil {
			return s, err
		}
		// The supervisor's last words are written before it ends: only a
		// summary that is read after its death says whether there are any.
		if s.Exit != nil || PublicState(s) != Exited {
			break
		}
	}
	return s, nil
}

// WaitPublic is WaitOver for those who can read the pod's summary only.
func WaitPublic(ctx context.Context, storeID, uuid string) error {
	for {
		s, err := ReadPublic(storeID, uuid)
		if errors.Is(err, fs.ErrNotExist) {
			return Removed(uuid, "waited for")
		}
		if err != nil {
			return err
		}
		pod := Pod{UUID: uuid, State: PublicState(s)}
		switch pod.State {
		case Prepared:
			err = waitReplaced(ctx, publicPath(storeID, uuid), s)
		case Running:
			err = waitProcess(ctx, s.Supervisor.ID)
		case Exiting:
			if err = waitProcess(ctx, s.Supervisor.PodInit); err == nil && s.Cgroup != "" {
				err = cgroup.WaitPathEmpty(ctx, s.Cgroup)
			}
			if err != nil {
				err = timedOut(ctx, err)
			}
		case Embryo, Preparing, AbortedPrepare, Exited, ExitedDeleting, ExitedGarbage, Deleting, Garbage:
			return nil
		}
		if err != nil {
			return podErr(pod, sayHowLong(ctx, "still "+string(pod.State), err))
		}
	}
}

func publicPath(storeID, uuid string) string {
	return filepath.Join(poddir.RunDir(storeID, uuid), poddir.SummaryFile)
}

// waitProcess returns when the process may have ended. Anyone may open and poll
// anyone's pidfd.
func waitProcess(ctx context.Context, id proc.ID) error {
	fd, err := id.Open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return poll(ctx, fd)
}

// waitReplaced returns when the summary may have been replaced. Its folder can
// be passed through but not read, so the file itself is watched: it loses its
// name then.
func waitReplaced(ctx context.Context, path string, was poddir.Summary) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch summary: %w", err)
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_ATTRIB|unix.IN_DELETE_SELF); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		return fmt.Errorf("watch summary: %w", err)
	}
	var now poddir.Summary
	if err := atomicfile.ReadJSON(path, &now); err != nil || PublicState(now) != PublicState(was) || now.Ready != was.Ready {
		return nil // it happened before the watch was there
	}
	return poll(ctx, fd)
}
