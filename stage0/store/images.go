package store

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/layer"
	"github.com/rkt-pods/rkt/pkg/ref"
)

// recordVersion is the version of image records that this build writes.
const recordVersion = 1

// ownImages returns the records of all images that this store has itself, the
// oldest import first. With an error there are those that could be read.
func (s *Store) ownImages() ([]image.Record, error) {
	ids, err := s.imageIDs()
	if err != nil {
		return nil, err
	}
	var list []image.Record
	var bad []error
	for _, id := range ids {
		rec, err := s.ownImage(id)
		switch {
		case errs.Is(err, errs.NotFound): // removed meanwhile
		case err != nil:
			bad = append(bad, err)
		default:
			list = append(list, rec)
		}
	}
	slices.SortStableFunc(list, func(a, b image.Record) int { return a.ImportedAt.Compare(b.ImportedAt) })
	return list, errors.Join(bad...)
}

// ownImage returns the record of the image with that full id, if this store has
// it itself.
func (s *Store) ownImage(id string) (image.Record, error) {
	var rec image.Record
	if !digest.IsImageID(id) {
		return rec, errs.Newf(errs.Usage, "image %q: not a full image ID", id)
	}
	err := atomicfile.ReadJSON(s.imagePath(id), &rec)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return rec, errs.Newf(errs.NotFound, "image %s: not in the store", digest.ShortID(id, 12))
	case errors.Is(err, fs.ErrPermission):
		return rec, errs.WithHint(errs.Newf(errs.Denied, "image record: %w", err), "run rkt as root")
	case err != nil:
		return rec, badRecord(id, errs.Newf(errs.Corrupt, "image record: %w", err))
	case rec.ID != id:
		return rec, badRecord(id, errs.Newf(errs.Corrupt, "image record: %s: is of image %q", s.imagePath(id), rec.ID))
	case rec.Version > recordVersion:
		return rec, errs.Newf(errs.Unsupported, "image record: %s: version %d, this rkt knows %d", s.imagePath(id), rec.Version, recordVersion)
	}
	for _, key := range Layers(rec) {
		if _, _, err := layer.ParseKey(key); err != nil {
			return rec, badRecord(id, fmt.Errorf("image record: %s: %w", s.imagePath(id), err))
		}
	}
	return rec, nil
}

func badRecord(id string, err error) error {
	return errs.WithHint(err, "\"rkt image rm %s\" removes the damaged record", digest.ShortID(id, 12))
}

// Lookup finds the image that an argument names: an id or at least two hex
// digits of one, an OCI digest, a reference it was imported under, or
// name[:version][,label=value]…. Of several by one name the newest import
// counts, and those of the store itself before those of others.
func (s *Store) Lookup(arg string) (image.Record, error) {
	return s.among(func(one *Store) (image.Record, error) { return one.lookup(arg) })
}

func (s *Store) lookup(arg string) (image.Record, error) {
	if digest.LooksLikeImageID(arg) {
		return s.byPrefix(arg)
	}
	if d, err := digest.Parse(arg); err == nil {
		return s.byDigest(arg, d)
	}
	if id, err := s.resolve(arg); err == nil {
		if rec, err := s.ownImage(id); err == nil {
			return rec, nil
		}
	}
	r, err := ref.Parse(arg, func(string) bool { return false })
	if err != nil {
		return image.Record{}, err
	}
	if r.Name == "" { // a path or a URL
		err := errs.Newf(errs.NotFound, "image %q: not in the store", arg)
		return image.Record{}, errs.WithHint(err, "it takes an ID or a name, which \"rkt image list\" shows; \"rkt fetch FILE\" imports a file and prints its ID")
	}
	rec, err := s.byName(r.Name, r.Labels)
	for _, name := range spellings(r.Name) {
		if errs.Is(err, errs.NotFound) {
			rec, err = better(rec, err)(s.byName(name, r.Labels))
		}
		if errs.Is(err, errs.NotFound) && r.Kind == ref.OCI && r.Tag == ref.DefaultTag {
			rec, err = better(rec, err)(s.byName(name, nil))
		}
	}
	return rec, err
}

// better keeps the first error, since that is of the name as it was given.
func better(rec image.Record, err error) func(image.Record, error) (image.Record, error) {
	return func(found image.Record, ferr error) (image.Record, error) {
		if ferr == nil {
			return found, nil
		}
		return rec, err
	}
}

