package export

import (
	"encoding/json"
	"io"
	"slices"
	"strings"

	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/layer"
	"github.com/rkt-pods/rkt/stage0/oci"
	"github.com/rkt-pods/rkt/stage0/store"
	"github.com/rkt-pods/rkt/stage0/tree"
)

// exporter writes images, one after the other, each file once.
type exporter struct {
	store *store.Store
	out   sink
	done  map[string]bool // files that were written
}

func (x *exporter) aci(rec image.Record, w io.Writer) error {
	if len(rec.Own) != 1 {
		return failed(rec, errs.Newf(errs.Corrupt, "record: %d layers of its own", len(rec.Own)))
	}
	meta, err := x.store.LayerMeta(rec.Own[0])
	if err == nil {
		err = tree.WriteTar(x.store.LayerDir(meta.Key), meta, w)
	}
	return failed(rec, err)
}

// begin starts a file; nil without an error is for one that is there.
func (x *exporter) begin(name string, size int64) (io.Writer, error) {
	if x.done[name] {
		return nil, nil
	}
	if x.done == nil {
		x.done = map[string]bool{}
	}
	x.done[name] = true
	return x.out.begin(name, size)
}

func (x *exporter) file(name string, data []byte) error {
	w, err := x.begin(name, int64(len(data)))
	if w == nil || err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// stored adds a blob of the store to the layout.
func (x *exporter) stored(blob string) (oci.Descriptor, error) {
	d, err := digest.Parse(blob)
	if err != nil {
		return oci.Descriptor{}, errs.WithClass(errs.Corrupt, err)
	}
	r, size, err := x.store.OpenBlob(blob)
	if err != nil {
		return oci.Descriptor{}, err
	}
	defer r.Close()
	desc := oci.Descriptor{Digest: d.OCI(), Size: size}
	w, err := x.begin(oci.BlobName(d), size)
	if w == nil || err != nil {
		return desc, err
	}
	_, err = io.Copy(w, r)
	return desc, err
}

// layer adds the tar of a layer under a name.
func (x *exporter) layer(key, name string) (size int64, err error) {
	meta, err := x.store.LayerMeta(key)
	if err != nil {
		return 0, err
	}
	w, err := x.begin(name, meta.TarSize)
	if w == nil || err != nil {
		return meta.TarSize, err
	}
	return meta.TarSize, tree.WriteTar(x.store.LayerDir(key), meta, w)
}

func (x *exporter) docker(recs []image.Record) error {
	list := []oci.Saved{}
	for _, rec := range recs {
		saved, err := x.saved(rec)
		if err != nil {
			return failed(rec, err)
		}
		list = append(list, saved)
	}
	if err := x.json(oci.DockerFile, list); err != nil {
		return err
	}
	return x.out.end()
}

// saved adds one image of a docker archive.
func (x *exporter) saved(rec image.Record) (oci.Saved, error) {
	config, err := x.store.Blob(rec.Config)
	if err != nil {
		return oci.Saved{}, err
	}
	saved := oci.Saved{Config: digest.Of(digest.SHA256, config).Hex + ".json", RepoTags: tags(rec), Layers: []string{}}
	if err := x.file(saved.Config, config); err != nil {
		return saved, err
	}
	for _, key := range rec.Own {
		_, d, err := layer.ParseKey(key)
		if err != nil {
			return saved, err
		}
		name := d.Hex + "/layer.tar"
		if _, err := x.layer(key, name); err != nil {
			return saved, err
		}
		saved.Layers = append(saved.Layers, name)
	}
	return saved, nil
}

func (x *exporter) json(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return x.file(name, data)
}

// tags are those of the image's names that Docker would take.
func tags(rec image.Record) []string {
	return slices.DeleteFunc(slices.Clone(rec.Names), func(ref string) bool {
		return strings.LastIndexByte(ref, ':') <= strings.LastIndexByte(ref, '/')
	})
}
