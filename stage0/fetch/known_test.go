package fetch

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage0/oci"
	"github.com/rkt-pods/rkt/stage0/store"
	"github.com/rkt-pods/rkt/tests/images"
)

// editLayer returns the layout with one descriptor of a layer edited, all digests
// above it made good again.
func editLayer(t *testing.T, files images.Files, edit func(*oci.Descriptor)) images.Files {
	t.Helper()
	files = maps.Clone(files)
	var index oci.Index
	if err := json.Unmarshal(files[oci.IndexFile], &index); err != nil {
		t.Fatal(err)
	}
	desc := &index.Manifests[0]
	var m oci.Manifest
	if err := json.Unmarshal(files["blobs/"+strings.Replace(desc.Digest, ":", "/", 1)], &m); err != nil {
		t.Fatal(err)
	}
	edit(&m.Layers[0])
	raw := must(json.Marshal(m))
	desc.Digest, desc.Size = images.Digest(raw), int64(len(raw))
	files["blobs/"+strings.Replace(desc.Digest, ":", "/", 1)] = raw
	files[oci.IndexFile] = must(json.Marshal(index))
	return files
}

// TestBrokenWhateverIsKnown imports broken images into an empty store and into
// one that has their layer: both refuse them.
func TestBrokenWhateverIsKnown(t *testing.T) {
	good := images.Image{Name: "example.com/x:1", Layers: [][]byte{oneLayer()}, Pack: images.Gzip}
	layout := must(images.OCI(good))
	blob := ""
	editLayer(t, layout, func(d *oci.Descriptor) { blob = "blobs/" + strings.Replace(d.Digest, ":", "/", 1) })
	layer := func(edit func(*oci.Descriptor)) []byte { return must(editLayer(t, layout, edit).Tar()) }
	digest := func(s string) []byte { return layer(func(d *oci.Descriptor) { d.Digest = s }) }
	changed := func(data []byte) []byte {
		f := maps.Clone(layout)
		if delete(f, blob); data != nil {
			f[blob] = data
		}
		return must(f.Tar())
	}
	other := must(images.Compress(images.Gzip, must(images.Tar(nil))))
	swapped := editLayer(t, layout, func(d *oci.Descriptor) { d.Digest, d.Size = images.Digest(other), int64(len(other)) })
	swapped["blobs/"+strings.Replace(images.Digest(other), ":", "/", 1)] = other
	saved := images.Docker(good)
	var list []oci.Saved
	if err := json.Unmarshal(saved[oci.DockerFile], &list); err != nil {
		t.Fatal(err)
	}
	member := list[0].Layers[0]
	docker := func(name string, more ...images.Entry) []byte {
		l := []oci.Saved{list[0]}
		l[0].Layers = []string{name}
		entries := more
		for file, data := range saved {
			if file != oci.DockerFile && file != member {
				entries = append(entries, images.File(file, 0o644, string(data)))
			}
		}
		return must(images.Tar(append(entries, images.File(oci.DockerFile, 0o644, string(must(json.Marshal(l)))))))
	}
	cases := map[string][]byte{
		"zeros":             digest("sha256:" + strings.Repeat("0", 64)),
		"path":              digest("sha256:../../../../etc/passwd"),
		"md5":               digest("md5:d41d8cd98f00b204e9800998ecf8427e"),
		"no algorithm":      digest(strings.Repeat("0", 64)),
		"empty digest":      digest(""),
		"the store's":       layer(func(d *oci.Descriptor) { d.Digest = strings.Replace(d.Digest, ":", "-", 1) }),
		"upper case":        layer(func(d *oci.Descriptor) { d.Digest = "sha256:" + strings.ToUpper(d.Digest[7:]) }),
		"smaller":           layer(func(d *oci.Descriptor) { d.Size-- }),
		"larger":            layer(func(d *oci.Descriptor) { d.Size++ }),
		"size -1":           layer(func(d *oci.Descriptor) { d.Size = -1 }),
		"blob missing":      changed(nil),
		"blob cut":          changed(layout[blob][:len(layout[blob])-1]),
		"blob flipped":      changed(append(bytes.Clone(layout[blob][:9]), append([]byte{layout[blob][9] ^ 1}, layout[blob][10:]...)...)),
		"another diff id":   must(swapped.Tar()),
		"docker, outside":   docker("../../canary/passwd"),
		"docker, absolute":  docker("/etc/passwd"),
		"docker, dangling":  docker("l.tar", images.Symlink("l.tar", "nothing")),
		"docker, loop":      docker("l.tar", images.Symlink("l.tar", "m.tar"), images.Symlink("m.tar", "l.tar")),
		"docker, a folder":  docker("d", images.Dir("d", 0o755)),
		"docker, empty":     docker(""),
		"docker, no tar":    docker("l.tar", images.File("l.tar", 0o644, "text")),
		"docker, other tar": docker("l.tar", images.File("l.tar", 0o644, string(must(images.Tar(nil))))),
	}
	full := newStore(t)
	// The same layer under another name.
	has := good
	has.Name, has.EditConfig = "example.com/has:1", func(c map[string]any) { c["author"] = "another" }
	importFile(t, full, writeFile(t, "x.tar", must(must(images.OCI(has)).Tar())))
	for name, data := range cases {
		t.Run(name, func(t *testing.T) {
			empty := newStore(t)
			file := writeFile(t, "x.tar", data)
			for _, st := range []*store.Store{empty, full} {
				rec, err := importWith(t.Context(), st, file, Options{Policy: unsigned})
				if !errs.Is(err, errs.Corrupt) && !errs.Is(err, errs.Unsupported) {
					t.Errorf("image %q, error %v (%s); the store had its layer: %v", rec.Name, err, errs.ClassOf(err), st == full)
				}
			}
			checkClean(t, empty)
		})
	}
	// What is good is good with either store.
	for name, data := range map[string][]byte{"layout": must(layout.Tar()), "docker": must(saved.Tar())} {
		if rec := importFile(t, full, writeFile(t, path.Base(name)+".tar", data)); rec.Name != "example.com/x" {
			t.Errorf("%s: record %+v", name, rec)
		}
	}
	dir := t.TempDir()
	if err := layout.WriteDir(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, blob)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nothing", filepath.Join(dir, blob)); err != nil {
		t.Fatal(err)
	}
	if _, err := importWith(t.Context(), full, dir, Options{Policy: unsigned}); !errs.Is(err, errs.Corrupt) {
		t.Errorf("a blob that is a dangling symlink: %v", err)
	}
}
