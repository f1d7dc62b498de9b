package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/stage0/pod"
)

type statusOptions struct {
	wait     waitFlag
	ready    waitFlag
	uuidFile string
	explain  bool
	format   string
}

// waitFlag is --wait, --wait=true, --wait=false or --wait=10s.
type waitFlag struct {
	on      bool
	timeout time.Duration // 0: for ever
}

func (w *waitFlag) String() string { return "" }
func (w *waitFlag) Type() string   { return "bool|DURATION" }

func (w *waitFlag) Set(s string) error {
	if b, err := strconv.ParseBool(s); err == nil {
		*w = waitFlag{on: b}
		return nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return errs.Newf(errs.Usage, "%q: neither true, false nor a duration such as 10s", s)
	}
	*w = waitFlag{on: true, timeout: d}
	return nil
}

func newStatus(g *globals) *cobra.Command {
	var o statusOptions
	cmd := &cobra.Command{
		Use:   "status [FLAGS] UUID",
		Short: "Show the state of a pod",
		Long: `Shows the state of a pod and how its apps ended.

With --wait it waits for the pod to end, with --wait-ready for it to be ready;
when a duration is given and is over first, the exit code is 124. A pod that
ends before it is ready is an error.

With --explain it shows who holds the pod's lock, its processes, its cgroup, the
mounts that its supervisor sees, its networks and what it refers to: all that its
state follows from, and why gc keeps it or not.`,
		RunE: func(cmd *cobra.Command, args []string) error { return runStatus(cmd.Context(), g, o, args) },
	}
	fs := cmd.Flags()
	fs.Var(&o.wait, "wait", "wait for the pod to end, or for that long")
	fs.Lookup("wait").NoOptDefVal = "true"
	fs.Var(&o.ready, "wait-ready", "wait for the pod to be ready, or for that long")
	fs.Lookup("wait-ready").NoOptDefVal = "true"
	fs.StringVar(&o.uuidFile, "uuid-file", "", "file with the pod's UUID")
	fs.BoolVar(&o.explain, "explain", false, "show what the state follows from, what the pod holds, and what gc makes of it")
	fs.StringVar(&o.format, "format", "", "json or json-pretty")
	return cmd
}

func runStatus(ctx context.Context, g *globals, o statusOptions, args []string) error {
	if err := checkFormat(o.format); err != nil {
		return err
	}
	anyone, err := g.anyone()
	if err != nil {
		return err
	}
	if anyone && o.explain {
		return g.needRoot()
	}
	if anyone {
		return g.statusForAnyone(ctx, o, args)
	}
	h, found, err := g.onePod(ctx, args, o.uuidFile)
	if err != nil {
		return err
	}
	if o.ready.on {
		err := o.ready.do(ctx, found.UUID, func(ctx context.Context) error { return h.pods.WaitReady(ctx, found.UUID) })
		if err != nil {
			return err
		}
		if found, err = h.pods.Get(found.UUID); err != nil {
			return err
		}
	}
	if o.wait.on && found.Folder != poddir.Garbage {
		if o.wait.timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = pod.For(ctx, o.wait.timeout)
			defer cancel()
		}
		over, err := h.pods.WaitOver(ctx, found.UUID)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return withCode(codeTimeout, errs.WithHint(err, "\"rkt stop %s\" ends a pod that runs", found.UUID))
		case err != nil:
			return err
		}
		found = over
	}
	if o.explain {
		return g.explain(h, found, o.format)
	}
	f, err := h.pods.Facts(found)
	if err != nil {
		return err
	}
	return g.printStatus(viewOf(f), o)
}

// do waits, no longer than was asked for.
func (w *waitFlag) do(ctx context.Context, uuid string, wait func(context.Context) error) error {
	if w.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = pod.For(ctx, w.timeout)
		defer cancel()
	}
	err := wait(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return withCode(codeTimeout, errs.WithHint(err, "\"rkt stop %s\" ends a pod that runs", uuid))
	}
	return err
}

// statusForAnyone reads the summaries only.
func (g *globals) statusForAnyone(ctx context.Context, o statusOptions, args []string) error {
	arg, err := oneArg(ctx, args, o.uuidFile)
	if err != nil {
		return err
	}
	storeID, found, err := g.findSummary(arg)
	if err != nil {
		return err
	}
	if o.ready.on {
		err := o.ready.do(ctx, found.uuid, func(ctx context.Context) error { return pod.WaitReady(ctx, storeID, found.uuid) })
		if err != nil {
			return err
		}
		if _, found, err = g.findSummary(found.uuid); err != nil {
			return err
		}
	}
	if !o.wait.on {
		return g.printStatus(found, o)
	}
	err = o.wait.do(ctx, found.uuid, func(ctx context.Context) error { return pod.WaitPublic(ctx, storeID, found.uuid) })
	if err != nil {
		return err
	}
	s, err := pod.ReadPublic(storeID, found.uuid)
	if errors.Is(err, fs.ErrNotExist) {
		return pod.Removed(found.uuid, "waited for")
	}
	if err != nil {
		return err
	}
	return g.printStatus(viewOfSummary(s), o)
}

