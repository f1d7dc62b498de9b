package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/stage0/fetch"
)

// fetchOptions are what fetch is asked for beside the images.
type fetchOptions struct {
	apps  appArgs
	flags fetchFlags
	told  fetchedList
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
	o.told.declare(fs)
	o.flags.declare(fs, fetch.PullUpdate)
	o.flags.declarePlatform(fs)
	o.apps.signature(fs)
	return withApps(cmd, &o.apps, true, func(ctx context.Context) error { return runFetch(ctx, g, cmd, &o) })
}

// fetchedList is what fetch and import tell of the images that are in the store.
type fetchedList struct {
	full, keep, quiet bool
	format            string
	views             []fetchedView
}

func (l *fetchedList) declare(fs *pflag.FlagSet) {
	fs.BoolVar(&l.full, "full", false, "print whole image IDs")
	fs.BoolVar(&l.quiet, "quiet", false, "show no progress")
	fs.StringVar(&l.format, "format", "", "json or json-pretty")
	fs.BoolVar(&l.keep, "keep-blobs", false, "keep the packed layers of an OCI image too, so that \"rkt image export\" gives the same ones byte by byte")
}

// begin checks what was asked for and opens the store; the caller closes the
// finder.
func (l *fetchedList) begin(g *globals, cmd *cobra.Command, flags fetchFlags) (*finder, error) {
	if err := checkFormat(l.format); err != nil {
		return nil, err
	}
	h, err := g.open()
	if err != nil {
		return nil, err
	}
	f := g.finder(cmd, h, flags, g.progress(cmd, l.quiet || l.format != ""))
	f.Options.KeepBlobs = l.keep
	l.views = []fetchedView{}
	return f, nil
}

// add tells of an image that arg stood for.
func (l *fetchedList) add(g *globals, arg string, rec image.Record) {
	if l.format != "" {
		l.views = append(l.views, viewFetched(arg, rec))
		return
	}
	id := rec.ID
	if !l.full {
		id = id[:min(len(id), len("sha512-")+32)]
	}
	fmt.Fprintln(g.stdout, id)
}

// end prints what is told of all at once.
func (l *fetchedList) end(g *globals) error {
	if l.format == "" {
		return nil
	}
	return printJSON(g.stdout, l.format, l.views)
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
	if err := g.needRoot(); err != nil {
		return err
	}
	if len(o.apps.list) == 0 {
		return errs.WithHint(errs.Newf(errs.Usage, "must provide at least one image"), "\"rkt help fetch\" shows how")
	}
	f, err := o.told.begin(g, cmd, o.flags)
	if err != nil {
		return err
	}
	defer f.close()
	for _, a := range o.apps.list {
		rec, err := f.resolve(ctx, a.image, a.signature)
		if err != nil {
			return err
		}
		o.told.add(g, a.image, rec)
	}
	return o.told.end(g)
}

func viewFetched(arg string, rec image.Record) fetchedView {
	v := fetchedView{Reference: arg, ID: rec.ID, Name: image.Reference(rec.Name, rec.Labels), Size: rec.Size, Trust: rec.Trust}
	if len(rec.Sources) > 0 {
		v.Digest = rec.Sources[0].Digest
	}
	return v
}
