package pod

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/cgroup"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

// WaitOver returns the pod once none of its processes is left, or an error of
// class Unavailable when ctx ends before. It sleeps in the kernel: on the
// supervisor's pidfd while the pod runs, on the pod's cgroup while it is
// ending, on the folder while it is still to be started.
//
// A pod that is removed meanwhile is an error of class NotFound.
func (p Pods) WaitOver(ctx context.Context, uuid string) (Pod, error) {
	for {
		pod, err := p.Get(uuid)
		if errors.Is(err, fs.ErrNotExist) || err == nil && pod.Folder == poddir.Garbage {
			return pod, Removed(uuid, "waited for")
		}
		if err != nil || pod.State.Over() {
			return pod, err
		}
		if err := p.waitStep(ctx, pod); err != nil {
			return pod, podErr(pod, sayHowLong(ctx, "still "+string(pod.State), err))
		}
	}
}

// WaitSupervised returns the facts of a pod whose supervisor has introduced
// itself, or that has ended before it could.
func (p Pods) WaitSupervised(ctx context.Context, uuid string) (Facts, error) {
	for {
		pod, err := p.Get(uuid)
		if err != nil {
			return Facts{}, err
		}
		f, err := p.Facts(pod)
		if err != nil || f.Supervisor != nil || f.State != Running {
			return f, err
		}
		if err := p.waitMove(ctx, f.Pod); err != nil {
			return f, podErr(pod, sayHowLong(ctx, "its supervisor is still starting", err))
		}
	}
}

// waitStep returns when the pod's state may have changed.
func (p Pods) waitStep(ctx context.Context, pod Pod) error {
	switch pod.State {
	case Running:
		return p.waitSupervisor(ctx, pod)
	case Exiting:
		return p.waitGone(ctx, pod.Dir)
	case Embryo, Preparing, AbortedPrepare, Prepared, Exited, ExitedDeleting, ExitedGarbage, Deleting, Garbage:
	}
	return p.waitMove(ctx, pod)
}

func (p Pods) waitSupervisor(ctx context.Context, pod Pod) error {
	var sup poddir.Supervisor
	if err := read(pod.Dir.Supervisor(), &sup); err != nil && exists(string(pod.Dir)) {
		return err
	}
	id, err := supervisorID(pod.Dir, sup)
	if err == nil {
		var fd int
		if fd, err = id.Open(); err == nil {
			defer unix.Close(fd)
			return poll(ctx, fd)
		}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// The lock is held by nobody who can be named: a supervisor that ended
	// this moment, or one that inherited the lock and has not said so yet.
	return p.waitMove(ctx, pod)
}

// waitGone waits for the pod's processes to be gone, whoever ends them.
func (p Pods) waitGone(ctx context.Context, dir poddir.Dir) error {
	rec, err := p.Cgroup(dir)
	if err == nil {
		err = cgroup.WaitEmpty(ctx, rec)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return timedOut(ctx, err)
	}
	for _, id := range dying(dir) {
		fd, err := id.Open()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for err == nil && id.Alive() {
			err = poll(ctx, fd)
		}
		_ = unix.Close(fd) // nothing was written
		if err != nil {
			return err
		}
	}
	return nil
}

// waitMove waits for the pod to leave its folder, or for a file in it to
// change.
func (p Pods) waitMove(ctx context.Context, pod Pod) error {
	had := exists(pod.Dir.Supervisor())
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch pod: %w", err)
	}
	defer unix.Close(fd)
	const gone = unix.IN_MOVED_FROM | unix.IN_DELETE
	if _, err := unix.InotifyAddWatch(fd, filepath.Dir(string(pod.Dir)), gone); err != nil {
		return fmt.Errorf("watch pod: %w", err)
	}
	const changed = unix.IN_MOVED_TO | unix.IN_CLOSE_WRITE | unix.IN_MOVE_SELF
	if _, err := unix.InotifyAddWatch(fd, string(pod.Dir), changed); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		return fmt.Errorf("watch pod: %w", err)
	}
	// What happened before the watch was there would never wake us.
	if now, err := p.Get(pod.UUID); err != nil || now.State != pod.State {
		return nil
	}
	if !had && exists(pod.Dir.Supervisor()) {
		return nil
	}
	return poll(ctx, fd)
}

// poll waits for the descriptor or the end of ctx. A lock that is released
// leaves no event, so a wait is cut into seconds where the state is then read
// again.
func poll(ctx context.Context, fd int) error {
	end, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("wait for pod: %w", err)
	}
	defer unix.Close(end)
	wake := context.AfterFunc(ctx, func() {
		// Wakes the poll; if that can't be, a second is soon over.
		_, _ = unix.Write(end, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	})
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(end), Events: unix.POLLIN}}
	_, err = unix.Poll(fds, int(time.Second.Milliseconds()))
	if !wake() {
		// The function runs, or has run: its descriptor may only be closed
		// when it is done, else it would write to another one of that number.
		_, _ = unix.Read(end, make([]byte, 8))
		return timedOut(ctx, nil)
	}
	if err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("wait for pod: %w", err)
	}
	return nil
}

// waitError is the end of a wait in words of its own; cause is what ctx says.
type waitError struct {
	text  string
	cause error
}

func (e *waitError) Error() string { return e.text }
func (e *waitError) Unwrap() error { return e.cause }

// timedOut says why the wait is over: its time, or a signal.
func timedOut(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return errs.WithClass(errs.Unavailable, &waitError{"interrupted while waiting", ctx.Err()})
	case ctx.Err() == nil && err != nil && !errs.Is(err, errs.Busy):
		return err
	}
	return errs.WithClass(errs.Unavailable, &waitError{"some of its processes don't end", context.DeadlineExceeded})
}

// For bounds a wait, and has its error say the time that was asked for.
func For(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, waitCause(d))
}

type waitCause time.Duration

func (c waitCause) Error() string { return time.Duration(c).String() }

// sayHowLong replaces the text of a deadline that has passed.
func sayHowLong(ctx context.Context, what string, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if c, ok := errors.AsType[waitCause](context.Cause(ctx)); ok {
		what += " after " + c.Error()
	}
	return errs.WithClass(errs.Unavailable, &waitError{what, context.DeadlineExceeded})
}
