// Package abi is the interface between stage0 and a stage1: the words of the
// commands, the inherited descriptor and the features. Each command is one
// struct; Argv and Parse are inverse to each other.
//
//	stage0                                stage1
//	rkt run          ── exec ──▶          run: supervises, keeps the pid and the lock
//	rkt enter        ── exec ──▶          enter: joins an app, gives its exit code
//	rkt stop         ── fork ──▶          stop, restart, signal, pause, update: ask
//	                                      the supervisor over its socket
//	rkt              ── fork ──▶          version: prints Version as JSON
//
// Commands for a running pod are run from the supervisor's own executable, so
// they fit it also after an upgrade.
package abi

import (
	"flag"
	"fmt"
	"io"
	"strconv"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// InterfaceVersion is raised when a command gains or changes an argument.
const InterfaceVersion = 2

// Version is what `stage1 version` prints.
type Version struct {
	Interface int      `json:"interface"`
	Flavour   string   `json:"flavour"`
	Version   string   `json:"version"`
	Features  []string `json:"features"`
}

// The features that stage0 asks for.
const (
	FeatureDiesWithSupervisor = "dies-with-supervisor"
	FeatureEnter              = "enter"
	FeatureStop               = "stop"
	FeatureInteractive        = "interactive"
	FeatureControl            = "control" // restart, signal, pause, update
)

// The names of the commands.
const (
	CmdRun     = "run"
	CmdEnter   = "enter"
	CmdStop    = "stop"
	CmdVersion = "version"
)

// Pod says which pod a command is for. All paths are absolute.
type Pod struct {
	UUID    string
	Data    string // the data folder
	PodDir  string // the pod's folder as it lies now
	StoreID string
	Debug   bool
}

// Run starts the supervisor. The caller has locked the pod and moved it to
// pods/run; LockFD is the lock's descriptor, inherited by exec.
type Run struct {
	Pod
	LockFD int
	// Then is a program and its arguments that the supervisor execs when all
	// is done, with the lock still held; the pod's exit code is appended as
	// the last argument. Empty: the supervisor exits with that code.
	Then []string
}

// Enter runs a program inside a running app with the app's own rights.
type Enter struct {
	Pod
	App  string
	TTY  bool
	User string   // USER[:GROUP] of the image, "" means the app's
	Cwd  string   // "" means the app's
	Env  []string // NAME=VALUE, added to the app's
	Exec []string
}

// Argv gives the arguments after the program's name.
func (r Run) Argv() []string {
	argv := append([]string{CmdRun}, r.Pod.argv()...)
	argv = append(argv, "--lock-fd="+strconv.Itoa(r.LockFD))
	if len(r.Then) > 0 {
		argv = append(append(argv, "--then", "--"), r.Then...)
	}
	return argv
}

// Argv gives the arguments after the program's name.
func (e Enter) Argv() []string {
	argv := append([]string{CmdEnter}, e.Pod.argv()...)
	argv = append(argv, "--app="+e.App, "--tty="+strconv.FormatBool(e.TTY), "--user="+e.User, "--cwd="+e.Cwd)
	for _, kv := range e.Env {
		argv = append(argv, "--env="+kv)
	}
	argv = append(argv, "--")
	return append(argv, e.Exec...)
}

// ParseRun is the inverse of Run.Argv, without the command's name.
func ParseRun(args []string) (Run, error) {
	var r Run
	var then bool
	rest, err := parse(CmdRun, args, &r.Pod, func(fs *flag.FlagSet) {
		fs.IntVar(&r.LockFD, "lock-fd", -1, "")
		fs.BoolVar(&then, "then", false, "")
	})
	if err == nil && then != (len(rest) > 0) {
		err = errs.Newf(errs.Usage, "%s: --then and its command go together", CmdRun)
	}
	if then {
		r.Then = rest
	}
	return r, err
}

// ParseEnter is the inverse of Enter.Argv, without the command's name.
func ParseEnter(args []string) (Enter, error) {
	var e Enter
	rest, err := parse(CmdEnter, args, &e.Pod, func(fs *flag.FlagSet) {
		fs.StringVar(&e.App, "app", "", "")
		fs.BoolVar(&e.TTY, "tty", false, "")
		fs.StringVar(&e.User, "user", "", "")
		fs.StringVar(&e.Cwd, "cwd", "", "")
		fs.Func("env", "", func(kv string) error {
			e.Env = append(e.Env, kv)
			return nil
		})
	})
	e.Exec = rest
	if err == nil && len(rest) == 0 {
		err = errs.Newf(errs.Usage, "%s: no command", CmdEnter)
	}
	return e, err
}

func (p Pod) argv() []string {
	return []string{
		"--uuid=" + p.UUID, "--data=" + p.Data, "--pod-dir=" + p.PodDir,
		"--store-id=" + p.StoreID, "--debug=" + strconv.FormatBool(p.Debug),
	}
}

func parse(name string, args []string, p *Pod, more func(*flag.FlagSet)) ([]string, error) {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&p.UUID, "uuid", "", "")
	fs.StringVar(&p.Data, "data", "", "")
	fs.StringVar(&p.PodDir, "pod-dir", "", "")
	fs.StringVar(&p.StoreID, "store-id", "", "")
	fs.BoolVar(&p.Debug, "debug", false, "")
	more(fs)
	if err := fs.Parse(args); err != nil {
		return nil, errs.Newf(errs.Usage, "%s: %w", name, err)
	}
	for _, v := range []string{p.UUID, p.Data, p.PodDir, p.StoreID} {
		if v == "" {
			return nil, errs.Newf(errs.Usage, "%s: --uuid, --data, --pod-dir and --store-id are needed", name)
		}
	}
	return fs.Args(), nil
}

// String is for messages.
func (v Version) String() string {
	return fmt.Sprintf("stage1 %s (%s), interface %d", v.Version, v.Flavour, v.Interface)
}
