package libcontainer

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage1/launch"
)

// What the library says of its own steps on the way up; none of it tells a
// user anything.
var steps = []string{
	"unable to start container process: ",
	"error during container init: ",
	"error starting setns process: ",
	"error executing setns process: ",
	"unable to create new parent process: ",
	"error waiting for our first child to exit: ",
	"can't get final child's PID from pipe: ",
	"runc init error(s): ",
}

// The messages of the library's C part, which joins the namespaces.
var nsexecText = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`nsexec-[0-9]+\[[0-9]+\]: ([^;]*)`)
})

// fork(2) fails with ENOMEM in a pid namespace whose init has ended.
const dyingPod = "unable to spawn stage-2: Cannot allocate memory"

// named says what was done to which app when the error came: a
// *launch.StartError if the program is at fault, else a failed set-up in one
// line.
func named(what, app string, argv []string, err error) error {
	text := oneLine(err.Error())
	if cause, code := programError(text, argv); code != 0 {
		class := errs.Unsupported
		if code == notFound {
			class = errs.NotFound
		}
		err := errs.Newf(class, "app %s: program %s: %s", app, argv[0], cause)
		if cause == unix.E2BIG.Error() {
			err = errs.WithHint(err, "the kernel takes 128 KiB in one argument or variable, and in all of them a quarter of the app's stack limit, at most 6 MiB")
		}
		return &launch.StartError{ExitCode: code, Err: err}
	}
	if m := nsexecText().FindStringSubmatch(text); m != nil {
		// The library's own words before it only say that the child is gone.
		text = m[1]
	}
	if strings.Contains(text, dyingPod) {
		err = errs.WithClass(errs.Unavailable, err)
		text = "pid namespace: pod init has ended, or memory is used up"
	}
	for _, step := range steps {
		text = strings.ReplaceAll(text, step, "")
	}
	for _, word := range []string{"error ", "failed to ", "unable to "} {
		text = strings.TrimPrefix(text, word)
	}
	text = mountError(text)
	return &setupError{text: fmt.Sprintf("%s app %s: %s", what, app, text), err: err}
}

var mountText = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^mounting ("[^"]*") to rootfs at ("[^"]*"): (.*)$`)
})

// mountError leaves of a failed mount's chain the two ends.
func mountError(text string) string {
	m := mountText().FindStringSubmatch(text)
	if m == nil {
		return text
	}
	source, serr := strconv.Unquote(m[1])
	target, terr := strconv.Unquote(m[2])
	if serr != nil || terr != nil {
		return text
	}
	chain := strings.Split(m[3], ": ")
	from := max(0, len(chain)-2)
	return fmt.Sprintf("mount %s at %s: %s", source, target, strings.Join(chain[from:], ": "))
}

// setupError shows one line and keeps the error below for its class and hints.
type setupError struct {
	text string
	err  error
}

func (e *setupError) Error() string { return e.text }
func (e *setupError) Unwrap() error { return e.err }

func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}

// Exit codes of a program that could not be executed, as of a shell.
const (
	notExecutable = 126
	notFound      = 127
)

// programError says whether the message is about the program itself: the
// child looked it up in vain, or the kernel refused it. Errors cross from the
// child as text only. Code 0 means no.
func programError(text string, argv []string) (cause string, code int) {
	if len(argv) == 0 {
		return "", 0
	}
	lookup := "exec: " + strconv.Quote(argv[0]) + ": "
	if i := strings.Index(text, lookup); i >= 0 {
		cause = strings.TrimPrefix(text[i+len(lookup):], "stat "+argv[0]+": ")
	} else if rest, ok := strings.CutPrefix(text, "exec /"); ok {
		_, cause, ok = strings.Cut(rest, ": ")
		if !ok {
			return "", 0
		}
	} else {
		return "", 0
	}
	cause, _, _ = strings.Cut(cause, "; ")
	for _, s := range []string{unix.ENOENT.Error(), unix.ENOTDIR.Error(), "executable file not found in $PATH"} {
		if cause == s {
			return cause, notFound
		}
	}
	return cause, notExecutable
}

// notRunning is the error of Exec into an app that has ended or never ran.
func notRunning(id string, cause error) error {
	if cause == nil {
		cause = errors.New("not running")
	}
	return errs.Newf(errs.NotFound, "execution %s: %w", id, cause)
}
