package export

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/layer"
	"github.com/rkt-pods/rkt/stage0/oci"
)

// oci writes an OCI image layout. Where the layers' blobs were kept it is the one
// that was imported. Else the layers are uncompressed under a new manifest, and
// the original one, of which the image's id is the digest, comes along as a
// referrer.
func (x *exporter) oci() error {
	x.begin()
	if x.rec.Kept != nil {
		return x.kept()
	}
	if err := x.json(oci.LayoutFile, oci.Layout{Version: "1.0.0"}); err != nil {
		return err
	}
	m, err := x.manifest()
	if err != nil {
		return err
	}
	desc, same, err := x.addManifest(m)
	if err != nil {
		return err
	}
	index := oci.Index{SchemaVersion: 2, MediaType: oci.MediaIndex, Manifests: []oci.Descriptor{desc}}
	index.Manifests[0].Annotations = x.names()
	desc.Annotations = nil
	if x.rec.Manifest != "" && !same {
		ref, err := x.artifact(oci.ArtifactOriginal, desc, oci.MediaOriginal, x.rec.Manifest)
		if err != nil {
			return err
		}
		index.Manifests = append(index.Manifests, ref)
	}
	if err := x.signatures(&index, desc); err != nil {
		return err
	}
	if err := x.json(oci.IndexFile, index); err != nil {
		return err
	}
	return x.tar.Close()
}

// signatures adds those that the image has, under a referrer to it.
func (x *exporter) signatures(index *oci.Index, desc oci.Descriptor) error {
	if len(x.rec.Signatures) == 0 {
		return nil
	}
	blobs := x.rec.Signatures
	if x.rec.Index != "" {
		blobs = append(slices.Clone(blobs), x.rec.Index) // they may be of it
	}
	ref, err := x.artifact(oci.ArtifactSignatures, desc, oci.MediaSignature, blobs...)
	if err != nil {
		return err
	}
	index.Manifests = append(index.Manifests, ref)
	return nil
}

// manifest adds config and layers and describes them.
func (x *exporter) manifest() (oci.Manifest, error) {
	m := oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaManifest, Layers: []oci.Descriptor{}}
	var err error
	if m.Config, err = x.stored(x.rec.Config); err != nil {
		return m, err
	}
	m.Config.MediaType = oci.MediaConfig
	for _, key := range x.rec.Own {
		_, d, err := layer.ParseKey(key)
		if err != nil {
			return m, err
		}
		size, err := x.layer(key, oci.BlobName(d))
		if err != nil {
			return m, err
		}
		m.Layers = append(m.Layers, oci.Descriptor{MediaType: oci.MediaLayer, Digest: d.OCI(), Size: size})
	}
	if x.rec.Manifest == "" {
		return m, nil
	}
	var original oci.Manifest
	raw, err := x.store.Blob(x.rec.Manifest)
	if err == nil {
		err = json.Unmarshal(raw, &original)
	}
	m.Annotations = original.Annotations
	return m, err
}

// addManifest adds the manifest. same says that it is the original one: its
// layers were not compressed, and then not a byte of it has to change.
func (x *exporter) addManifest(m oci.Manifest) (desc oci.Descriptor, same bool, err error) {
	raw, err := json.Marshal(m)
	if err != nil {
		return desc, false, err
	}
	alg := digest.SHA256
	desc.MediaType = oci.MediaManifest
	if x.rec.Manifest != "" {
		original, err := x.store.Blob(x.rec.Manifest)
		if err != nil {
			return desc, false, err
		}
		var o oci.Manifest
		if err := json.Unmarshal(original, &o); err != nil {
			return desc, false, errs.Newf(errs.Corrupt, "original manifest: not valid JSON: %w", err)
		}
		if same = sameBlobs(o, m); same {
			d, err := digest.Parse(x.rec.Manifest)
			if err != nil {
				return desc, false, err
			}
			raw, alg = original, d.Alg
			if o.MediaType != "" {
				desc.MediaType = o.MediaType
			}
		}
	}
	desc.Digest, desc.Size = digest.Of(alg, raw).OCI(), int64(len(raw))
	return desc, same, x.file(oci.BlobName(digest.Of(alg, raw)), raw)
}

