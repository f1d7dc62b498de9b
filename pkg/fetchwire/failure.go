package fetchwire

import (
	"errors"
	"strings"
	"unicode"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// maxText bounds what a failure says: it is shown to people, and a stranger
// may have written parts of it.
const maxText = 1000

// Error is a failure that the other side reported.
type Error struct {
	Status int // of HTTP, 0 if the failure is none of it
	text   string
}

// Error returns the message.
func (e *Error) Error() string { return e.text }

// StatusError gives err the HTTP status that Fail passes on. nil stays nil.
func StatusError(status int, err error) error {
	if err == nil {
		return nil
	}
	return &withStatus{status, err}
}

type withStatus struct {
	status int
	err    error
}

func (e *withStatus) Error() string { return e.err.Error() }
func (e *withStatus) Unwrap() error { return e.err }

// Status returns the HTTP status that is behind err on either side, or 0.
func Status(err error) int {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Status
	}
	if e, ok := errors.AsType[*withStatus](err); ok {
		return e.status
	}
	return 0
}

// Fail makes a failure of an error. nil stays nil.
func Fail(err error) *Failure {
	if err == nil {
		return nil
	}
	f := &Failure{Class: errs.ClassOf(err), Message: clean(err.Error()), Status: Status(err)}
	for _, h := range errs.Hints(err) {
		f.Hints = append(f.Hints, clean(h))
	}
	return f
}

// Err makes an error of a failure again, with class, hints and status, and
// nothing in its text that a terminal would obey. nil stays nil.
func (f *Failure) Err() error {
	if f == nil {
		return nil
	}
	var err error = &Error{Status: f.Status, text: clean(f.Message)}
	for i := len(f.Hints) - 1; i >= 0; i-- {
		err = errs.WithHint(err, "%s", clean(f.Hints[i]))
	}
	return errs.WithClass(known(f.Class), err)
}

func known(c errs.Class) errs.Class {
	switch c {
	case errs.Usage, errs.NotFound, errs.Busy, errs.Denied, errs.Corrupt, errs.Unsupported, errs.Unavailable:
		return c
	case errs.Internal:
	}
	return errs.Internal
}

func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + "…"
	}
	return s
}
