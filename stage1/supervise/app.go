package supervise

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/crilog"
	"github.com/rkt-pods/rkt/pkg/lifecycle"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// preStartTimeout ends a pre-start handler that hangs. A post-stop handler has
// as long as the app had for its stop.
const preStartTimeout = 5 * time.Minute

// app is one execution of an app. Its goroutine, live, tells the event loop
// what happens; the fields that both use are set before it starts.
type app struct {
	plan    plan.App
	attempt poddir.AttemptDir
	id      string
	stdin   *os.File // nil means /dev/null
	tty     *terminal
	prefix  []byte
	pod     *pod

	before *app         // the execution before, until its rootfs is given up
	rootfs chan mounted // the one result of mounting it, always put back
	// What is left of earlier executions if one could not be replaced: where
	// the last one has written to, and what is still mounted.
	written poddir.AttemptDir
	stale   []string
	log     *crilog.Writer
	ctx     context.Context         // ends with the execution, or when it is killed
	abort   context.CancelCauseFunc // ends ctx; both are set by the event loop
	beside  crew                    // probes and hooks, which end with the main process

	base    launch.App     // set by the event loop from the event, as is process
	process launch.Process // nil until the program runs
	early   []os.Signal    // those that came before it; the event loop's
}

// mounted is what became of the app's root file system.
type mounted struct {
	path string
	err  error
}

// live runs the app from start to end and sends one event of each.
func (a *app) live() {
	defer a.closeLog()
	heard, base, started, err := a.start(a.ctx)
	if heard != nil {
		defer func() { _ = heard.Close() }() // it was only read
	}
	if err != nil {
		if a.ctx.Err() == nil {
			a.report(err)
		}
		a.pod.send(happened{
			event: a.startFailed(err), at: time.Now(), app: a.plan.Name, notes: base.Notes,
		})
		return
	}
	now := time.Now()
	a.pod.send(happened{
		event: lifecycle.AppStarted{App: a.plan.Name, At: now}, at: now,
		app: a.plan.Name, process: started.process, base: &base, notes: base.Notes,
	})
	a.watch(base, heard)
	usage, err := started.process.Wait()
	end, exit := time.Now(), exitOf(usage)
	if err != nil {
		// Nobody knows how it ended: surely not well.
		exit = lifecycle.Exit{Code: lifecycle.CodeSetup}
		a.report(err)
	}
	a.abort(nil)
	a.beside.finish()
	if err := started.end(); err != nil {
		a.report(err)
	}
	a.tty.leave()
	a.postStop(base)
	a.pod.send(happened{
		event: lifecycle.AppExited{App: a.plan.Name, Exit: exit, At: end}, at: end,
		app: a.plan.Name, usage: &usage,
	})
}

// report tells the user, who is to know of which app: some parts say so
// themselves.
func (a *app) report(err error) {
	if !strings.HasPrefix(err.Error(), "app "+a.plan.Name+":") {
		err = fmt.Errorf("app %s: %w", a.plan.Name, err)
	}
	a.pod.report(err)
}

// running is a process of the app with what carries its output.
type running struct {
	process launch.Process
	stdio   *stdio
}

// end kills what the process left in its cgroup and returns once its output is
// in the log. The kill comes first: a left process would keep the pipes open.
func (r *running) end() error {
	err := r.process.Destroy()
	r.stdio.finish()
	return err
}

// start takes the app to the point where its program runs. Beside the socket on
// which it may say that it is ready, nil if it has none, it returns the app as
// any other process of it is to be launched.
func (a *app) start(ctx context.Context) (heard *net.UnixConn, la launch.App, r *running, err error) {
	if err := a.takeOver(ctx); err != nil {
		return nil, la, nil, err
	}
	m, err := a.mountedRootFS(ctx)
	if err == nil {
		err = m.err
	}
	if err != nil {
		return nil, la, nil, err
	}
	if a.log, err = crilog.Create(a.attempt.Log(), a.pod.logs); err != nil {
		return nil, la, nil, fmt.Errorf("log: %w", err)
	}
	if a.plan.Notifies() {
		if heard, err = a.pod.box.hear(a.plan.Name); err != nil {
			return nil, la, nil, err
		}
	}
	la, r, err = a.launch(ctx, m.path)
	return heard, la, r, err
}

