package export

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/layer"
	"github.com/rkt-pods/rkt/stage0/oci"
)

// oci writes an OCI image layout. Where the layers' blobs of an image were kept
// it is as it was imported. Else its layers are uncompressed under a new
// manifest, and the original one, of which the image's id is the digest, comes
// along as a referrer.
func (x *exporter) oci(recs []image.Record) error {
	// The layout of one image that was kept is the same file by file.
	var k image.Kept
	if len(recs) == 1 && recs[0].Kept != nil {
		k = *recs[0].Kept
	}
	if err := x.given(oci.LayoutFile, k.Layout, oci.Layout{Version: "1.0.0"}); err != nil {
		return err
	}
	index := oci.Index{SchemaVersion: 2, MediaType: oci.MediaIndex}
	for _, rec := range recs {
		one := &ociExport{exporter: x, rec: rec}
		entries, err := one.entries(len(recs) == 1)
		if err != nil {
			return failed(rec, err)
		}
		index.Manifests = append(index.Manifests, entries...)
	}
	// An index that was kept lists the image alone, without what came beside it.
	if len(index.Manifests) > 1 {
		k.Index = ""
	}
	if err := x.given(oci.IndexFile, k.Index, index); err != nil {
		return err
	}
	return x.out.end()
}

// given adds a file that was kept as it came, or else one that says what v is.
func (x *exporter) given(name, blob string, v any) error {
	if blob == "" {
		return x.json(name, v)
	}
	data, err := x.store.Blob(blob)
	if err != nil {
		return err
	}
	return x.file(name, data)
}

func failed(rec image.Record, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("export image %s: %w", digest.ShortID(rec.ID, 12), err)
}

// ociExport is one image of a layout.
type ociExport struct {
	*exporter
	rec image.Record
}

// entries adds the image's blobs and returns what the index has of it: one entry
// for each name, and the artifacts that come along.
func (x *ociExport) entries(alone bool) ([]oci.Descriptor, error) {
	add := x.unpacked
	if x.rec.Kept != nil {
		add = x.kept
	}
	desc, same, err := add()
	if err != nil {
		return nil, err
	}
	list := x.named(desc, alone)
	if x.rec.Manifest != "" && !same {
		ref, err := x.artifact(oci.ArtifactOriginal, desc, oci.MediaOriginal, x.rec.Manifest)
		if err != nil {
			return nil, err
		}
		list = append(list, ref)
	}
	if len(x.rec.Signatures) == 0 {
		return list, nil
	}
	blobs := x.rec.Signatures
	if x.rec.Index != "" {
		blobs = append(slices.Clone(blobs), x.rec.Index) // they may be of it
	}
	ref, err := x.artifact(oci.ArtifactSignatures, desc, oci.MediaSignature, blobs...)
	return append(list, ref), err
}

func (x *ociExport) unpacked() (desc oci.Descriptor, same bool, err error) {
	m, err := x.manifest()
	if err != nil {
		return desc, false, err
	}
	return x.addManifest(m)
}

// manifest adds config and layers and describes them.
func (x *ociExport) manifest() (oci.Manifest, error) {
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
func (x *ociExport) addManifest(m oci.Manifest) (desc oci.Descriptor, same bool, err error) {
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
			desc.MediaType = cmp.Or(o.MediaType, desc.MediaType)
		} else {
			m.Annotations = maps.Clone(m.Annotations)
			if m.Annotations == nil {
				m.Annotations = map[string]string{}
			}
			// Of one image that was published twice, packed in two ways, both
			// may be in the layout.
			m.Annotations[oci.AnnOriginal] = x.rec.Manifest
			if raw, err = json.Marshal(m); err != nil {
				return desc, false, err
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
func (x *ociExport) artifact(kind string, subject oci.Descriptor, media string, blobs ...string) (oci.Descriptor, error) {
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

// named are the index's entries for the image. An image alone has one, with the
// tag where most tools look for it. Among others it is only told apart by its
// whole name, and has one entry for each that it has.
func (x *ociExport) named(desc oci.Descriptor, alone bool) []oci.Descriptor {
	names := slices.DeleteFunc(slices.Clone(x.rec.Names), func(ref string) bool { return strings.Contains(ref, "@") })
	if alone {
		if names = tags(x.rec); len(names) > 1 {
			names = names[:1]
		}
	} else if len(names) == 0 {
		names = []string{x.rec.Name}
	}
	if len(names) == 0 {
		return []oci.Descriptor{desc}
	}
	var list []oci.Descriptor
	for _, full := range names {
		short := full
		if alone {
			short = full[strings.LastIndexByte(full, ':')+1:]
		}
		desc.Annotations = map[string]string{oci.AnnFullName: full, oci.AnnRefName: short}
		list = append(list, desc)
	}
	return list
}

// kept adds the blobs as they came.
func (x *ociExport) kept() (desc oci.Descriptor, same bool, err error) {
	for _, blob := range slices.Concat([]string{x.rec.Manifest, x.rec.Config}, x.rec.Kept.Blobs) {
		d, err := x.stored(blob)
		if err != nil {
			return desc, false, err
		}
		if blob == x.rec.Manifest {
			desc = d
		}
	}
	raw, err := x.store.Blob(x.rec.Manifest)
	if err != nil {
		return desc, false, err
	}
	var m oci.Manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return desc, false, errs.Newf(errs.Corrupt, "original manifest: not valid JSON: %w", err)
	}
	desc.MediaType = cmp.Or(m.MediaType, oci.MediaManifest)
	return desc, true, nil
}
