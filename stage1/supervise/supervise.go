// Package supervise runs a pod: it is the process whose life is the pod's. It
// isolates and starts the apps, keeps their output, records how they fare and
// obeys whoever may stop them.
//
//	readInputs     what stage0 left
//	setUp          intent, cgroups, sandbox, pod init
//	loop           events of apps, signals and the control socket go through
//	               pkg/lifecycle, whose actions are done here
//	tearDown       pod init, cgroups, mounts, run folder
//
// Whatever may be killed half way is found by stage0/gc, from the records that
// stand before the thing they name.
package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/rkt-pods/rkt/pkg/abi"
	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/crilog"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/lifecycle"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/pkg/proc"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/plan"
	"github.com/rkt-pods/rkt/stage1/sandbox"
)

// flushTimeout is how long a pod that was asked to stop waits for a terminal
// that takes no output.
const flushTimeout = 5 * time.Second

// Env is what a supervisor gets from its program.
type Env struct {
	Launcher              launch.Launcher
	KnowsCall             func(string) bool // whether a filter can have a rule for the system call
	Stdin, Stdout, Stderr *os.File
	Notify                func(error)   // tells the user what does not end the pod; any goroutine
	Trace                 func(string)  // tells who debugs how far things are; nil: nobody does
	NotifySocket          string        // of the service manager, "" if there is none
	Sockets               []plan.Socket // descriptors that this process was given
	Watchdog              time.Duration // how often that wants to hear of this process; 0: never
}

// Run supervises the pod until it has ended, and returns its exit code. With
// an error, rkt could not do its part. The caller holds the pod's lock until
// the process ends, and calls Run on the main thread, locked to it.
func Run(ctx context.Context, a abi.Run, env Env) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dir := poddir.Dir(a.PodDir)
	in, err := readInputs(dir)
	if in == nil || in.manifest == nil {
		return lifecycle.CodeSetup, errors.Join(err, neverRan(dir, err))
	}
	p := newPod(ctx, dir, poddir.RunDir(a.StoreID, a.UUID), env, in)
	p.groups = &podGroups{records: p.records, storeID: a.StoreID}
	return p.run(in, err, openSandbox)
}

// neverRan records the end of a pod whose manifest can't be read.
func neverRan(dir poddir.Dir, cause error) error {
	end := poddir.Exit{Code: lifecycle.CodeSetup, Cause: poddir.CauseSetup, Message: cause.Error()}.Now()
	return atomicfile.WriteJSON(dir.Exit(), end, 0o600, atomicfile.Synced)
}

func newPod(ctx context.Context, dir poddir.Dir, runDir string, env Env, in *inputs) *pod {
	p := &pod{
		ctx: ctx, runDir: runDir, records: newRecords(dir, runDir, in), launcher: env.Launcher, knowsCall: env.KnowsCall,
		stdin: env.Stdin, notify: env.Notify, tell: env.Trace, born: time.Now(), given: env.Sockets,
		events: make(chan happened), calls: make(chan call), over: make(chan struct{}),
		signals: make(chan os.Signal, 64), once: map[string]bool{}, watchdog: env.Watchdog,
		logs: crilog.Options{MaxSize: in.options.LogMaxSize, MaxFiles: in.options.LogMaxFiles}, keep: keptExecutions,
	}
	var err error
	if p.herald, err = newHerald(env.NotifySocket); err != nil {
		p.report(err)
	}
	p.out, p.errout = outputs(env.Stdout, env.Stderr)
	return p
}

// run is Run with its parts in place. An error so far ends the pod before its
// first app, but in the same way as any other end.
func (p *pod) run(in *inputs, err error, open func(plan.Pod, *records) (box, error)) (int, error) {
	p.catchSignals()
	defer func() { p.tty.close() }() // whatever happens
	var planned plan.Pod
	if err == nil {
		planned, err = p.compile(in)
	}
	if merr := p.assemble(in, planned); merr != nil {
		return lifecycle.CodeSetup, errors.Join(err, merr, neverRan(p.records.dir, merr))
	}
	p.trace("planned")
	err = errors.Join(err, p.begin())
	if err == nil {
		err = p.setUp(in, planned, open)
	}
	if errors.Is(err, errInterrupted) {
		err = nil // the stop comes before the start, which no app sees then
	}
	if err == nil {
		p.loop(lifecycle.Start{})
	} else {
		p.loop(lifecycle.Failed{Message: err.Error()})
	}
	p.tty.close() // what follows may be read by the user
	p.herald.close()
	p.tearDown()
	p.flush()
	switch {
	case err != nil:
		return lifecycle.CodeSetup, errors.Join(err, p.failed)
	case p.failed != nil:
		return lifecycle.CodeSetup, p.failed
	}
	return p.exit.Code, nil
}

