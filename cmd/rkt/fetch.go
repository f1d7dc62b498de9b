package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/stage0/fetch"
)

// fetchOptions are what fetch is asked for beside the images.
type fetchOptions struct {
	apps              appArgs
	flags             fetchFlags
	full, keep, quiet bool
	format            string
}

func newFetch(g *globals) *cobra.Command {
	var o fetchOptions
	cmd := &cobra.Command{
		Use:   "fetch [FLAGS] IMAGE…",
		Short: "Fetch images into the store",
		Long: `Fetches each image that the store lacks or that is another one at its source
now, verifies it and puts it into the store; prints one image ID for each. An
image is

  docker://NAME[:TAG][@DIGEST]   of a registry; a NAME without a registry's host is
                                 docker.io's, and one of a single word is
                                 docker.io/library/NAME
  NAME[:VERSION][,LABEL=VALUE]…  an ACI that is found by appc discovery
  http(s)://….aci                an ACI
  FILE, FOLDER                   an ACI, an OCI image layout (folder or tar), or
                                 what docker save writes; FILE:REFERENCE is one of
                                 several images in there
  oci:FOLDER[:REFERENCE], oci-archive:FILE[:REFERENCE],
  docker-archive:FILE[:REFERENCE]

What is verified stays if the fetch is interrupted, and the next one goes on
from there.`,
		Example: `  rkt fetch docker://registry.example.com/app:1.2
  rkt fetch --platform=linux/arm64 docker://alpine
  rkt fetch ./etcd.aci
  rkt fetch --insecure-options=image ./busybox.oci.tar`,
	}
	fs := cmd.Flags()
	fs.BoolVar(&o.full, "full", false, "print whole image IDs")
	fs.BoolVar(&o.quiet, "quiet", false, "show no progress")
	fs.StringVar(&o.format, "format", "", "json or json-pretty")
	fs.BoolVar(&o.keep, "keep-blobs", false, "keep the packed layers of an OCI image too, so that \"rkt image export\" gives the same ones byte by byte")
	o.flags.declare(fs, fetch.PullUpdate)
	o.flags.declarePlatform(fs)
	o.apps.signature(fs)
	return withApps(cmd, &o.apps, true, func(ctx context.Context) error { return runFetch(ctx, g, cmd, &o) })
}

// fetchedView is an image as fetch --format=json prints it.
type fetchedView struct {
	Reference string      `json:"reference"`
	ID        string      `json:"id"`
	Name      string      `json:"name"`
	Digest    string      `json:"digest,omitempty"` // of what the registry has under the reference
	Size      int64       `json:"size"`
	Trust     image.Trust `json:"trust"`
}

func runFetch(ctx context.Context, g *globals, cmd *cobra.Command, o *fetchOptions) error {
	if err := needRoot(); err != nil {
		return err
	}
	if err := checkFormat(o.format); err != nil {
		return err
	}
	if len(o.apps.list) == 0 {
		return errs.WithHint(errs.Newf(errs.Usage, "must provide at least one image"), "\"rkt help fetch\" shows how")
	}
	h, err := g.open()
	if err != nil {
		return err
	}
	f := g.finder(cmd, h, o.flags, g.progress(cmd, o.quiet || o.format != ""))
	defer f.close()
	f.Options.KeepBlobs = o.keep
	views := []fetchedView{}
	for _, a := range o.apps.list {
		rec, err := f.resolve(ctx, a.image, a.signature)
		if err != nil {
			return err
		}
		if o.format != "" {
			views = append(views, viewFetched(a.image, rec))
			continue
		}
		id := rec.ID
		if !o.full {
			id = id[:min(len(id), len("sha512-")+32)]
		}
		fmt.Fprintln(g.stdout, id)
	}
	if o.format == "" {
		return nil
	}
	return printJSON(g.stdout, o.format, views)
}

func viewFetched(arg string, rec image.Record) fetchedView {
	v := fetchedView{Reference: arg, ID: rec.ID, Name: image.Reference(rec.Name, rec.Labels), Size: rec.Size, Trust: rec.Trust}
	if len(rec.Sources) > 0 {
		v.Digest = rec.Sources[0].Digest
	}
	return v
}