// launch runs the app's program in its mounted rootfs.
func (a *app) launch(ctx context.Context, rootfs string) (launch.App, *running, error) {
	la, err := a.pod.box.resolve(a.plan, rootfs)
	if err != nil {
		return la, nil, err
	}
	for _, note := range la.Notes {
		a.report(errors.New(note))
	}
	la.ID = a.id
	la.StateDir = filepath.Join(a.pod.runDir, poddir.LaunchDir)
	la.CgroupPath = a.pod.groups.path(a.plan.Name)
	if err := a.preStart(ctx, la); err != nil {
		a.postStop(la)
		return la, nil, err
	}
	main := la // handlers get no sockets
	main.Sockets = a.pod.sockets[a.plan.Name]
	r, err := a.run(ctx, main, a.stdin, a.tty)
	if err != nil && len(a.plan.PreStart) > 0 {
		a.postStop(la)
	}
	return la, r, err
}

// run starts one process of the app with pipes, or a pty, of its own.
func (a *app) run(ctx context.Context, la launch.App, stdin *os.File, tty *terminal) (*running, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if err := a.alone(ctx); err != nil {
		return nil, err
	}
	if err := a.pod.box.lookup(la); err != nil {
		return nil, err
	}
	var io *stdio
	var err error
	if tty != nil {
		if err := tty.raw(); err != nil {
			return nil, err
		}
		la.Stdio.TTY = true
		la.Stdio.Width, la.Stdio.Height = tty.size()
		io = &stdio{log: a.log}
	} else {
		if io, err = a.pipes(&la.Stdio, la.IDs.Host(la.UID), la.IDs.Host(la.GID)); err != nil {
			return nil, err
		}
		if err := io.input(&la.Stdio, stdin); err != nil {
			io.finish()
			return nil, err
		}
	}
	p, err := a.pod.launcher.Start(ctx, la)
	io.started()
	if err != nil {
		io.finish()
		tty.close()
		return nil, err
	}
	io.feed.start()
	if tty != nil {
		io.streams = append(io.streams, a.stream(crilog.Stdout, a.pod.out, p.Console()))
		io.streams[0].pump()
		tty.join(p.Console())
	}
	return &running{process: p, stdio: io}, nil
}

// alone makes sure that nothing of the app runs when a process is started in
// its pod, if the app could take that over while it still has the host's
// rights: what a handler or the app left behind must not wait for the next.
func (a *app) alone(ctx context.Context) error {
	c := a.plan.Takeover()
	if c == "" {
		return nil
	}
	if err := a.clear(ctx); err != nil {
		return fmt.Errorf("%s: no start beside what runs with it: %w", c, err)
	}
	return nil
}

// pipes makes the app's output streams and starts to read them.
func (a *app) pipes(s *launch.Stdio, uid, gid int) (*stdio, error) {
	io := &stdio{log: a.log}
	for _, x := range []struct {
		name crilog.Stream
		to   *output
		file **os.File
	}{{crilog.Stdout, a.pod.out, &s.Stdout}, {crilog.Stderr, a.pod.errout, &s.Stderr}} {
		r, w, err := newPipe(uid, gid)
		if err != nil {
			io.finish()
			return nil, err
		}
		*x.file = w
		io.close = append(io.close, w)
		s := a.stream(x.name, x.to, r)
		s.to.kept = a.log != nil // of a terminal of the app's own, whoever stops it wants to read on
		io.streams = append(io.streams, s)
		s.pump()
	}
	return io, nil
}