// catchSignals comes before anything that would have to be undone.
func (p *pod) catchSignals() {
	// SIGPIPE is caught rather than ignored: an ignored signal would stay so
	// in the apps. The write's error says all.
	list := withHangup(
		syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGWINCH, syscall.SIGPIPE,
	)
	signal.Notify(p.signals, list...)
}

// withHangup adds SIGHUP, unless it is ignored: so nohup(1) leaves it, and so
// the programs get it.
func withHangup(list ...os.Signal) []os.Signal {
	if signal.Ignored(syscall.SIGHUP) {
		return list
	}
	return append(list, syscall.SIGHUP)
}

// compile plans the pod; it does nothing yet.
func (p *pod) compile(in *inputs) (plan.Pod, error) {
	if err := checkInteractive(in); err != nil {
		return plan.Pod{}, err
	}
	host, err := sandbox.HostFacts()
	if err != nil {
		return plan.Pod{}, err
	}
	host.KnowsCall = p.knowsCall
	term := ""
	if p.wantsTerminal(in) {
		if term = os.Getenv("TERM"); term == "" {
			term = "xterm"
		}
	}
	return plan.Compile(plan.Input{
		UUID: p.records.dir.UUID(), Pod: in.manifest, Images: in.images, Options: in.options, IDs: in.ids, Host: host, Term: term,
		Sockets: p.given,
	})
}

// checkInteractive: the user's terminal is one app's, for one execution.
func checkInteractive(in *inputs) error {
	if !in.options.Interactive {
		return nil
	}
	if n := len(in.manifest.Apps); n != 1 {
		return errs.Newf(errs.Usage, "interactive: %d apps: only a pod of one app can be", n)
	}
	_, apps, err := lifecycle.Of(in.manifest)
	if err == nil && apps[0].Restart.Mode != lifecycle.Never {
		err = errs.Newf(errs.Usage, "interactive: app %s: can't be restarted then", apps[0].Name)
	}
	return err
}

// assemble makes the machine and the apps. Without a plan they have names, so
// that each gets its status.
func (p *pod) assemble(in *inputs, planned plan.Pod) error {
	policy, known, err := lifecycle.Of(in.manifest)
	if err != nil {
		return err
	}
	for i, m := range in.manifest.Apps {
		a := &app{pod: p, plan: plan.App{Name: m.Name}, rootfs: make(chan mounted, 1)}
		if planned := planned.Find(m.Name); planned != nil {
			a.plan = *planned
		}
		s := p.records.status[m.Name]
		s.Notes = a.plan.Notes
		a.attempt = p.records.attempt(m.Name)
		a.written = a.attempt
		a.id = executionID(m.Name, s.Attempt)
		if in.options.LogPrefix == "always" || in.options.LogPrefix != "never" && len(in.manifest.Apps) > 1 {
			a.prefix = []byte(m.Name + ": ")
		}
		if v, _ := m.Annotations.Get(podspec.AnnStdin); in.options.Interactive || v == "inherit" {
			a.stdin = p.stdin
		}
		p.apps = append(p.apps, a)
		known[i].StopSignal = a.plan.StopSignal
	}
	p.machine, err = lifecycle.New(policy, known)
	return err
}

func (p *pod) wantsTerminal(in *inputs) bool {
	return in.options.Interactive && isTerminal(p.stdin)
}

// begin makes the places where the pod tells how it fares.
func (p *pod) begin() error {
	if err := makeRunDir(p.runDir); err != nil {
		return err
	}
	return p.records.begin()
}

