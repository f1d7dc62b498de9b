package main

import (
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage0/handoff"
	"github.com/rkt-pods/rkt/stage0/pod"
)

func newEnter(g *globals) *cobra.Command {
	var app string
	cmd := &cobra.Command{
		Use:   "enter [--app=NAME] UUID [COMMAND [ARGS…]]",
		Short: "Run a program inside an app of a running pod",
		Long: `Runs a program inside a running app, with the app's own user, capabilities,
system call filter, limits and environment, and ends with its exit code.`,
		RunE: func(cmd *cobra.Command, args []string) error { return runEnter(g, cmd, app, args) },
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().StringVar(&app, "app", "", "app to enter, needed if there are several")
	return cmd
}

func runEnter(g *globals, cmd *cobra.Command, app string, args []string) error {
	if err := needRoot(); err != nil {
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
	if app, err = pickApp(f, app); err != nil {
		return err
	}
	argv := args[1:]
	if len(argv) > 0 && argv[0] == "--" {
		argv = argv[1:]
	}
	if len(argv) == 0 {
		g.note(cmd, "no command specified, assuming %q", "/bin/bash")
		argv = []string{"/bin/bash"}
	}
	r, err := handoff.Open(h.pods, f, g.debug)
	if err != nil {
		return err
	}
	tty := term.IsTerminal(int(g.stdin.Fd())) && term.IsTerminal(int(g.stdout.Fd()))
	return closeWith(r, r.Enter(app, tty, argv))
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