func (a *app) stream(name crilog.Stream, to *output, from *os.File) *stream {
	return &stream{
		name: name, log: a.log, from: from, to: &lines{to: to, prefix: a.prefix},
		onError: func(err error) { a.pod.reportOnce("log "+a.plan.Name, fmt.Errorf("app %s: %w", a.plan.Name, err)) },
	}
}

// handlerError is a pre-start handler that ended badly: the app's failure.
type handlerError struct {
	code int
	err  error
}

func (e *handlerError) Error() string { return e.err.Error() }
func (e *handlerError) Unwrap() error { return e.err }

func (a *app) preStart(ctx context.Context, la launch.App) error {
	if len(a.plan.PreStart) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, preStartTimeout)
	defer cancel()
	return a.handler(ctx, la, appc.PreStart, a.plan.PreStart)
}

// postStop runs the handler, whose failure is told but changes nothing: the
// app has ended.
func (a *app) postStop(la launch.App) {
	if len(a.plan.PostStop) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(a.pod.ctx, a.postStopTimeout())
	defer cancel()
	if err := a.handler(ctx, la, appc.PostStop, a.plan.PostStop); err != nil {
		a.report(err)
	}
}

func (a *app) postStopTimeout() time.Duration { return max(a.plan.StopTimeout, time.Second) }

// handler runs an event handler of the appc specification: root, in the app's
// root file system, with the app's isolation.
func (a *app) handler(ctx context.Context, la launch.App, kind string, argv []string) error {
	la.ID, la.Argv = a.id+"-"+kind, argv
	la.UID, la.GID, la.Gids = 0, 0, nil
	la.User, la.Group, la.Groups = "0", "0", nil
	h, err := a.run(ctx, la, nil, nil)
	if err != nil {
		code := lifecycle.NoCode
		if se, ok := errors.AsType[*launch.StartError](err); ok {
			code = se.ExitCode
		}
		return &handlerError{code, fmt.Errorf("%s handler: %w", kind, err)}
	}
	// The kill of its cgroup is enough: Wait returns then.
	stop := context.AfterFunc(ctx, func() {
		if err := a.pod.groups.kill(a.plan.Name); err != nil {
			a.report(fmt.Errorf("%s handler: %w", kind, err))
		}
	})
	exit, err := h.process.Wait()
	stop()
	if err = errors.Join(err, h.end()); err != nil {
		return &handlerError{lifecycle.NoCode, fmt.Errorf("%s handler: %w", kind, err)}
	}
	x := exitOf(exit)
	switch {
	case ctx.Err() != nil:
		return &handlerError{x.Code, fmt.Errorf("%s handler: %w", kind, context.Cause(ctx))}
	case x.Signal != 0:
		return &handlerError{x.Code, fmt.Errorf("%s handler: ended by signal %d", kind, x.Signal)}
	case x.Code != 0:
		return &handlerError{x.Code, fmt.Errorf("%s handler: exit code %d", kind, x.Code)}
	}
	return nil
}

// startFailed says what a failed start is in terms of the pod's life.
func (a *app) startFailed(err error) lifecycle.AppStartFailed {
	e := lifecycle.AppStartFailed{
		App: a.plan.Name, Reason: poddir.StartFailed, Code: lifecycle.NoCode, Message: err.Error(),
	}
	if h, ok := errors.AsType[*handlerError](err); ok {
		e.Reason, e.Code = poddir.PreStartFailed, h.code
	} else if s, ok := errors.AsType[*launch.StartError](err); ok {
		e.Code = s.ExitCode
	}
	return e
}

func (a *app) closeLog() {
	if a.log != nil {
		_ = a.log.Close() // each write has been checked
	}
}

// exitOf translates the kernel's words.
func exitOf(x launch.Exit) lifecycle.Exit {
	s := x.Status
	e := lifecycle.Exit{Code: s.ExitStatus(), CoreDumped: s.CoreDump(), OOMKilled: x.OOMKilled}
	if s.Signaled() {
		e.Signal = int(s.Signal())
		e.Code = 128 + e.Signal
	}
	return e
}
