package fetch

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/ref"
	"github.com/rkt-pods/rkt/stage0/oci"
	"github.com/rkt-pods/rkt/stage0/trust"
)

// maxIndexDepth is how far indexes may be nested.
const maxIndexDepth = 4

// layout imports from an OCI image layout; ok is false if there is none.
func (im *importer) layout(f files) (rec image.Record, ok bool, err error) {
	raw, err := readSmall(f, oci.LayoutFile)
	if missing(err) {
		return rec, false, nil
	}
	if err != nil {
		return rec, true, err
	}
	var version oci.Layout
	if err := json.Unmarshal(raw, &version); err != nil || !strings.HasPrefix(version.Version, "1.") {
		return rec, true, errs.Newf(errs.Unsupported, "%s: not a layout of version 1", oci.LayoutFile)
	}
	l := &ociImport{importer: im, content: layoutContent{im, f}, rawLayout: raw}
	l.rawIndex, err = readSmall(f, oci.IndexFile)
	if missing(err) {
		return rec, false, nil
	}
	if err != nil {
		return rec, true, err
	}
	if err := oci.Parse(l.rawIndex, &l.index); err != nil {
		return rec, true, fmt.Errorf("%s: %w", oci.IndexFile, err)
	}
	images := l.images()
	if l.all && l.ref == "" && len(images) > 1 && !nameless(images) {
		return rec, true, l.every(images)
	}
	desc, err := l.choose(images)
	if err != nil {
		return rec, true, err
	}
	rec, err = l.image(desc)
	return rec, true, err
}

// blobs is where the blobs of an OCI image come from.
type blobs interface {
	// open opens a blob as it was published. The reader fails if that is not
	// what the descriptor says.
	open(ctx context.Context, desc oci.Descriptor) (io.ReadCloser, error)
	// layer opens the tar of a layer; all checks come with the reader's end.
	layer(ctx context.Context, desc oci.Descriptor, told func(int64)) (io.ReadCloser, error)
}

// ociImport imports one image of a layout or a registry.
type ociImport struct {
	*importer
	content   blobs
	rawLayout []byte
	rawIndex  []byte
	index     oci.Index
}

// layoutContent is a layout's.
type layoutContent struct {
	*importer
	files files
}

func (c layoutContent) open(_ context.Context, desc oci.Descriptor) (io.ReadCloser, error) {
	d, err := blobDigest(desc)
	if err != nil {
		return nil, err
	}
	f, _, err := c.files.open(oci.BlobName(d))
	if err != nil {
		return nil, errs.Newf(errs.Corrupt, "blob %s: %w", d.OCI(), err)
	}
	return readCloser{digest.Reader(f, d, desc.Size), f}, nil
}

func (c layoutContent) layer(ctx context.Context, desc oci.Descriptor, told func(int64)) (io.ReadCloser, error) {
	r, err := c.open(ctx, desc)
	if err != nil {
		return nil, err
	}
	return c.unpacked(ctx, r, told)
}

// blobDigest checks what a descriptor says.
func blobDigest(desc oci.Descriptor) (digest.Digest, error) {
	d, err := digest.ParseOCI(desc.Digest)
	if err != nil {
		return d, errs.WithClass(errs.Corrupt, err)
	}
	if desc.Size < 0 {
		return d, errs.Newf(errs.Corrupt, "blob %s: a size of %d bytes", d.OCI(), desc.Size)
	}
	return d, nil
}

// readCloser reads from one and closes another.
type readCloser struct {
	io.Reader
	io.Closer
}

// images are those of the layout, of that name if a reference was given.
func (l *ociImport) images() []oci.Descriptor {
	var images []oci.Descriptor
	for _, d := range l.index.Manifests {
		if isImage(d) && (l.ref == "" || slices.Contains(refNames(d), l.ref)) && !slices.ContainsFunc(images, sameDigest(d)) {
			images = append(images, d)
		}
	}
	return images
}

// choose finds the one image that is meant: by the reference if one was given,
// else the only one there is.
func (l *ociImport) choose(images []oci.Descriptor) (oci.Descriptor, error) {
	if l.ref == "" && len(images) > 1 && nameless(images) {
		// A multi-platform index that was written out as the layout's own.
		return l.platform(images)
	}
	switch len(images) {
	case 1:
		return l.resolve(images[0], 0)
	case 0:
		if l.ref != "" {
			return oci.Descriptor{}, l.whichRef(l.index.Manifests, errs.Newf(errs.NotFound, "no image %q in the layout", l.ref))
		}
		return oci.Descriptor{}, errs.Newf(errs.Corrupt, "no image in the layout")
	default:
		return oci.Descriptor{}, l.whichRef(images, errs.Newf(errs.Usage, "%d images in the layout", len(images)))
	}
}

func sameDigest(d oci.Descriptor) func(oci.Descriptor) bool {
	return func(o oci.Descriptor) bool { return o.Digest == d.Digest && slices.Equal(refNames(o), refNames(d)) }
}

