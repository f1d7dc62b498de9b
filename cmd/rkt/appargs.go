package main

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage0/fetch"
	"github.com/rkt-pods/rkt/stage0/podplan"
)

// appArg is one image of the command line with the flags that follow it.
type appArg struct {
	image     string
	hasArgs   bool
	execGiven bool
	signature string      // file
	pull      fetch.Pull  // "" means as for the whole command
	plan      podplan.App // without its image and manifest
}

// appArgs is the part of a command line that has a grammar of its own:
//
//	[pod flags] IMAGE [app flags] [-- args… ---] IMAGE [app flags] [-- args…]
type appArgs struct {
	list   []appArg
	bounds []appc.Isolator  // of the whole pod
	mounts []podplan.Mount  // before any image: for all apps
	wide   appc.Annotations // the same
}

// parse walks the words. Whatever is a flag of fs is set, all else outside of
// app arguments is an image. noArgs refuses app arguments.
func (a *appArgs) parse(fs *pflag.FlagSet, words []string, noArgs bool) error {
	fs.SetInterspersed(false)
	for i := 0; i < len(words); {
		w := words[i]
		switch {
		case w == "" || w == "---":
			i++
		case w == "--":
			if noArgs {
				return errs.Newf(errs.Usage, "app arguments unsupported")
			}
			n, err := a.takeArgs(words[i+1:])
			if err != nil {
				return err
			}
			i += n + 1
		case strings.HasPrefix(w, "-") && w != "-":
			n := 1
			if needsNext(fs, w) {
				n = 2
			}
			if err := fs.Parse(words[i:min(i+n, len(words))]); err != nil {
				return err
			}
			i += n
		default:
			a.list = append(a.list, appArg{image: w, plan: podplan.App{Annotations: slices.Clone(a.wide)}})
			i++
		}
	}
	return nil
}

// takeArgs reads the arguments of the last image up to "---" and says how many
// words these were.
func (a *appArgs) takeArgs(words []string) (int, error) {
	if len(a.list) == 0 {
		return 0, errs.Newf(errs.Usage, "an image is required before any app arguments")
	}
	app := &a.list[len(a.list)-1]
	if app.hasArgs {
		return 0, errs.Newf(errs.Usage, "only one set of app arguments allowed per image")
	}
	app.hasArgs = true
	for i, w := range words {
		if w == "---" {
			return i + 1, nil
		}
		if w != "" {
			app.plan.Args = append(app.plan.Args, w)
		}
	}
	return len(words), nil
}

// needsNext says whether the flag's value is the next word.
func needsNext(fs *pflag.FlagSet, word string) bool {
	name, isLong := strings.CutPrefix(word, "--")
	if !isLong || strings.Contains(word, "=") {
		return false
	}
	f := fs.Lookup(name)
	return f != nil && f.NoOptDefVal == ""
}

// last is the app that a flag belongs to: the image before it.
func (a *appArgs) last(flag string) (*appArg, error) {
	if len(a.list) == 0 {
		return nil, errs.Newf(errs.Usage, "--%s must follow an image", flag)
	}
	return &a.list[len(a.list)-1], nil
}

// value declares a flag that belongs to the image before it.
func (a *appArgs) value(fs *pflag.FlagSet, name, typ, usage string, set func(*appArg, string) error) *pflag.Flag {
	return value(fs, name, typ, usage, func(v string) error {
		app, err := a.last(name)
		if err != nil {
			return err
		}
		return set(app, v)
	})
}

// boolean declares a flag without a value that belongs to the image before it.
func (a *appArgs) boolean(fs *pflag.FlagSet, name, usage string, set func(*appArg, bool)) {
	boolean(fs, name, usage, func(on bool) error {
		app, err := a.last(name)
		if err != nil {
			return err
		}
		set(app, on)
		return nil
	})
}

// signature declares the one flag that fetch has for each image.
func (a *appArgs) signature(fs *pflag.FlagSet) {
	a.value(fs, "signature", "FILE", "the detached signature of the ACI (default: beside the image, with .asc at its end)", func(p *appArg, v string) error {
		if p.signature != "" {
			return errs.Newf(errs.Usage, "--signature can be given once per image")
		}
		p.signature = v
		return nil
	})
}
