// Package fetch brings images into the store: it finds out what a file is,
// reads it once, checking every digest on the way, and commits it when all of
// it is verified.
package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/stage0/store"
	"github.com/rkt-pods/rkt/stage0/trust"
)

// Event is progress, for people.
type Event struct {
	Stage  string // "read", "layer", "commit"
	Object string // the file, the layer
	Done   int64  // bytes
	Total  int64  // 0: unknown
}

// Options are how an image is imported.
type Options struct {
	Policy    trust.Policy
	Progress  func(Event) // may be nil
	KeepBlobs bool        // keep the layers of an OCI layout as they came too, for an export that is the same byte by byte
}

// File is Import with no more than a policy. progress may be nil.
func File(ctx context.Context, st *store.Store, path string, policy trust.Policy, progress func(Event)) (image.Record, error) {
	return Import(ctx, st, path, Options{Policy: policy, Progress: progress})
}

// Import imports the image that the file or folder at path holds; PATH:REFERENCE
// says which one, where a layout or an archive has several. The image is in the
// store when there is no error, and nothing of it otherwise.
func Import(ctx context.Context, st *store.Store, path string, opt Options) (image.Record, error) {
	im := &importer{ctx: ctx, store: st, path: path, policy: opt.Policy, progress: opt.Progress, keep: opt.KeepBlobs}
	if im.progress == nil {
		im.progress = func(Event) {}
	}
	rec, err := im.run()
	if err != nil {
		return image.Record{}, fmt.Errorf("image %s: %w", path, noSpace(unnamed(err, im.path)))
	}
	return rec, nil
}

// unnamed takes the path out of an error that says it once more.
func unnamed(err error, path string) error {
	pe, ok := errors.AsType[*fs.PathError](err)
	if !ok || pe.Path != path {
		return err
	}
	return errs.WithClass(errs.ClassOf(err), pe.Err)
}

// importer is one import on its way.
type importer struct {
	ctx      context.Context
	store    *store.Store
	path     string
	ref      string // of several images in one file, the one that is meant
	policy   trust.Policy
	progress func(Event)
	keep     bool

	staging *store.Staging
	file    *os.File
	size    int64
	trust   image.Trust
}

func (im *importer) run() (rec image.Record, err error) {
	info, err := im.stat()
	if err != nil {
		return rec, classify(err)
	}
	if im.staging, err = im.store.Stage(im.ctx); err != nil {
		return rec, err
	}
	defer func() {
		// What could not be deleted is unlocked, and gc takes it.
		_ = im.staging.Close()
	}()
	if info.IsDir() {
		return im.layoutDir()
	}
	if !info.Mode().IsRegular() {
		return rec, errs.Newf(errs.Usage, "not a regular file")
	}
	if info.Size() == 0 {
		return rec, errs.WithHint(errs.Newf(errs.Corrupt, "empty file"), "was it downloaded to the end?")
	}
	if im.file, err = os.Open(im.path); err != nil {
		return rec, classify(err)
	}
	defer im.file.Close()
	im.size = info.Size()
	kind, packed, err := sniff(io.NewSectionReader(im.file, 0, im.size))
	if err != nil {
		return rec, err
	}
	if kind == formatACI {
		return im.aci()
	}
	return im.archive(packed)
}

// stat looks for the file of that name; if there is none, what follows a colon
// may be a reference.
func (im *importer) stat() (os.FileInfo, error) {
	info, err := os.Stat(im.path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return info, err
	}
	for i := range len(im.path) {
		if im.path[i] != ':' {
			continue
		}
		if info, err := os.Stat(im.path[:i]); err == nil {
			im.path, im.ref = im.path[:i], im.path[i+1:]
			return info, nil
		}
	}
	return nil, err
}

// admit asks whether the image may get in.
func (im *importer) admit(kind image.Kind) (err error) {
	im.trust, err = im.policy.Verify(trust.Candidate{Path: filepath.Base(im.path), Kind: kind})
	return err
}

// input is the file from its start, reporting how far it was read.
func (im *importer) input() io.Reader {
	return &counter{r: io.NewSectionReader(im.file, 0, im.size), report: func(n int64) {
		im.progress(Event{Stage: "read", Object: im.path, Done: n, Total: im.size})
	}}
}

type counter struct {
	r      io.Reader
	n      int64
	told   int64
	report func(int64)
}

// Read reads the next bytes and reports each megabyte and the end.
func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if c.n-c.told >= 1<<20 || errors.Is(err, io.EOF) && c.told < c.n {
		c.told = c.n
		c.report(c.n)
	}
	return n, err
}

func noSpace(err error) error {
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return err
	}
	return errs.WithHint(errs.WithClass(errs.Unavailable, err), "\"rkt image rm\" and \"rkt gc\" make room in the data folder")
}

func classify(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errs.WithClass(errs.NotFound, err)
	case errors.Is(err, fs.ErrPermission):
		return errs.WithClass(errs.Denied, err)
	default:
		return err
	}
}

// now is the time of an import: records are compared by it, so it does not
// carry a monotonic reading that is lost on disk.
func now() time.Time { return time.Now().UTC().Round(0) }
