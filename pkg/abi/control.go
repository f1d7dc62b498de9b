package abi

import (
	"encoding/json"
	"flag"
	"strconv"
	"strings"
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/limits"
)

// The names of the commands that steer a running pod.
const (
	CmdRestart = "restart"
	CmdSignal  = "signal"
	CmdPause   = "pause"
	CmdUpdate  = "update"
)

// Stopping says how to stop, where it is not as an app says itself.
type Stopping struct {
	Signal  int            // 0: the app's own
	Timeout *time.Duration // nil: the app's own
}

// Stop asks the supervisor to stop the pod, or one app of it, and returns once
// that is down.
type Stop struct {
	Pod
	App   string // "" means the pod
	Force bool   // skip the stop signals; not with App
	Stopping
}

// Restart asks for a new execution of an app, and returns once it has begun.
type Restart struct {
	Pod
	App string
	Stopping
}

// Signal sends a signal to the main process of an app, or of all.
type Signal struct {
	Pod
	App    string // "" means all that run
	Signal int
}

// Pause freezes all apps, or lets them go on, and returns once they are.
type Pause struct {
	Pod
	Off bool
}

// Update changes limits of an app, or of the pod, while it runs. It returns
// once the kernel holds them; what became of each is then printed as a JSON
// list of limits.Result.
type Update struct {
	Pod
	App    string // "" means the pod
	Limits limits.Set
	Force  bool // also below what is in use
}

// Argv gives the arguments after the program's name.
func (s Stop) Argv() []string {
	argv := append(append([]string{CmdStop}, s.Pod.argv()...), "--app="+s.App, "--force="+strconv.FormatBool(s.Force))
	return append(argv, s.Stopping.argv()...)
}

// Argv gives the arguments after the program's name.
func (r Restart) Argv() []string {
	argv := append(append([]string{CmdRestart}, r.Pod.argv()...), "--app="+r.App)
	return append(argv, r.Stopping.argv()...)
}

// Argv gives the arguments after the program's name.
func (s Signal) Argv() []string {
	return append(append([]string{CmdSignal}, s.Pod.argv()...), "--app="+s.App, "--signal="+strconv.Itoa(s.Signal))
}

// Argv gives the arguments after the program's name.
func (p Pause) Argv() []string {
	return append(append([]string{CmdPause}, p.Pod.argv()...), "--off="+strconv.FormatBool(p.Off))
}

// Argv gives the arguments after the program's name.
func (u Update) Argv() []string {
	set, _ := json.Marshal(u.Limits) // numbers and words only
	return append(append([]string{CmdUpdate}, u.Pod.argv()...), "--app="+u.App, "--limits="+string(set), "--force="+strconv.FormatBool(u.Force))
}

// ParseUpdate is the inverse of Update.Argv, without the command's name.
func ParseUpdate(args []string) (Update, error) {
	var u Update
	err := parseAll(CmdUpdate, args, &u.Pod, func(fs *flag.FlagSet) {
		fs.StringVar(&u.App, "app", "", "")
		fs.BoolVar(&u.Force, "force", false, "")
		fs.Func("limits", "", func(text string) error { return json.Unmarshal([]byte(text), &u.Limits) })
	})
	return u, err
}

// ParseStop is the inverse of Stop.Argv, without the command's name.
func ParseStop(args []string) (Stop, error) {
	var s Stop
	err := parseAll(CmdStop, args, &s.Pod, func(fs *flag.FlagSet) {
		fs.StringVar(&s.App, "app", "", "")
		fs.BoolVar(&s.Force, "force", false, "")
		s.Stopping.declare(fs)
	})
	return s, err
}

// ParseRestart is the inverse of Restart.Argv, without the command's name.
func ParseRestart(args []string) (Restart, error) {
	var r Restart
	err := parseAll(CmdRestart, args, &r.Pod, func(fs *flag.FlagSet) {
		fs.StringVar(&r.App, "app", "", "")
		r.Stopping.declare(fs)
	})
	return r, err
}

// ParseSignal is the inverse of Signal.Argv, without the command's name.
func ParseSignal(args []string) (Signal, error) {
	var s Signal
	err := parseAll(CmdSignal, args, &s.Pod, func(fs *flag.FlagSet) {
		fs.StringVar(&s.App, "app", "", "")
		fs.IntVar(&s.Signal, "signal", 0, "")
	})
	return s, err
}

// ParsePause is the inverse of Pause.Argv, without the command's name.
func ParsePause(args []string) (Pause, error) {
	var p Pause
	err := parseAll(CmdPause, args, &p.Pod, func(fs *flag.FlagSet) { fs.BoolVar(&p.Off, "off", false, "") })
	return p, err
}

func (s Stopping) argv() []string {
	argv := []string{"--signal=" + strconv.Itoa(s.Signal)}
	if s.Timeout != nil {
		argv = append(argv, "--timeout="+s.Timeout.String())
	}
	return argv
}

func (s *Stopping) declare(fs *flag.FlagSet) {
	fs.IntVar(&s.Signal, "signal", 0, "")
	fs.Func("timeout", "", func(text string) error {
		d, err := time.ParseDuration(text)
		s.Timeout = &d
		return err
	})
}

// parseAll is parse for a command without further words.
func parseAll(name string, args []string, p *Pod, more func(*flag.FlagSet)) error {
	rest, err := parse(name, args, p, more)
	if err == nil && len(rest) > 0 {
		err = errs.Newf(errs.Usage, "%s: unexpected %q", name, strings.Join(rest, " "))
	}
	return err
}
