// Package errs gives an error a class that callers act on and a hint that
// people follow. Everything below cmd/ returns errors; only cmd/ prints them
// and turns them into an exit code.
package errs

import (
	"errors"
	"fmt"
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

// Newf returns an error of the class; the format takes %w as fmt.Errorf does.
func Newf(class Class, format string, args ...any) error {
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

// Hints returns the hints of err, outermost first.
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
	return hints
}
