package fetch

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/layer"
	"github.com/rkt-pods/rkt/stage0/store"
	"github.com/rkt-pods/rkt/stage0/tree"
	"github.com/rkt-pods/rkt/stage0/trust"
)

// aciSource is an App Container Image as it comes.
type aciSource struct {
	published io.Reader // the bytes that a signature is of
	verifier  *trust.Verifier
	signature []byte
	name      string      // that was asked for; "": whatever its manifest says
	labels    appc.Labels // that were asked for
	source    *image.Source
}

// aci imports the file.
func (im *importer) aci() (rec image.Record, err error) {
	src := aciSource{published: im.input()}
	ask := trust.ACI{Source: im.path, SignatureAt: im.path + ".asc"}
	if im.opt.Signature != "" {
		ask.SignatureAt = im.opt.Signature
	}
	if !im.opt.Policy.AllowUnsigned {
		ask.Signature, err = readSignature(ask.SignatureAt, im.opt.Signature != "")
		if err != nil {
			return rec, err
		}
	}
	if src.verifier, err = im.opt.Policy.ACI(im.ctx, ask); err != nil {
		return rec, err
	}
	src.signature = ask.Signature
	return im.aciFrom(src)
}

// readSignature reads a detached signature. Only one that was asked for has to be
// there.
func readSignature(path string, asked bool) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && !asked {
		return nil, nil
	}
	if err != nil {
		return nil, errs.WithClass(errs.ClassOf(classify(err)), errs.Newf(errs.Usage, "error opening signature file: %w", err))
	}
	defer f.Close()
	return readBounded(f, path)
}

func readBounded(r io.Reader, path string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, trust.MaxSignature+1))
	if err == nil && len(data) > trust.MaxSignature {
		err = errs.Newf(errs.Denied, "signature %s: larger than %d bytes", path, trust.MaxSignature)
	}
	return data, err
}

// aciFrom imports an image whose manifest may come last, so that it is unpacked
// before anything is known of it. Whether it may get in is decided once all of it
// was read, and before any of it has a name.
func (im *importer) aciFrom(src aciSource) (rec image.Record, err error) {
	l, dir, err := im.unpackACI(src)
	if err != nil {
		return rec, err
	}
	m, err := image.Parse(l.Manifest)
	if err != nil {
		return rec, err
	}
	if err := im.opt.Platform.check(m.Labels); err != nil {
		return rec, err
	}
	rec = image.Record{
		ID: digest.ImageID(l.Digest), Kind: image.ACI, Name: m.Name, Labels: m.Labels,
		Names: []string{image.Reference(m.Name, m.Labels)}, Own: []string{l.Meta.Key}, ImportedAt: now(),
	}
	if err := src.asked(m); err != nil {
		return rec, err
	}
	if rec.Trust, err = src.verifier.Finish(m.Name); err != nil {
		return rec, err
	}
	if rec.Trust.Verified && len(src.signature) > 0 {
		name, err := im.staging.AddBlob(digest.SHA512, src.signature)
		if err != nil {
			return rec, err
		}
		rec.Signatures = []string{name}
	}
	if src.source != nil {
		rec.Sources = []image.Source{*src.source}
		if src.name == "" {
			rec.Names = append(rec.Names, src.source.Ref)
		}
	}
	if rec.Manifest, err = im.staging.AddBlob(digest.SHA512, l.Manifest); err != nil {
		return rec, err
	}
	chain := tree.NewChain(im.store, im.staging)
	chain.Add(l.Meta, dir)
	chain.Missing = im.opt.dependency
	if err := chain.ACI(im.ctx, l.Meta.Key, m); err != nil {
		return rec, err
	}
	return im.commit(rec, chain)
}

// asked compares what came with what was asked for.
func (src aciSource) asked(m *image.Manifest) error {
	want := image.Dependency{ImageName: src.name, Labels: src.labels}
	if src.name == "" || want.Matches(m.Name, m.Labels) {
		return nil
	}
	have := image.Dependency{ImageName: m.Name, Labels: m.Labels}
	return errs.Newf(errs.Denied, "the image that was found is %s, and not %s", have.String(), want.String())
}

func (im *importer) unpackACI(src aciSource) (tree.Layer, string, error) {
	ctx, cancel := context.WithCancel(im.ctx)
	defer cancel()
	in, err := im.unpacked(ctx, io.NopCloser(io.TeeReader(src.published, src.verifier)), func(int64) {})
	if err != nil {
		return tree.Layer{}, "", err
	}
	closed := sync.OnceValue(in.Close)
	defer func() { _ = closed() }() // read only
	dir, err := im.staging.NewLayer()
	if err != nil {
		return tree.Layer{}, "", err
	}
	l, err := tree.Unpack(ctx, in, dir, tree.Options{Kind: layer.ACI, Budget: im.budget, Abort: func() { _ = closed() }})
	return l, dir, err
}

// commit completes the record with what the chain found and gives it a name.
func (im *importer) commit(rec image.Record, chain *tree.Chain) (image.Record, error) {
	im.verified = true
	layers, err := chain.Finish(im.ctx)
	if err != nil {
		return rec, err
	}
	rec.Layers, rec.Size, rec.Depends = layers.Keys, layers.Size, layers.Depends
	im.progress(Event{Stage: StageCommit, Object: rec.ID, State: Fetching})
	rec, err = im.staging.Commit(im.ctx, store.Import{Record: rec, Layers: layers.New})
	if err == nil {
		im.progress(Event{Stage: StageCommit, Object: rec.ID, State: Done})
	}
	return rec, err
}
