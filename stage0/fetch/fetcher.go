package fetch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/ref"
	"github.com/rkt-pods/rkt/stage0/remote"
	"github.com/rkt-pods/rkt/stage0/store"
	"github.com/rkt-pods/rkt/stage0/trust"
)

// Pull says when an image is fetched.
type Pull string

// The pull policies.
const (
	PullNever  Pull = "never"  // the store has it, or it is an error
	PullNew    Pull = "new"    // if the store lacks it
	PullUpdate Pull = "update" // if the store lacks it, or the source has another one now
)

// Fetcher finds images wherever a reference leads, and brings into the store
// what it lacks. The program that talks to strangers is started by the first
// reference that needs the network.
type Fetcher struct {
	Store   *store.Store
	Pull    Pull
	Options Options
	// Policy reads what is demanded of images, once the first is about to be let
	// in; nil: Options has it.
	Policy func() (trust.Policy, error)
	// Network says how strangers are reached, once that is about to happen.
	Network func(ctx context.Context) (remote.Options, error)

	once   sync.Mutex
	client *remote.Client
	names  []string // that are being fetched, each for the one before it
}

// Close ends what talks to strangers.
func (f *Fetcher) Close() error {
	f.once.Lock()
	defer f.once.Unlock()
	var err error
	if f.client != nil {
		err = f.client.Close()
	}
	if f.Options.Decompressor != nil {
		err = errors.Join(err, f.Options.Decompressor.Close())
	}
	return err
}

// Sandbox says how far the program that talks to strangers is confined, if it
// was started.
func (f *Fetcher) Sandbox(ctx context.Context) (facts, missing []string) {
	f.once.Lock()
	defer f.once.Unlock()
	if f.client == nil {
		return nil, nil
	}
	s, err := f.client.Sandbox(ctx)
	if err != nil {
		return nil, nil // it never came to that, and the fetch says why
	}
	return s.Facts, s.Missing
}

// network returns the running client.
func (f *Fetcher) network(ctx context.Context) (*remote.Client, error) {
	f.once.Lock()
	defer f.once.Unlock()
	if f.client != nil {
		return f.client, nil
	}
	o, err := f.Network(ctx)
	if err != nil {
		return nil, err
	}
	f.client, err = remote.Start(ctx, o)
	return f.client, err
}

// ready prepares what letting an image in needs.
func (f *Fetcher) ready() (err error) {
	if f.Options.Decompressor == nil {
		f.Options.Decompressor = remote.NewDecompressor("", f.Options.Limits.Wire())
	}
	if f.Policy != nil {
		f.Options.Policy, err = f.Policy()
		f.Policy = nil
	}
	return err
}

// Resolve returns the image that the reference means, which is in the store
// then.
func (f *Fetcher) Resolve(ctx context.Context, r ref.Ref) (image.Record, error) {
	rec, err := f.find(ctx, r)
	if err != nil {
		return rec, err
	}
	return f.Judge(ctx, rec)
}

// Judge asks the host's policy about an image of a frozen store, which another
// host has let in. One of the store itself was asked about at its import.
func (f *Fetcher) Judge(ctx context.Context, rec image.Record) (image.Record, error) {
	if rec.Store == "" || f.Store.IsJudged(rec.ID) {
		return rec, nil
	}
	if err := f.ready(); err != nil {
		return rec, err
	}
	t, err := f.Options.Policy.Again(ctx, rec, f.Store.Blob)
	if err != nil {
		return rec, fmt.Errorf("image of the additional store %s: %w", rec.Store, err)
	}
	return f.Store.Judged(rec, t), nil
}

func (f *Fetcher) find(ctx context.Context, r ref.Ref) (image.Record, error) {
	if f.Options.Signature != "" && (r.Kind == ref.OCI || r.Kind == ref.ID) {
		return image.Record{}, errs.WithHint(errs.Newf(errs.Usage, "image %s: --signature is for ACIs", r.Text), "signatures of a registry's image are in the registry")
	}
	switch r.Kind {
	case ref.File:
		if err := f.ready(); err != nil {
			return image.Record{}, err
		}
		opt := f.Options
		opt.Form, opt.dependency = r.Form, f.dependency
		rec, err := Import(ctx, f.Store, r.Path, opt)
		if (errs.Is(err, errs.Corrupt) || errs.Is(err, errs.Usage)) && len(errs.Hints(err)) == 0 {
			err = errs.WithHint(err, "the file is damaged or was not made well: get it anew, or build the image again")
		}
		return rec, err
	case ref.ID:
		return f.Store.Lookup(r.Text)
	case ref.OCI, ref.URL, ref.Name:
	}
	rec, err := f.known(r)
	switch {
	case err == nil && f.Pull != PullUpdate:
		return rec, nil
	case err != nil && !errs.Is(err, errs.NotFound):
		return rec, err
	case f.Pull == PullNever:
		return rec, errs.WithHint(err, "--pull-policy=new fetches what the store lacks")
	}
	if err := f.ready(); err != nil {
		return rec, err
	}
	rec, err = f.fetch(ctx, r, rec, err)
	if err != nil {
		return rec, fmt.Errorf("image %s: %w", r.Text, noSpace(err))
	}
	return rec, nil
}

