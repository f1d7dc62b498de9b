package supervise

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/rkt-pods/rkt/pkg/lifecycle"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/stage1/launch"
)

// watch runs what goes on beside the app's program from its start to its end:
// the post-start hook, the startup probe, and then the others. heard is where the app says that it
// is ready, nil if it has no such socket.
func (a *app) watch(base launch.App, heard *net.UnixConn) {
	if heard != nil {
		a.beside.start(func() { a.listen(heard) })
	}
	if a.plan.PostStart == nil && a.plan.Startup == nil {
		a.probes(base)
		return
	}
	a.beside.start(func() {
		if !a.begun(base) {
			return
		}
		if a.plan.Ready == nil {
			a.ready(true)
		}
		a.probes(base)
	})
}

// begun waits for the post-start hook and the startup probe, and says whether
// both have gone well.
func (a *app) begun(base launch.App) bool {
	if h := a.plan.PostStart; h != nil {
		if err := a.hook(a.ctx, base, "post-start", *h); err != nil {
			if a.ctx.Err() == nil { // else it has ended, or was killed
				a.report(err)
			}
			a.unfit(poddir.StartFailed, err.Error())
			return false
		}
	}
	if a.plan.Startup == nil {
		return true
	}
	begun := false
	a.probe(base, *a.plan.Startup, func(ok bool, message string) bool {
		if begun = ok; !ok {
			message = "startup probe: " + message
			a.report(errors.New(message))
			a.unfit(poddir.StartFailed, message)
		}
		return false
	})
	return begun
}

// probes starts those that the app has.
func (a *app) probes(base launch.App) {
	if p := a.plan.Ready; p != nil && p.Kind != podspec.CheckNotify {
		a.beside.start(func() {
			a.probe(base, *p, func(ok bool, _ string) bool {
				a.ready(ok)
				return true
			})
		})
	}
	if p := a.plan.Live; p != nil {
		a.beside.start(func() {
			a.probe(base, *p, func(ok bool, message string) bool {
				if !ok {
					a.report(fmt.Errorf("liveness probe: %s", message))
					a.unfit(poddir.LivenessFailed, message)
				}
				return true
			})
		})
	}
}

// probe asks again and again, until the execution ends or tell has enough, and
// tells whenever the answer has changed. A pod that is paused is not asked: it could not answer.
func (a *app) probe(base launch.App, p podspec.Probe, tell func(ok bool, message string) bool) {
	good, bad := 0, 0
	for wait := p.Delay; a.pause(wait); {
		begin := time.Now()
		wait = p.Period
		if a.pod.paused.Load() {
			continue
		}
		err := a.check(a.ctx, base, p.Check, p.Timeout)
		switch {
		case a.ctx.Err() != nil || a.pod.paused.Load():
			continue
		case err == nil:
			good, bad = good+1, 0
		default:
			good, bad = 0, bad+1
		}
		if good == p.Successes && !tell(true, "") || bad == p.Failures && !tell(false, fmt.Sprintf("%s: %s", p.Check, err)) {
			return
		}
		wait = max(0, p.Period-time.Since(begin))
	}
}

// pause waits, and says whether the execution goes on.
func (a *app) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-a.ctx.Done():
		return false
	}
}

func (a *app) ready(ok bool) {
	now := time.Now()
	a.pod.send(happened{event: lifecycle.AppReady{App: a.plan.Name, Ready: ok, At: now}, at: now, app: a.plan.Name})
}

func (a *app) unfit(why poddir.Reason, message string) {
	a.pod.send(happened{event: lifecycle.AppUnfit{App: a.plan.Name, Reason: why, Message: message}, at: time.Now(), app: a.plan.Name})
}

// askToEnd sends the app its stop signal, behind its pre-stop hook if it has
// one. The stop timeout runs meanwhile; when it is over the app is killed, and
// the hook with it.
func (a *app) askToEnd(s syscall.Signal) {
	if a.plan.PreStop == nil {
		a.signal(s)
		return
	}
	base := a.base
	a.beside.start(func() {
		if err := a.hook(a.ctx, base, "pre-stop", *a.plan.PreStop); err != nil && (a.ctx.Err() == nil || errors.Is(err, errKilled)) {
			a.report(err) // and the app is to end all the same
		}
		if a.ctx.Err() == nil { // else it has ended, or was killed
			a.signal(s)
		}
	})
}

// errKilled ends what goes on in an app that is killed.
var errKilled = errors.New("the app was killed before it was done")

// signal sends a signal to the app's main process, which may be gone.
func (a *app) signal(s syscall.Signal) {
	if err := a.process.Signal(s); err != nil && !gone(err) {
		a.report(fmt.Errorf("signal %d: %w", s, err))
	}
}

// hook does what a hook asks for, once.
func (a *app) hook(ctx context.Context, base launch.App, what string, h podspec.Hook) error {
	if err := a.check(ctx, base, h.Check, h.Timeout); err != nil {
		return fmt.Errorf("%s hook: %s: %w", what, h.Check, err)
	}
	return nil
}

// check asks the app once.
func (a *app) check(ctx context.Context, base launch.App, c podspec.Check, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
	defer cancel()
	var err error
	switch c.Kind {
	case podspec.CheckExec:
		err = a.ask(ctx, base, c.Argv)
	case podspec.CheckHTTP:
		err = getPage(ctx, base.Namespaces.Net, c.Port, c.Path)
	case podspec.CheckTCP:
		err = connectable(ctx, base.Namespaces.Net, c.Port)
	case podspec.CheckNotify:
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
