package appc

import (
	"path"
	"regexp"
	"strings"
	"sync"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// The specification's patterns, for what rkt writes itself.
var (
	strictName       = pattern(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	strictIdentifier = pattern(`^[a-z0-9]+([-._~/][a-z0-9]+)*$`)
)

// pattern compiles at the first use: most commands need few patterns or none,
// and all of them together cost as much as the rest of a short command.
func pattern(s string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(s) })
}

const (
	nameChars       = "abcdefghijklmnopqrstuvwxyz0123456789-"
	identifierChars = nameChars + "._~/"
)

// MaxName is how long a name, or the value of a label, may be: far above real
// ones, and below what command lines, paths and listings bear.
const MaxName = 1024

// CheckName says whether s is accepted as an AC Name in a manifest: the
// characters and the edges count, so that images of older tools, which allow
// "a--b", stay usable.
func CheckName(s string) error { return liberal("AC Name", s, nameChars) }

// CheckIdentifier is CheckName for AC Identifiers.
func CheckIdentifier(s string) error { return liberal("AC Identifier", s, identifierChars) }

// StrictName says whether s may be written as an AC Name.
func StrictName(s string) error {
	if !strictName().MatchString(s) {
		return errs.Newf(errs.Usage, "%q: not an AC Name (a-z, 0-9 and single - between them)", s)
	}
	return nil
}

// StrictIdentifier says whether s may be written as an AC Identifier.
func StrictIdentifier(s string) error {
	if !strictIdentifier().MatchString(s) {
		return errs.Newf(errs.Usage, "%q: not an AC Identifier (a-z, 0-9 and single - . _ ~ / between them)", s)
	}
	return nil
}

// SanitizeName makes an AC Name of the last element of an image's name, ""
// if nothing of it can stand in one.
func SanitizeName(s string) string {
	var b strings.Builder
	for _, c := range strings.ToLower(path.Base(s)) {
		switch {
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
			b.WriteRune(c)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	return strings.TrimRight(b.String(), "-")
}

func liberal(kind, s, chars string) error {
	switch {
	case s == "":
		return errs.Newf(errs.Usage, "missing")
	case len(s) > MaxName:
		return errs.Newf(errs.Usage, "%q: longer than %d bytes", s, MaxName)
	case strings.Trim(s, chars) != "" || strings.ContainsFunc(s, func(c rune) bool { return !strings.ContainsRune(chars, c) }):
		return errs.Newf(errs.Usage, "%q: not an %s: only %s are allowed", s, kind, chars)
	case !alnum(s[0]) || !alnum(s[len(s)-1]):
		return errs.Newf(errs.Usage, "%q: not an %s: first and last must be a letter or digit", s, kind)
	}
	return nil
}

func alnum(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }
