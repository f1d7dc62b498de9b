package export

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/stage0/fetch"
	"github.com/rkt-pods/rkt/stage0/oci"
	"github.com/rkt-pods/rkt/stage0/remote"
	"github.com/rkt-pods/rkt/stage0/store"
	"github.com/rkt-pods/rkt/stage0/trust"
	"github.com/rkt-pods/rkt/tests/images"
	"github.com/rkt-pods/rkt/tests/rktfetch"
)

func importAll(t *testing.T, st *store.Store, path string) ([]image.Record, error) {
	t.Helper()
	d := remote.NewDecompressor(rktfetch.Program(), fetchwire.Limits{})
	defer d.Close()
	return fetch.ImportAll(t.Context(), st, path, fetch.Options{Policy: trust.Policy{AllowUnsigned: true}, Decompressor: d})
}

// sharing are images that have layers in common, packed in ways of their own;
// the last one is the first but for that.
func sharing() []images.Image {
	base := layered(images.Gzip)
	var list []images.Image
	for _, x := range []struct {
		name string
		pack images.Compression
		top  string
	}{{"example.com/a:1", images.Gzip, "a"}, {"example.com/b:1", images.Zstd, "b"}, {"example.org/c:2", images.None, "c"}, {"example.com/again:1", images.Zstd, "a"}} {
		top := must(images.Tar([]images.Entry{images.File("top", 0o644, x.top)}))
		list = append(list, images.Image{
			Name: x.name, Pack: x.pack, Layers: slices.Concat(base.Layers, [][]byte{top}), Config: map[string]any{"Cmd": []string{x.top}},
		})
	}
	return list
}

// TestSeveral takes images to another store, in a tar and in a folder.
func TestSeveral(t *testing.T) {
	first := newStore(t)
	var recs []image.Record
	for i, m := range sharing() {
		recs = append(recs, importBytes(t, first, must(must(images.OCI(m)).Tar()), i == 1))
	}
	// One has a second name.
	other := sharing()[0]
	other.Name = "example.net/second:9"
	recs[0] = importBytes(t, first, must(must(images.OCI(other)).Tar()), false)
	dir := t.TempDir()
	folder, file := filepath.Join(dir, "layout"), filepath.Join(dir, "out.tar")
	// Naming one twice changes nothing.
	if err := Layout(t.Context(), first, append(recs, recs[0]), folder, false); err != nil {
		t.Fatal(err)
	}
	if err := File(t.Context(), first, recs, "", file, false); err != nil {
		t.Fatal(err)
	}
	if entries := must(os.ReadDir(dir)); len(entries) != 2 {
		t.Errorf("left %v", entries)
	}
	for name, data := range unpacked(t, must(os.ReadFile(file))) {
		if !bytes.Equal(must(os.ReadFile(filepath.Join(folder, name))), data) {
			t.Errorf("%s: another in the folder", name)
		}
	}
	for _, path := range []string{folder, file} {
		second := newStore(t)
		got, err := importAll(t, second, path)
		if err != nil || len(got) != len(recs) {
			t.Fatalf("%s: %d images, %v", path, len(got), err)
		}
		for _, want := range recs {
			again, err := second.Image(want.ID)
			if err != nil {
				t.Error(err)
				continue
			}
			if again.Manifest != want.Manifest || !slices.Equal(again.Layers, want.Layers) || !slices.Equal(sorted(again.Names), sorted(want.Names)) {
				t.Errorf("got %+v\nwant %+v", again, want)
			}
			for _, name := range want.Names {
				if rec, err := second.Named(name); err != nil || rec.ID != want.ID {
					t.Errorf("%s: %s, %v", name, rec.ID, err)
				}
			}
		}
		if again := exported(t, second, must(second.Image(recs[2].ID)), ""); !bytes.Equal(again, exported(t, first, recs[2], "")) {
			t.Errorf("%s: exports as another", path)
		}
		// One of them by its name.
		rec, err := importAll(t, newStore(t), path+":example.net/second:9")
		if err != nil || len(rec) != 1 || rec[0].ID != recs[0].ID {
			t.Errorf("%+v, %v", rec, err)
		}
		if _, err := importing(t, newStore(t), path, false); !errs.Is(err, errs.Usage) || !strings.Contains(err.Error(), "5 images in the layout") {
			t.Errorf("error %v", err)
		}
	}
}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }

// TestSharedOnce: the three layers that are uncompressed are there once, and so
// is each that came packed.
func TestSharedOnce(t *testing.T) {
	st := newStore(t)
	var recs []image.Record
	for _, m := range sharing()[:3] {
		recs = append(recs, importBytes(t, st, must(must(images.OCI(m)).Tar()), false))
	}
	var b bytes.Buffer
	if err := Write(t.Context(), st, recs, "", &b); err != nil {
		t.Fatal(err)
	}
	files, seen := unpacked(t, b.Bytes()), map[string]int{}
	for name, data := range files {
		if !strings.HasPrefix(string(data), "{") {
			seen[string(data)]++
		}
		if strings.HasPrefix(name, "blobs/") && name != "blobs/sha256/"+images.Digest(data)[7:] {
			t.Errorf("%s: not its digest", name)
		}
	}
	if len(seen) != 5 { // two below and one of each
		t.Errorf("%d layers", len(seen))
	}
	for _, n := range seen {
		if n != 1 {
			t.Errorf("a layer is there %d times", n)
		}
	}
}

// TestOthersReadIt gives the layout to the tools of others.
func TestOthersReadIt(t *testing.T) {
	st := newStore(t)
	var recs []image.Record
	for _, m := range sharing() {
		recs = append(recs, importBytes(t, st, must(must(images.OCI(m)).Tar()), false))
	}
	dir := t.TempDir()
	folder, file := filepath.Join(dir, "layout"), filepath.Join(dir, "out.tar")
	for _, err := range []error{Layout(t.Context(), st, recs, folder, false), File(t.Context(), st, recs, "", file, false)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, tool := range []string{"skopeo", "umoci"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	for i, m := range sharing() {
		for _, from := range []string{"oci:" + folder, "oci-archive:" + file} {
			to := filepath.Join(t.TempDir(), "to")
			if out, err := exec.Command("skopeo", "--insecure-policy", "copy", from+":"+m.Name, "dir:"+to).CombinedOutput(); err != nil {
				t.Errorf("skopeo, %s: %v\n%s", m.Name, err, out)
				continue
			}
			var got oci.Manifest
			if err := json.Unmarshal(must(os.ReadFile(filepath.Join(to, "manifest.json"))), &got); err != nil || len(got.Layers) != len(recs[i].Own) {
				t.Errorf("skopeo, %s: %+v, %v", m.Name, got, err)
			}
		}
		bundle := filepath.Join(t.TempDir(), "bundle")
		if out, err := exec.Command("umoci", "unpack", "--image", folder+":"+m.Name, bundle).CombinedOutput(); err != nil {
			t.Errorf("umoci, %s: %v\n%s", m.Name, err, out)
			continue
		}
		top := must(os.ReadFile(filepath.Join(bundle, "rootfs/top")))
		if want := m.Config["Cmd"].([]string)[0]; string(top) != want {
			t.Errorf("umoci, %s: %q, want %q", m.Name, top, want)
		}
	}
}

// TestSeveralSaved does the same for what docker save writes.
func TestSeveralSaved(t *testing.T) {
	list := sharing()[:3]
	path := writeFile(t, must(images.Docker(list...).Tar()))
	first := newStore(t)
	recs, err := importAll(t, first, path)
	if err != nil || len(recs) != 3 {
		t.Fatalf("%d images, %v", len(recs), err)
	}
	var b bytes.Buffer
	if err := Write(t.Context(), first, recs, "", &b); err != nil {
		t.Fatal(err)
	}
	again, err := importAll(t, newStore(t), writeFile(t, b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	for i, rec := range again {
		if rec.ID != recs[i].ID || rec.Names[0] != list[i].Name {
			t.Errorf("got %+v\nwant %+v", rec, recs[i])
		}
	}
}

// TestWhatDoesNotMix is refused before anything is written, by its id.
func TestWhatDoesNotMix(t *testing.T) {
	st := newStore(t)
	fromOCI := importBytes(t, st, must(must(images.OCI(layered(images.Gzip))).Tar()), false)
	other := layered("")
	other.Name = "example.com/saved:1"
	saved := importBytes(t, st, must(images.Docker(other).Tar()), false)
	aci := importBytes(t, st, must(images.ACI(images.Manifest("example.com/aci", "1", nil), []images.Entry{images.File("f", 0o644, "x")})), false)
	for name, x := range map[string]struct {
		recs   []image.Record
		format Format
		class  errs.Class
		text   string
	}{
		"aci":    {[]image.Record{fromOCI, aci}, "", errs.Unsupported, aci.ID[:19] + ": is an ACI"},
		"docker": {[]image.Record{fromOCI, saved}, "", errs.Unsupported, saved.ID[:19] + ": is of format docker"},
		"none":   {nil, "", errs.Usage, "no image is named"},
		"format": {[]image.Record{fromOCI}, "zip", errs.Usage, "zip"},
	} {
		path := filepath.Join(t.TempDir(), "out")
		if err := File(t.Context(), st, x.recs, x.format, path, false); !errs.Is(err, x.class) || !strings.Contains(err.Error(), x.text) {
			t.Errorf("%s: error %v", name, err)
		}
		if entries := must(os.ReadDir(filepath.Dir(path))); len(entries) > 0 {
			t.Errorf("%s: left %v", name, entries)
		}
	}
	var b bytes.Buffer
	if err := Write(t.Context(), st, []image.Record{fromOCI, saved}, OCI, &b); err != nil {
		t.Fatal(err)
	}
	recs, err := importAll(t, newStore(t), writeFile(t, b.Bytes()))
	if err != nil || len(recs) != 2 || recs[0].ID != fromOCI.ID || recs[1].Config != saved.Config {
		t.Errorf("%+v, %v", recs, err)
	}
}

// TestOneIsBad: the others get in, and the error names it.
func TestOneIsBad(t *testing.T) {
	list := sharing()[:3]
	files := must(images.OCI(list...))
	packed := must(images.Compress(images.Zstd, list[1].Layers[2]))
	files["blobs/sha256/"+images.Digest(packed)[7:]] = []byte("another")
	st := newStore(t)
	recs, err := importAll(t, st, writeFile(t, must(files.Tar())))
	if len(recs) != 2 || !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), list[1].Name) || strings.Contains(err.Error(), list[0].Name) {
		t.Errorf("%d images, error %v", len(recs), err)
	}
	if _, err := st.Named(list[1].Name); !errs.Is(err, errs.NotFound) {
		t.Errorf("error %v", err)
	}
	if entries := must(os.ReadDir(filepath.Join(st.Data(), "store/tmp"))); len(entries) > 1 {
		t.Errorf("left in store/tmp: %v", entries)
	}
}

// TestNameWithoutTag is kept among others.
func TestNameWithoutTag(t *testing.T) {
	st := newStore(t)
	var recs []image.Record
	for i, m := range sharing()[:2] {
		m.Name = ""
		path := filepath.Join(t.TempDir(), []string{"one", "two"}[i]+".tar")
		if err := os.WriteFile(path, must(must(images.OCI(m)).Tar()), 0o644); err != nil {
			t.Fatal(err)
		}
		recs = append(recs, importPath(t, st, path, false))
	}
	var b bytes.Buffer
	if err := Write(t.Context(), st, recs, "", &b); err != nil {
		t.Fatal(err)
	}
	again, err := importAll(t, newStore(t), writeFile(t, b.Bytes()))
	if err != nil || len(again) != 2 || again[0].Name != "one" || again[1].Name != "two" || again[0].ID != recs[0].ID {
		t.Errorf("%+v, %v", again, err)
	}
}
