package podspec

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// CheckKind is how something is found out about an app, or done to it.
type CheckKind string

// The kinds of check. CheckNotify waits for the app's own word.
const (
	CheckExec   CheckKind = "exec"
	CheckHTTP   CheckKind = "http"
	CheckTCP    CheckKind = "tcp"
	CheckNotify CheckKind = "notify"
)

// Check is one way to ask an app: a program inside it, a GET of a page, a
// connection. Pages and connections are those of the pod's own localhost.
type Check struct {
	Kind CheckKind
	Argv []string // exec
	Port int      // http, tcp
	Path string   // http
}

// Probe is a check that is repeated.
type Probe struct {
	Check
	Delay     time.Duration // until the first one
	Period    time.Duration // from the begin of one to the next, at least 1 s
	Timeout   time.Duration // of one
	Successes int           // so many in a row count as well
	Failures  int           // so many in a row count as not
}

// Hook is a check that is done once, for its effect.
type Hook struct {
	Check
	Timeout time.Duration
}

// What a probe or a hook has that says nothing else.
const (
	MinPeriod          = time.Second
	DefaultReadyPeriod = time.Second
	DefaultLivePeriod  = 10 * time.Second
	DefaultTimeout     = time.Second
	DefaultFailures    = 3
	DefaultHookTimeout = 10 * time.Second
)

const checkHint = "say exec:COMMAND, http:PORT/PATH or tcp:PORT, and then options such as period=5s,timeout=1s"

// ParseReady understands notify, or a probe as ParseLive does.
func ParseReady(s string) (Probe, error) {
	if s == string(CheckNotify) {
		return Probe{Check: Check{Kind: CheckNotify}}, nil
	}
	return parseProbe(s, DefaultReadyPeriod)
}

// ParseLive understands exec:COMMAND, http:PORT[/PATH] and tcp:PORT, and behind
// that options: ,delay=… ,period=… ,timeout=… ,successes=… ,failures=…. The
// words of a command are divided as a shell does it, with quotes; no shell sees
// them.
func ParseLive(s string) (Probe, error) {
	p, err := parseProbe(s, DefaultLivePeriod)
	if err == nil && p.Successes != 1 {
		return p, errs.Newf(errs.Usage, "%q: successes: one is enough for an app that lives", s)
	}
	return p, err
}

