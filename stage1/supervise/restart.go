package supervise

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/lifecycle"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

// armBackoff makes ready what is known of the app's next execution, and starts
// its time. Timers go by the monotonic clock: whoever sets the other one moves
// no back-off.
func (p *pod) armBackoff(x lifecycle.ArmBackoff) {
	p.forget(x.App, x.Restarts)
	if err := p.records.next(x.App, x.Restarts); err != nil {
		p.unrecorded(x.App, err)
		return
	}
	for i, last := range p.apps {
		if last.plan.Name == x.App {
			p.apps[i] = last.successor(p.records.attempt(x.App), x.Restarts)
		}
	}
	time.AfterFunc(x.Delay, func() {
		p.send(happened{event: lifecycle.BackoffOver{App: x.App, Restarts: x.Restarts}, at: time.Now()})
	})
}

// successor is the app's next execution, with all that does not end with one.
func (a *app) successor(attempt poddir.AttemptDir, restarts int) *app {
	return &app{
		plan: a.plan, attempt: attempt, id: executionID(a.plan.Name, restarts), stdin: a.stdin, prefix: a.prefix, pod: a.pod,
		rootfs: make(chan mounted, 1), before: a, written: attempt,
	}
}

// takeOver gives the execution its rootfs in place of the last one's. What was
// written to that is gone, unless it is to be kept.
func (a *app) takeOver(ctx context.Context) error {
	last := a.before
	if last == nil {
		return nil
	}
	a.before = nil // what it holds is not needed any more
	path, err := a.replace(ctx, last)
	a.rootfs <- mounted{path, err}
	return err
}

// replace takes down what is mounted of earlier executions. Where it fails half
// way, the next execution goes on.
func (a *app) replace(ctx context.Context, last *app) (rootfs string, err error) {
	a.written, a.stale = last.written, last.stale
	m, err := last.mountedRootFS(ctx)
	if err != nil {
		return "", err
	}
	if m.err == nil {
		a.stale = append(slices.Clone(a.stale), m.path)
	}
	// What entered the app holds its mounts, and may write.
	if err := a.clear(ctx); err != nil {
		return "", err
	}
	for len(a.stale) > 0 {
		if err := a.pod.box.release(a.stale[0]); err != nil {
			return "", err
		}
		a.stale = a.stale[1:]
	}
	if a.plan.KeepRootFS {
		if err := inherit(a.written, a.attempt); err != nil {
			return "", err
		}
	} else {
		go a.clean(a.written)
	}
	a.written = a.attempt
	rootfs, err = a.pod.box.prepare(a.plan, a.attempt)
	a.pod.trace("app %s: root file system at %s", a.plan.Name, rootfs)
	return rootfs, err
}

// clear kills all of the app, what entered it included, and waits for its end.
func (a *app) clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, emptyDeadline)
	defer cancel()
	return a.pod.groups.clear(ctx, a.plan.Name)
}

// inherit gives an execution what the one before has written.
func inherit(from, to poddir.AttemptDir) error {
	// The upper last: where that lies is what is to be kept.
	for _, dir := range []struct{ from, to string }{{from.Work(), to.Work()}, {from.Upper(), to.Upper()}} {
		if err := fault.Step("attempt.inherit"); err != nil {
			return err
		}
		// Missing if that never got so far.
		if err := os.Rename(dir.from, dir.to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("keep the root file system: %w", err)
		}
	}
	return nil
}

// clean removes what an ended execution has written; its status and its log
// stay. Nobody waits for it: what is left when the pod ends goes with the pod.
func (a *app) clean(last poddir.AttemptDir) {
	err := fault.Step("attempt.clean")
	if err == nil {
		err = errors.Join(os.RemoveAll(last.Upper()), os.RemoveAll(last.Work()))
	}
	if err != nil {
		a.pod.reportOnce("clean "+a.plan.Name, fmt.Errorf("app %s: remove what the last execution has written: %w", a.plan.Name, err))
	}
}

// mountedRootFS is the result of mounting the app's rootfs, however often it
// is asked for.
func (a *app) mountedRootFS(ctx context.Context) (mounted, error) {
	select {
	case m := <-a.rootfs:
		a.rootfs <- m
		return m, nil
	case <-ctx.Done(): // a layer on a server that does not answer, say
		return mounted{}, context.Cause(ctx)
	}
}

func executionID(app string, restarts int) string { return fmt.Sprintf("%s-%d", app, restarts) }
