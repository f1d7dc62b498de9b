// Package export writes images of the store out: as files that can be imported
// again, and as folders. It never fetches anything.
package export

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/userfile"
	"github.com/rkt-pods/rkt/stage0/store"
)

// Format is how an image is written.
type Format string

// The formats.
const (
	ACI    Format = "aci"    // the uncompressed tar that the image's id is the digest of
	OCI    Format = "oci"    // a tar of an OCI image layout
	Docker Format = "docker" // what docker save writes
)

// FormatOf returns the format that keeps the image what it is: its export
// imports under the same id.
func FormatOf(rec image.Record) Format {
	switch {
	case rec.Kind == image.ACI:
		return ACI
	case rec.Manifest == "":
		return Docker
	default:
		return OCI
	}
}

// formatOf checks that the images can be had in one file of the format; "" stands
// for their own.
func formatOf(recs []image.Record, f Format) (Format, error) {
	switch f {
	case "", ACI, OCI, Docker:
	default:
		return f, errs.Newf(errs.Usage, "format %q: none of aci, oci, oci-dir, docker", string(f))
	}
	if len(recs) == 0 {
		return f, errs.Newf(errs.Usage, "no image is named")
	}
	for _, rec := range recs {
		own, short := FormatOf(rec), digest.ShortID(rec.ID, 12)
		switch {
		case own == ACI && len(recs) > 1:
			return f, errs.WithHint(errs.Newf(errs.Unsupported, "image %s: is an ACI, and those are files of their own", short),
				"export it alone: rkt image export %s FILE", short)
		case f == "" && own != FormatOf(recs[0]):
			return f, errs.WithHint(errs.Newf(errs.Unsupported, "image %s: is of format %s, and others of another", short, own),
				"--format=oci takes all of them; what came out of docker save gets a new image ID there")
		case f != "" && (own == ACI) != (f == ACI):
			return f, errs.WithHint(errs.Newf(errs.Unsupported, "image %s: is no image of format %s", short, f),
				"\"rkt image render\" writes the root file system of any image")
		}
	}
	return cmp.Or(f, FormatOf(recs[0])), nil
}

// Write writes the images to w; "" is their own format. What several of them
// share is written once. Damage that is found on the way is an error of class
// Corrupt, and what was written then is no image.
func Write(ctx context.Context, st *store.Store, recs []image.Record, f Format, w io.Writer) error {
	f, err := formatOf(recs, f)
	if err != nil {
		return err
	}
	return protected(ctx, st, recs, func(recs []image.Record) error {
		x := &exporter{store: st}
		out := contextWriter{ctx, w}
		if f == ACI {
			return x.aci(recs[0], out)
		}
		x.out = &tarSink{tar.NewWriter(out)}
		if f == Docker {
			return x.docker(recs)
		}
		return x.oci(recs)
	})
}

// Layout writes the images to a folder with an OCI image layout, as Write does to
// a tar.
func Layout(ctx context.Context, st *store.Store, recs []image.Record, path string, overwrite bool) error {
	if _, err := formatOf(recs, OCI); err != nil {
		return err
	}
	return protected(ctx, st, recs, func(recs []image.Record) error {
		return newFolder(st, path, overwrite, func(dir string) error {
			if err := os.Chmod(dir, 0o755); err != nil {
				return err
			}
			root, err := os.OpenRoot(dir)
			if err != nil {
				return err
			}
			defer root.Close()
			out := &folderSink{ctx: ctx, root: root}
			x := &exporter{store: st, out: out}
			if err := x.oci(recs); err != nil {
				return errors.Join(err, out.end())
			}
			return atomicfile.SyncFS(dir)
		})
	})
}

// protected keeps the images in the store while they are read, each once.
func protected(ctx context.Context, st *store.Store, recs []image.Record, read func([]image.Record) error) (err error) {
	var held []image.Record
	for _, rec := range recs {
		if slices.ContainsFunc(held, func(r image.Record) bool { return r.ID == rec.ID }) {
			continue
		}
		entry, now, err := st.Protect(ctx, rec.ID)
		if err != nil {
			return err
		}
		defer func() { _ = entry.Close() }() // what is left of it is unlocked, and gc takes it
		held = append(held, now)
	}
	return read(held)
}

// contextWriter ends a long copy when the context does.
type contextWriter struct {
	ctx context.Context
	w   io.Writer
}

// Write writes the next bytes.
func (c contextWriter) Write(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.w.Write(p)
}

// File writes the images to a file: to a temporary name, which is renamed when
// all is written and synced. A file that is there is replaced only if overwrite
// is set.
func File(ctx context.Context, st *store.Store, recs []image.Record, f Format, path string, overwrite bool) (err error) {
	if info, err := os.Lstat(path); err == nil && (info.IsDir() || !overwrite) {
		if info.IsDir() {
			return errs.Newf(errs.Usage, "output file %s: is a folder", path)
		}
		return errs.WithHint(errs.Newf(errs.Usage, "output file %s: exists", path), "--overwrite replaces it")
	}
	if overwrite {
		place, direct, err := userfile.Place(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("output file %w", err)
		}
		if direct {
			return throughTo(ctx, st, recs, f, path)
		}
		if err == nil {
			path = place
		}
	}
	if err := fault.Step("export.create"); err != nil {
		return err
	}
	var tmp *os.File
	beside, err := newPart(filepath.Dir(path), func(name string) (err error) {
		if tmp != nil {
			_ = tmp.Close() // one that went before it was locked
		}
		tmp, err = os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return errs.Newf(errs.NotFound, "output file %s: no such folder", path)
	}
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			// The error that is returned says more than these would.
			_ = tmp.Close()
			_ = beside.remove()
		}
		beside.release()
	}()
	if err := Write(ctx, st, recs, f, tmp); err != nil {
		return err
	}
	if err := tmp.Sync(); err != nil {
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	if err := fault.Step("export.rename"); err != nil {
		return err
	}
	if overwrite {
		return os.Rename(tmp.Name(), path)
	}
	err = unix.Renameat2(unix.AT_FDCWD, tmp.Name(), unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) { // a file system that can't say no
		err = os.Rename(tmp.Name(), path)
	}
	if errors.Is(err, fs.ErrExist) {
		return errs.WithHint(errs.Newf(errs.Usage, "output file %s: exists", path), "--overwrite replaces it")
	}
	return err
}

// throughTo writes to a device or a pipe, which stays what it is.
func throughTo(ctx context.Context, st *store.Store, recs []image.Record, f Format, path string) error {
	if err := fault.Step("export.open"); err != nil {
		return err
	}
	out, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(Write(ctx, st, recs, f, out), out.Close())
}
