package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rkt-pods/rkt/pkg/crilog"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/lifecycle"
	"github.com/rkt-pods/rkt/pkg/limits"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/network"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// pod is the running pod. The event loop owns it: the apps' goroutines and the
// control socket send what happened and touch nothing but what their types
// say.
type pod struct {
	ctx       context.Context
	runDir    string
	records   *records
	launcher  launch.Launcher
	knowsCall func(string) bool
	box       box
	groups    groups
	machine   *lifecycle.Machine
	apps      []*app
	isolators []limits.Result // what became of the pod's own
	bound     limits.Set      // what holds for all apps together

	stdin       *os.File
	out, errout *output
	tty         *terminal   // nil unless the pod has one
	notify      func(error) // tells the user
	herald      *herald     // tells the service manager
	watchdog    time.Duration
	logs        crilog.Options
	keep        int          // how many ended executions of an app are kept at most
	tell        func(string) // tells who debugs; may be nil
	born        time.Time

	control *control
	network *network.Attached // nil before it is set up
	unwatch context.CancelFunc
	given   []plan.Socket              // descriptors that rkt was given
	sockets map[string][]launch.Socket // what apps get, by their names
	beside  sync.WaitGroup             // what setUp does in the background

	events  chan happened
	signals chan os.Signal
	calls   chan call
	over    chan struct{} // closed when the event loop has ended
	early   []func()      // what came before the loop, and goes before its first event
	late    []call        // the rest of it

	waiters []waiter // who asked for something and waits for it
	broken  error    // a record that is not final could not be written
	unsaved []string // apps whose final status could not be written
	lost    error    // and why
	exit    poddir.Exit
	failed  error // the end could not be recorded
	stopped bool  // somebody asked for the end
	paused  atomic.Bool

	mu   sync.Mutex
	once map[string]bool
}

// happened is what an app's goroutine or a timer tells the event loop.
type happened struct {
	event   lifecycle.Event
	at      time.Time
	app     string         // "" if it is not about one
	process launch.Process // with AppStarted
	base    *launch.App    // with AppStarted: the app as it was launched
	usage   *launch.Exit   // with AppExited
	notes   []string       // with AppStarted and AppStartFailed
}

// send hands an event to the loop; after its end nobody wants it.
func (p *pod) send(h happened) {
	select {
	case p.events <- h:
	case <-p.over:
	}
}

func (p *pod) report(err error) { p.notify(err) }

// trace tells how far things are, and after how long.
func (p *pod) trace(format string, args ...any) {
	if p.tell != nil {
		p.tell(fmt.Sprintf("%6.1f ms: ", float64(time.Since(p.born).Microseconds())/1000) + fmt.Sprintf(format, args...))
	}
}

// reportOnce tells of something that may happen with each write only once.
func (p *pod) reportOnce(key string, err error) {
	p.mu.Lock()
	told := p.once[key]
	p.once[key] = true
	p.mu.Unlock()
	if !told {
		p.report(err)
	}
}

func (p *pod) find(name string) *app {
	for _, a := range p.apps {
		if a.plan.Name == name {
			return a
		}
	}
	return nil
}

// loop runs the pod from its first event to its recorded end.
func (p *pod) loop(first lifecycle.Event) {
	defer close(p.over)
	p.catchUp()
	p.handle(happened{event: first, at: time.Now()})
	p.giveUp()
	for _, c := range p.late {
		p.call(c)
		p.giveUp()
	}
	p.late = nil
	idle := time.NewTimer(idleAfter)
	defer idle.Stop()
	watchdog, stop := p.herald.watchdog(p.watchdog)
	defer stop()
	for !p.machine.Over() {
		select {
		case <-idle.C:
			if err := trim(); err != nil {
				p.report(fmt.Errorf("give memory back: %w", err))
			}
		case <-watchdog:
			if err := p.herald.send("WATCHDOG=1"); err != nil {
				p.reportOnce("notify", err)
			}
		case h := <-p.events:
			p.handle(h)
		case s := <-p.signals:
			p.signal(s)
		case c := <-p.calls:
			p.call(c)
		}
		p.giveUp()
	}
}

