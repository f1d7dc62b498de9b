package main

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/stage0/export"
)

type imageExportOptions struct {
	overwrite bool
	format    string
}

func newImageExport(g *globals) *cobra.Command {
	var o imageExportOptions
	cmd := &cobra.Command{
		Use:   "export [FLAGS] IMAGE… OUTPUT",
		Short: "Write images of the store to a file",
		Long: `Writes an image to a file that can be imported again, under the same image ID; "-"
is stdout. Nothing is fetched.

The format is the image's own unless --format says otherwise. aci is the uncompressed
tar that the ID is the digest of. oci is a tar of an OCI image layout, with the
layers uncompressed under a new manifest and the original one carried along, or
byte by byte as it came if it was fetched with --keep-blobs. oci-dir is the same as
a folder. docker is what docker save writes; OCI images can be had in it too.

Several OCI images make one layout, for a host that "rkt image import" fills without
a network: each layer is in there once, each image under all its names, with its
signatures. ACIs are files of their own.`,
		Example: `  rkt image export example.com/etcd:3.5 etcd.aci
  rkt image export --format=docker example.com/busybox:1.36 - | docker load
  rkt image export example.com/app:1.2 example.com/db:7 images.tar`,
		RunE: func(cmd *cobra.Command, args []string) error { return runImageExport(cmd.Context(), g, args, o) },
	}
	fs := cmd.Flags()
	fs.BoolVar(&o.overwrite, "overwrite", false, "replace the file or folder if it is there")
	fs.StringVar(&o.format, "format", "", "aci, oci, oci-dir or docker (default the image's own)")
	return cmd
}

// formatFolder is the format of a layout that is no tar.
const formatFolder = "oci-dir"

func runImageExport(ctx context.Context, g *globals, args []string, o imageExportOptions) error {
	if err := g.needRoot(); err != nil {
		return err
	}
	if len(args) < 2 {
		return errs.Newf(errs.Usage, "at least one image and one output file are needed")
	}
	args, output := args[:len(args)-1], args[len(args)-1]
	if output == "-" && o.format == formatFolder {
		return errs.Newf(errs.Usage, "output file -: a folder can't be written to stdout")
	}
	if output == "-" && term.IsTerminal(int(g.stdout.Fd())) {
		return errs.WithHint(errs.Newf(errs.Usage, "output file -: is a terminal"), "name a file, or pipe it into a program")
	}
	h, err := g.openExisting()
	if err != nil {
		return err
	}
	var records []image.Record
	for _, arg := range args {
		rec, err := h.store.Lookup(arg)
		if err != nil {
			return err
		}
		records = append(records, rec)
	}
	switch {
	case o.format == formatFolder:
		return export.Layout(ctx, h.store, records, output, o.overwrite)
	case output == "-":
		return export.Write(ctx, h.store, records, export.Format(o.format), g.stdout)
	}
	return export.File(ctx, h.store, records, export.Format(o.format), output, o.overwrite)
}

type imageFolderOptions struct {
	overwrite, rootfsOnly bool
}

func newImageExtract(g *globals) *cobra.Command {
	var o imageFolderOptions
	cmd := &cobra.Command{
		Use:   "extract [FLAGS] IMAGE FOLDER",
		Short: "Write an image's manifest and files to a folder, without its dependencies",
		Long: `Writes the manifest and the root file system of an image to a new folder. Those of
the images that an ACI depends on are left out; "rkt image render" has them.`,
		Example: `  rkt image extract example.com/etcd:3.5 ./etcd
  rkt image extract --rootfs-only --overwrite example.com/etcd:3.5 ./rootfs`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runImageFolder(cmd.Context(), g, args, o, false)
		},
	}
	o.flags(cmd)
	return cmd
}

func newImageRender(g *globals) *cobra.Command {
	var o imageFolderOptions
	cmd := &cobra.Command{
		Use:   "render [FLAGS] IMAGE FOLDER",
		Short: "Write an image to a folder as a pod would see it",
		Long: `Writes the manifest and the root file system of an image to a new folder, with the
images that it depends on: all layers merged, what they remove removed.`,
		Example: `  rkt image render --rootfs-only example.com/busybox:1.36 ./rootfs`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runImageFolder(cmd.Context(), g, args, o, true)
		},
	}
	o.flags(cmd)
	return cmd
}

func (o *imageFolderOptions) flags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.BoolVar(&o.overwrite, "overwrite", false, "replace the folder, with all that is in it")
	fs.BoolVar(&o.rootfsOnly, "rootfs-only", false, "write the root file system only, right into the folder")
}

func runImageFolder(ctx context.Context, g *globals, args []string, o imageFolderOptions, dependents bool) error {
	if err := g.needRoot(); err != nil {
		return err
	}
	if len(args) != 2 || strings.TrimSpace(args[1]) == "" {
		return errs.Newf(errs.Usage, "one image and one output folder are needed")
	}
	h, err := g.openExisting()
	if err != nil {
		return err
	}
	rec, err := h.store.Lookup(args[0])
	if err != nil {
		return err
	}
	opt := export.FolderOptions{Overwrite: o.overwrite, Dependents: dependents}
	if !o.rootfsOnly {
		if opt.Manifest, err = h.manifest(rec); err != nil {
			return err
		}
	}
	return export.Folder(ctx, h.store, rec, args[1], opt)
}

// manifest is the image's manifest in appc's terms, an ACI's as it came.
func (h host) manifest(rec image.Record) ([]byte, error) {
	if rec.Kind == image.ACI {
		return h.store.RawManifest(rec)
	}
	m, err := h.store.Manifest(rec)
	if err != nil {
		return nil, err
	}
	return json.Marshal(m)
}
