// Package export writes images of the store out: as files that can be imported
// again, and as folders. It never fetches anything.
package export

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/layer"
	"github.com/rkt-pods/rkt/pkg/userfile"
	"github.com/rkt-pods/rkt/stage0/oci"
	"github.com/rkt-pods/rkt/stage0/store"
	"github.com/rkt-pods/rkt/stage0/tree"
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

// check says whether the image can be had in the format.
func check(rec image.Record, f Format) error {
	switch f {
	case ACI, OCI, Docker:
	default:
		return errs.Newf(errs.Usage, "format %q: none of aci, oci, docker", string(f))
	}
	if (rec.Kind == image.ACI) != (f == ACI) {
		return errs.WithHint(errs.Newf(errs.Unsupported, "image %s: is no image of format %s", digest.ShortID(rec.ID, 12), f),
			"\"rkt image render\" writes the root file system of any image")
	}
	return nil
}

// Write writes the image to w; "" is its own format. Damage that is found on
// the way is an error of class Corrupt, and what was written then is no image.
func Write(ctx context.Context, st *store.Store, rec image.Record, f Format, w io.Writer) (err error) {
	if f == "" {
		f = FormatOf(rec)
	}
	if err := check(rec, f); err != nil {
		return err
	}
	entry, rec, err := st.Protect(ctx, rec.ID)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, entry.Close()) }()
	x := &exporter{ctx: ctx, store: st, rec: rec, w: contextWriter{ctx, w}}
	switch f {
	case ACI:
		err = x.aci()
	case OCI:
		err = x.oci()
	default:
		err = x.docker()
	}
	if err != nil {
		return fmt.Errorf("export image %s: %w", digest.ShortID(rec.ID, 12), err)
	}
	return nil
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

// File writes the image to a file: to a temporary name, which is renamed when
// all is written and synced. A file that is there is replaced only if overwrite
// is set.
func File(ctx context.Context, st *store.Store, rec image.Record, f Format, path string, overwrite bool) (err error) {
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
			return throughTo(ctx, st, rec, f, path)
		}
		if err == nil {
			path = place
		}
	}
	if err := fault.Step("export.create"); err != nil {
		return err
	}
	tmp, err := os.OpenFile(filepath.Join(filepath.Dir(path), ".rkt-export-"+rand.Text()), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
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
			_ = os.Remove(tmp.Name())
		}
	}()
	if err := Write(ctx, st, rec, f, tmp); err != nil {
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

type exporter struct {
	ctx   context.Context
	store *store.Store
	rec   image.Record
	w     io.Writer
	tar   *tar.Writer
	done  map[string]bool // files that the archive has
}

func (x *exporter) aci() error {
	if len(x.rec.Own) != 1 {
		return errs.Newf(errs.Corrupt, "record: %d layers of its own", len(x.rec.Own))
	}
	meta, err := x.store.LayerMeta(x.rec.Own[0])
	if err != nil {
		return err
	}
	return tree.WriteTar(x.store.LayerDir(meta.Key), meta, x.w)
}

// begin starts an archive of files without any property of their own, so that
// the same image is always the same archive.
func (x *exporter) begin() { x.tar, x.done = tar.NewWriter(x.w), map[string]bool{} }

func (x *exporter) header(name string, size int64) error {
	x.done[name] = true
	return x.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size, ModTime: time.Unix(0, 0)})
}

func (x *exporter) file(name string, data []byte) error {
	if x.done[name] {
		return nil
	}
	if err := x.header(name, int64(len(data))); err != nil {
		return err
	}
	_, err := x.tar.Write(data)
	return err
}

// stored adds a blob of the store to the layout.
func (x *exporter) stored(blob string) (oci.Descriptor, error) {
	d, err := digest.Parse(blob)
	if err != nil {
		return oci.Descriptor{}, errs.WithClass(errs.Corrupt, err)
	}
	r, size, err := x.store.OpenBlob(blob)
	if err != nil {
		return oci.Descriptor{}, err
	}
	defer r.Close()
	desc := oci.Descriptor{Digest: d.OCI(), Size: size}
	if x.done[oci.BlobName(d)] {
		return desc, nil
	}
	if err := x.header(oci.BlobName(d), size); err != nil {
		return desc, err
	}
	_, err = io.Copy(x.tar, r)
	return desc, err
}

// layer adds the tar of a layer under a name.
func (x *exporter) layer(key, name string) (size int64, err error) {
	meta, err := x.store.LayerMeta(key)
	if err != nil || x.done[name] {
		return meta.TarSize, err
	}
	if err := x.header(name, meta.TarSize); err != nil {
		return 0, err
	}
	return meta.TarSize, tree.WriteTar(x.store.LayerDir(key), meta, x.tar)
}

func (x *exporter) docker() error {
	x.begin()
	config, err := x.store.Blob(x.rec.Config)
	if err != nil {
		return err
	}
	saved := oci.Saved{Config: digest.Of(digest.SHA256, config).Hex + ".json", RepoTags: tags(x.rec), Layers: []string{}}
	if err := x.file(saved.Config, config); err != nil {
		return err
	}
	for _, key := range x.rec.Own {
		_, d, err := layer.ParseKey(key)
		if err != nil {
			return err
		}
		name := d.Hex + "/layer.tar"
		if _, err := x.layer(key, name); err != nil {
			return err
		}
		saved.Layers = append(saved.Layers, name)
	}
	if err := x.json(oci.DockerFile, []oci.Saved{saved}); err != nil {
		return err
	}
	return x.tar.Close()
}

func (x *exporter) json(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return x.file(name, data)
}

// tags are those of the image's names that Docker would take.
func tags(rec image.Record) []string {
	return slices.DeleteFunc(slices.Clone(rec.Names), func(ref string) bool {
		return strings.LastIndexByte(ref, ':') <= strings.LastIndexByte(ref, '/')
	})
}

// throughTo writes to a device or a pipe, which stays what it is.
func throughTo(ctx context.Context, st *store.Store, rec image.Record, f Format, path string) error {
	if err := fault.Step("export.open"); err != nil {
		return err
	}
	out, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(Write(ctx, st, rec, f, out), out.Close())
}
