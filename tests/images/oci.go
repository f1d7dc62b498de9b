package images

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
)

// Image is an OCI or Docker image.
type Image struct {
	Name   string         // reference, with its tag
	Config map[string]any // the config's "config"; nil: none at all
	Layers [][]byte       // uncompressed tars, the lowest first
	Pack   Compression    // of the layers, in an OCI layout
	Arch   string         // "" means this host's
	// Edit may change the config, and the manifest of an OCI layout, before
	// they are written. Both may be nil.
	EditConfig, EditManifest func(map[string]any)
}

// Files are the files of a layout or an archive, by name.
type Files map[string][]byte

// Digest is the SHA-256 of data as OCI writes it.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func blobPath(digest string) string { return "blobs/sha256/" + digest[len("sha256:"):] }

func (f Files) blob(data []byte) string {
	d := Digest(data)
	f[blobPath(d)] = data
	return d
}

func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // tests put in nothing that can't be marshalled
	}
	return data
}

// config is the image's config as JSON.
func (m Image) config() []byte {
	diffs := []string{}
	for _, l := range m.Layers {
		diffs = append(diffs, Digest(l))
	}
	arch := m.Arch
	if arch == "" {
		arch = runtime.GOARCH
	}
	config := map[string]any{
		"created": Time.Format("2006-01-02T15:04:05Z"), "architecture": arch, "os": "linux",
		"rootfs": map[string]any{"type": "layers", "diff_ids": diffs},
	}
	if m.Config != nil {
		config["config"] = m.Config
	}
	if m.EditConfig != nil {
		m.EditConfig(config)
	}
	return mustJSON(config)
}

// manifest adds the image's blobs and returns its descriptor.
func (m Image) manifest(f Files) (map[string]any, error) {
	media := "application/vnd.oci.image.layer.v1.tar"
	if m.Pack != None && m.Pack != "" {
		media += "+" + string(m.Pack)
	}
	layers := []any{}
	for _, l := range m.Layers {
		packed, err := Compress(m.Pack, l)
		if err != nil {
			return nil, err
		}
		layers = append(layers, map[string]any{"mediaType": media, "digest": f.blob(packed), "size": len(packed)})
	}
	config := m.config()
	manifest := map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "layers": layers,
		"config": map[string]any{"mediaType": "application/vnd.oci.image.config.v1+json", "digest": f.blob(config), "size": len(config)},
	}
	if m.EditManifest != nil {
		m.EditManifest(manifest)
	}
	raw := mustJSON(manifest)
	arch := m.Arch
	if arch == "" {
		arch = runtime.GOARCH
	}
	return map[string]any{
		"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": f.blob(raw), "size": len(raw),
		"platform": map[string]any{"os": "linux", "architecture": arch},
	}, nil
}

// OCI makes an image layout of the images. Those of no name stand in the
// index without one.
func OCI(list ...Image) (Files, error) {
	f := Files{"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`)}
	manifests := []any{}
	for _, m := range list {
		d, err := m.manifest(f)
		if err != nil {
			return nil, err
		}
		if m.Name != "" {
			d["annotations"] = map[string]string{"org.opencontainers.image.ref.name": m.Name}
		}
		manifests = append(manifests, d)
	}
	f["index.json"] = mustJSON(map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": manifests})
	return f, nil
}

// OCIIndex makes an image layout whose one entry is an index of the images, as
// for several platforms.
func OCIIndex(name string, list ...Image) (Files, error) {
	f, err := OCI(list...)
	if err != nil {
		return nil, err
	}
	inner := f["index.json"]
	entry := map[string]any{
		"mediaType": "application/vnd.oci.image.index.v1+json", "digest": f.blob(inner), "size": len(inner),
		"annotations": map[string]string{"org.opencontainers.image.ref.name": name},
	}
	f["index.json"] = mustJSON(map[string]any{"schemaVersion": 2, "manifests": []any{entry}})
	return f, nil
}

// Docker makes what `docker save` writes for the images, in the form without an
// OCI layout in it.
func Docker(list ...Image) Files {
	f := Files{}
	var entries []any
	for _, m := range list {
		config := m.config()
		name := Digest(config)[len("sha256:"):] + ".json"
		f[name] = config
		layers := []string{}
		for i, l := range m.Layers {
			file := fmt.Sprintf("%s/layer.tar", Digest(fmt.Appendf(nil, "%s %d", Digest(l), i))[len("sha256:"):])
			f[file] = l
			layers = append(layers, file)
		}
		entry := map[string]any{"Config": name, "Layers": layers, "RepoTags": nil}
		if m.Name != "" {
			entry["RepoTags"] = []string{m.Name}
		}
		entries = append(entries, entry)
	}
	f["manifest.json"] = mustJSON(entries)
	return f
}

// WriteDir writes the files below dir.
func (f Files) WriteDir(dir string) error {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, f[name], 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Tar writes the files as a tar, sorted by name.
func (f Files) Tar() ([]byte, error) {
	var entries []Entry
	for _, name := range slices.Sorted(maps.Keys(f)) {
		entries = append(entries, File(name, 0o644, string(f[name])))
	}
	return Tar(entries)
}