// handle feeds the machine and does what it says. Statuses go to the disk one
// by one, the summary once for all that follows from one event.
func (p *pod) handle(h happened) {
	p.note(h)
	p.trace("event %T%+v", h.event, h.event)
	for _, action := range p.machine.Handle(h.event) {
		p.trace("action %T%+v", action, action)
		p.do(action, h.at)
	}
	p.proclaim()
	if err := p.records.publish(); err != nil {
		// Only list and status of ordinary users read it.
		p.reportOnce("summary", fmt.Errorf("summary: %w", err))
	}
}

// note puts down what the machine does not care for.
func (p *pod) note(h happened) {
	a := p.find(h.app)
	if a == nil {
		return
	}
	s := p.records.status[h.app]
	if h.notes != nil {
		s.Notes = h.notes
	}
	if h.process != nil {
		a.process, a.base = h.process, *h.base
		p.write(a, func(s *poddir.Status) {
			s.State, s.PID, s.StartedAt = poddir.Running, h.process.PID(), new(h.at.UTC())
			s.Isolators = a.isolated(h.process)
		})
		p.serveWaiters(func(w waiter) bool { return w.restarted(a.plan.Name, s.Restarts) })
		for _, early := range a.early {
			p.pass(early)
		}
		a.early = nil
	}
	if h.usage != nil {
		s.Usage = poddir.Usage{
			CPUNs: uint64(h.usage.CPU), MemoryPeak: h.usage.MemoryPeak, MemoryHits: h.usage.MemoryHits, OOMKills: h.usage.OOMKills,
		}
	}
	if a.log != nil {
		s.LogLines, s.LogDropped = a.log.Lines()
	}
}

// write changes a status that is not final. If that is impossible the final
// one will be too: the pod must not go on unrecorded.
func (p *pod) write(a *app, f func(*poddir.Status)) {
	if err := p.records.change(a.plan.Name, f); err != nil {
		p.unrecorded(a.plan.Name, err)
	}
}

// unrecorded ends the pod, whose records can't be kept.
func (p *pod) unrecorded(app string, err error) {
	err = fmt.Errorf("app %s: status: %w", app, err)
	p.report(err)
	// Not from here: the loop is in the middle of an event.
	p.broken = err
}

// giveUp follows each event, before another one can end the pod as if all of it
// were on record.
func (p *pod) giveUp() {
	if err := p.broken; err != nil {
		p.broken = nil
		p.handle(happened{event: lifecycle.Failed{Message: err.Error()}, at: time.Now()})
	}
}

func (p *pod) do(action lifecycle.Action, at time.Time) {
	switch x := action.(type) {
	case lifecycle.StartApp:
		a := p.find(x.App)
		p.write(a, func(s *poddir.Status) { s.State = poddir.Starting })
		a.ctx, a.abort = context.WithCancelCause(p.ctx)
		go a.live()
	case lifecycle.SignalApp:
		p.find(x.App).askToEnd(syscall.Signal(x.Signal))
	case lifecycle.ArmStopTimer:
		timeout := p.find(x.App).plan.StopTimeout
		if x.Timeout != nil {
			timeout = *x.Timeout
		}
		time.AfterFunc(timeout, func() {
			p.send(happened{event: lifecycle.StopTimeout{App: x.App, Restarts: x.Restarts}, at: time.Now()})
		})
	case lifecycle.ShowReady:
		p.write(p.find(x.App), func(s *poddir.Status) {
			s.State, s.ReadyAt = poddir.Running, nil
			if x.Ready {
				s.State, s.ReadyAt = poddir.Ready, new(at.UTC())
			}
		})
	case lifecycle.PodReady:
		// handle tells it, with what else has changed.
	case lifecycle.ArmBackoff:
		p.armBackoff(x)
	case lifecycle.KillApp:
		p.find(x.App).abort(errKilled)
		if err := p.groups.kill(x.App); err != nil {
			p.report(fmt.Errorf("app %s: kill: %w", x.App, err))
		}
	case lifecycle.FinishApp:
		p.finishApp(x, at)
	case lifecycle.EndPod:
		p.endPod(x)
	}
}

