package main

import (
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/rkt-pods/rkt/pkg/abi"
	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage0/handoff"
	"github.com/rkt-pods/rkt/stage0/pod"
)

func newEnter(g *globals) *cobra.Command {
	var e abi.Enter
	cmd := &cobra.Command{
		Use:   "enter [FLAGS] UUID [COMMAND [ARGS…]]",
		Short: "Run a program inside an app of a running pod",
		Long: `Runs a program inside a running app, with the app's own user, capabilities,
system call filter, limits and environment, and ends with its exit code.

Another user has what the app's root has, not more; an app with no-new-privileges
that isn't root's can be entered as its own user only.`,
		RunE: func(cmd *cobra.Command, args []string) error { return runEnter(g, cmd, e, args) },
	}
	cmd.Flags().SetInterspersed(false)
	fs := cmd.Flags()
	fs.StringVar(&e.App, "app", "", "app to enter, needed if there are several")
	value(fs, "user", "USER[:GROUP]", "user, by name or number of the image's, with its groups or the one given (default: the app's)", func(v string) error {
		e.User = v
		if user, group, has := strings.Cut(v, ":"); user == "" || has && group == "" {
			return errs.Newf(errs.Usage, "%q: not USER[:GROUP]", v)
		}
		return nil
	})
	value(fs, "cwd", "PATH", "folder of the app to start in (default: the app's)", func(v string) error {
		e.Cwd = v
		return appc.CheckAbs(v)
	})
	var env []appc.EnvVar
	value(fs, "env", "NAME=VALUE", "environment variable beside the app's", func(v string) error {
		e.Env = append(e.Env, v)
		return addEnv(&env, v)
	})
	return cmd
}

func runEnter(g *globals, cmd *cobra.Command, e abi.Enter, args []string) error {
	if err := g.needRoot(); err != nil {
		return err
	}
	if len(args) == 0 {
		_, err := oneArg(cmd.Context(), args, "")
		return err
	}
	h, found, err := g.onePod(cmd.Context(), args[:1], "")
	if err != nil {
		return err
	}
	f, err := h.pods.Facts(found)
	if err != nil {
		return err
	}
	if f.State != pod.Running {
		return errs.Newf(errs.Usage, "pod %s: is %s, not running", f.UUID, f.State)
	}
	if e.App, err = pickApp(f, e.App); err != nil {
		return err
	}
	e.Exec = args[1:]
	if len(e.Exec) > 0 && e.Exec[0] == "--" {
		e.Exec = e.Exec[1:]
	}
	if len(e.Exec) == 0 {
		g.note(cmd, "no command specified, assuming %q", "/bin/bash")
		e.Exec = []string{"/bin/bash"}
	}
	r, err := handoff.Open(h.pods, f, g.debug)
	if err != nil {
		return err
	}
	e.TTY = term.IsTerminal(int(g.stdin.Fd())) && term.IsTerminal(int(g.stdout.Fd()))
	return closeWith(r, r.Enter(e))
}

// pickApp returns the app of the name or, without a name, the only one.
func pickApp(f pod.Facts, name string) (string, error) {
	var names []string
	for _, a := range f.Apps {
		if a.Name == name {
			return name, nil
		}
		names = append(names, a.Name)
	}
	switch {
	case name != "":
		return "", errs.WithHint(errs.Newf(errs.NotFound, "pod %s: no app %q", f.UUID, name), "its apps are %s", strings.Join(names, ", "))
	case len(names) == 1:
		return names[0], nil
	case len(names) == 0:
		return "", errs.Newf(errs.NotFound, "pod %s: has no apps", f.UUID)
	}
	return "", errs.WithHint(errs.Newf(errs.Usage, "pod %s: has several apps", f.UUID), "choose one with --app=NAME: %s", strings.Join(names, ", "))
}
