package libcontainer

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage1/launch/cell"
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
	text := cell.OneLine(err.Error())
	if cause, ok := programError(text, argv); ok {
		return cell.ProgramError(app, argv[0], cause)
	}
	if m := nsexecText().FindStringSubmatch(text); m != nil {
		// The library's own words before it only say that the child is gone.
		text = m[1]
	}
	if strings.Contains(text, dyingPod) {
		err = errs.WithClass(errs.Unavailable, err)
		text = cell.PodInitGone
	}
	for _, step := range steps {
		text = strings.ReplaceAll(text, step, "")
	}
	for _, word := range []string{"error ", "failed to ", "unable to "} {
		text = strings.TrimPrefix(text, word)
	}
	text = mountError(text)
	return &cell.SetupError{Text: fmt.Sprintf("%s app %s: %s", what, app, text), Err: err}
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

// programError says whether the message is about the program itself: the
// child looked it up in vain, or the kernel refused it. Errors cross from the
// child as text only.
func programError(text string, argv []string) (cause string, ok bool) {
	if len(argv) == 0 {
		return "", false
	}
	lookup := "exec: " + strconv.Quote(argv[0]) + ": "
	if i := strings.Index(text, lookup); i >= 0 {
		cause = strings.TrimPrefix(text[i+len(lookup):], "stat "+argv[0]+": ")
	} else if rest, ok := strings.CutPrefix(text, "exec /"); ok {
		_, cause, ok = strings.Cut(rest, ": ")
		if !ok {
			return "", false
		}
	} else {
		return "", false
	}
	cause, _, _ = strings.Cut(cause, "; ")
	return cause, true
}
