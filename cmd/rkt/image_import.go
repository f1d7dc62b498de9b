package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/ref"
)

type imageImportOptions struct {
	flags fetchFlags
	told  fetchedList
}

func newImageImport(g *globals) *cobra.Command {
	var o imageImportOptions
	cmd := &cobra.Command{
		Use:   "import [FLAGS] FILE|FOLDER…",
		Short: "Import all images of files into the store",
		Long: `Imports each image that the files and folders hold: OCI image layouts (folder or
tar) and what docker save writes, of any number of images, and ACIs. FILE:REFERENCE
is the one of that name. Prints one image ID for each.

Each image is verified by what this host demands of its name, with the signatures
that "rkt image export" carried along. One that is refused is named, and keeps out
none of the others; then the exit code is 254. Nothing is fetched, but what an ACI
depends on.`,
		Example: `  rkt image import images.tar
  rkt image import images.tar:example.com/db:7
  rkt image import --insecure-options=image ./layout`,
		RunE: func(cmd *cobra.Command, args []string) error { return runImageImport(cmd.Context(), g, cmd, args, &o) },
	}
	fs := cmd.Flags()
	o.told.declare(fs)
	o.flags.declareLimits(fs)
	o.flags.declarePlatform(fs)
	return cmd
}

func runImageImport(ctx context.Context, g *globals, cmd *cobra.Command, args []string, o *imageImportOptions) error {
	if err := g.needRoot(); err != nil {
		return err
	}
	if len(args) == 0 {
		return errs.WithHint(errs.Newf(errs.Usage, "must provide at least one file or folder"), "\"rkt help image import\" shows how")
	}
	f, err := o.told.begin(g, cmd, o.flags)
	if err != nil {
		return err
	}
	defer f.close()
	var all []error
	for _, arg := range args {
		records, err := f.importAll(ctx, arg)
		for _, rec := range records {
			o.told.add(g, arg, rec)
		}
		if err != nil {
			all = append(all, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	if err := o.told.end(g); err != nil {
		all = append(all, err)
	}
	if len(all) > 0 {
		return joined(all)
	}
	return nil
}

// importAll imports the images of a file. What the word names is a file, however
// it looks.
func (f *finder) importAll(ctx context.Context, arg string) ([]image.Record, error) {
	defer f.bars.flush()
	r, err := ref.Parse(arg, isFile)
	if err != nil || r.Kind != ref.File {
		r.Path, r.Form = arg, ref.AnyForm
	}
	return f.ImportAll(ctx, r.Path, r.Form)
}
