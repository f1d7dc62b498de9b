package fetch

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/stage0/oci"
	"github.com/rkt-pods/rkt/stage0/trust"
)

// referrer returns the artifact of that type whose subject is the image.
func (l *ociImport) referrer(artifactType string, subject oci.Descriptor) (*oci.Manifest, error) {
	for _, d := range l.index.Manifests {
		if d.ArtifactType != artifactType || d.MediaType != oci.MediaManifest {
			continue
		}
		raw, err := l.blob(d)
		if err != nil {
			return nil, err
		}
		var m oci.Manifest
		if err := oci.Parse(raw, &m); err != nil {
			return nil, fmt.Errorf("artifact %s: %w", d.Digest, err)
		}
		if m.Subject != nil && m.Subject.Digest == subject.Digest {
			return &m, nil
		}
	}
	return nil, nil
}

// original returns the manifest that an exported image came with, nil if this is
// the one. The image is the same if its config is: the config's diff ids
// say what the layers are, packed or not.
func (l *ociImport) original(desc oci.Descriptor, exported *oci.Manifest) ([]byte, digest.Alg, error) {
	ref, err := l.referrer(oci.ArtifactOriginal, desc)
	if err != nil || ref == nil {
		return nil, "", err
	}
	if len(ref.Layers) != 1 {
		return nil, "", errs.Newf(errs.Corrupt, "original manifest of %s: %d blobs", desc.Digest, len(ref.Layers))
	}
	d := ref.Layers[0]
	raw, err := l.blob(d)
	if err != nil {
		return nil, "", err
	}
	var m oci.Manifest
	if err := oci.Parse(raw, &m); err != nil {
		return nil, "", fmt.Errorf("original manifest %s: %w", d.Digest, err)
	}
	if m.Config.Digest != exported.Config.Digest || len(m.Layers) != len(exported.Layers) {
		return nil, "", errs.Newf(errs.Corrupt, "original manifest %s: is of another image than %s", d.Digest, desc.Digest)
	}
	return raw, d.Alg(), nil
}

// carriedAlong is what the export of an image brought with it.
type carriedAlong struct {
	signatures []trust.Signature
	indexes    [][]byte // that some of them are of
}

// with is the manifest, with the indexes that lead to it: a signature of another
// one says nothing about it.
func (c carriedAlong) with(manifest []byte) [][]byte {
	list := [][]byte{}
	for _, raw := range c.indexes {
		var index oci.Index
		if json.Unmarshal(raw, &index) != nil {
			continue
		}
		if slices.ContainsFunc(index.Manifests, func(d oci.Descriptor) bool {
			return d.Digest == digest.Of(d.Alg(), manifest).OCI()
		}) {
			list = append(list, raw)
		}
	}
	return append(list, manifest)
}

// carried keeps what an exported image brought along.
func (l *ociImport) carried(rec *image.Record, desc oci.Descriptor) (c carriedAlong, err error) {
	ref, err := l.referrer(oci.ArtifactSignatures, desc)
	if err != nil || ref == nil {
		return c, err
	}
	for _, d := range ref.Layers {
		raw, err := l.blob(d)
		if err != nil {
			return c, err
		}
		name, err := l.staging.AddBlob(d.Alg(), raw)
		if err != nil {
			return c, err
		}
		if d.MediaType == oci.MediaIndex || d.MediaType == oci.MediaDockerList {
			rec.Index, c.indexes = name, append(c.indexes, raw)
			continue
		}
		rec.Signatures = append(rec.Signatures, name)
		// What is no signature of a kind that is known is kept all the same.
		if s, err := trust.ParseBlob(raw); err == nil {
			c.signatures = append(c.signatures, s)
		}
	}
	return c, nil
}

// keptLayer opens a layer whose packed form was brought in just now.
func (l *ociImport) keptLayer(ctx context.Context, name string, told func(int64)) (io.ReadCloser, error) {
	f, err := l.staging.OpenBlob(name)
	if err != nil {
		return nil, err
	}
	return l.unpacked(ctx, f, told)
}

// keepBlobs keeps the layers as they came, and the files of the layout.
func (l *ociImport) keepBlobs(desc oci.Descriptor, m *oci.Manifest) (*image.Kept, error) {
	k := &image.Kept{}
	for _, layer := range m.Layers {
		d, err := digest.Parse(layer.Digest)
		if err != nil {
			return nil, errs.WithClass(errs.Corrupt, err)
		}
		if slices.Contains(k.Blobs, d.String()) {
			k.Blobs = append(k.Blobs, d.String())
			continue
		}
		r, err := l.content.open(l.ctx, layer)
		if err != nil {
			return nil, err
		}
		name, err := l.staging.AddBlobFrom(d, r)
		_ = r.Close() // read only
		if err != nil {
			return nil, err
		}
		k.Blobs = append(k.Blobs, name)
	}
	var err error
	if k.Layout, err = l.staging.AddBlob(digest.SHA256, l.rawLayout); err != nil {
		return nil, err
	}
	if len(l.index.Manifests) == 1 && l.index.Manifests[0].Digest == desc.Digest {
		k.Index, err = l.staging.AddBlob(digest.SHA256, l.rawIndex)
	}
	return k, err
}