func parseProbe(s string, period time.Duration) (Probe, error) {
	p := Probe{Period: period, Timeout: DefaultTimeout, Successes: 1, Failures: DefaultFailures}
	what, options, err := split(s, "delay", "period", "timeout", "successes", "failures")
	if err != nil {
		return p, err
	}
	if p.Check, err = parseCheck(what, CheckExec, CheckHTTP, CheckTCP); err != nil {
		return p, err
	}
	for _, o := range options {
		switch o.name {
		case "delay":
			p.Delay, err = o.duration(0)
		case "period":
			p.Period, err = o.duration(MinPeriod)
		case "timeout":
			p.Timeout, err = o.duration(time.Millisecond)
		case "successes":
			p.Successes, err = o.count()
		case "failures":
			p.Failures, err = o.count()
		}
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

// ParseHook understands exec:COMMAND and http:PORT[/PATH], and ,timeout=….
func ParseHook(s string) (Hook, error) {
	h := Hook{Timeout: DefaultHookTimeout}
	what, options, err := split(s, "timeout")
	if err != nil {
		return h, err
	}
	if h.Check, err = parseCheck(what, CheckExec, CheckHTTP); err != nil {
		return h, err
	}
	for _, o := range options {
		if h.Timeout, err = o.duration(time.Millisecond); err != nil {
			return h, err
		}
	}
	return h, nil
}

func parseCheck(s string, kinds ...CheckKind) (Check, error) {
	kind, what, _ := strings.Cut(s, ":")
	c := Check{Kind: CheckKind(kind)}
	bad := errs.WithHint(errs.Newf(errs.Usage, "%q: not understood", s), checkHint)
	if !slices.Contains(kinds, c.Kind) {
		return c, bad
	}
	var err error
	switch c.Kind {
	case CheckExec:
		if c.Argv, err = words(what); err == nil && len(c.Argv) == 0 {
			err = bad
		}
		return c, err
	case CheckHTTP:
		port, path, _ := strings.Cut(what, "/")
		what, c.Path = port, "/"+path
		if strings.ContainsFunc(c.Path, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			return c, errs.Newf(errs.Usage, "%q: a path of a URL, in which a blank is %%20, is needed", c.Path)
		}
	case CheckTCP, CheckNotify:
	}
	n, err := strconv.ParseUint(what, 10, 16)
	if err != nil || n == 0 {
		return c, errs.WithHint(errs.Newf(errs.Usage, "%q: port %q: not a number from 1 to 65535", s, what), checkHint)
	}
	c.Port = int(n)
	return c, nil
}

// option is one KEY=VALUE behind a check.
type option struct{ name, value string }

func (o option) duration(least time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(o.value)
	if err != nil || d < least {
		return 0, errs.Newf(errs.Usage, "%s=%s: not a duration such as 5s, of %s at least", o.name, o.value, least)
	}
	return d, nil
}

func (o option) count() (int, error) {
	n, err := strconv.ParseUint(o.value, 10, 16)
	if err != nil || n == 0 {
		return 0, errs.Newf(errs.Usage, "%s=%s: not a number from 1 to 65535", o.name, o.value)
	}
	return int(n), nil
}

// split takes the options off the end. A comma of the check itself does no
// harm, unless one of their names follows it: then it has to stand in quotes.
func split(s string, names ...string) (what string, options []option, err error) {
	parts, err := unquotedCommas(s)
	if err != nil {
		return "", nil, err
	}
	for len(parts) > 1 {
		last := parts[len(parts)-1]
		name, value, ok := strings.Cut(last, "=")
		if !ok || !slices.Contains(names, name) {
			break
		}
		if slices.ContainsFunc(options, func(o option) bool { return o.name == name }) {
			return "", nil, errs.Newf(errs.Usage, "%q: %s is given twice", s, name)
		}
		options = append(options, option{name, value})
		parts = parts[:len(parts)-1]
	}
	return strings.Join(parts, ","), options, nil
}

// quotes follows a text's quotes: in reports whether the next byte is inside
// some, and a byte that only quotes is no part of the text.
type quotes struct {
	by      byte // ' or ", 0 outside
	escaped bool
}

// next takes a byte and says whether it is one of the text, and whether it
// stands for nothing but itself.
func (q *quotes) next(c byte) (text, plain bool) {
	switch {
	case q.escaped:
		q.escaped = false
		return true, true
	case c == '\\' && q.by != '\'':
		q.escaped = true
		return false, false
	case q.by != 0 && c == q.by:
		q.by = 0
		return false, false
	case q.by != 0:
		return true, true
	case c == '\'' || c == '"':
		q.by = c
		return false, false
	}
	return true, false
}

func (q *quotes) end(s string) error {
	if q.by != 0 || q.escaped {
		return errs.Newf(errs.Usage, "%q: a quote without its end", s)
	}
	return nil
}

func unquotedCommas(s string) ([]string, error) {
	var parts []string
	var q quotes
	from := 0
	for i := range len(s) {
		if _, plain := q.next(s[i]); !plain && s[i] == ',' && q == (quotes{}) {
			parts = append(parts, s[from:i])
			from = i + 1
		}
	}
	return append(parts, s[from:]), q.end(s)
}

// words divides a command at blanks that are not in quotes.
func words(s string) ([]string, error) {
	var list []string
	var word []byte
	var q quotes
	begun := false
	for i := range len(s) {
		text, plain := q.next(s[i])
		blank := !plain && text && (s[i] == ' ' || s[i] == '\t' || s[i] == '\n')
		switch {
		case blank && begun:
			list, word, begun = append(list, string(word)), nil, false
		case blank:
		default:
			begun = true // quotes alone are a word without a letter
			if text {
				word = append(word, s[i])
			}
		}
	}
	if begun {
		list = append(list, string(word))
	}
	return list, q.end(s)
}

// String is what the parsers read back.
func (c Check) String() string {
	switch c.Kind {
	case CheckExec:
		quoted := make([]string, len(c.Argv))
		for i, w := range c.Argv {
			quoted[i] = quote(w)
		}
		return "exec:" + strings.Join(quoted, " ")
	case CheckHTTP:
		return "http:" + strconv.Itoa(c.Port) + c.Path
	case CheckTCP:
		return "tcp:" + strconv.Itoa(c.Port)
	case CheckNotify:
	}
	return string(c.Kind)
}

func quote(w string) string {
	if w != "" && !strings.ContainsAny(w, " \t\n'\"\\,") {
		return w
	}
	return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
}

// String is what ParseReady and ParseLive read back.
func (p Probe) String() string {
	if p.Kind == CheckNotify {
		return p.Check.String()
	}
	s := p.Check.String()
	if p.Delay > 0 {
		s += ",delay=" + p.Delay.String()
	}
	s += ",period=" + p.Period.String() + ",timeout=" + p.Timeout.String()
	if p.Successes != 1 {
		s += ",successes=" + strconv.Itoa(p.Successes)
	}
	return s + ",failures=" + strconv.Itoa(p.Failures)
}

// String is what ParseHook reads back.
func (h Hook) String() string { return h.Check.String() + ",timeout=" + h.Timeout.String() }
