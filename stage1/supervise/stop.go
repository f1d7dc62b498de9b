package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/abi"
	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/limits"
	"github.com/rkt-pods/rkt/pkg/lock"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/proc"
)

// goneTimeout is how long the supervisor may take from the pod's end to its
// own: it releases what the pod held, and may become another program.
const goneTimeout = time.Minute

// forceTimeout is how long a supervisor has to hear that its pod is to be
// killed. Whoever asked kills both himself then.
const forceTimeout = time.Second

// freezeTimeout is how long the supervisor may take for what it does at once:
// freezing may have to wait for a process in the kernel.
const freezeTimeout = emptyDeadline + ioTimeout

// Stop asks a pod's supervisor to stop it and returns when the supervisor is
// gone, and with it all of the pod.
func Stop(ctx context.Context, s abi.Stop) error {
	if s.App != "" {
		return steer(s.Pod, stopRequest(s))
	}
	dir := poddir.Dir(s.PodDir)
	id, err := supervisorOf(dir)
	if err != nil {
		return err
	}
	fd, err := id.Open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it is gone: nothing to stop
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	c, err := dial(poddir.RunDir(s.StoreID, s.UUID))
	switch {
	case err == nil:
		defer func() { _ = c.conn.Close() }() // the answer is here
		if err := c.stop(stopRequest(s), id.PID); err != nil {
			return err
		}
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED):
		// No socket yet, or no more. A signal means the same.
		if err := unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("supervisor: signal process %d: %w", id.PID, err)
		}
	default:
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, goneTimeout)
	defer cancel()
	return waitGone(ctx, fd, id.PID)
}

func stopRequest(s abi.Stop) request {
	return request{Op: opStop, App: s.App, Force: s.Force}.how(s.Stopping)
}

func (r request) how(s abi.Stopping) request {
	r.Signal = s.Signal
	if s.Timeout != nil {
		r.TimeoutMs = new(s.Timeout.Milliseconds())
	}
	return r
}

// Restart asks for a new execution of an app and returns once it has begun.
func Restart(r abi.Restart) error {
	return steer(r.Pod, request{Op: opRestart, App: r.App}.how(r.Stopping))
}

// Signal has the supervisor send a signal to the main process of an app, or of
// all apps.
func Signal(s abi.Signal) error {
	return steer(s.Pod, request{Op: opSignal, App: s.App, Signal: s.Signal})
}

// Pause has the supervisor freeze the pod's apps, or let them go on.
func Pause(p abi.Pause) error { return steer(p.Pod, request{Op: opPause, Off: p.Off}) }

// Update has the supervisor change limits, and returns what became of each.
func Update(u abi.Update) ([]limits.Result, error) {
	r, err := askFor(u.Pod, request{Op: opUpdate, App: u.App, Limits: &u.Limits, Force: u.Force})
	return r.Results, err
}

// steer asks the supervisor for something and returns when it is done.
func steer(pod abi.Pod, req request) error {
	_, err := askFor(pod, req)
	return err
}

// askFor is steer with the first answer.
func askFor(pod abi.Pod, req request) (r reply, err error) {
	c, err := dial(poddir.RunDir(pod.StoreID, pod.UUID))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return r, errs.WithHint(errs.Newf(errs.Busy, "supervisor: does not listen"), "the pod is just starting or ending: try again")
	}
	if err != nil {
		return r, err
	}
	defer func() { _ = c.conn.Close() }() // the answer is here
	if err = c.ask(req); err == nil {
		if r, err = c.answer(freezeTimeout); err == nil && r.WithinMs > 0 {
			_, err = c.answer(time.Duration(r.WithinMs) * time.Millisecond)
		}
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = errs.Newf(errs.Busy, "supervisor: no answer in time")
	case errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE):
		err = errs.Newf(errs.Unavailable, "supervisor: the pod has just ended")
	}
	return r, err
}

// stop asks for the end and waits until it is on disk, or until the supervisor
// hangs up: then it was just ending.
func (c *client) stop(req request, pid int) error {
	timeout := ioTimeout
	if req.Force {
		timeout = forceTimeout
	}
	err := c.ask(req)
	var r reply
	if err == nil {
		r, err = c.answer(timeout)
	}
	if err == nil {
		_, err = c.answer(time.Duration(r.WithinMs) * time.Millisecond)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errs.WithHint(errs.Newf(errs.Busy, "supervisor: process %d: does not answer", pid),
			"`rkt stop --force` does without it")
	case errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE):
		return nil
	}
	return err
}

// supervisorOf names the supervisor, or before there is one, who holds the
// pod's lock: stage0 becomes the supervisor by exec.
func supervisorOf(dir poddir.Dir) (proc.ID, error) {
	var s poddir.Supervisor
	err := atomicfile.ReadJSON(dir.Supervisor(), &s)
	if err == nil {
		return s.ID, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return proc.ID{}, err
	}
	held, err := lock.Held(dir.Lock())
	if err != nil || !held {
		return proc.ID{}, errors.Join(errs.Newf(errs.Unavailable, "pod: not running"), err)
	}
	h, err := lock.ReadHolder(dir.Lock())
	return h.ID, err
}

// waitGone waits for the end of the pidfd's process.
func waitGone(ctx context.Context, fd, pid int) error {
	for {
		// In slices, so that the context is heeded: poll(2) knows none.
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(time.Second.Milliseconds()))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("supervisor: wait for process %d: %w", pid, err)
		}
		if n > 0 {
			return nil
		}
		if ctx.Err() != nil {
			return errs.Newf(errs.Busy, "supervisor: process %d: still there", pid)
		}
	}
}