// spellings are the ways in which an image of the name may be named in itself:
// Docker's tools write names in full, and others as they were given.
func spellings(name string) []string {
	list := []string{name}
	if full := ref.FullName(name); full != name {
		list = append(list, full)
	}
	if short, ok := strings.CutPrefix(name, ref.DockerHost+"/"); ok {
		list = append(list, short, strings.TrimPrefix(short, ref.DockerOwner+"/"))
	}
	return list
}

// ByName finds the newest image of that name whose labels have the values
// asked for.
func (s *Store) ByName(name string, labels appc.Labels) (image.Record, error) {
	return s.among(func(one *Store) (image.Record, error) { return one.byName(name, labels) })
}

func (s *Store) byName(name string, labels appc.Labels) (image.Record, error) {
	// An unreadable record of another image is no reason not to find this one.
	list, bad := s.ownImages()
	want := image.Dependency{ImageName: name, Labels: labels}
	for _, rec := range slices.Backward(list) {
		if name != "" && want.Matches(rec.Name, rec.Labels) {
			return rec, nil
		}
	}
	if bad != nil {
		return image.Record{}, bad
	}
	err := errs.Newf(errs.NotFound, "image %q: not in the store", want.String())
	return image.Record{}, errs.WithHint(err, "\"rkt fetch FILE\" imports an image, \"rkt image list\" shows what is there")
}

func (s *Store) byPrefix(arg string) (image.Record, error) {
	id, err := s.ExpandID(arg)
	if err != nil {
		return image.Record{}, err
	}
	return s.ownImage(id)
}

// ExpandID returns the one id of an image that begins with arg. The image's
// record may be damaged.
func (s *Store) ExpandID(arg string) (string, error) {
	prefix, err := digest.ImageIDPrefix(arg)
	if err != nil {
		return "", err
	}
	ids, err := s.imageIDs()
	if err != nil {
		return "", err
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return !strings.HasPrefix(id, prefix) })
	switch len(ids) {
	case 0:
		return "", errs.WithHint(errs.Newf(errs.NotFound, "no image IDs found: %q", arg), "\"rkt image list\" shows what is there")
	case 1:
		return ids[0], nil
	}
	var short []string
	for _, id := range ids[:min(len(ids), 4)] {
		short = append(short, digest.ShortID(id, 12))
	}
	err = errs.Newf(errs.Usage, "ambiguous image ID: %q", arg)
	return "", errs.WithHint(err, "it begins the ids of %d images, such as %s", len(ids), strings.Join(short, ", "))
}

func (s *Store) byDigest(arg string, d digest.Digest) (image.Record, error) {
	list, bad := s.ownImages()
	for _, rec := range slices.Backward(list) {
		index := func(s image.Source) bool { return s.Digest == d.OCI() }
		if rec.Kind == image.OCI && (rec.Manifest == d.String() || rec.Config == d.String() || slices.ContainsFunc(rec.Sources, index)) {
			return rec, nil
		}
	}
	if bad != nil {
		return image.Record{}, bad
	}
	return image.Record{}, errs.Newf(errs.NotFound, "no image IDs found: %q", arg)
}

func (s *Store) imageIDs() ([]string, error) {
	entries, err := os.ReadDir(s.path("images"))
	if errors.Is(err, fs.ErrPermission) {
		return nil, errs.WithHint(errs.Newf(errs.Denied, "list images: %w", err), "run rkt as root")
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list images: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), ".json"); ok && digest.IsImageID(id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Manifest returns the image's manifest; that of an OCI image is made of its
// config.
func (s *Store) Manifest(rec image.Record) (*image.Manifest, error) {
	data, err := s.RawManifest(rec)
	if err != nil {
		return nil, err
	}
	if rec.Kind == image.ACI {
		return image.Parse(data)
	}
	config, err := s.Blob(rec.Config)
	if err != nil {
		return nil, err
	}
	c, err := image.ParseConfig(config)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", digest.ShortID(rec.ID, 12), err)
	}
	var oci struct {
		Annotations map[string]string `json:"annotations"`
	}
	if rec.Manifest != "" {
		if err := json.Unmarshal(data, &oci); err != nil {
			return nil, errs.Newf(errs.Corrupt, "image %s: manifest: %w", digest.ShortID(rec.ID, 12), err)
		}
	}
	return image.FromOCI(c, rec.Name, rec.Labels, oci.Annotations)
}

