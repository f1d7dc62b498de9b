package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
)

// appFlags declares the flags that follow an image.
func (a *appArgs) appFlags(fs *pflag.FlagSet, r *refusals) {
	a.value(fs, "name", "NAME", "name of the app (default: from the image's name)", func(p *appArg, v string) error {
		p.plan.Name = v
		return appc.StrictName(v)
	})
	a.value(fs, "exec", "PATH", "program to run instead of the image's", func(p *appArg, v string) error {
		if p.execGiven {
			return errs.Newf(errs.Usage, "--exec can be given once per image")
		}
		p.execGiven, p.plan.Exec = true, v
		return nil
	})
	a.value(fs, "working-dir", "PATH", "folder in the image to start in", func(p *appArg, v string) error {
		p.plan.WorkingDir = v
		return appc.CheckAbs(v)
	})
	a.boolean(fs, "readonly-rootfs", "mount the app's root file system read-only", func(p *appArg, on bool) { p.plan.ReadOnlyRootFS = on })
	a.value(fs, "user", "USER", "user: a name or number, or a file of the image whose owner it is", func(p *appArg, v string) error {
		p.plan.User = v
		return nil
	})
	a.value(fs, "group", "GROUP", "group: a name or number, or a file of the image whose group it is", func(p *appArg, v string) error {
		p.plan.Group = v
		return nil
	})
	a.value(fs, "supplementary-gids", "GID,…", "further groups of the app's process", setGIDs)
	a.value(fs, "environment", "NAME=VALUE", "environment variable of this app", func(p *appArg, v string) error { return addEnv(&p.plan.Env, v) })
	a.value(fs, "annotation", "NAME=VALUE", "annotation of the app", setAnnotation)
	a.mapFlag(fs, "user-annotation", "annotation for users' own purposes", func(p *appArg) *map[string]string { return &p.plan.UserAnnotations })
	a.mapFlag(fs, "user-label", "label for users' own purposes", func(p *appArg) *map[string]string { return &p.plan.UserLabels })
	a.mountFlags(fs)
	a.signature(fs)
	a.lifeFlags(fs)
	a.isolatorFlags(fs)
	a.streamFlags(fs, r)
}

func setGIDs(p *appArg, v string) error {
	p.plan.GIDs = []int{}
	for _, s := range list(v) {
		gid, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			return errs.Newf(errs.Usage, "%q: not a group id", s)
		}
		p.plan.GIDs = append(p.plan.GIDs, int(gid))
	}
	return nil
}

func setAnnotation(p *appArg, v string) error {
	name, val, err := pair(v)
	if err != nil {
		return err
	}
	if _, twice := p.plan.Annotations.Get(name); twice {
		return errs.Newf(errs.Usage, "annotation %q is set twice", name)
	}
	p.plan.Annotations.Set(name, val)
	return p.plan.Annotations.Validate()
}

func (a *appArgs) mapFlag(fs *pflag.FlagSet, name, usage string, field func(*appArg) *map[string]string) {
	a.value(fs, name, "NAME=VALUE", usage, func(p *appArg, v string) error {
		key, val, err := pair(v)
		if err != nil {
			return err
		}
		m := field(p)
		if *m == nil {
			*m = map[string]string{}
		}
		(*m)[key] = val
		return nil
	})
}

// isolatorFlags are written into the manifest as isolators, where stage1 can
// enforce them. An explicit wish that can't be enforced is refused.
func (a *appArgs) isolatorFlags(fs *pflag.FlagSet) {
	caps := func(name, isolator string) *pflag.Flag {
		return a.value(fs, name, "CAP,…", "capabilities to "+name[strings.LastIndexByte(name, '-')+1:], func(p *appArg, v string) error {
			set := list(v)
			for i, c := range set {
				set[i] = "CAP_" + strings.TrimPrefix(strings.ToUpper(c), "CAP_")
				if !appc.IsCapability(set[i]) {
					return errs.WithHint(errs.Newf(errs.Usage, "%q: no such capability", c), "capabilities(7) lists them, such as CAP_NET_BIND_SERVICE")
				}
			}
			return p.isolate(isolator, appc.StringSet{Set: set})
		})
	}
	caps("caps-retain", appc.IsoCapsRetain)
	caps("caps-remove", appc.IsoCapsRemove)
	caps("cap-retain", appc.IsoCapsRetain).Hidden = true
	caps("cap-remove", appc.IsoCapsRemove).Hidden = true
	a.value(fs, "seccomp", "mode=retain|remove[,errno=E],CALL,…", "system call filter instead of the image's", setSeccomp)
	a.limitFlags(fs)
	a.processFlags(fs)
	a.podLimitFlags(fs)
}

// isolate adds an isolator, which must not be there yet nor its opposite.
func (p *appArg) isolate(name string, v any) error {
	return addIsolator(&p.plan.Isolators, appc.NewIsolator(name, v))
}

func setSeccomp(p *appArg, v string) error {
	var set appc.StringSet
	mode := ""
	for _, part := range list(v) {
		key, val, ok := strings.Cut(part, "=")
		switch {
		case !ok:
			set.Set = append(set.Set, part)
		case key == "mode" && mode == "":
			mode = val
		case key == "errno" && set.Errno == "":
			set.Errno = strings.ToUpper(val)
		default:
			return errs.Newf(errs.Usage, "%q: not understood", part)
		}
	}
	switch mode {
	case "retain":
		return p.isolate(appc.IsoSeccompRetain, set)
	case "remove":
		return p.isolate(appc.IsoSeccompRemove, set)
	}
	return errs.Newf(errs.Usage, "mode=%s: neither retain nor remove", mode)
}

// streamFlags have one value each that is the default; the others wait for
// attaching to a running app.
func (a *appArgs) streamFlags(fs *pflag.FlagSet, r *refusals) {
	for name, fixed := range map[string]string{"stdin": "null", "stdout": "log", "stderr": "log"} {
		values := []string{"null", "tty", "stream"}
		if name != "stdin" {
			values = append(values, "log")
		}
		a.value(fs, name, "MODE", "what the app has as its "+name+": "+fixed+" (others are not supported yet)", func(_ *appArg, v string) error {
			for _, known := range values {
				if v == known && v != fixed {
					r.add("--" + name + "=" + v)
				}
				if v == known {
					return nil
				}
			}
			return errs.Newf(errs.Usage, "%q is none of %s", v, strings.Join(values, ", "))
		})
	}
}

// setDuration reads a duration that is not negative.
func setDuration(to **time.Duration) func(string) error {
	return func(v string) error {
		d := new(time.Duration)
		*to = d
		return (*positive)(d).Set(v)
	}
}
