// Package errs gives an error a class that callers act on and a hint that
// people follow. Everything below cmd/ returns errors; only cmd/ prints them
// and turns them into an exit code.
package errs

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// Class says what kind of failure an error is. The names are part of the
// machine-readable output and do not change.
type Class string

// The classes, from the most to the least likely to be the caller's doing.
const (
	Usage       Class = "usage"       // the words of the call are wrong
	NotFound    Class = "not-found"   // what was named is not there
	Busy        Class = "busy"        // somebody else holds it
	Denied      Class = "denied"      // not allowed, or not trusted
	Corrupt     Class = "corrupt"     // what is on disk is not what was written
	Unsupported Class = "unsupported" // this build or this host can't do it
	Unavailable Class = "unavailable" // it may work later, or elsewhere
	Internal    Class = "internal"    // anything else
)

type classed struct {
	class Class
	err   error
}

func (e *classed) Error() string { return e.err.Error() }
func (e *classed) Unwrap() error { return e.err }

type hinted struct {
	hint string
	err  error
}

func (e *hinted) Error() string { return e.err.Error() }
func (e *hinted) Unwrap() error { return e.err }

// maxQuoted is how many characters of a word that may come from anywhere are
// shown: enough to find it again, too few to hide the message or print a file.
const maxQuoted = 40

// quoted is a string argument of an error. %q, by which everything is printed
// that a stranger may have written, shows the beginning of it.
type quoted string

// Format implements fmt.Formatter.
func (q quoted) Format(f fmt.State, verb rune) {
	s, more := string(q), ""
	if verb == 'q' {
		s, more = Beginning(s)
	}
	// Fails only where f's buffer does, which never does.
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), s)
	_, _ = io.WriteString(f, more)
}

// Beginning cuts a string down to what an error shows of it, and returns "…"
// with it if something is missing.
func Beginning(s string) (begin, more string) {
	n := 0
	for i := range s {
		if n == maxQuoted {
			return s[:i], "…"
		}
		n++
	}
	return s, ""
}

// Newf returns an error of the class; the format takes %w as fmt.Errorf does.
// %q shows no more than the beginning of a long string.
func Newf(class Class, format string, args ...any) error {
	for i, a := range args {
		if s, ok := a.(string); ok {
			args[i] = quoted(s)
		}
	}
	return &classed{class: class, err: fmt.Errorf(format, args...)}
}

// WithClass gives err a class; the outermost class counts. nil stays nil.
func WithClass(class Class, err error) error {
	if err == nil {
		return nil
	}
	return &classed{class: class, err: err}
}

// WithHint adds a sentence that tells the user what to do. nil stays nil.
func WithHint(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &hinted{hint: fmt.Sprintf(format, args...), err: err}
}

// ClassOf returns the outermost class of err, Internal if it has none.
func ClassOf(err error) Class {
	if c, ok := errors.AsType[*classed](err); ok {
		return c.class
	}
	return Internal
}

// Is says whether err is of the class.
func Is(err error, class Class) bool { return err != nil && ClassOf(err) == class }

// Hints returns the hints of err, outermost first. An error of the host that
// means the same wherever it comes from has one in any case.
func Hints(err error) []string {
	var hints []string
	for err != nil {
		h, ok := errors.AsType[*hinted](err)
		if !ok {
			break
		}
		hints = append(hints, h.hint)
		err = h.err
	}
	if len(hints) > 0 {
		return hints
	}
	switch {
	case errors.Is(err, unix.EMFILE):
		return []string{"this process may open too few files: \"ulimit -n 1024\" allows more"}
	case errors.Is(err, unix.ENFILE):
		return []string{"the host has too many open files: see fs.file-max in sysctl(8)"}
	case errors.Is(err, unix.EROFS):
		return []string{"rkt must write there: mount the file system writable, or choose another data folder with --dir"}
	}
	return nil
}