// findSummary finds the one pod whose id begins with the argument.
func (g *globals) findSummary(arg string) (storeID string, found view, err error) {
	h, err := g.openExisting()
	if errs.Is(err, errs.NotFound) {
		return "", view{}, pod.NoMatch(arg)
	}
	if err != nil {
		return "", view{}, err
	}
	all, err := summaries(h.store.ID())
	if err != nil {
		return "", view{}, err
	}
	var matches []view
	for _, v := range all {
		if arg != "" && v.name == arg {
			return h.store.ID(), v, nil
		}
		if arg != "" && strings.HasPrefix(v.uuid, strings.ToLower(arg)) {
			matches = append(matches, v)
		}
	}
	switch len(matches) {
	case 0:
		return "", view{}, pod.NoMatch(arg)
	case 1:
		return h.store.ID(), matches[0], nil
	}
	return "", view{}, pod.Ambiguous(len(matches))
}

func (g *globals) printStatus(v view, o statusOptions) error {
	if o.format != "" {
		return printJSON(g.stdout, o.format, v.json())
	}
	return statusText(g.stdout, v)
}

// statusText prints lines of KEY=VALUE. An app without an exit code, since
// nobody saw its end, has only a reason.
func statusText(w io.Writer, v view) error {
	var b strings.Builder
	line := func(key string, val any) { fmt.Fprintf(&b, "%s=%v\n", key, val) }
	line("state", v.state)
	if v.reason != "" {
		line("reason", v.reason)
	}
	if v.name != "" {
		line("name", v.name)
	}
	if v.state == pod.Running {
		line("ready", v.ready)
	}
	if v.awaiting != "" {
		line("awaiting", plain(v.awaiting))
	}
	if !v.created.IsZero() {
		line("created", fullTime(v.created))
	}
	if !v.started.IsZero() {
		line("started", fullTime(v.started))
	}
	if n := v.networkText(); n != "" {
		line("networks", n)
	}
	if v.ids != nil {
		line("private-users", v.ids)
	}
	if v.pid != 0 {
		line("pid", v.pid)
	}
	// In the garbage the records tell whether it has run.
	line("exited", v.state.Over() && (v.state.HasRun() || v.exit != nil))
	if e := v.exit; e != nil {
		line("exit", e.Code)
		line("exit-cause", e.Cause)
		if e.App != "" {
			line("exit-app", e.App)
		}
		if e.Message != "" {
			line("exit-message", plain(strings.ReplaceAll(e.Message, "\n", " ")))
		}
	}
	isolatorLines(line, v)
	if v.state.Over() {
		appLines(line, v)
	} else {
		stateLines(line, v)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// stateLines tell where each app of a running pod stands.
func stateLines(line func(string, any), v view) {
	for _, a := range v.apps {
		if a.status == nil {
			continue
		}
		line("app-"+a.name+"-state", a.status.State)
		if a.status.Restarts > 0 {
			line("app-"+a.name+"-restarts", a.status.Restarts)
		}
		if a.status.State == poddir.Exited {
			appLines(line, view{apps: []appView{a}})
		} else {
			forgottenLine(line, a)
		}
	}
}

func appLines(line func(string, any), v view) {
	for _, a := range v.apps {
		if a.status == nil {
			continue
		}
		if a.status.ExitCode != nil {
			line("app-"+a.name, *a.status.ExitCode)
		}
		if a.status.Reason != "" {
			line("app-"+a.name+"-reason", a.status.Reason)
		}
		if a.status.Message != "" {
			line("app-"+a.name+"-message", plain(strings.ReplaceAll(a.status.Message, "\n", " ")))
		}
		memoryLines(line, a)
		if a.status.LogDropped > 0 {
			line("app-"+a.name+"-log-dropped", a.status.LogDropped)
		}
		forgottenLine(line, a)
	}
}

// forgottenLine says what is kept no longer of an app that was often restarted.
func forgottenLine(line func(string, any), a appView) {
	if f := a.status.Forgotten; f != nil {
		line("app-"+a.name+"-forgotten", fmt.Sprintf("executions before %d, with %d lines of log", f.Executions, f.LogLines))
	}
}