func sameBlobs(a, b oci.Manifest) bool {
	if a.Config.Digest != b.Config.Digest || len(a.Layers) != len(b.Layers) {
		return false
	}
	for i := range a.Layers {
		if a.Layers[i].Digest != b.Layers[i].Digest {
			return false
		}
	}
	return true
}

// artifact adds blobs of the store under a manifest that refers to the image.
func (x *exporter) artifact(kind string, subject oci.Descriptor, media string, blobs ...string) (oci.Descriptor, error) {
	empty := []byte("{}")
	m := oci.Manifest{
		SchemaVersion: 2, MediaType: oci.MediaManifest, ArtifactType: kind, Subject: &subject,
		Config: oci.Descriptor{MediaType: oci.MediaEmpty, Digest: digest.Of(digest.SHA256, empty).OCI(), Size: int64(len(empty))},
	}
	if err := x.file(oci.BlobName(digest.Of(digest.SHA256, empty)), empty); err != nil {
		return oci.Descriptor{}, err
	}
	for _, blob := range blobs {
		desc, err := x.stored(blob)
		if err != nil {
			return oci.Descriptor{}, err
		}
		if desc.MediaType = media; blob == x.rec.Index {
			desc.MediaType = oci.MediaIndex
		}
		m.Layers = append(m.Layers, desc)
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return oci.Descriptor{}, err
	}
	d := digest.Of(digest.SHA256, raw)
	return oci.Descriptor{MediaType: oci.MediaManifest, ArtifactType: kind, Digest: d.OCI(), Size: int64(len(raw))}, x.file(oci.BlobName(d), raw)
}

// names are the annotations that an import takes the image's name from.
func (x *exporter) names() map[string]string {
	list := tags(x.rec)
	if len(list) == 0 {
		return nil
	}
	return map[string]string{oci.AnnFullName: list[0], oci.AnnRefName: list[0][strings.LastIndexByte(list[0], ':')+1:]}
}

// kept writes the layout as it came.
func (x *exporter) kept() error {
	k := x.rec.Kept
	if err := x.raw(oci.LayoutFile, k.Layout); err != nil {
		return err
	}
	desc, err := x.stored(x.rec.Manifest)
	if err != nil {
		return err
	}
	if _, err := x.stored(x.rec.Config); err != nil {
		return err
	}
	for _, blob := range k.Blobs {
		if _, err := x.stored(blob); err != nil {
			return err
		}
	}
	// An index that was kept lists the image alone.
	if k.Index != "" && len(x.rec.Signatures) == 0 {
		err = x.raw(oci.IndexFile, k.Index)
	} else {
		err = x.newIndex(desc)
	}
	if err != nil {
		return err
	}
	return x.tar.Close()
}

// newIndex lists one image of a layout that had several, or signatures beside it.
func (x *exporter) newIndex(desc oci.Descriptor) error {
	raw, err := x.store.Blob(x.rec.Manifest)
	if err != nil {
		return err
	}
	var m oci.Manifest
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(&m); err != nil {
		return errs.Newf(errs.Corrupt, "original manifest: not valid JSON: %w", err)
	}
	desc.MediaType = oci.MediaManifest
	if m.MediaType != "" {
		desc.MediaType = m.MediaType
	}
	index := oci.Index{SchemaVersion: 2, MediaType: oci.MediaIndex, Manifests: []oci.Descriptor{desc}}
	index.Manifests[0].Annotations = x.names()
	if err := x.signatures(&index, desc); err != nil {
		return err
	}
	return x.json(oci.IndexFile, index)
}

// raw adds a blob of the store under a name of its own.
func (x *exporter) raw(name, blob string) error {
	data, err := x.store.Blob(blob)
	if err != nil {
		return err
	}
	return x.file(name, data)
}
