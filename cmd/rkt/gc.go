package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage0/gc"
)

type gcOptions struct {
	gc.Options
	dryRun bool
	format string
}

func newGC(g *globals) *cobra.Command {
	var o gcOptions
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Collect what nobody needs any more",
		Long: `Removes pods that ended long enough ago, prepared pods that nobody ran, what
killed commands left behind, and layers that no image and no pod names.

The exit code is 10 if something that was due could not be collected, and 11 if
another gc is at work.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runGC(cmd.Context(), g, cmd, o) },
	}
	fs := cmd.Flags()
	duration(fs, &o.GracePeriod, "grace-period", 30*time.Minute, "how long a pod stays after it has ended")
	duration(fs, &o.ExpirePrepared, "expire-prepared", 24*time.Hour, "how long a prepared pod stays when nobody runs it")
	fs.BoolVar(&o.MarkOnly, "mark-only", false, "only note which pods have ended, and when")
	fs.BoolVar(&o.Volumes, "volumes", false, "also named volumes that no pod holds, by the grace period after their last use")
	fs.BoolVar(&o.dryRun, "dry-run", false, "show what would be done and do nothing")
	fs.StringVar(&o.format, "format", "", "json or json-pretty")
	return cmd
}

func runGC(ctx context.Context, g *globals, cmd *cobra.Command, o gcOptions) error {
	if err := needRoot(); err != nil {
		return err
	}
	if err := checkFormat(o.format); err != nil {
		return err
	}
	h, err := g.openExisting()
	if errs.Is(err, errs.NotFound) {
		return g.gcNothing(o) // a data folder that was never made is clean
	}
	if err != nil {
		return err
	}
	if !o.dryRun {
		l, err := gc.Lock(h.store)
		if errs.Is(err, errs.Busy) {
			return withCode(codeOtherGC, err)
		}
		if err != nil {
			return err
		}
		defer l.Close()
	}
	o.Now = time.Now()
	plan, err := gc.Make(h.store, h.pods, o.Options)
	if err != nil {
		return err
	}
	if o.dryRun {
		return g.gcDryRun(plan, o)
	}
	report := plan.Execute(ctx, func(s gc.Step) {
		if o.format == "" {
			g.gcStep(cmd, s)
		}
	})
	if o.format != "" {
		if err := printJSON(g.stdout, o.format, report); err != nil {
			return err
		}
		return incomplete(report.Failures)
	}
	for _, name := range report.Volumes {
		fmt.Fprintf(g.stdout, "Garbage collecting volume %q\n", name)
	}
	return incomplete(report.Failures)
}

func (g *globals) gcNothing(o gcOptions) error {
	if o.format == "" {
		return nil
	}
	if o.dryRun {
		return printJSON(g.stdout, o.format, gc.NothingPlanned)
	}
	return printJSON(g.stdout, o.format, gc.NothingDone)
}

func (g *globals) gcDryRun(plan *gc.Plan, o gcOptions) error {
	plan.Forecast()
	if o.format != "" {
		if err := printJSON(g.stdout, o.format, plan); err != nil {
			return err
		}
		return incomplete(plan.Failures)
	}
	for _, s := range plan.Steps {
		fmt.Fprintf(g.stdout, "%s %s (%s)\n", s.Action, s.UUID, s.State)
	}
	for what, names := range map[string][]string{"layer": plan.Store.Layers, "blob": plan.Store.Blobs, "staging entry": plan.Store.Staging} {
		for _, n := range names {
			fmt.Fprintf(g.stdout, "collect %s %s\n", what, n)
		}
	}
	for _, n := range plan.Volumes {
		fmt.Fprintf(g.stdout, "collect volume %s\n", n)
	}
	return incomplete(plan.Failures)
}

// gcStep prints upstream's lines for a step.
func (g *globals) gcStep(cmd *cobra.Command, s gc.Step) {
	switch s.Action {
	case gc.Mark:
		g.note(cmd, "moving pod %q to garbage", s.UUID)
	case gc.CollectFailed:
		g.note(cmd, "moving failed prepare %q to garbage", s.UUID)
		fmt.Fprintf(g.stdout, "Garbage collecting pod %q\n", s.UUID)
	case gc.CollectExpired:
		g.note(cmd, "moving expired prepared pod %q to garbage", s.UUID)
		fmt.Fprintf(g.stdout, "Garbage collecting pod %q\n", s.UUID)
	case gc.Collect, gc.CollectGarbage:
		fmt.Fprintf(g.stdout, "Garbage collecting pod %q\n", s.UUID)
	}
}

// incomplete names what was due and stays.
func incomplete(failures []gc.Failure) error {
	if len(failures) == 0 {
		return nil
	}
	var all []error
	for _, f := range failures {
		all = append(all, fmt.Errorf("could not collect %s: %w", f.What, f.Err))
	}
	return withCode(codeIncomplete, errs.WithClass(errs.ClassOf(failures[0].Err), errors.Join(all...)))
}