// RawManifest returns the manifest as it came: appc's, OCI's, or the config
// where there was no more.
func (s *Store) RawManifest(rec image.Record) ([]byte, error) {
	return s.Blob(cmp.Or(rec.Manifest, rec.Config))
}

// Blob returns the blob of the name `<alg>-<hex>`, verified.
func (s *Store) Blob(name string) ([]byte, error) {
	d, err := digest.Parse(name)
	if err != nil {
		return nil, errs.WithClass(errs.Corrupt, fmt.Errorf("blob: %w", err))
	}
	data, err := os.ReadFile(s.findBlob(d))
	if err != nil {
		return nil, errs.Newf(errs.Corrupt, "blob: %w", err)
	}
	if digest.Of(d.Alg, data) != d {
		return nil, errs.Newf(errs.Corrupt, "blob %s: the content is another", name)
	}
	return data, nil
}

// OpenBlob opens a blob of any size. The reader gives an error of class Corrupt
// instead of io.EOF if the content is another.
func (s *Store) OpenBlob(name string) (io.ReadCloser, int64, error) {
	d, err := digest.Parse(name)
	if err != nil {
		return nil, 0, errs.WithClass(errs.Corrupt, fmt.Errorf("blob: %w", err))
	}
	f, err := os.Open(s.findBlob(d))
	if err != nil {
		return nil, 0, errs.Newf(errs.Corrupt, "blob: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close() // read only
		return nil, 0, fmt.Errorf("blob: %w", err)
	}
	return struct {
		io.Reader
		io.Closer
	}{digest.Reader(f, d, info.Size()), f}, info.Size(), nil
}

// LayerDir is the absolute path of a layer's folder, whether it is there or not.
func (s *Store) LayerDir(key string) string { return s.withLayer(key).ownLayer(key) }

func (s *Store) ownLayer(key string) string { return s.path("layers", key) }

// LayerFS is the absolute path of a layer's tree, which overlayfs mounts.
func (s *Store) LayerFS(key string) string { return filepath.Join(s.LayerDir(key), "fs") }

// LayerMeta returns the record of a layer. The error is of class NotFound if
// there is no such layer.
func (s *Store) LayerMeta(key string) (layer.Meta, error) {
	var m layer.Meta
	if _, _, err := layer.ParseKey(key); err != nil {
		return m, err
	}
	err := atomicfile.ReadJSON(filepath.Join(s.LayerDir(key), "meta.json"), &m)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return m, s.orBroken(errs.Newf(errs.NotFound, "layer %s: not in the store", key))
	case err != nil:
		return m, errs.Newf(errs.Corrupt, "layer record: %w", err)
	case m.Version > layer.MetaVersion:
		return m, errs.Newf(errs.Unsupported, "layer %s: version %d, this rkt knows %d", key, m.Version, layer.MetaVersion)
	}
	return m, nil
}

// Touch notes that the image is used now. It is for listings and age rules
// only, so it is not synced.
func (s *Store) Touch(id string) error {
	if !digest.IsImageID(id) {
		return errs.Newf(errs.Usage, "image %q: not a full image ID", id)
	}
	if _, err := os.Lstat(s.imagePath(id)); errors.Is(err, fs.ErrNotExist) && len(s.frozen) > 0 {
		return nil // another store's, where nothing is noted
	}
	if err := fault.Step("store.touch"); err != nil {
		return err
	}
	now := time.Now()
	err := os.Chtimes(s.usedPath(id), now, now)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(s.usedPath(id), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("note use of image: %w", err)
	}
	return f.Close()
}

// LastUsed returns when the image was used last, the time of its import if
// never.
func (s *Store) LastUsed(rec image.Record) time.Time {
	info, err := os.Stat(s.usedPath(rec.ID))
	if err != nil || info.ModTime().Before(rec.ImportedAt) {
		return rec.ImportedAt
	}
	return info.ModTime()
}

func (s *Store) imagePath(id string) string { return s.path("images", id+".json") }
func (s *Store) usedPath(id string) string  { return s.path("images", id+".used") }
func (s *Store) pinPath(id string) string   { return s.path("images", id+".pin") }

func (s *Store) blobPath(d digest.Digest) string {
	return s.path("blobs", string(d.Alg), d.Hex)
}
