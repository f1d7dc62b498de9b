package cell

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage1/launch"
)

// Exit codes of a program that could not be executed, as of a shell.
const (
	NotExecutable = 126
	NotFound      = 127
)

// NotInPath is the cause when no folder of PATH has the program.
const NotInPath = "executable file not found in $PATH"

// ProgramError says that the program itself is at fault, and why.
func ProgramError(app, program, cause string) *launch.StartError {
	code, class := NotExecutable, errs.Unsupported
	switch cause {
	case unix.ENOENT.Error(), unix.ENOTDIR.Error(), NotInPath:
		code, class = NotFound, errs.NotFound
	}
	err := errs.Newf(class, "app %s: program %s: %s", app, program, cause)
	if cause == unix.E2BIG.Error() {
		err = errs.WithHint(err, "the kernel takes 128 KiB in one argument or variable, and in all of them a quarter of the app's stack limit, at most 6 MiB")
	}
	return &launch.StartError{ExitCode: code, Err: err}
}

// PodInitGone says that fork(2) failed with ENOMEM in the pod's pid namespace.
const PodInitGone = "pid namespace: pod init has ended, or memory is used up"

// SetupError shows one line and keeps the error below for its class and hints.
type SetupError struct {
	Text string
	Err  error
}

func (e *SetupError) Error() string { return e.Text }
func (e *SetupError) Unwrap() error { return e.Err }

// OneLine joins the lines of a text.
func OneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}

// NotRunning is the error of Exec into an app that has ended or never ran.
func NotRunning(id string, cause error) error {
	if cause == nil {
		cause = errors.New("not running")
	}
	return errs.Newf(errs.NotFound, "execution %s: %w", id, cause)
}

// Check refuses an app that no launcher could start.
func Check(app launch.App) error {
	if len(app.Argv) == 0 {
		return errs.Newf(errs.Usage, "program: none given")
	}
	if app.UID < 0 || app.GID < 0 {
		return errs.Newf(errs.Usage, "user %d, group %d: not resolved", app.UID, app.GID)
	}
	return nil
}

// Busy is the error of a second start of one execution.
func Busy(id string) error { return errs.Newf(errs.Busy, "execution %s: there already", id) }
