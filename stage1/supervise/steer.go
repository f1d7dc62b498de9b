package supervise

import (
	"slices"
	"syscall"
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/lifecycle"
	"github.com/rkt-pods/rkt/pkg/limits"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

// waiter is a call that is answered when something has come about: the end of
// the pod, or of one app, or the begin of an execution of it.
type waiter struct {
	call
	restarts int // with opRestart: the execution that is waited for, at least
}

// ended says whether the end of an app's execution is what it waits for.
func (w waiter) ended(x lifecycle.FinishApp) bool { return w.App == x.App && !x.Again }

// restarted says whether the begin of an execution is what it waits for.
func (w waiter) restarted(app string, restarts int) bool {
	return w.Op == opRestart && w.App == app && restarts >= w.restarts
}

// serveWaiters answers those whose time has come.
func (p *pod) serveWaiters(come func(waiter) bool) {
	p.waiters = slices.DeleteFunc(p.waiters, func(w waiter) bool {
		if !come(w) {
			return false
		}
		if w.App == "" {
			w.last(p.answer())
		} else {
			w.last(reply{})
		}
		return true
	})
}

// call obeys a request from the control socket.
func (p *pod) call(c call) {
	var err error
	switch c.Op {
	case opStop:
		err = p.callStop(c)
	case opRestart:
		err = p.callRestart(c)
	case opSignal:
		if err = p.callSignal(c); err == nil {
			c.last(reply{})
		}
	case opPause:
		if err = p.pause(!c.Off); err == nil {
			c.last(reply{})
		}
	case opUpdate:
		var results []limits.Result
		if results, err = p.update(c.request); err == nil {
			c.last(reply{Results: results})
		}
	case opVisit:
		c.last(reply{})
	case opGone:
		if c.Visitor != nil {
			p.endVisit(*c.Visitor)
		}
		c.last(reply{})
	case opState:
		s := p.records.public()
		c.last(reply{Summary: &s})
	default:
		err = errs.Newf(errs.Usage, "operation %q: unknown", c.Op)
	}
	if err != nil {
		c.last(refusal(err))
	}
}

// stopping is how the caller wants it done.
func (r request) stopping() lifecycle.Stopping {
	s := lifecycle.Stopping{Signal: r.Signal}
	if r.TimeoutMs != nil {
		s.Timeout = new(time.Duration(*r.TimeoutMs) * time.Millisecond)
	}
	return s
}

func (p *pod) callStop(c call) error {
	if c.App != "" {
		return p.callStopApp(c)
	}
	p.await(c, p.apps)
	if c.Force {
		p.stop(lifecycle.KillRequested{})
		return nil
	}
	p.stop(lifecycle.StopRequested{At: time.Now(), Patient: true, Stopping: c.stopping()})
	return nil
}

// await tells the caller how long it may take and has it wait.
func (p *pod) await(c call, apps []*app) {
	c.answer <- reply{WithinMs: c.patience(apps).Milliseconds()}
	w := waiter{call: c}
	if c.Op == opRestart {
		w.restarts = p.records.status[c.App].Restarts + 1
		if s := p.records.status[c.App].State; s == poddir.Backoff {
			w.restarts-- // it is that one which begins now
		}
	}
	p.waiters = append(p.waiters, w)
}

func (p *pod) callStopApp(c call) error {
	a, err := p.named(c.App)
	if err != nil {
		return err
	}
	if p.records.status[c.App].State == poddir.Exited {
		c.last(reply{})
		return nil
	}
	p.wake()
	// As long as another one waits for it, it would wait in turn for that.
	p.await(c, []*app{a})
	p.handle(happened{event: lifecycle.AppStop{App: c.App, Stopping: c.stopping()}, at: time.Now()})
	return nil
}

func (p *pod) callRestart(c call) error {
	a, err := p.named(c.App)
	if err == nil {
		err = p.machine.CanRestart(c.App)
	}
	if err == nil && p.tty != nil {
		err = errs.Newf(errs.Unsupported, "app %s: has the user's terminal, for one execution only", c.App)
	}
	if err != nil {
		return err
	}
	p.wake()
	p.await(c, []*app{a})
	p.handle(happened{event: lifecycle.AppRestart{App: c.App, Stopping: c.stopping()}, at: time.Now()})
	return nil
}

func (p *pod) callSignal(c call) error {
	if c.Signal < 1 || c.Signal > 64 {
		return errs.Newf(errs.Usage, "signal %d: unknown", c.Signal)
	}
	list := p.apps
	if c.App != "" {
		a, err := p.named(c.App)
		if err != nil {
			return err
		}
		list = []*app{a}
	}
	sent := false
	for _, a := range list {
		if s := p.records.status[a.plan.Name].State; s == poddir.Running || s == poddir.Ready {
			a.signal(syscall.Signal(c.Signal))
			sent = true
		}
	}
	if !sent {
		return errs.Newf(errs.Unavailable, "no app runs that could get the signal")
	}
	return nil
}

func (p *pod) named(app string) (*app, error) {
	if a := p.find(app); a != nil {
		return a, nil
	}
	return nil, errs.Newf(errs.NotFound, "app %s: not in this pod", app)
}

// pause freezes the apps, or lets them go on. Their probes wait as well.
func (p *pod) pause(on bool) error {
	if on == p.paused.Load() {
		return nil
	}
	if on && p.machine.Ending() {
		return errs.Newf(errs.Unavailable, "the pod is being stopped")
	}
	if on && len(p.waiters) > 0 {
		// Frozen, it would neither end nor begin, and they would wait in vain.
		err := errs.Newf(errs.Busy, "app %s: is being stopped or restarted", p.waiters[0].App)
		return errs.WithHint(err, "try again when that is done")
	}
	p.paused.Store(true) // before anybody is frozen, or a probe would fail
	err := p.groups.freeze(p.ctx, on)
	if err != nil && on {
		// Some may be frozen, and the caller hears that none is.
		_ = p.groups.freeze(p.ctx, false)
		on = false
	}
	p.paused.Store(on)
	p.records.summary.Paused, p.records.dirty = on, true
	if perr := p.records.publish(); perr != nil {
		p.reportOnce("summary", perr)
	}
	return err
}

// wake lets a paused pod go on that is to stop: who is frozen hears no signal.
func (p *pod) wake() {
	if err := p.pause(false); err != nil {
		p.report(err)
	}
}

// maxPatience bounds each part of what is added up, which may be as long as a
// duration can be.
const maxPatience = 365 * 24 * time.Hour

// patience is how long what was asked for may take: the stop timeouts of all,
// for each may wait for the one after it, their post-stop handlers' time, and
// that of the kernel's kill.
func (r request) patience(apps []*app) time.Duration {
	total := emptyDeadline
	for _, a := range apps {
		timeout := a.plan.StopTimeout
		if r.TimeoutMs != nil {
			timeout = time.Duration(*r.TimeoutMs) * time.Millisecond
		}
		total += min(timeout, maxPatience)
		if len(a.plan.PostStop) > 0 {
			total += min(a.postStopTimeout(), maxPatience)
		}
	}
	if r.Op == opRestart {
		total += preStartTimeout
	}
	return total
}
