// Command stage1 isolates and supervises a pod. It is started by rkt through
// the words of pkg/abi and is of no use by hand:
//
//	stage1 run …       becomes the pod's supervisor
//	stage1 enter …     runs a program inside a running app
//	stage1 stop …      asks the supervisor to stop the pod, or one app
//	stage1 restart …   asks it for a new execution of an app
//	stage1 signal …    asks it to pass on a signal
//	stage1 pause …     asks it to freeze the apps, or to let them go on
//	stage1 update …    asks it to change limits
//	stage1 version     prints what this stage1 can, as JSON
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/abi"
	"github.com/rkt-pods/rkt/pkg/activation"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/lock"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/version"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/launch/filter"
	"github.com/rkt-pods/rkt/stage1/network"
	_ "github.com/rkt-pods/rkt/stage1/sandbox/unshare" // a mount namespace before the runtime starts
	"github.com/rkt-pods/rkt/stage1/supervise"
)

// codeError is the exit code of all of rkt's own errors.
const codeError = 254

func init() {
	initLauncher()
	// Pod init's death signal comes when the thread that made it ends: only
	// the main thread lives as long as the process. Only in init() is the
	// main goroutine sure to be on it.
	runtime.LockOSThread()
}

func main() {
	os.Exit(dispatch(context.Background(), os.Args[1:]))
}

// dispatch runs the command and returns the exit code.
func dispatch(ctx context.Context, args []string) int {
	if len(args) == 0 {
		report("stage1", errs.Newf(errs.Usage, "no command"))
		return codeError
	}
	var code int
	var err error
	name := args[0]
	switch name {
	case abi.CmdRun:
		code, err = run(ctx, args[1:])
	case abi.CmdEnter:
		code, err = enter(ctx, args[1:])
	case abi.CmdStop:
		err = stop(ctx, args[1:])
	case abi.CmdRestart:
		err = steer(args[1:], abi.ParseRestart, supervise.Restart)
	case abi.CmdSignal:
		err = steer(args[1:], abi.ParseSignal, supervise.Signal)
	case abi.CmdPause:
		err = steer(args[1:], abi.ParsePause, supervise.Pause)
	case abi.CmdUpdate:
		err = steer(args[1:], abi.ParseUpdate, update)
	case abi.CmdVersion:
		err = json.NewEncoder(os.Stdout).Encode(about())
	default:
		name, err = "stage1", errs.Newf(errs.Usage, "command %q: unknown", name)
	}
	if err != nil {
		if _, ok := errors.AsType[callError](err); ok {
			name = "stage1" // no user's doing: a stage0 called that doesn't fit
		}
		report(name, err)
		if code == 0 {
			code = codeError
		}
	}
	return code
}

// callError is a call that is not what pkg/abi says; it names the command.
type callError struct{ error }

func (e callError) Unwrap() error { return e.error }

// report prints an error the way rkt does, whose command it was for the user,
// with one write: the apps' output goes to the same terminal.
func report(name string, err error) {
	fmt.Fprint(os.Stderr, abi.Report(name, err))
}

func environment(name string) supervise.Env {
	return supervise.Env{
		Launcher: newLauncher(), KnowsCall: filter.KnowsCall,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Notify: func(err error) { report(name, err) },
	}
}

func run(ctx context.Context, args []string) (int, error) {
	r, err := abi.ParseRun(args)
	if err != nil {
		return 0, callError{err}
	}
	l, err := lock.Inherit(r.LockFD, poddir.Dir(r.PodDir).Lock())
	if err != nil {
		return 0, err
	}
	if err := closeOnExec(); err != nil {
		return 0, err
	}
	names, err := activation.Given(os.Getenv, os.Getpid())
	if err != nil {
		return 0, err
	}
	// The lock says that the pod runs until this process ends.
	defer runtime.KeepAlive(l)
	env := environment(abi.CmdRun)
	env.NotifySocket, env.Watchdog = os.Getenv("NOTIFY_SOCKET"), watchdog(os.Getenv, os.Getpid())
	env.Sockets = network.Inherited(names)
	if r.Debug {
		env.Trace = func(text string) { fmt.Fprintf(os.Stderr, "run: debug: %s\n", text) }
	}
	code, err := supervise.Run(ctx, r, env)
	if len(r.Then) == 0 {
		return code, err
	}
	if err != nil {
		report(abi.CmdRun, err)
	}
	return code, then(l, r.Then, code)
}

// closeOnExec keeps whatever descriptors the caller left open from the programs
// that the supervisor starts. close_range(2) can do so only since Linux 5.11.
func closeOnExec() error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		// The folder's own descriptor is among them, and closed by now.
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC)
		}
	}
	return nil
}

// then becomes the program that was asked for, which takes the lock over.
func then(l *lock.Lock, argv []string, code int) error {
	if err := l.KeepOnExec(); err != nil {
		return fmt.Errorf("keep the lock: %w", err)
	}
	argv = append(argv, strconv.Itoa(code))
	return fmt.Errorf("%s: %w", argv[0], unix.Exec(argv[0], argv, os.Environ()))
}

// watchdog is how often the service manager wants to hear of this process, 0
// if it does not (sd_watchdog_enabled(3)).
func watchdog(getenv func(string) string, pid int) time.Duration {
	if p := getenv("WATCHDOG_PID"); p != "" && p != strconv.Itoa(pid) {
		return 0
	}
	n, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64)
	if err != nil || n <= 0 || n > int64(time.Hour/time.Microsecond)*24 {
		return 0
	}
	return time.Duration(n) * time.Microsecond
}

func enter(ctx context.Context, args []string) (int, error) {
	e, err := abi.ParseEnter(args)
	if err != nil {
		return 0, callError{err}
	}
	code, err := supervise.Enter(ctx, e, environment(abi.CmdEnter))
	if s, ok := errors.AsType[*launch.StartError](err); ok {
		code = s.ExitCode
	}
	return code, err
}

func stop(ctx context.Context, args []string) error {
	s, err := abi.ParseStop(args)
	if err != nil {
		return callError{err}
	}
	return supervise.Stop(ctx, s)
}

func update(u abi.Update) error {
	results, err := supervise.Update(u)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(results)
}

// steer runs a command that only speaks with the supervisor.
func steer[T any](args []string, parse func([]string) (T, error), do func(T) error) error {
	call, err := parse(args)
	if err != nil {
		return callError{err}
	}
	return do(call)
}

func about() abi.Version {
	return abi.Version{
		Interface: abi.InterfaceVersion, Flavour: "namespaces", Version: version.Version,
		Features: []string{
			abi.FeatureDiesWithSupervisor, abi.FeatureEnter, abi.FeatureStop, abi.FeatureInteractive, abi.FeatureControl,
		},
	}
}
