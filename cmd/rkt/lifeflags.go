package main

import (
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/lifecycle"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

// lifeFlags are the flags that say how an app lives with the others. Each is
// an annotation of the app in the manifest.
func (a *appArgs) lifeFlags(fs *pflag.FlagSet) {
	for _, f := range []struct {
		name, typ, usage, annotation string
		check                        func(string) error
		list                         bool // given again, it adds
	}{
		{"role", "ROLE", "app (the default), init: has to end with 0 before any app starts, or sidecar: serves the apps and is stopped after them", podspec.AnnRole, parses(lifecycle.ParseRole), false},
		{"after", "APP[:CONDITION],…", "start when the other app is started (the default), ready, succeeded or exited", podspec.AnnAfter, parses(lifecycle.ParseAfter), true},
		{"before", "APP[:CONDITION],…", "as --after, said of the other app", podspec.AnnBefore, parses(lifecycle.ParseAfter), true},
		{"restart", "POLICY", "never (the default), on-failure or always, with a maximum in a row as on-failure:5", podspec.AnnRestart, parses(lifecycle.ParseRestart), false},
		{"restart-on", "CODE,…", "restart after these exit codes, whatever --restart says of them", podspec.AnnRestartOn, parses(lifecycle.ParseCodes), true},
		{"ready", "CHECK", "when the app is ready: notify (it says READY=1), exec:COMMAND, http:PORT/PATH or tcp:PORT, and ,delay= ,period= ,timeout= ,successes= ,failures=", podspec.AnnReady, parses(podspec.ParseReady), false},
		{"live", "CHECK", "how to see that the app lives, as --ready; if not it is killed, and --restart decides", podspec.AnnLive, parses(podspec.ParseLive), false},
		{"startup", "CHECK", "how to see that the app has started, as --live; until then nothing else is asked, and an app that fails it is killed", podspec.AnnStartup, parses(podspec.ParseLive), false},
		{"post-start", "HOOK", "run when the app has started: exec:COMMAND or http:PORT/PATH, and ,timeout=", podspec.AnnPostStart, parses(podspec.ParseHook), false},
		{"pre-stop", "HOOK", "run before the app gets its stop signal, within its stop timeout; as --post-start", podspec.AnnPreStop, parses(podspec.ParseHook), false},
		{"stop-signal", "SIGNAL", "signal that tells the app to end (default: the image's, else SIGTERM)", podspec.AnnStopSignal, parses(podspec.ParseSignal), false},
	} {
		a.value(fs, f.name, f.typ, f.usage, func(p *appArg, v string) error {
			if err := f.check(v); err != nil {
				return err
			}
			return p.annotate(f.annotation, v, f.list)
		})
	}
	a.boolean(fs, "restart-keep-rootfs", "let the app find after a restart what it wrote to its root file system", func(p *appArg, on bool) {
		p.plan.Annotations.Set(podspec.AnnKeepRootFS, strconv.FormatBool(on))
	})
}

// parses is the check that a parser makes.
func parses[T any](parse func(string) (T, error)) func(string) error {
	return func(s string) error {
		_, err := parse(s)
		return err
	}
}

func (p *appArg) annotate(name, v string, add bool) error {
	old, given := p.plan.Annotations.Get(name)
	switch {
	case given && !add:
		return errs.Newf(errs.Usage, "given twice, or as --annotation too")
	case given:
		v = old + "," + v
	}
	p.plan.Annotations.Set(name, v)
	return nil
}

func addLabel(labels *map[string]string, s string) error {
	name, v, err := pair(s)
	if err != nil {
		return err
	}
	if *labels == nil {
		*labels = map[string]string{}
	}
	if _, twice := (*labels)[name]; twice {
		return errs.Newf(errs.Usage, "label %q is given twice", name)
	}
	(*labels)[name] = v
	return nil
}

// leastLog is the smallest size of a log file: each rotation costs renames.
const leastLog = 4 << 10

func setLogSize(v string) (int64, error) {
	q, err := appc.ParseQuantity(v)
	if err != nil {
		return 0, err
	}
	n, err := q.Ceil()
	if err == nil && n < leastLog {
		err = errs.Newf(errs.Usage, "%q: less than 4Ki", v)
	}
	return n, err
}

func setLogFiles(v string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(v))
	if err != nil || n < 1 || n > 10000 {
		return 0, errs.Newf(errs.Usage, "%q: not a number from 1 to 10000", v)
	}
	return n, nil
}
