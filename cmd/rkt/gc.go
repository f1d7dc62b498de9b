package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/lock"
	"github.com/rkt-pods/rkt/stage0/config"
	"github.com/rkt-pods/rkt/stage0/gc"
	"github.com/rkt-pods/rkt/stage0/orphan"
	"github.com/rkt-pods/rkt/stage0/store"
)

type gcOptions struct {
	gc.Options
	timeout, lockTimeout time.Duration
	images               bool
	maxDisk              int64
	check, dryRun        bool
	format               string
}

// How long pods stay where nobody says otherwise.
const (
	defaultGrace  = 30 * time.Minute
	defaultExpire = 24 * time.Hour
)

func newGC(g *globals) *cobra.Command {
	var o gcOptions
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Collect what nobody needs any more",
		Long: `Removes pods that ended long enough ago, prepared pods that nobody ran, what
killed commands left behind, and layers that no image and no pod names. A pod
that can't be collected is named with the reason, and tried again next time.

With --check it changes nothing and lists what belongs to nobody: mounts, network
namespaces and links, rules, leases, cgroups, processes, folders below /run, and
what is in the store without being used or is used without being there; with each
the pod that it belonged to, if that is known, and the command that removes it.

The exit code is 10 if something that was due could not be collected, 11 if
another gc is at work, and 12 if --check found anything.`,
		Example: `  rkt gc --grace-period=12h --keep-last=10
  rkt gc --images --max-disk=20Gi --timeout=10m
  rkt gc --check --format=json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runGC(cmd.Context(), g, cmd, o) },
	}
	fs := cmd.Flags()
	duration(fs, &o.GracePeriod, "grace-period", defaultGrace, "how long a pod stays after it has ended")
	duration(fs, &o.ExpirePrepared, "expire-prepared", defaultExpire, "how long a prepared pod stays when nobody runs it")
	fs.BoolVar(&o.MarkOnly, "mark-only", false, "only note which pods have ended, and when")
	fs.BoolVar(&o.Volumes, "volumes", false, "also named volumes that no pod holds, by the grace period after their last use")
	fs.IntVar(&o.KeepLast, "keep-last", 0, "the `N` pods that ended last stay in any case")
	fs.BoolVar(&o.images, "images", false, "also images, as \"rkt image gc\" does")
	value(fs, "max-disk", "SIZE", "with images, and how large all of them may be together, as 500Mi or 20Gi", func(v string) error {
		o.images = true
		return positiveQuantity(v, &o.maxDisk)
	})
	duration(fs, &o.timeout, "timeout", 0, "begin nothing more after that time (default no limit)")
	duration(fs, &o.lockTimeout, "lock-timeout", 0, "how long to wait for another gc to end")
	fs.BoolVar(&o.check, "check", false, "list what belongs to nobody, and change nothing")
	fs.BoolVar(&o.dryRun, "dry-run", false, "show what would be done and do nothing")
	fs.StringVar(&o.format, "format", "", "json or json-pretty")
	return cmd
}

func runGC(ctx context.Context, g *globals, cmd *cobra.Command, o gcOptions) error {
	if err := g.needRoot(); err != nil {
		return err
	}
	if err := o.sound(); err != nil {
		return err
	}
	h, err := g.openExisting()
	if errs.Is(err, errs.NotFound) {
		return g.gcNothing(o) // a data folder that was never made is clean
	}
	if err != nil {
		return err
	}
	o.Now, o.Measure = time.Now(), o.format != ""
	switch {
	case o.check:
		return g.gcCheck(ctx, cmd, h, o)
	case o.dryRun:
		plan, err := gc.Make(h.store, h.pods, o.Options)
		if err != nil {
			return err
		}
		return g.gcDryRun(plan, o)
	}
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("%s are over", o.timeout))
		defer cancel()
	}
	l, err := o.lock(ctx, h)
	if err != nil {
		return err
	}
	defer l.Close()
	return g.collect(ctx, cmd, h, o)
}

func (o gcOptions) sound() error {
	switch {
	case o.KeepLast < 0:
		return errs.Newf(errs.Usage, "--keep-last: %d: not negative", o.KeepLast)
	case o.check && (o.dryRun || o.MarkOnly):
		return errs.Newf(errs.Usage, "--check stands alone: it collects nothing")
	case o.MarkOnly && o.images:
		return errs.Newf(errs.Usage, "--mark-only removes no images")
	}
	return checkFormat(o.format)
}

// lock keeps a second gc out, and waits for one as long as was asked for.
func (o gcOptions) lock(ctx context.Context, h host) (*lock.Lock, error) {
	l, err := gc.Lock(ctx, h.store, o.lockTimeout)
	if errs.Is(err, errs.Busy) {
		return nil, withCode(codeOtherGC, err)
	}
	return l, err
}

// collected is what gc --format=json prints.
type collected struct {
	gc.Report
	Images *collectedImages `json:"images,omitempty"`
}

func (g *globals) collect(ctx context.Context, cmd *cobra.Command, h host, o gcOptions) error {
	plan, err := gc.Make(h.store, h.pods, o.Options)
	if err != nil {
		return err
	}
	out := collected{Report: plan.Execute(ctx, func(s gc.Step) {
		if o.format == "" {
			g.gcStep(cmd, s)
		}
	})}
	var imagesErr error
	if o.images {
		images := imageGCOptions{Retention: store.Retention{Grace: imageGrace, MaxSize: o.maxDisk}}
		var done collectedImages
		done, imagesErr = collectImages(ctx, h, images)
		done = done.listed()
		out.Images = &done
	}
	if o.format != "" {
		err = printJSON(g.stdout, o.format, out)
	} else {
		for _, name := range out.Volumes {
			fmt.Fprintf(g.stdout, "Garbage collecting volume %q\n", name)
		}
		if out.Images != nil {
			err = g.collectedImages(*out.Images, imageGCOptions{})
		}
	}
	return errors.Join(err, imagesErr, incomplete(out.Failures))
}

// gcCheck is gc --check.
func (g *globals) gcCheck(ctx context.Context, cmd *cobra.Command, h host, o gcOptions) error {
	networks, err := config.LoadNetworks(g.dirs)
	if err != nil {
		return err
	}
	for _, w := range networks.Warnings {
		g.warn(cmd, "%s", w)
	}
	f := orphan.Finder{Store: h.store, Pods: h.pods, Networks: networks.List, Grace: o.GracePeriod}
	list, findErr := f.Find(ctx)
	if o.format != "" {
		err = printJSON(g.stdout, o.format, struct {
			Orphans []orphan.Orphan `json:"orphans"`
		}{list})
	} else {
		err = printOrphans(g.stdout, list)
	}
	if err = errors.Join(err, findErr); err == nil && len(list) > 0 {
		return withCode(codeDamage, errs.Newf(errs.Corrupt, "%d found that belong to nobody", len(list)))
	}
	return err
}

func printOrphans(w io.Writer, list []orphan.Orphan) error {
	if len(list) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 8, 1, '\t', 0)
	fmt.Fprintln(t, "KIND\tNAME\tPOD\tREMOVED BY")
	for _, o := range list {
		uuid := o.Pod
		if uuid == "" {
			uuid = "-"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", o.Kind, plain(o.Name), uuid, plain(o.Remedy))
	}
	return t.Flush()
}

func (g *globals) gcNothing(o gcOptions) error {
	switch {
	case o.format == "":
		return nil
	case o.check:
		return printJSON(g.stdout, o.format, map[string][]orphan.Orphan{"orphans": {}})
	case o.dryRun:
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
