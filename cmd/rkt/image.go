package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/stage0/gc"
	"github.com/rkt-pods/rkt/stage0/store"
)

func newImage(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image COMMAND",
		Short: "Work with the images of the store",
		Args:  cobra.ArbitraryArgs,
		RunE: func(*cobra.Command, []string) error {
			return errs.WithHint(errs.Newf(errs.Usage, "missing command"), "\"rkt help image\" lists them")
		},
	}
	fetch := newFetch(g)
	fetch.Hidden = true
	cmd.AddCommand(
		newImageList(g), newImageCatManifest(g), newImageRm(g), newImageVerify(g), newImageExport(g), newImageImport(g),
		newImageExtract(g), newImageRender(g), newImagePin(g), newImageUnpin(g), newImageGC(g), fetch,
	)
	return cmd
}

type imageListOptions struct {
	fields, sort, order string
	full, noLegend      bool
	format              string
}

// imageFields are the columns of image list.
var imageFields = []struct {
	name, title string
	less        func(a, b imageView) int
	text        func(v imageView, o imageListOptions, now time.Time) string
}{
	{"id", "ID", func(a, b imageView) int { return cmp.Compare(a.ID, b.ID) }, func(v imageView, o imageListOptions, _ time.Time) string {
		if o.full {
			return v.ID
		}
		return shortID(v.ID)
	}},
	{"name", "NAME", func(a, b imageView) int { return cmp.Compare(a.Name, b.Name) }, func(v imageView, _ imageListOptions, _ time.Time) string {
		return plain(v.Name)
	}},
	{"size", "SIZE", func(a, b imageView) int { return cmp.Compare(a.Size, b.Size) }, func(v imageView, o imageListOptions, _ time.Time) string {
		return o.bytes(v.Size)
	}},
	{"importtime", "IMPORT TIME", func(a, b imageView) int { return cmp.Compare(a.ImportTime, b.ImportTime) }, func(v imageView, o imageListOptions, now time.Time) string {
		return listOptions{full: o.full}.time(time.Unix(0, v.ImportTime), now)
	}},
	{"lastused", "LAST USED", func(a, b imageView) int { return cmp.Compare(a.LastUsed, b.LastUsed) }, func(v imageView, o imageListOptions, now time.Time) string {
		return listOptions{full: o.full}.time(time.Unix(0, v.LastUsed), now)
	}},
	{"total", "TOTAL", func(a, b imageView) int { return cmp.Compare(a.Total, b.Total) }, func(v imageView, o imageListOptions, _ time.Time) string {
		return o.bytes(v.Total)
	}},
	{"unique", "UNIQUE", func(a, b imageView) int { return cmp.Compare(a.Unique, b.Unique) }, func(v imageView, o imageListOptions, _ time.Time) string {
		return o.bytes(v.Unique)
	}},
	{"store", "STORE", func(a, b imageView) int { return cmp.Compare(a.Store, b.Store) }, func(v imageView, _ imageListOptions, _ time.Time) string {
		return plain(cmp.Or(v.Store, "-"))
	}},
	{"trust", "TRUST", func(a, b imageView) int { return cmp.Compare(a.Trust.By, b.Trust.By) }, func(v imageView, o imageListOptions, _ time.Time) string {
		if o.full || !v.Trust.Verified {
			return plain(v.Trust.By)
		}
		return plain(string(v.Trust.Method) + " " + v.Trust.Key[:min(len(v.Trust.Key), 16)])
	}},
}

func (o imageListOptions) bytes(n int64) string {
	if o.full {
		return fmt.Sprint(n)
	}
	return humanSize(n)
}

// imageView is an image as image list prints it; times are in nanoseconds.
type imageView struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	ImportTime int64  `json:"import_time"`
	LastUsed   int64  `json:"last_used_time"`
	Size       int64  `json:"size"`
	Pinned     bool   `json:"pinned"`
	store.Usage
	Trust image.Trust `json:"trust"`           // why it was let in
	Store string      `json:"store,omitempty"` // the additional store that has it
}

func newImageList(g *globals) *cobra.Command {
	var o imageListOptions
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the images of the store",
		Args:  noArgs,
		RunE:  func(*cobra.Command, []string) error { return runImageList(g, o) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.fields, "fields", "id,name,size,importtime,lastused", "columns, separated by commas: these, total (bytes of all layers, each once), unique (of those that no other image has), trust (who vouches for it; in an additional store, to the host that made it) and store (the additional store that has it)")
	fs.StringVar(&o.sort, "sort", "importtime", "columns to sort by, separated by commas")
	fs.StringVar(&o.order, "order", "asc", "asc or desc")
	fs.BoolVar(&o.full, "full", false, "whole IDs, sizes in bytes, whole times")
	fs.BoolVar(&o.noLegend, "no-legend", false, "no headings")
	fs.StringVar(&o.format, "format", "", "json or json-pretty")
	return cmd
}

