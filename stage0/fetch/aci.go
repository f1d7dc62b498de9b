package fetch

import (
	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/layer"
	"github.com/rkt-pods/rkt/stage0/store"
	"github.com/rkt-pods/rkt/stage0/tree"
)

// aci imports an App Container Image. Its manifest may come last, so that it
// is unpacked before anything is known of it.
func (im *importer) aci() (rec image.Record, err error) {
	if err := im.admit(image.ACI); err != nil {
		return rec, err
	}
	in, _, err := decompress(im.input())
	if err != nil {
		return rec, err
	}
	defer in.Close()
	dir, err := im.staging.NewLayer()
	if err != nil {
		return rec, err
	}
	l, err := tree.Unpack(im.ctx, in, dir, tree.Options{Kind: layer.ACI, Budget: im.budget})
	if err != nil {
		return rec, err
	}
	m, err := image.Parse(l.Manifest)
	if err != nil {
		return rec, err
	}
	if err := image.CheckHost(m.Labels); err != nil {
		return rec, err
	}
	blob, err := im.staging.AddBlob(digest.SHA512, l.Manifest)
	if err != nil {
		return rec, err
	}
	rec = image.Record{
		ID: digest.ImageID(l.Digest), Kind: image.ACI, Name: m.Name, Labels: m.Labels,
		Names: []string{image.Reference(m.Name, m.Labels)}, Manifest: blob,
		Own:   []string{l.Meta.Key},
		Trust: im.trust, ImportedAt: now(),
	}
	chain := tree.NewChain(im.store, im.staging)
	chain.Add(l.Meta, dir)
	if err := chain.ACI(im.ctx, l.Meta.Key, m); err != nil {
		return rec, err
	}
	return im.commit(rec, chain)
}

// commit completes the record with what the chain found and gives it a name.
func (im *importer) commit(rec image.Record, chain *tree.Chain) (image.Record, error) {
	layers, err := chain.Finish(im.ctx)
	if err != nil {
		return rec, err
	}
	rec.Layers, rec.Size, rec.Depends = layers.Keys, layers.Size, layers.Depends
	im.progress(Event{Stage: StageCommit, Object: rec.ID})
	return im.staging.Commit(im.ctx, store.Import{Record: rec, Layers: layers.New})
}