func (p *pod) finishApp(x lifecycle.FinishApp, at time.Time) {
	defer p.serveWaiters(func(w waiter) bool { return w.ended(x) })
	switch {
	case x.OOMKilled:
		p.report(fmt.Errorf("app %s: killed by the kernel: out of memory", x.App))
	case x.Reason == poddir.DependencyFailed:
		p.report(fmt.Errorf("app %s: %s", x.App, x.Message))
	}
	err := p.records.change(x.App, func(s *poddir.Status) {
		s.State, s.PID = poddir.Exited, 0
		s.Reason, s.Message, s.FinishedAt = x.Reason, x.Message, new(at.UTC())
		if x.Code != lifecycle.NoCode {
			s.ExitCode = new(x.Code)
		}
		s.Signal, s.CoreDumped, s.OOMKilled = x.Signal, x.CoreDumped, x.OOMKilled
	})
	if err != nil {
		p.unsaved = append(p.unsaved, x.App)
		p.lost = errors.Join(p.lost, fmt.Errorf("app %s: status: %w", x.App, err))
	}
}

// saveAgain gives final statuses that could not be written a second chance: an
// app's end may have freed what was missing. Whoever reads them later knows at
// least how the apps ended.
func (p *pod) saveAgain() error {
	for _, app := range p.unsaved {
		if err := p.records.change(app, func(*poddir.Status) {}); err != nil {
			p.lost = errors.Join(p.lost, fmt.Errorf("app %s: status, again: %w", app, err))
		}
	}
	return p.lost
}

// endPod records the end, then tells those who wait for it. If an app's end
// could not be kept the pod's is rkt's own failure, also when a second try went
// well: a disk that fails once is not to be relied on for the first, and no
// code may be reported that the files may not tell.
func (p *pod) endPod(x lifecycle.EndPod) {
	if p.failed = p.saveAgain(); p.failed != nil {
		x = lifecycle.EndPod{Code: lifecycle.CodeSetup, Cause: poddir.CauseSetup, Message: p.failed.Error()}
	}
	p.exit = poddir.Exit{Code: x.Code, Cause: x.Cause, App: x.App, Message: x.Message}.Now()
	if err := p.records.exit(p.exit); err != nil {
		p.failed = errors.Join(p.failed, fmt.Errorf("pod's end: %w", err))
	}
	p.serveWaiters(func(waiter) bool { return true })
}

// answer is what a stop request gets once the pod has ended.
func (p *pod) answer() reply {
	if p.failed != nil {
		return refusal(p.failed)
	}
	return reply{Exit: &p.exit}
}

// signal obeys a signal to the supervisor.
func (p *pod) signal(s os.Signal) {
	switch s {
	case syscall.SIGTERM, syscall.SIGINT:
		p.stop(lifecycle.StopRequested{At: time.Now()})
	case syscall.SIGQUIT:
		p.stop(lifecycle.KillRequested{})
	case syscall.SIGWINCH:
		if a := p.only(); a != nil && a.tty != nil {
			a.tty.resized()
			return
		}
		p.pass(s)
	case syscall.SIGHUP:
		if p.only() == nil {
			// Nobody to pass it to, and the terminal is gone.
			p.stop(lifecycle.StopRequested{At: time.Now()})
			return
		}
		p.pass(s)
	case syscall.SIGUSR1, syscall.SIGUSR2:
		p.pass(s)
	}
}

func (p *pod) stop(e lifecycle.Event) {
	p.stopped = true
	p.wake()
	p.handle(happened{event: e, at: time.Now()})
}

// pass hands a signal on to the main process of a pod with one app. The program
// may run, and say so, before its start has come through here: what comes until
// then is kept for it, once each.
func (p *pod) pass(s os.Signal) {
	a, number := p.only(), s.(syscall.Signal)
	if a == nil {
		return
	}
	if a.process == nil {
		if !slices.Contains(a.early, s) {
			a.early = append(a.early, s)
		}
		return
	}
	a.signal(number)
}

func (p *pod) only() *app {
	if len(p.apps) != 1 {
		return nil
	}
	return p.apps[0]
}

// gone says whether a signal came too late for its process.
func gone(err error) bool {
	return errors.Is(err, os.ErrProcessDone) || errors.Is(err, syscall.ESRCH) || errs.Is(err, errs.NotFound)
}