func runImageList(g *globals, o imageListOptions) error {
	if err := checkFormat(o.format); err != nil {
		return err
	}
	columns, err := fieldNumbers("--fields", o.fields)
	if err != nil {
		return err
	}
	by, err := fieldNumbers("--sort", o.sort)
	if err != nil {
		return err
	}
	if o.order != "asc" && o.order != "desc" {
		return errs.Newf(errs.Usage, "--order=%s: neither asc nor desc", o.order)
	}
	views, bad := g.imageViews()
	if views == nil {
		return bad
	}
	slices.SortStableFunc(views, func(a, b imageView) int {
		for _, i := range by {
			if c := imageFields[i].less(a, b); c != 0 {
				if o.order == "desc" {
					return -c
				}
				return c
			}
		}
		return 0
	})
	if o.format != "" {
		return errors.Join(printJSON(g.stdout, o.format, views), bad)
	}
	return errors.Join(printImages(g.stdout, views, columns, o), bad)
}

// imageViews returns all images whose records can be read, and an error if there
// are others.
func (g *globals) imageViews() ([]imageView, error) {
	views := []imageView{}
	h, err := g.openExisting()
	if errs.Is(err, errs.NotFound) {
		return views, nil
	}
	if err != nil {
		return nil, err
	}
	records, bad := h.store.Images()
	if errs.Is(bad, errs.Denied) {
		return nil, bad
	}
	usage, err := h.store.Usage(records)
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		_, pinned := h.store.Pinned(r.ID)
		views = append(views, imageView{
			ID: r.ID, Name: image.Reference(r.Name, r.Labels), Size: r.Size,
			ImportTime: r.ImportedAt.UnixNano(), LastUsed: h.store.LastUsed(r).UnixNano(),
			Pinned: pinned, Usage: usage[r.ID], Trust: r.Trust, Store: r.Store,
		})
	}
	return views, bad
}

func fieldNumbers(flag, s string) ([]int, error) {
	var numbers []int
	for _, name := range list(s) {
		i := slices.IndexFunc(imageFields, func(f struct {
			name, title string
			less        func(a, b imageView) int
			text        func(v imageView, o imageListOptions, now time.Time) string
		}) bool {
			return f.name == name
		})
		if i < 0 {
			return nil, errs.Newf(errs.Usage, "%s: unknown field %q", flag, name)
		}
		numbers = append(numbers, i)
	}
	return numbers, nil
}

func printImages(w io.Writer, views []imageView, columns []int, o imageListOptions) error {
	t := tabwriter.NewWriter(w, 0, 8, 1, '\t', 0)
	now := time.Now()
	cells := make([]string, len(columns))
	if !o.noLegend {
		for i, c := range columns {
			cells[i] = imageFields[c].title
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	for _, v := range views {
		for i, c := range columns {
			cells[i] = imageFields[c].text(v, o, now)
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	return t.Flush()
}

func humanSize(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f /= 1024
		i++
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.3g %s", f, units[i])
}

func newImageCatManifest(g *globals) *cobra.Command {
	var pretty bool
	cmd := &cobra.Command{
		Use:   "cat-manifest IMAGE",
		Short: "Print an image's manifest",
		Long:  "Prints the manifest of an image of the store; that of an OCI image is made of its config.",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errs.Newf(errs.Usage, "one image is needed")
			}
			return runImageCatManifest(g, args[0], pretty)
		},
	}
	cmd.Flags().BoolVar(&pretty, "pretty-print", true, "indent")
	return cmd
}

func runImageCatManifest(g *globals, arg string, pretty bool) error {
	h, err := g.openExisting()
	if err != nil {
		return err
	}
	rec, err := h.store.Lookup(arg)
	if err != nil {
		return err
	}
	data, err := h.manifest(rec)
	if err != nil {
		return err
	}
	text, err := formatManifest(data, pretty)
	if err != nil {
		return errs.Newf(errs.Corrupt, "image %s: manifest: %w", rec.ID, err)
	}
	_, err = g.stdout.Write(text)
	return err
}

func newImageRm(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "rm IMAGE…",
		Short: "Remove images from the store",
		Long: `Removes images that no pod holds and that are not pinned, with the layers that
nothing else needs. Naming an image twice is no error. An image whose record is
damaged is removed by its ID.`,
		RunE: func(cmd *cobra.Command, args []string) error { return runImageRm(cmd.Context(), g, args) },
	}
}

func runImageRm(ctx context.Context, g *globals, args []string) error {
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
	held := gc.Held(h.pods)
	done := map[string]bool{}
	var all []error
	for _, arg := range args {
		if done[arg] {
			continue
		}
		done[arg] = true
		id, err := h.idOf(arg)
		if err == nil {
			err = h.store.RemoveImage(ctx, id, held)
		}
		if err != nil {
			all = append(all, err)
			continue
		}
		fmt.Fprintf(g.stdout, "successfully removed aci for image: %q\n", id)
	}
	// What kept the images from being removed is not told twice.
	garbage, err := h.store.Collect(ctx, held, store.InterruptedGrace)
	if len(done) > len(all) {
		fmt.Fprintf(g.stdout, "%s freed\n", humanSize(garbage.Freed))
	}
	if err != nil && !slices.ContainsFunc(all, func(e error) bool { return e.Error() == err.Error() }) {
		all = append(all, err)
	}
	if len(all) > 0 {
		return joined(all)
	}
	return nil
}
