package fetch

import (
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/ref"
	"github.com/rkt-pods/rkt/stage0/oci"
	"github.com/rkt-pods/rkt/stage0/trust"
)

// docker imports from a docker archive; ok is false if it is none.
func (im *importer) docker(f files) (rec image.Record, ok bool, err error) {
	raw, err := readSmall(f, oci.DockerFile)
	if missing(err) {
		return rec, false, nil
	}
	if err != nil {
		return rec, true, err
	}
	var list []oci.Saved
	if err := oci.Parse(raw, &list); err != nil {
		return rec, true, fmt.Errorf("%s: %w", oci.DockerFile, err)
	}
	if im.all && im.ref == "" && len(list) > 1 {
		return rec, true, im.everySaved(f, list)
	}
	s, err := im.chooseSaved(list)
	if err != nil {
		return rec, true, err
	}
	rec, err = im.savedImage(f, s)
	return rec, true, err
}

func (im *importer) chooseSaved(list []oci.Saved) (oci.Saved, error) {
	var tags []string
	for _, s := range list {
		tags = append(tags, s.RepoTags...)
		if im.ref != "" && slices.Contains(s.RepoTags, im.ref) {
			return s, nil
		}
	}
	switch {
	case len(list) == 0:
		return oci.Saved{}, errs.Newf(errs.Corrupt, "no image in the archive")
	case im.ref != "":
		return oci.Saved{}, errs.WithHint(errs.Newf(errs.NotFound, "no image %q in the archive", im.ref), "there are: %s", strings.Join(tags, ", "))
	case len(list) > 1:
		return oci.Saved{}, errs.WithHint(errs.Newf(errs.Usage, "%d images in the archive", len(list)),
			"say which one as %s:REFERENCE, with one of: %s", im.path, strings.Join(tags, ", "))
	}
	return list[0], nil
}

func (im *importer) savedImage(f files, s oci.Saved) (rec image.Record, err error) {
	raw, err := readSmall(f, path.Clean(s.Config))
	if err != nil {
		return rec, errs.Newf(errs.Corrupt, "image config: %w", err)
	}
	// Its name is its digest, in all versions of the format.
	hex := strings.TrimSuffix(path.Base(s.Config), ".json")
	if d, err := digest.Parse("sha256:" + hex); err == nil && digest.Of(digest.SHA256, raw) != d {
		return rec, errs.Newf(errs.Corrupt, "image config %s: the content is another", s.Config)
	}
	config, err := image.ParseConfig(raw)
	if err != nil {
		return rec, err
	}
	if len(s.Layers) != len(config.RootFS.DiffIDs) {
		return rec, errs.Newf(errs.Corrupt, "%s: %d layers, but the config has %d diff ids", oci.DockerFile, len(s.Layers), len(config.RootFS.DiffIDs))
	}
	rec = image.Record{ID: digest.ImageID(digest.Of(digest.SHA512, raw)), Labels: config.Labels()}
	im.name(&rec, s.RepoTags, false)
	im.admit = func([]byte) (image.Trust, error) {
		return im.opt.Policy.OCI(im.ctx, trust.OCI{Name: ref.FullName(rec.Name), Looked: im.path})
	}
	if err := im.begin(&rec, config, raw); err != nil {
		return rec, err
	}
	if rec.Config, err = im.staging.AddBlob(digest.SHA256, raw); err != nil {
		return rec, err
	}
	list, err := inputs(config.RootFS.DiffIDs, func(i int, want digest.Digest) input {
		return input{want: want, object: want.OCI(), from: s.Layers[i], open: func(ctx context.Context, told func(int64)) (io.ReadCloser, error) {
			r, _, err := f.open(path.Clean(s.Layers[i]))
			if err != nil {
				return nil, errs.WithClass(errs.Corrupt, err)
			}
			return im.unpacked(ctx, r, told)
		}}
	})
	if err != nil {
		return rec, err
	}
	chain, err := im.layers(&rec, list)
	if err != nil {
		return rec, err
	}
	return im.commit(rec, chain)
}
