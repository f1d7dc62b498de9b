package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/stage0/verify"
)

type imageVerifyOptions struct {
	all    bool
	trust  bool
	format string
}

func newImageVerify(g *globals) *cobra.Command {
	var o imageVerifyOptions
	cmd := &cobra.Command{
		Use:   "verify [FLAGS] IMAGE…",
		Short: "Compare stored images with what was imported",
		Long: `Checks each image's record, blobs, names and layers. Of a layer the digest of the
tar that is rebuilt from it is compared, and type, owner, mode, time, attributes,
link and name of each entry.

With --trust it is also checked who made the image: by the signatures that were kept,
the keys and the rules of today. An image that would not be let in any more counts as
damaged.

Each damage is one line on stdout; the exit code is 12 if there is any.`,
		Example: `  rkt image verify example.com/etcd:3.5
  rkt image verify --all --trust --format=json`,
		RunE: func(cmd *cobra.Command, args []string) error { return runImageVerify(cmd.Context(), g, args, o) },
	}
	fs := cmd.Flags()
	fs.BoolVar(&o.all, "all", false, "check all images of the store")
	fs.BoolVar(&o.trust, "trust", false, "check the kept signatures too, by the keys and rules of today")
	fs.StringVar(&o.format, "format", "", "json or json-pretty")
	return cmd
}

// verifiedImage is one image as image verify --format=json prints it.
type verifiedImage struct {
	ID       string           `json:"id"`
	OK       bool             `json:"ok"`
	Findings []verify.Finding `json:"findings"`
}

func runImageVerify(ctx context.Context, g *globals, args []string, o imageVerifyOptions) error {
	if err := g.needRoot(); err != nil {
		return err
	}
	if err := checkFormat(o.format); err != nil {
		return err
	}
	if (len(args) == 0) != o.all {
		return errs.Newf(errs.Usage, "must provide at least one image, or --all and none")
	}
	h, err := g.openExisting()
	if o.all && errs.Is(err, errs.NotFound) {
		return g.verified([]verifiedImage{}, o.format)
	}
	if err != nil {
		return err
	}
	records, bad, err := h.toVerify(args)
	if err != nil {
		return err
	}
	look, err := g.verifier(h, o)
	if err != nil {
		return err
	}
	results := []verifiedImage{}
	for _, rec := range records {
		found, err := look(ctx, rec.ID)
		if o.all && errs.Is(err, errs.NotFound) {
			continue // removed meanwhile
		}
		if err != nil {
			return err
		}
		results = append(results, verifiedImage{ID: rec.ID, OK: len(found) == 0, Findings: append([]verify.Finding{}, found...)})
	}
	err = g.verified(results, o.format)
	if len(bad) > 0 {
		return withCode(codeDamage, joined(append(bad, flat(err)...)))
	}
	return err
}

// verifier returns what looks at one image after the other.
func (g *globals) verifier(h host, o imageVerifyOptions) (func(ctx context.Context, id string) ([]verify.Finding, error), error) {
	v := verify.New(h.store)
	if !o.trust {
		return v.Image, nil
	}
	p, err := g.policy()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, id string) ([]verify.Finding, error) {
		found, err := v.Image(ctx, id)
		if err != nil {
			return nil, err
		}
		more, err := v.Trust(ctx, id, p)
		return append(found, more...), err
	}, nil
}

func flat(err error) []error {
	if err == nil {
		return nil
	}
	return []error{err}
}

// toVerify finds the images to check; bad are those whose records are damaged.
func (h host) toVerify(args []string) (records []image.Record, bad []error, err error) {
	if len(args) == 0 {
		records, err := h.store.Images()
		if errs.Is(err, errs.Denied) {
			return nil, nil, err
		}
		return records, flat(err), nil
	}
	for _, arg := range args {
		rec, err := h.store.Lookup(arg)
		switch {
		case errs.Is(err, errs.Corrupt):
			bad = append(bad, err)
		case err != nil:
			return nil, nil, err
		default:
			records = append(records, rec)
		}
	}
	return records, bad, nil
}

// verified prints what was found.
func (g *globals) verified(results []verifiedImage, format string) error {
	if format != "" {
		if err := printJSON(g.stdout, format, results); err != nil {
			return err
		}
	}
	var all []error
	for _, r := range results {
		if format == "" && r.OK {
			fmt.Fprintf(g.stdout, "successfully verified checksum for image: %q\n", r.ID)
		}
		for _, f := range r.Findings {
			if format == "" {
				fmt.Fprintf(g.stdout, "damage in image %q: %s\n", shortID(r.ID), f)
			}
		}
		if !r.OK {
			all = append(all, errs.Newf(errs.Corrupt, "image %s: damaged in %d places", shortID(r.ID), len(r.Findings)))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return withCode(codeDamage, errs.WithHint(joined(all), "\"rkt image rm\" and \"rkt fetch\" bring it in anew, once no pod uses it"))
}
