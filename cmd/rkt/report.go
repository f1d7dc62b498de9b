package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// The exit codes of rkt's own making. All others are an app's.
const (
	codeOK         = 0
	codeIncomplete = 10  // gc: something that was due could not be collected
	codeOtherGC    = 11  // gc: another gc is at work
	codeDamage     = 12  // image verify: damage found
	codeTimeout    = 124 // a --wait deadline passed
	codeError      = 254 // any error of rkt, usage included
)

var errMissingCommand = errs.WithHint(errs.Newf(errs.Usage, "missing command"), "\"rkt help\" lists them")

// coded is an error, or with a nil err no error at all, that ends the program
// with a code of its own.
type coded struct {
	code int
	err  error
}

func (c *coded) Error() string {
	if c.err == nil {
		return ""
	}
	return c.err.Error()
}

func (c *coded) Unwrap() error { return c.err }

// withCode gives the program's end a code. err may be nil.
func withCode(code int, err error) error {
	if code == codeOK && err == nil {
		return nil
	}
	return &coded{code, err}
}

// report is the one place where errors are printed and exit codes are chosen.
func (g *globals) report(name string, args []string, err error) int {
	if err == nil {
		return codeOK
	}
	code := codeError
	if c, ok := errors.AsType[*coded](err); ok {
		code = c.code
		if c.err == nil {
			return code
		}
	}
	if wantsJSON(args) {
		g.reportJSON(name, err)
		return code
	}
	red, bold, reset := "", "", ""
	if g.colour(g.stderr) {
		red, bold, reset = "\x1b[31m", "\x1b[1m", "\x1b[0m"
	}
	// What several pods failed with is several lines.
	for _, line := range strings.Split(err.Error(), "\n") {
		fmt.Fprintf(g.stderr, "%s%s:%s %s\n", red, plain(name), reset, plain(line))
	}
	if g.debug {
		g.reportTree(name, err)
	}
	for _, hint := range hints(name, err) {
		fmt.Fprintf(g.stderr, "%s%s: hint:%s %s\n", bold, name, reset, plain(hint))
	}
	return code
}

// hints are what the user may do about the error. What is wrong with the words
// of a call is told by the command's help at least.
func hints(name string, err error) []string {
	list := errs.Hints(err)
	if len(list) > 0 || !errs.Is(err, errs.Usage) {
		return list
	}
	if name == "rkt" {
		return []string{"\"rkt help\" shows the commands"}
	}
	return []string{fmt.Sprintf("\"rkt help %s\" shows how it is called", name)}
}

// plain shows what a terminal would not show but obey: errors and names carry
// text that strangers wrote.
func plain(s string) string {
	clean := func(r rune) bool { return unicode.IsPrint(r) && r != utf8.RuneError }
	if !strings.ContainsFunc(s, func(r rune) bool { return !clean(r) }) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if clean(r) {
			b.WriteString(s[:n])
		} else {
			quoted := strconv.Quote(s[:n])
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		s = s[n:]
	}
	return b.String()
}

// reportTree shows each level of the error with what it adds, for --debug.
func (g *globals) reportTree(name string, err error) {
	fmt.Fprintf(g.stderr, "%s: class %s\n", name, errs.ClassOf(err))
	last := ""
	for depth := 0; err != nil; err = errors.Unwrap(err) {
		if text := err.Error(); text != last {
			fmt.Fprintf(g.stderr, "%s: %s└─ %s\n", name, strings.Repeat("  ", depth), plain(text))
			last = text
			depth++
		}
	}
}

func (g *globals) reportJSON(name string, err error) {
	var out struct {
		Error struct {
			Class   errs.Class `json:"class"`
			Message string     `json:"message"`
			Hint    string     `json:"hint,omitempty"`
		} `json:"error"`
	}
	out.Error.Class = errs.ClassOf(err)
	out.Error.Message = err.Error()
	out.Error.Hint = strings.Join(hints(name, err), "; ")
	enc := json.NewEncoder(g.stderr)
	enc.SetEscapeHTML(false)
	// Nothing is left to do if even stderr can't be written.
	_ = enc.Encode(out)
}

// warn prints what the user should know and what stops nothing.
func (g *globals) warn(cmd *cobra.Command, format string, args ...any) {
	fmt.Fprintf(g.stderr, "%s: warning: %s\n", commandName(cmd), plain(fmt.Sprintf(format, args...)))
}

// note is warn for what merely happened.
func (g *globals) note(cmd *cobra.Command, format string, args ...any) {
	fmt.Fprintf(g.stderr, "%s: %s\n", commandName(cmd), plain(fmt.Sprintf(format, args...)))
}

// colour says whether the file may get colours: a terminal, unless the user
// has asked for none anywhere (https://no-color.org).
func (g *globals) colour(f *os.File) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// wantsJSON looks for --format=json among the words themselves: errors in them
// are told in JSON too.
func wantsJSON(args []string) bool {
	for i, a := range args {
		if a == "--" {
			return false
		}
		value, ok := strings.CutPrefix(a, "--format=")
		if a == "--format" && i+1 < len(args) {
			value, ok = args[i+1], true
		}
		if ok {
			return value == "json" || value == "json-pretty"
		}
	}
	return false
}

// commandName is what stands before each message: the command without "rkt".
func commandName(cmd *cobra.Command) string {
	if cmd == nil || !cmd.HasParent() {
		return "rkt"
	}
	return strings.TrimPrefix(cmd.CommandPath(), "rkt ")
}

func flagError(cmd *cobra.Command, err error) error {
	return errs.WithHint(errs.WithClass(errs.Usage, err), "\"%s\" shows the flags", strings.Replace(cmd.CommandPath(), "rkt", "rkt help", 1))
}
