package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage0/gc"
	"github.com/rkt-pods/rkt/stage0/store"
)

type imageGCOptions struct {
	store.Retention
	dryRun bool
	format string
}

func newImageGC(g *globals) *cobra.Command {
	var o imageGCOptions
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove images that were not used for long",
		Long: `Removes images that no pod holds, that are not pinned and that were not used within
the grace period, then the layers that nothing else needs, and says of each image
what becomes of it and why.

--max-size also takes younger ones, those used longest ago first, until the layers of
the rest are no larger. --keep is stronger than both.

The exit code is 10 if something that was due could not be removed.`,
		Example: `  rkt image gc --grace-period=72h
  rkt image gc --keep=3 --max-size=20Gi --dry-run`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runImageGC(cmd.Context(), g, o) },
	}
	fs := cmd.Flags()
	duration(fs, &o.Grace, "grace-period", imageGrace, "how long an image stays after its last use")
	fs.IntVar(&o.Keep, "keep", 0, "`N` images used last stay in any case")
	value(fs, "max-size", "SIZE", "how large all images may be together, as 500Mi or 20Gi", func(v string) error {
		return positiveQuantity(v, &o.MaxSize)
	})
	fs.BoolVar(&o.dryRun, "dry-run", false, "show what would be done and do nothing")
	fs.StringVar(&o.format, "format", "", "json or json-pretty")
	return cmd
}

// collectedImages is what image gc --format=json prints.
type collectedImages struct {
	Images  []store.Decision `json:"images"`
	Garbage store.Garbage    `json:"garbage"` // empty in a dry run
	DryRun  bool             `json:"dryRun"`
}

// listed has lists also where there is nothing.
func (c collectedImages) listed() collectedImages {
	for _, l := range []*[]string{&c.Garbage.Layers, &c.Garbage.Blobs, &c.Garbage.Staging} {
		*l = append([]string{}, *l...)
	}
	return c
}

func runImageGC(ctx context.Context, g *globals, o imageGCOptions) error {
	if err := g.needRoot(); err != nil {
		return err
	}
	if err := checkFormat(o.format); err != nil {
		return err
	}
	if o.Grace < 0 || o.Keep < 0 {
		return errs.Newf(errs.Usage, "--grace-period and --keep are not negative")
	}
	h, err := g.openExisting()
	if errs.Is(err, errs.NotFound) {
		return g.collectedImages(collectedImages{Images: []store.Decision{}, DryRun: o.dryRun}, o)
	}
	if err != nil {
		return err
	}
	out, err := collectImages(ctx, h, o)
	return errors.Join(g.collectedImages(out, o), err)
}

// imageGrace is how long an image stays after its last use where nobody says
// otherwise.
const imageGrace = 24 * time.Hour

// collectImages plans, and unless it is a dry run carries it out.
func collectImages(ctx context.Context, h host, o imageGCOptions) (collectedImages, error) {
	out := collectedImages{Images: []store.Decision{}, DryRun: o.dryRun}
	held := gc.Held(h.pods)
	plan, err := h.store.PlanImages(time.Now(), o.Retention, held)
	if err == nil {
		out.Images = append(out.Images, plan...)
		if !o.dryRun {
			out.Garbage, err = h.store.Retain(ctx, out.Images, held, o.Grace)
		}
	}
	if err != nil {
		return out, withCode(codeIncomplete, err)
	}
	return out, nil
}

func (g *globals) collectedImages(out collectedImages, o imageGCOptions) error {
	if o.format != "" {
		return printJSON(g.stdout, o.format, out.listed())
	}
	removed, freed := 0, int64(0)
	for _, d := range out.Images {
		verb := "kept"
		switch {
		case d.Remove && o.dryRun:
			verb = "would remove"
		case d.Remove:
			verb = "removed"
		}
		if d.Remove {
			removed++
			freed += d.Freed
		}
		fmt.Fprintf(g.stdout, "%s image %q (%s): %s\n", verb, shortID(d.ID), plain(d.Name), d.Reason)
	}
	what := "successfully removed"
	if o.dryRun {
		what = "would be removed"
	}
	fmt.Fprintf(g.stdout, "%d image(s) %s, %s\n", removed, what, humanSize(freed))
	return nil
}

func newImagePin(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "pin IMAGE…",
		Short: "Keep images until they are unpinned",
		Long:  `Neither "rkt image gc" nor "rkt image rm" removes a pinned image.`,
		RunE:  func(cmd *cobra.Command, args []string) error { return runImagePin(cmd.Context(), g, args, true) },
	}
}

func newImageUnpin(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "unpin IMAGE…",
		Short: "Let pinned images go",
		Long:  `Undoes "rkt image pin". An image that is not pinned is no error.`,
		RunE:  func(cmd *cobra.Command, args []string) error { return runImagePin(cmd.Context(), g, args, false) },
	}
}

func runImagePin(ctx context.Context, g *globals, args []string, pin bool) error {
	if err := g.needRoot(); err != nil {
		return err
	}
	if len(args) == 0 {
		return errs.Newf(errs.Usage, "must provide at least one image ID")
	}
	h, err := g.openExisting()
	if err != nil {
		return err
	}
	var all []error
	for _, arg := range args {
		id, err := h.idOf(arg)
		what := "pinned"
		switch {
		case err != nil:
		case pin:
			err = h.store.PinImage(ctx, id)
		default:
			what = "unpinned"
			err = h.store.UnpinImage(id)
		}
		if err != nil {
			all = append(all, err)
			continue
		}
		fmt.Fprintf(g.stdout, "%s image: %q\n", what, id)
	}
	if len(all) > 0 {
		return joined(all)
	}
	return nil
}

// idOf finds an image whose record may be damaged, if it is named by its id.
func (h host) idOf(arg string) (string, error) {
	rec, err := h.store.Lookup(arg)
	if !errs.Is(err, errs.Corrupt) {
		return rec.ID, err
	}
	if id, ierr := h.store.ExpandID(arg); ierr == nil {
		return id, nil
	}
	return "", err
}
