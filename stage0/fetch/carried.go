package fetch

import (
	"encoding/json"
	"slices"

	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/stage0/oci"
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
		if err := json.Unmarshal(raw, &m); err != nil {
			return nil, errs.Newf(errs.Corrupt, "artifact %s: not valid JSON: %w", d.Digest, err)
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
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, "", errs.Newf(errs.Corrupt, "original manifest %s: not valid JSON: %w", d.Digest, err)
	}
	if m.Config.Digest != exported.Config.Digest || len(m.Layers) != len(exported.Layers) {
		return nil, "", errs.Newf(errs.Corrupt, "original manifest %s: is of another image than %s", d.Digest, desc.Digest)
	}
	return raw, d.Alg(), nil
}

// signatures keeps those that the export of an image brought along. They are
// judged where images are admitted, not here.
func (l *ociImport) signatures(desc oci.Descriptor) ([]string, error) {
	ref, err := l.referrer(oci.ArtifactSignatures, desc)
	if err != nil || ref == nil {
		return nil, err
	}
	var names []string
	for _, d := range ref.Layers {
		raw, err := l.blob(d)
		if err != nil {
			return nil, err
		}
		name, err := l.staging.AddBlob(d.Alg(), raw)
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
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
