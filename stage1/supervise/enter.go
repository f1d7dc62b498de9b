package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/abi"
	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// Enter runs a program inside a running app, with the app's own rights and on
// the caller's streams, and returns its exit code. It is no child of the
// supervisor, but in the app's cgroup: it ends with the app, and with this
// process.
func Enter(ctx context.Context, e abi.Enter, env Env) (int, error) {
	dir := poddir.Dir(e.PodDir)
	id, err := runningApp(dir, e.App)
	if err != nil {
		return 0, err
	}
	if err := notPaused(poddir.RunDir(e.StoreID, e.UUID)); err != nil {
		return 0, err
	}
	// Before anything of this process is in the pod.
	in, err := readInputs(dir)
	if err != nil {
		return 0, err
	}
	if err := plan.CheckJoin(in.manifest, in.images, in.options, in.ids); err != nil {
		return 0, err
	}
	// Caught before there is anybody to pass them to, so that none is lost.
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, withHangup(syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH)...)
	stateDir := filepath.Join(poddir.RunDir(e.StoreID, e.UUID), poddir.LaunchDir)
	g, err := openGuest(env, e.TTY)
	if err != nil {
		return 0, err
	}
	defer g.finish(ctx)
	x := launch.Exec{Argv: e.Exec, Stdio: g.stdio}
	if term := os.Getenv("TERM"); term != "" && g.tty != nil {
		x.Env = []string{"TERM=" + term}
	}
	if err := enterAs(&x, e, dir, in.ids); err != nil {
		return 0, err
	}
	p, err := env.Launcher.Exec(ctx, stateDir, id, x)
	if err != nil {
		return 0, err
	}
	g.started(p)
	// Without a supervisor the pod is at its end, and the program with it.
	visit, _ := announce(poddir.RunDir(e.StoreID, e.UUID), e.App, p.Cgroup())
	done := make(chan struct{})
	go passSignals(signals, p, g.tty, done)
	exit, err := p.Wait()
	close(done)
	_ = visit.leave()
	err = errors.Join(err, p.Destroy())
	return exitOf(exit).Code, err
}

// passSignals hands on what the program would have got in the caller's place.
func passSignals(signals <-chan os.Signal, p launch.Process, tty *terminal, done <-chan struct{}) {
	// A program in our own process group gets what is typed at the terminal
	// from the kernel.
	group, err := unix.Getpgid(p.PID())
	shared := err == nil && group == unix.Getpgrp()
	for {
		select {
		case <-done:
			return
		case s := <-signals:
			switch {
			case s == syscall.SIGWINCH && tty != nil:
				tty.resized()
			case shared && (s == syscall.SIGINT || s == syscall.SIGQUIT || s == syscall.SIGWINCH):
			default:
				// It may have ended just now.
				_ = p.Signal(s.(syscall.Signal))
			}
		}
	}
}

// notPaused refuses to send a program in where it would be frozen at once, with
// whoever waits for it. Whether it is paused is all that counts of the summary.
func notPaused(runDir string) error {
	var s poddir.Summary
	if err := atomicfile.ReadJSON(filepath.Join(runDir, poddir.SummaryFile), &s); err != nil || !s.Paused {
		return nil
	}
	return errs.WithHint(errs.Newf(errs.Unavailable, "the pod is paused"), "\"rkt unpause\" lets it go on")
}

// runningApp returns the launcher's name of the app's running execution.
func runningApp(dir poddir.Dir, app string) (string, error) {
	entries, err := os.ReadDir(dir.Apps())
	if err != nil {
		return "", err
	}
	var names []string
	found := false
	for _, e := range entries {
		names = append(names, e.Name())
		found = found || e.Name() == app
	}
	if !found {
		return "", errs.WithHint(errs.Newf(errs.NotFound, "app %s: not in the pod", app),
			"its apps are: %s", strings.Join(names, ", "))
	}
	s, err := dir.App(app).ReadStatus()
	if err != nil {
		return "", err
	}
	if s == nil {
		return "", errs.Newf(errs.Unavailable, "app %s: not running: %s", app, poddir.Waiting)
	}
	if s.State != poddir.Running && s.State != poddir.Ready {
		return "", errs.Newf(errs.Unavailable, "app %s: not running: %s", app, s.State)
	}
	return fmt.Sprintf("%s-%d", app, s.Attempt), nil
}