// setUp makes all of the pod but its apps. After an error tearDown finds what
// there is.
func (p *pod) setUp(in *inputs, planned plan.Pod, open func(plan.Pod, *records) (box, error)) error {
	self, err := proc.Self()
	if err != nil {
		return err
	}
	me := poddir.Supervisor{ID: self, StartedAt: time.Now().UTC()}
	if err := p.records.supervisor(me); err != nil {
		return err
	}
	if err := p.groups.create(); err != nil {
		return err
	}
	p.trace("cgroups %s", p.records.summary.Cgroup)
	// To move a process can mean to wait for all CPUs, about 10 ms. Only what
	// is forked has to wait for it.
	entered := make(chan error, 1)
	p.beside.Go(func() { entered <- p.groups.enter() })
	if p.control, err = listen(p.runDir, p.calls, p.over); err != nil {
		return err
	}
	if p.box, err = open(planned, p.records); err != nil {
		return err
	}
	p.trace("sandbox open")
	for _, a := range p.apps {
		p.beside.Go(func() {
			path, err := p.box.prepare(a.plan, a.attempt)
			p.trace("app %s: root file system at %s", a.plan.Name, path)
			a.rootfs <- mounted{path, err}
		})
	}
	if err := <-entered; err != nil {
		return err
	}
	p.trace("in the pod's cgroup")
	// Not before: a delegated unit's cgroup gives no controllers to those below
	// as long as this process is in it.
	if err := p.limitPod(planned); err != nil {
		return err
	}
	if me.PodInit, err = p.box.startInit(p.ctx); err != nil {
		return err
	}
	p.trace("pod init is process %d", me.PodInit.PID)
	if err := p.groups.adopt(me.PodInit.PID); err != nil {
		return err
	}
	if err := p.records.supervisor(me); err != nil {
		return err
	}
	if err := p.attach(in, planned); err != nil {
		return err
	}
	if err := p.openSockets(planned); err != nil {
		return err
	}
	if p.wantsTerminal(in) {
		p.tty, err = openTerminal(p.stdin)
		p.apps[0].tty = p.tty
	}
	return err
}

// tearDown releases everything, each part also when another could not be. What
// is left is for gc, and told.
func (p *pod) tearDown() {
	p.control.close()
	if p.unwatch != nil {
		p.unwatch()
	}
	p.beside.Wait()
	ctx, cancel := context.WithTimeout(p.ctx, emptyDeadline)
	defer cancel()
	silent := make(chan struct{})
	go func() {
		p.network.Silence(p.ctx)
		close(silent)
	}()
	err := p.groups.killAll()
	if p.box != nil {
		err = errors.Join(err, p.box.killInit(ctx))
	}
	empty := p.groups.waitEmpty(ctx)
	err = errors.Join(err, empty)
	p.closeSockets() // those in the pod hold its namespace
	<-silent
	p.trace("no process is left")
	// After that nothing is forked any more. To leave the cgroup is as slow as
	// entering it, and as well done beside the rest.
	left := make(chan error, 1)
	go func() {
		var err error
		if empty == nil { // else somebody may use the addresses still
			err = p.detach()
		}
		left <- errors.Join(err, p.groups.leave())
	}()
	unmounted := true
	if p.box != nil {
		if cerr := p.box.close(); cerr != nil {
			unmounted, err = false, errors.Join(err, cerr)
		}
	}
	p.trace("unmounted")
	err = errors.Join(err, <-left, p.groups.remove(), p.records.dir.Reserve().Free())
	if unmounted {
		err = errors.Join(err, cleanRunDir(p.runDir))
	}
	p.records.summary.State, p.records.dirty = "exited", true
	err = errors.Join(err, p.records.publish())
	p.trace("released")
	if err != nil {
		p.report(errs.WithHint(fmt.Errorf("release of the pod: %w", err), "`rkt gc` tries again"))
	}
}

// flush waits until the terminal has got everything. A pod that ended by
// itself waits as long as it takes, as any program does that writes to a slow
// pipe; a stopped one doesn't, and a signal ends the wait.
func (p *pod) flush() {
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	if p.stopped {
		ctx, cancel = context.WithTimeout(ctx, flushTimeout)
		defer cancel()
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case s := <-p.signals:
				if asksToEnd(s) || s == syscall.SIGHUP {
					cancel()
				}
			case <-done:
				return
			}
		}
	})
	p.out.flush(ctx)
	p.errout.flush(ctx)
	close(done)
	wg.Wait()
	p.out.close()
	p.errout.close()
}
