package fetch

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/layer"
	"github.com/rkt-pods/rkt/stage0/oci"
	"github.com/rkt-pods/rkt/stage0/tree"
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
	l := &ociImport{importer: im, files: f, rawLayout: raw}
	l.rawIndex, err = readSmall(f, oci.IndexFile)
	if missing(err) {
		return rec, false, nil
	}
	if err != nil {
		return rec, true, err
	}
	if err := json.Unmarshal(l.rawIndex, &l.index); err != nil {
		return rec, true, errs.Newf(errs.Corrupt, "%s: not valid JSON: %w", oci.IndexFile, err)
	}
	desc, err := l.choose()
	if err != nil {
		return rec, true, err
	}
	rec, err = l.image(desc)
	return rec, true, err
}

// ociImport imports one image of a layout.
type ociImport struct {
	*importer
	files     files
	rawLayout []byte
	rawIndex  []byte
	index     oci.Index
}

// choose finds the one image that is meant: by the reference if one was given,
// else the only one there is.
func (l *ociImport) choose() (oci.Descriptor, error) {
	var images []oci.Descriptor
	for _, d := range l.index.Manifests {
		if isImage(d) && (l.ref == "" || slices.Contains(refNames(d), l.ref)) && !slices.ContainsFunc(images, sameDigest(d)) {
			images = append(images, d)
		}
	}
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
	if err := json.Unmarshal(raw, &idx); err != nil {
		return d, errs.Newf(errs.Corrupt, "index %s: not valid JSON: %w", d.Digest, err)
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

// platform picks the manifest for this host.
func (l *ociImport) platform(list []oci.Descriptor) (oci.Descriptor, error) {
	var have []string
	for _, d := range list {
		if d.Platform == nil {
			if len(list) == 1 {
				return d, nil // its config says more
			}
			continue
		}
		p := d.Platform
		if p.OS == runtime.GOOS && image.ArchFromGo(p.Architecture, p.Variant) == image.ArchFromGo(runtime.GOARCH, "") {
			return d, nil
		}
		have = append(have, p.OS+"/"+p.Architecture)
	}
	err := errs.Newf(errs.Unsupported, "no image for %s/%s", runtime.GOOS, runtime.GOARCH)
	if len(have) > 0 {
		err = errs.WithHint(err, "there are images for %s", strings.Join(have, ", "))
	}
	return oci.Descriptor{}, err
}

// openBlob opens a blob; the reader fails if it is not what the descriptor says.
func (l *ociImport) openBlob(desc oci.Descriptor) (io.Closer, io.Reader, error) {
	d, err := digest.ParseOCI(desc.Digest)
	if err != nil {
		return nil, nil, errs.WithClass(errs.Corrupt, err)
	}
	if desc.Size < 0 {
		return nil, nil, errs.Newf(errs.Corrupt, "blob %s: a size of %d bytes", d.OCI(), desc.Size)
	}
	f, _, err := l.files.open(oci.BlobName(d))
	if err != nil {
		return nil, nil, errs.Newf(errs.Corrupt, "blob %s: %w", d.OCI(), err)
	}
	return f, digest.Reader(f, d, desc.Size), nil
}

// blob reads a small blob.
func (l *ociImport) blob(desc oci.Descriptor) ([]byte, error) {
	if desc.Size > image.MaxManifest {
		return nil, errs.Newf(errs.Corrupt, "blob %s: larger than %d bytes", desc.Digest, image.MaxManifest)
	}
	f, r, err := l.openBlob(desc)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(r)
}

// image imports the image of one manifest.
func (l *ociImport) image(desc oci.Descriptor) (rec image.Record, err error) {
	raw, err := l.blob(desc)
	if err != nil {
		return rec, err
	}
	var m oci.Manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return rec, errs.Newf(errs.Corrupt, "manifest %s: not valid JSON: %w", desc.Digest, err)
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
	for _, d := range m.Layers {
		if !strings.Contains(d.MediaType, "tar") || strings.Contains(d.MediaType, "encrypted") {
			return rec, errs.Newf(errs.Unsupported, "layer %s: media type %q", d.Digest, d.MediaType)
		}
	}
	own, ownAlg, err := l.original(desc, &m)
	if err != nil {
		return rec, err
	}
	exported := own != nil
	if !exported {
		own, ownAlg = raw, desc.Alg()
	}
	rec = image.Record{ID: digest.ImageID(digest.Of(digest.SHA512, own)), Labels: config.Labels()}
	l.name(&rec, refNames(desc))
	if err := l.begin(&rec, config); err != nil {
		return rec, err
	}
	if rec.Manifest, err = l.staging.AddBlob(ownAlg, own); err != nil {
		return rec, err
	}
	if rec.Signatures, err = l.signatures(desc); err != nil {
		return rec, err
	}
	if rec.Config, err = l.staging.AddBlob(m.Config.Alg(), rawConfig); err != nil {
		return rec, err
	}
	chain, err := l.layers(&rec, config.RootFS.DiffIDs, func(i int) (io.Closer, io.Reader, error) { return l.openBlob(m.Layers[i]) })
	if err != nil {
		return rec, err
	}
	if l.keep && !exported {
		if rec.Kept, err = l.keepBlobs(desc, &m); err != nil {
			return rec, err
		}
	}
	return l.commit(rec, chain)
}

// begin checks what is known before any layer is read.
func (im *importer) begin(rec *image.Record, config *image.Config) error {
	rec.Kind = image.OCI
	if err := im.admit(image.OCI); err != nil {
		return err
	}
	for _, name := range rec.Names {
		if len(name) > appc.MaxName {
			return errs.Newf(errs.Corrupt, "name %q: longer than %d bytes", name, appc.MaxName)
		}
	}
	if err := image.CheckHost(rec.Labels); err != nil {
		return err
	}
	// What can't be said in appc's terms can't be run: better known now.
	_, err := image.FromOCI(config, rec.Name, rec.Labels, nil)
	rec.Trust, rec.ImportedAt = im.trust, now()
	return err
}

// name sets the record's names. The first reference counts for name and
// version; without any it is the file's own name.
func (im *importer) name(rec *image.Record, refs []string) {
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
		case slash < 0:
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

// layers brings in the layers that the store lacks, each once. Those that it has
// are read too: a file is good or not, whatever was imported before.
func (im *importer) layers(rec *image.Record, diffIDs []string, open func(int) (io.Closer, io.Reader, error)) (*tree.Chain, error) {
	keys := make([]string, len(diffIDs))
	want := make([]digest.Digest, len(diffIDs))
	for i, id := range diffIDs {
		d, err := digest.ParseOCI(id)
		if err != nil {
			return nil, errs.WithClass(errs.Corrupt, fmt.Errorf("diff id: %w", err))
		}
		want[i], keys[i] = d, layer.Key(layer.OCI, d)
	}
	rec.Own = keys
	missing, err := im.staging.Need(im.ctx, keys)
	if err != nil {
		return nil, err
	}
	chain := tree.NewChain(im.store, im.staging)
	for i, key := range keys {
		im.progress(Event{Stage: "layer", Object: key, Done: int64(i + 1), Total: int64(len(keys))})
		f, r, err := open(i)
		if err == nil {
			if slices.Contains(missing, key) && !slices.Contains(keys[:i], key) {
				var l tree.Layer
				var dir string
				if l, dir, err = im.unpack(r, want[i]); err == nil {
					chain.Add(l.Meta, dir)
				}
			} else {
				err = im.check(r, want[i])
			}
			_ = f.Close() // read only
		}
		if err != nil {
			return nil, fmt.Errorf("layer %d of %d: %w", i+1, len(keys), err)
		}
	}
	chain.OCI(keys)
	return chain, nil
}

// unpack reads one layer to the end of r, whose own check comes with the end.
func (im *importer) unpack(r io.Reader, want digest.Digest) (tree.Layer, string, error) {
	in, _, err := decompress(r)
	if err != nil {
		return tree.Layer{}, "", err
	}
	defer in.Close()
	dir, err := im.staging.NewLayer()
	if err != nil {
		return tree.Layer{}, "", err
	}
	l, err := tree.Unpack(im.ctx, in, dir, tree.Options{Kind: layer.OCI, Want: want})
	if err != nil {
		return l, "", err
	}
	return l, dir, atEnd(r)
}

// check reads a layer that is there already and compares it with its diff id.
func (im *importer) check(r io.Reader, want digest.Digest) error {
	in, _, err := decompress(r)
	if err != nil {
		return err
	}
	defer in.Close()
	h := want.Alg.New()
	if _, err := io.Copy(h, contextReader{im.ctx, in}); err != nil {
		return err
	}
	if got := digest.Sum(want.Alg, h); got != want {
		return errs.Newf(errs.Corrupt, "layer %s: the content is %s", want.OCI(), got.OCI())
	}
	return atEnd(r)
}

// atEnd reads to the end of r, whose own check comes with it.
func atEnd(r io.Reader) error {
	n, err := io.Copy(io.Discard, r)
	if err == nil && n > 0 {
		err = errs.Newf(errs.Corrupt, "%d bytes after the end of the layer", n)
	}
	return err
}

// contextReader ends with its context.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

// Read reads the next bytes.
func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