// ImportAll imports all images of a file or a folder; see ImportAll.
func (f *Fetcher) ImportAll(ctx context.Context, path string, form ref.Form) ([]image.Record, error) {
	if err := f.ready(); err != nil {
		return nil, err
	}
	opt := f.Options
	opt.Form, opt.dependency = form, f.dependency
	return ImportAll(ctx, f.Store, path, opt)
}

// known finds the image of the reference in the store.
func (f *Fetcher) known(r ref.Ref) (image.Record, error) {
	if r.Kind == ref.OCI {
		return f.Store.Named(r.Full())
	}
	if r.Kind == ref.URL {
		return f.Store.Named(r.URL)
	}
	return f.Store.Lookup(r.Text)
}

// fetch asks the source. known is what the store has, if there is no missing.
func (f *Fetcher) fetch(ctx context.Context, r ref.Ref, known image.Record, missing error) (image.Record, error) {
	if slices.Contains(f.names, r.Text) {
		return known, errs.Newf(errs.Corrupt, "depends on itself")
	}
	f.names = append(f.names, r.Text)
	defer func() { f.names = f.names[:len(f.names)-1] }()
	if missing != nil {
		known = image.Record{}
	}
	im := newImporter(ctx, f.Store, f.Options)
	im.opt.dependency = f.dependency
	im.progress(Event{Stage: StageResolve, Object: r.Text, State: Fetching})
	rec, err := f.ask(im, r, known, missing)
	if errors.Is(err, errRemoved) {
		rec, err = f.ask(im, r, image.Record{}, missing)
	}
	if cause := ctx.Err(); err != nil && cause != nil {
		return rec, interrupted(cause)
	}
	if err == nil {
		im.progress(Event{Stage: StageResolve, Object: r.Text, State: Done})
	}
	return rec, err
}

func (f *Fetcher) ask(im *importer, r ref.Ref, known image.Record, missing error) (image.Record, error) {
	switch r.Kind {
	case ref.OCI:
		return f.registry(im, r, known)
	case ref.URL:
		return f.url(im, r, known)
	case ref.Name:
		return f.discover(im, r, known, missing)
	case ref.File, ref.ID:
	}
	return known, errs.Newf(errs.Internal, "a reference of kind %s", string(r.Kind))
}

// errRemoved is that of an image that the source still has and the store no more.
var errRemoved = errors.New("removed meanwhile")

func interrupted(cause error) error {
	if errors.Is(cause, context.DeadlineExceeded) {
		return errs.WithClass(errs.Unavailable, cause)
	}
	return errs.WithHint(errs.Newf(errs.Unavailable, "interrupted"), "layers that were verified are kept: the next fetch goes on from there")
}

// dependency finds or fetches an image that an ACI depends on.
func (f *Fetcher) dependency(ctx context.Context, dep *image.Dependency) (image.Record, error) {
	r, err := ref.Parse(dep.String(), func(string) bool { return false })
	if err != nil {
		return image.Record{}, err
	}
	again := &Fetcher{Store: f.Store, Pull: PullNew, Options: f.Options, names: f.names, client: f.client, Network: f.Network}
	again.Options.Signature = ""
	if f.Pull == PullNever {
		again.Pull = PullNever
	}
	rec, err := again.Resolve(ctx, r)
	f.client = again.client
	return rec, err
}

// settled says whether an image of the store that the source still has needs no
// second look: it was verified, or need not be.
func (im *importer) settled(rec image.Record, name string, pinned bool) bool {
	return rec.ID != "" && (rec.Trust.Verified || !im.opt.Policy.NeedsSignature(name, pinned))
}

// confirm notes that the source still has the image.
func (im *importer) confirm(rec image.Record, src image.Source, named bool) (image.Record, error) {
	src.FetchedAt = time.Now().UTC().Round(0)
	rec, err := im.store.Confirm(im.ctx, rec.ID, src, named)
	if errs.Is(err, errs.NotFound) {
		return rec, errRemoved
	}
	if err == nil {
		im.progress(Event{Stage: StageCommit, Object: rec.ID, State: Present})
	}
	return rec, err
}
