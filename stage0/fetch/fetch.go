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
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/ref"
	"github.com/rkt-pods/rkt/stage0/remote"
	"github.com/rkt-pods/rkt/stage0/store"
	"github.com/rkt-pods/rkt/stage0/tree"
	"github.com/rkt-pods/rkt/stage0/trust"
)

// Event is progress, for people. Events come one at a time.
type Event struct {
	Stage  Stage
	Object string // the reference, the file, the layer's digest, the image's id
	State  State
	Done   int64 // bytes
	Total  int64 // 0: unknown
}

// Stage is what is being done.
type Stage string

// The stages.
const (
	StageResolve Stage = "resolve"
	StageRead    Stage = "read"
	StageLayer   Stage = "layer"
	StageCommit  Stage = "commit"
)

// State is how far the object is.
type State string

// The states.
const (
	Waiting  State = "waiting" // for somebody else's work on the same layer
	Fetching State = "fetching"
	Present  State = "present" // the store has it
	Done     State = "done"
)

// Options are how an image is imported.
type Options struct {
	Policy    trust.Policy
	Progress  func(Event) // may be nil
	KeepBlobs bool        // keep the layers of an OCI image as they came too, for an export that is the same byte by byte
	Form      ref.Form    // what a file has to be
	Parallel  int         // layers at a time; 0: DefaultParallel
	Limits    Limits      // of the image as a whole
	Platform  Platform    // that an OCI image is wanted for
	Signature string      // file with the detached signature of an ACI; "": beside the image
	// Decompressor is where packed content goes; nil: one that is started for
	// the import, if it needs any.
	Decompressor *remote.Decompressor

	// dependency brings in what an ACI depends on; nil: it has to be there.
	dependency func(context.Context, *image.Dependency) (image.Record, error)
}

// Import imports the image that the file or folder at path holds; PATH:REFERENCE
// says which one, where a layout or an archive has several. The image is in the
// store when there is no error, and nothing of it otherwise.
func Import(ctx context.Context, st *store.Store, path string, opt Options) (image.Record, error) {
	list, err := importFrom(ctx, st, path, false, opt)
	if err != nil {
		return image.Record{}, err
	}
	return list[0], nil
}

// ImportAll imports all images that the file or folder at path holds, or with
// PATH:REFERENCE the one. Each gets in or not by itself: it returns those that
// did, and an error that names the others.
func ImportAll(ctx context.Context, st *store.Store, path string, opt Options) ([]image.Record, error) {
	return importFrom(ctx, st, path, true, opt)
}

func importFrom(ctx context.Context, st *store.Store, path string, all bool, opt Options) ([]image.Record, error) {
	if opt.Decompressor == nil {
		opt.Decompressor = remote.NewDecompressor("", fetchwire.Limits{})
		defer func() { _ = opt.Decompressor.Close() }() // nothing depends on how it ends
	}
	im := newImporter(ctx, st, opt)
	im.path, im.readAll, im.all = path, true, all
	rec, err := im.run()
	if err == nil && len(im.several) == 0 {
		im.several = []image.Record{rec}
	}
	if err != nil {
		err = fmt.Errorf("image %s: %w", path, noSpace(unnamed(err, im.path)))
	}
	return im.several, err
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
	opt      Options
	path     string         // of a file
	ref      string         // of several images in one file, the one that is meant
	readAll  bool           // also what the store has already
	all      bool           // of several images in one file, all are meant
	several  []image.Record // that were imported of those
	wasRead  sync.Map       // every readLayer that is done
	verified bool           // all layers are: what is damaged now was made so
	progress func(Event)
	budget   *tree.Budget

	staging *store.Staging
	file    *os.File
	size    int64
	admit   func(own []byte) (image.Trust, error) // asks whether an OCI image may get in
}

func newImporter(ctx context.Context, st *store.Store, opt Options) *importer {
	im := &importer{ctx: ctx, store: st, opt: opt, budget: tree.NewBudget(opt.Limits.Limits), progress: func(Event) {}}
	if opt.Progress != nil {
		var mu sync.Mutex
		im.progress = func(e Event) {
			mu.Lock()
			defer mu.Unlock()
			opt.Progress(e)
		}
	}
	return im
}

// staged runs make with a staging entry. What make leaves in there goes, unless
// it was interrupted: then the layers that are verified stay for the next try. An
// image that is refused, and a file that is damaged, is so the next time too.
func (im *importer) staged(make func() (image.Record, error)) (rec image.Record, err error) {
	// Of several images each has its own; that around them has the archive.
	outer := im.staging
	defer func() { im.staging = outer }()
	if im.staging, err = im.store.Stage(im.ctx); err != nil {
		return rec, err
	}
	im.verified = false
	rec, err = make()
	// What could not be deleted is unlocked, and gc takes it.
	final := errs.Is(err, errs.Denied) || errs.Is(err, errs.Corrupt) && (im.readAll || im.verified)
	if err != nil && !final {
		_ = im.staging.Interrupt()
	} else {
		_ = im.staging.Close()
	}
	return rec, err
}

func (im *importer) run() (rec image.Record, err error) {
	info, err := im.stat()
	if err != nil {
		return rec, classify(err)
	}
	if err := im.checkForm(info); err != nil {
		return rec, err
	}
	if info.IsDir() {
		return im.staged(im.layoutDir)
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
	kind, packed, err := im.sniff()
	if err != nil {
		return rec, err
	}
	if kind == formatACI {
		if im.opt.Form != ref.AnyForm {
			return rec, errs.Newf(errs.Usage, "is an ACI, and no %s", im.opt.Form)
		}
		return im.staged(im.aci)
	}
	return im.staged(func() (image.Record, error) { return im.archive(packed) })
}

// checkForm compares what lies there with what the reference says.
func (im *importer) checkForm(info os.FileInfo) error {
	if im.opt.Form == ref.AnyForm || info.IsDir() == (im.opt.Form == ref.Layout) {
		return nil
	}
	if info.IsDir() {
		return errs.Newf(errs.Usage, "is a folder, and no %s", im.opt.Form)
	}
	return errs.WithHint(errs.Newf(errs.Usage, "is a file, and no folder with an OCI image layout"), "%s:FILE is for a layout in a tar", ref.OCIArchive)
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

// input is the file from its start, reporting how far it was read.
func (im *importer) input() io.Reader {
	return &counter{r: io.NewSectionReader(im.file, 0, im.size), report: func(n int64) {
		im.progress(Event{Stage: StageRead, Object: im.path, Done: n, Total: im.size})
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