func nameless(list []oci.Descriptor) bool {
	return !slices.ContainsFunc(list, func(d oci.Descriptor) bool { return len(refNames(d)) > 0 || d.Platform == nil })
}

func (l *ociImport) whichRef(list []oci.Descriptor, err error) error {
	var names []string
	for _, d := range list {
		if isImage(d) {
			names = append(names, refNames(d)...)
		}
	}
	if len(names) == 0 {
		return err
	}
	return errs.WithHint(err, "say which one as %s:REFERENCE, with one of: %s", l.path, strings.Join(names, ", "))
}

// refNames are the names that the layout has for an image, the fullest first.
func refNames(d oci.Descriptor) []string {
	var names []string
	for _, key := range []string{oci.AnnFullName, oci.AnnRefName} {
		if n := d.Annotations[key]; n != "" && !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}

// isImage says whether the descriptor may lead to an image, as opposed to an
// attestation or another artifact.
func isImage(d oci.Descriptor) bool {
	if d.Annotations["vnd.docker.reference.type"] != "" || d.Platform != nil && d.Platform.OS == "unknown" {
		return false
	}
	switch d.MediaType {
	case oci.MediaManifest, oci.MediaIndex, oci.MediaDockerManifest, oci.MediaDockerList:
		return d.ArtifactType == ""
	default:
		return false
	}
}

// resolve follows indexes to the manifest for this host.
func (l *ociImport) resolve(d oci.Descriptor, depth int) (oci.Descriptor, error) {
	if d.MediaType == oci.MediaManifest || d.MediaType == oci.MediaDockerManifest {
		return d, nil
	}
	if depth >= maxIndexDepth {
		return d, errs.Newf(errs.Corrupt, "index %s: nested too deep", d.Digest)
	}
	raw, err := l.blob(d)
	if err != nil {
		return d, err
	}
	var idx oci.Index
	if err := oci.Parse(raw, &idx); err != nil {
		return d, fmt.Errorf("index %s: %w", d.Digest, err)
	}
	m, err := l.platform(slices.DeleteFunc(idx.Manifests, func(d oci.Descriptor) bool { return !isImage(d) }))
	if err != nil {
		return d, err
	}
	m, err = l.resolve(m, depth+1)
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	// The name stands at the index.
	for _, key := range []string{oci.AnnFullName, oci.AnnRefName} {
		m.Annotations[key] = cmp.Or(d.Annotations[key], m.Annotations[key])
	}
	return m, err
}

// platform picks the manifest for the platform that is wanted.
func (l *ociImport) platform(list []oci.Descriptor) (oci.Descriptor, error) {
	var have []string
	var second *oci.Descriptor
	want := l.opt.Platform.filled()
	for i, d := range list {
		if d.Platform == nil {
			if len(list) == 1 {
				return d, nil // its config says more
			}
			continue
		}
		switch fit := want.fits(*d.Platform); {
		case fit == fitsWell:
			return d, nil
		case fit == fitsMaybe && second == nil:
			second = &list[i]
		}
		have = append(have, Platform(*d.Platform).String())
	}
	if second != nil {
		return *second, nil
	}
	err := errs.Newf(errs.Unsupported, "no image for %s", want)
	if len(have) > 0 {
		err = errs.WithHint(err, "there are images for %s", strings.Join(slices.Compact(have), ", "))
	}
	return oci.Descriptor{}, err
}

// blob reads a small blob.
func (l *ociImport) blob(desc oci.Descriptor) ([]byte, error) {
	if desc.Size > image.MaxManifest {
		return nil, errs.Newf(errs.Corrupt, "blob %s: larger than %d bytes", desc.Digest, image.MaxManifest)
	}
	return whole(l.content.open(l.ctx, desc))
}

func whole(r io.ReadCloser, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// image imports the image of one manifest of a layout.
func (l *ociImport) image(desc oci.Descriptor) (rec image.Record, err error) {
	raw, err := l.blob(desc)
	if err != nil {
		return rec, err
	}
	l.name(&rec, refNames(desc), desc.Annotations[oci.AnnFullName] != "")
	carried, err := l.carried(&rec, desc)
	if err != nil {
		return rec, err
	}
	l.admit = func(own []byte) (image.Trust, error) {
		version, _ := rec.Labels.Get("version")
		return l.opt.Policy.OCI(l.ctx, trust.OCI{
			Name: ref.FullName(rec.Name), Tag: version, Manifests: carried.with(own), Signatures: carried.signatures, Looked: l.path,
		})
	}
	return l.manifest(rec, desc, raw)
}

// manifest imports the image of a manifest that was read. The record has its
// names, and the version as a label.
func (l *ociImport) manifest(rec image.Record, desc oci.Descriptor, raw []byte) (image.Record, error) {
	m, err := parseManifest(desc, raw)
	if err != nil {
		return rec, err
	}
	rawConfig, err := l.blob(m.Config)
	if err != nil {
		return rec, err
	}
	config, err := image.ParseConfig(rawConfig)
	if err != nil {
		return rec, err
	}
	if len(m.Layers) != len(config.RootFS.DiffIDs) {
		return rec, errs.Newf(errs.Corrupt, "manifest %s: %d layers, but the config has %d diff ids", desc.Digest, len(m.Layers), len(config.RootFS.DiffIDs))
	}
	own, ownAlg, err := l.original(desc, m)
	if err != nil {
		return rec, err
	}
	exported := own != nil
	if !exported {
		own, ownAlg = raw, desc.Alg()
	}
	rec.ID = digest.ImageID(digest.Of(digest.SHA512, own))
	rec.Labels = append(rec.Labels, config.Labels()...)
	if err := l.begin(&rec, config, own); err != nil {
		return rec, err
	}
	if rec.Manifest, err = l.staging.AddBlob(ownAlg, own); err != nil {
		return rec, err
	}
	if rec.Config, err = l.staging.AddBlob(m.Config.Alg(), rawConfig); err != nil {
		return rec, err
	}
	if l.opt.KeepBlobs && !exported {
		if rec.Kept, err = l.keepBlobs(desc, m); err != nil {
			return rec, err
		}
	}
	list, err := inputs(config.RootFS.DiffIDs, func(i int, want digest.Digest) input {
		d := m.Layers[i]
		return input{want: want, object: d.Digest, from: d.Digest, size: d.Size, open: func(ctx context.Context, told func(int64)) (io.ReadCloser, error) {
			if rec.Kept != nil {
				return l.keptLayer(ctx, rec.Kept.Blobs[i], told)
			}
			return l.content.layer(ctx, d, told)
		}}
	})
	if err != nil {
		return rec, err
	}
	chain, err := l.layers(&rec, list)
	if err != nil {
		return rec, err
	}
	return l.commit(rec, chain)
}

// configTypes are the media types of an image's config. The last is what old tools
// have pushed, and none is what some write into layouts.
var configTypes = []string{oci.MediaConfig, oci.MediaDockerConfig, "application/octet-stream", ""}

// parseManifest reads a manifest and refuses what is no image's: another config, or
// layers that are no tars.
func parseManifest(desc oci.Descriptor, raw []byte) (*oci.Manifest, error) {
	var m oci.Manifest
	if err := oci.Parse(raw, &m); err != nil {
		return nil, fmt.Errorf("manifest %s: %w", desc.Digest, err)
	}
	if !slices.Contains(configTypes, m.Config.MediaType) {
		return nil, errs.Newf(errs.Unsupported, "manifest %s: config: media type %q is none of an image's", desc.Digest, m.Config.MediaType)
	}
	if _, err := blobDigest(m.Config); err != nil {
		return nil, fmt.Errorf("manifest %s: config: %w", desc.Digest, err)
	}
	for i, d := range m.Layers {
		if !strings.Contains(d.MediaType, "tar") || strings.Contains(d.MediaType, "encrypted") {
			return nil, errs.Newf(errs.Unsupported, "layer %s: media type %q", d.Digest, d.MediaType)
		}
		if _, err := blobDigest(d); err != nil {
			return nil, fmt.Errorf("manifest %s: layer %d: %w", desc.Digest, i+1, err)
		}
	}
	return &m, nil
}

// begin checks what is known before any layer is read. own is what the image's
// id is the digest of.
func (im *importer) begin(rec *image.Record, config *image.Config, own []byte) (err error) {
	rec.Kind = image.OCI
	if rec.Trust, err = im.admit(own); err != nil {
		return err
	}
	for _, name := range rec.Names {
		if len(name) > appc.MaxName {
			return errs.Newf(errs.Corrupt, "name %q: longer than %d bytes", name, appc.MaxName)
		}
	}
	if err := im.opt.Platform.check(rec.Labels); err != nil {
		return err
	}
	// What can't be said in appc's terms can't be run: better known now.
	_, err = image.FromOCI(config, rec.Name, rec.Labels, nil)
	rec.ImportedAt = now()
	return err
}

// name sets the record's names. The first reference counts for name and
// version; without any it is the file's own name. full says that the first is
// no tag alone.
func (im *importer) name(rec *image.Record, refs []string, full bool) {
	rec.Name = stem(im.path)
	for i, ref := range refs {
		ref, _, _ = strings.Cut(ref, "@") // a digest says nothing that the image doesn't
		slash, colon := strings.LastIndexByte(ref, '/'), strings.LastIndexByte(ref, ':')
		name, version := ref, ""
		switch {
		case colon > slash:
			name, version = ref[:colon], ref[colon+1:]
		case slash < 0 && i > 0:
			continue // the tag of the full name before
		case slash < 0 && !full:
			name, version = rec.Name, ref // a layout's ref.name is a tag, as a rule
			ref = name + ":" + version
		}
		if i == 0 {
			rec.Name = name
			if version != "" {
				rec.Labels = append(appc.Labels{{Name: "version", Value: version}}, rec.Labels...)
			}
		}
		if !slices.Contains(rec.Names, ref) {
			rec.Names = append(rec.Names, ref)
		}
	}
	if len(rec.Names) == 0 {
		rec.Names = []string{rec.Name}
	}
}
