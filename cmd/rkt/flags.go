package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
)

// setter is a flag that calls a function each time it is given.
type setter struct {
	typ string
	set func(string) error
}

func (s setter) Set(v string) error { return s.set(v) }
func (s setter) String() string     { return "" }
func (s setter) Type() string       { return s.typ }

// value declares a flag with a value, which may be given several times.
func value(fs *pflag.FlagSet, name, typ, usage string, set func(string) error) *pflag.Flag {
	return fs.VarPF(setter{typ, set}, name, "", usage)
}

// boolean declares a flag that may be given alone.
func boolean(fs *pflag.FlagSet, name, usage string, set func(bool) error) {
	f := value(fs, name, "bool", usage, func(v string) error {
		on, err := strconv.ParseBool(v)
		if err != nil {
			return errs.Newf(errs.Usage, "%q: neither true nor false", v)
		}
		return set(on)
	})
	f.NoOptDefVal = "true"
}

// positive is a duration that is not negative: a time that is over before it
// began is a slip of the finger.
type positive time.Duration

// duration declares a flag of such a duration.
func duration(fs *pflag.FlagSet, to *time.Duration, name string, def time.Duration, usage string) {
	*to = def
	fs.Var((*positive)(to), name, usage)
}

func (p *positive) String() string { return time.Duration(*p).String() }
func (p *positive) Type() string   { return "duration" }

func (p *positive) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return errs.Newf(errs.Usage, "%q: not a duration such as 10s", s)
	}
	*p = positive(d)
	return nil
}

// pair reads NAME=VALUE.
func pair(s string) (name, val string, err error) {
	name, val, ok := strings.Cut(s, "=")
	if !ok || name == "" {
		return "", "", errs.Newf(errs.Usage, "%q: not NAME=VALUE", s)
	}
	return name, val, nil
}

// addEnv adds a variable to a list in which no name may be there twice.
func addEnv(list *[]appc.EnvVar, s string) error {
	name, val, err := pair(s)
	if err != nil {
		return err
	}
	if err := appc.CheckEnvName(name); err != nil {
		return err
	}
	for _, e := range *list {
		if e.Name == name {
			return errs.Newf(errs.Usage, "environment variable %q is set twice", name)
		}
	}
	*list = append(*list, appc.EnvVar{Name: name, Value: val})
	return nil
}

// list reads values that are separated by commas.
func list(s string) []string {
	var out []string
	for v := range strings.SplitSeq(s, ",") {
		if v = strings.TrimSpace(v); v != "" {
			out = append(out, v)
		}
	}
	return out
}

// keyValues reads NAME,key=value,… as volumes are given. first is "" if what
// stands first has a key.
func keyValues(s string) (first string, kv map[string]string, order []string, err error) {
	kv = map[string]string{}
	for i, part := range strings.Split(s, ",") {
		k, v, ok := strings.Cut(part, "=")
		switch {
		case i == 0 && !ok:
			first = part
		case !ok:
			return "", nil, nil, errs.Newf(errs.Usage, "%q: not KEY=VALUE", part)
		case v == "":
			return "", nil, nil, errs.Newf(errs.Usage, "%q: no value", part)
		default:
			if _, twice := kv[k]; twice {
				return "", nil, nil, errs.Newf(errs.Usage, "%q is given twice", k)
			}
			kv[k] = v
			order = append(order, k)
		}
	}
	return first, kv, order, nil
}
