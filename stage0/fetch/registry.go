package fetch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/ref"
	"github.com/rkt-pods/rkt/stage0/oci"
	"github.com/rkt-pods/rkt/stage0/remote"
	"github.com/rkt-pods/rkt/stage0/trust"
)

// repository is the content of a registry's repository.
type repository struct {
	*importer
	client *remote.Client
	at     fetchwire.Repository
	got    map[string][]byte // manifests by their digest
}

// registry fetches an image of a registry. One request says whether a tag still
// means what the store has.
func (f *Fetcher) registry(im *importer, r ref.Ref, known image.Record) (image.Record, error) {
	settled := im.settled(known, r.Name, r.Digest != "") && im.wholePlatform(known)
	if settled && r.Digest != "" {
		return known, nil // it can't have become another
	}
	client, err := f.network(im.ctx)
	if err != nil {
		return known, err
	}
	repo := &repository{importer: im, client: client, at: fetchwire.Repository{Registry: r.Host, Name: r.Repository}, got: map[string][]byte{}}
	request := fetchwire.ManifestRequest{Repository: repo.at, Reference: r.Which()}
	src, _ := known.Source(r.Full())
	if settled {
		request.KnownDigest = src.Digest
	}
	head, raw, err := client.Manifest(im.ctx, request)
	if err != nil {
		return known, err
	}
	if head.Status == statusNotModified && request.KnownDigest != "" {
		return im.confirm(known, src, true)
	}
	desc, err := repo.keep(r.Registry, head, raw)
	if err != nil {
		return known, err
	}
	return im.staged(func() (image.Record, error) { return repo.image(r, desc) })
}

const (
	statusAccepted    = 202
	statusNotModified = 304
)

// wholePlatform says whether the record is of the platform that is asked for.
func (im *importer) wholePlatform(rec image.Record) bool {
	return rec.ID != "" && im.opt.Platform.check(rec.Labels) == nil
}

// keep checks what came under a reference against what it says, and keeps it.
func (p *repository) keep(r ref.Registry, head fetchwire.Head, raw []byte) (oci.Descriptor, error) {
	want := digest.Digest{Alg: digest.SHA256}
	for _, said := range []string{r.Digest, head.Digest} {
		if d, err := digest.ParseOCI(said); err == nil {
			want = d
			break
		}
	}
	got := digest.Of(want.Alg, raw)
	if want.Hex != "" && got != want {
		return oci.Descriptor{}, errs.Newf(errs.Corrupt, "manifest %s: the content is %s", want.OCI(), got.OCI())
	}
	var m struct {
		MediaType string          `json:"mediaType"`
		Manifests json.RawMessage `json:"manifests"`
	}
	if err := oci.Parse(raw, &m); err != nil {
		return oci.Descriptor{}, fmt.Errorf("manifest %s: %w", got.OCI(), err)
	}
	desc := oci.Descriptor{MediaType: m.MediaType, Digest: got.OCI(), Size: int64(len(raw))}
	switch {
	case desc.MediaType == "" && m.Manifests != nil: // as the specification allows
		desc.MediaType = oci.MediaIndex
	case desc.MediaType == "":
		desc.MediaType = oci.MediaManifest
	}
	if !isImage(desc) {
		return desc, errs.Newf(errs.Unsupported, "manifest %s: media type %q is none of an image", desc.Digest, desc.MediaType)
	}
	p.got[desc.Digest] = raw
	return desc, nil
}

// image imports the image that top, a manifest or an index, leads to.
func (p *repository) image(r ref.Ref, top oci.Descriptor) (rec image.Record, err error) {
	l := &ociImport{importer: p.importer, content: p, rawLayout: []byte(`{"imageLayoutVersion":"1.0.0"}`)}
	desc, err := l.resolve(top, 0)
	if err != nil {
		return rec, err
	}
	raw, err := l.blob(desc)
	if err != nil {
		return rec, err
	}
	rec = image.Record{Name: r.Name, Labels: r.Labels, Names: []string{r.Full()}}
	rec.Sources = []image.Source{{Ref: r.Full(), Digest: top.Digest, FetchedAt: now()}}
	ask := trust.OCI{Name: r.Name, Tag: r.Tag, Pinned: r.Digest != "", Manifests: [][]byte{raw}}
	if top.Digest != desc.Digest {
		ask.Manifests = [][]byte{p.got[top.Digest], raw}
		if rec.Index, err = p.staging.AddBlob(top.Alg(), p.got[top.Digest]); err != nil {
			return rec, err
		}
	}
	if p.opt.Policy.NeedsSignature(r.Name, ask.Pinned) {
		p.signatures(&ask, desc, top)
	}
	l.admit = func([]byte) (image.Trust, error) { return p.opt.Policy.OCI(p.ctx, ask) }
	for _, s := range ask.Signatures {
		blob, err := s.Blob()
		if err != nil {
			return rec, err
		}
		name, err := p.staging.AddBlob(digest.SHA256, blob)
		if err != nil {
			return rec, err
		}
		rec.Signatures = append(rec.Signatures, name)
	}
	return l.manifest(rec, desc, raw)
}

// open opens a manifest or another blob. The reader fails if it is not what the
// descriptor says.
func (p *repository) open(ctx context.Context, desc oci.Descriptor) (io.ReadCloser, error) {
	d, err := blobDigest(desc)
	if err != nil {
		return nil, err
	}
	if raw, ok := p.got[desc.Digest]; ok {
		return io.NopCloser(digest.Reader(bytes.NewReader(raw), d, desc.Size)), nil
	}
	if isImage(desc) || desc.MediaType == oci.MediaIndex {
		_, raw, err := p.client.Manifest(ctx, fetchwire.ManifestRequest{Repository: p.at, Reference: d.OCI()})
		if err != nil {
			return nil, err
		}
		return io.NopCloser(digest.Reader(bytes.NewReader(raw), d, desc.Size)), nil
	}
	_, r, err := p.client.Blob(ctx, fetchwire.BlobRequest{Repository: p.at, Descriptor: described(desc)}, remote.BlobOptions{})
	if err != nil {
		return nil, err
	}
	return readCloser{digest.Reader(r, d, desc.Size), r}, nil
}

// layer lets the other side decompress the blob: what comes is checked against
// its diff id, which says more than the digest of the packed form.
func (p *repository) layer(ctx context.Context, desc oci.Descriptor, told func(int64)) (io.ReadCloser, error) {
	_, r, err := p.client.Blob(ctx, fetchwire.BlobRequest{Repository: p.at, Descriptor: described(desc), Decompress: true}, remote.BlobOptions{Progress: told})
	return r, err
}

func described(d oci.Descriptor) fetchwire.Descriptor {
	return fetchwire.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}
}
