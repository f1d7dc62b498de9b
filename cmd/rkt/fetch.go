package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage0/fetch"
)

func newFetch(g *globals) *cobra.Command {
	var apps appArgs
	var full, keep bool
	cmd := &cobra.Command{
		Use:   "fetch [FLAGS] IMAGE…",
		Short: "Import images into the store",
		Long: `Verifies each image and puts it into the store; prints one image ID for each.
An image is an ACI, an OCI image layout (folder or tar) or an archive made by
docker save. Images from the network are not supported yet.`,
		Example: `  rkt fetch ./etcd.aci
  rkt fetch --insecure-options=image ./busybox.oci.tar`,
	}
	fs := cmd.Flags()
	fs.BoolVar(&full, "full", false, "print whole image IDs")
	fs.BoolVar(&keep, "keep-blobs", false, "keep the packed layers of an OCI layout too, so that \"rkt image export\" gives the same layout byte by byte")
	value(fs, "pull-policy", "POLICY", "new, never or update: when images are fetched", checkPullPolicy)
	for _, name := range []string{"store-only", "no-store"} {
		boolean(fs, name, "as --pull-policy", func(bool) error { return nil })
		fs.Lookup(name).Hidden = true
	}
	apps.value(fs, "signature", "FILE", "the image's signature (not supported yet)", func(_ *appArg, v string) error {
		g.refused.add("--signature=" + v)
		return nil
	})
	return withApps(cmd, &apps, true, func(ctx context.Context) error { return runFetch(ctx, g, cmd, &apps, full, keep) })
}

func runFetch(ctx context.Context, g *globals, cmd *cobra.Command, apps *appArgs, full, keep bool) error {
	if err := needRoot(); err != nil {
		return err
	}
	if len(apps.list) == 0 {
		return errs.WithHint(errs.Newf(errs.Usage, "must provide at least one image"), "\"rkt help fetch\" shows how")
	}
	h, err := g.open()
	if err != nil {
		return err
	}
	for _, a := range apps.list {
		rec, err := g.resolve(ctx, h, a.image, fetch.Options{Progress: g.progress(cmd, false), KeepBlobs: keep})
		if err != nil {
			return err
		}
		id := rec.ID
		if !full {
			id = id[:min(len(id), len("sha512-")+32)]
		}
		fmt.Fprintln(g.stdout, id)
	}
	return nil
}
