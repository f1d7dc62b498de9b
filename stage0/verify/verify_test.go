package verify

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/layer"
	"github.com/rkt-pods/rkt/stage0/fetch"
	"github.com/rkt-pods/rkt/stage0/remote"
	"github.com/rkt-pods/rkt/stage0/store"
	"github.com/rkt-pods/rkt/stage0/tree"
	"github.com/rkt-pods/rkt/stage0/trust"
	"github.com/rkt-pods/rkt/tests/images"
	"github.com/rkt-pods/rkt/tests/rktfetch"
)

func TestMain(m *testing.M) { os.Exit(rktfetch.Main(m)) }

// importing imports what is not signed.
func importing(t testing.TB, st *store.Store, path string, keep bool) (image.Record, error) {
	t.Helper()
	d := remote.NewDecompressor(rktfetch.Program(), fetchwire.Limits{})
	defer d.Close()
	return fetch.Import(t.Context(), st, path, fetch.Options{Policy: trust.Policy{AllowUnsigned: true}, KeepBlobs: keep, Decompressor: d})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func newStore(t *testing.T) *store.Store {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("RKT_TEST_UNPRIVILEGED") == "1" {
			t.Skip("needs root")
		}
		t.Fatal("needs root; RKT_TEST_UNPRIVILEGED=1 leaves such tests out")
	}
	return must(store.Open(filepath.Join(t.TempDir(), "data")))
}

func importBytes(t *testing.T, st *store.Store, data []byte) image.Record {
	t.Helper()
	file := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	rec, err := importing(t, st, file, false)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// stacked is an image that needs a fix-up layer, with two references.
func stacked(t *testing.T, st *store.Store) image.Record {
	t.Helper()
	var tars [][]byte
	for _, l := range [][]images.Entry{
		{images.Dir("root", 0o700), images.File("root/a", 0o600, "a"), images.File("b", 0o644, "b")},
		{images.File("root/c", 0o644, "c"), images.Link("d", "b")},
		{images.Dir("root", 0o700), images.File("root/a", 0o600, "a"), images.File("b", 0o644, "b")},
	} {
		tars = append(tars, must(images.Tar(l)))
	}
	img := images.Image{Name: "example.com/x:1", Layers: tars, Pack: images.Gzip, Config: map[string]any{"Cmd": []string{"x"}}}
	rec := importBytes(t, st, must(must(images.OCI(img)).Tar()))
	if !isKind(rec.Layers[len(rec.Layers)-1], layer.Fixup) {
		t.Fatalf("layers %q", rec.Layers)
	}
	return rec
}

// dependent is an ACI on another, which is cut to a whitelist.
func dependent(t *testing.T, st *store.Store) image.Record {
	t.Helper()
	base := images.Manifest("example.com/base", "1", nil)
	importBytes(t, st, must(images.ACI(base, []images.Entry{images.File("keep", 0o644, "k"), images.File("drop", 0o644, "d")})))
	var m map[string]any
	if err := json.Unmarshal([]byte(images.Manifest("example.com/top", "1", []string{"/keep"})), &m); err != nil {
		t.Fatal(err)
	}
	m["dependencies"] = []any{map[string]any{"imageName": "example.com/base"}}
	m["pathWhitelist"] = []string{"/keep", "/mine"}
	return importBytes(t, st, must(images.ACI(string(must(json.Marshal(m))), []images.Entry{images.File("mine", 0o644, "m")})))
}

func writeRecord(t *testing.T, st *store.Store, rec image.Record) {
	t.Helper()
	path := filepath.Join(st.Data(), "store/images", rec.ID+".json")
	if err := os.WriteFile(path, must(json.Marshal(rec)), 0o600); err != nil {
		t.Fatal(err)
	}
}

func findings(t *testing.T, st *store.Store, rec image.Record) []Finding {
	t.Helper()
	list, err := New(st).Image(t.Context(), rec.ID)
	if err != nil {
		t.Fatal(err)
	}
	entries := must(os.ReadDir(filepath.Join(st.Data(), "store/tmp")))
	if len(entries) > 0 {
		t.Errorf("left in store/tmp: %v", entries)
	}
	return list
}

func texts(list []Finding) string {
	var all []string
	for _, f := range list {
		all = append(all, f.String())
	}
	return strings.Join(all, "\n")
}

func TestWholeImages(t *testing.T) {
	st := newStore(t)
	for _, rec := range []image.Record{stacked(t, st), dependent(t, st)} {
		if list := findings(t, st, rec); len(list) > 0 {
			t.Errorf("%s: %s", rec.Name, texts(list))
		}
	}
}

// TestMadeLayers changes fix-up and derived layers.
func TestMadeLayers(t *testing.T) {
	st := newStore(t)
	for _, rec := range []image.Record{stacked(t, st), dependent(t, st)} {
		i := slices.IndexFunc(rec.Layers, func(key string) bool { return isKind(key, layer.Fixup) || isKind(key, layer.Derived) })
		fs := st.LayerFS(rec.Layers[i])
		name := map[string]string{"example.com/x": "d", "example.com/top": "keep"}[rec.Name]
		if err := os.WriteFile(filepath.Join(fs, name), []byte("z"), 0); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(fs, 0o711); err != nil {
			t.Fatal(err)
		}
		got := texts(findings(t, st, rec))
		for _, want := range []string{`"` + name + `": content`, `".": mode: 0711`} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: found %s, want %s", rec.Name, got, want)
			}
		}
	}
}

// TestDerivedWithoutItsSource: with the layer that it was cut from gone, the
// digest of the tree still tells.
func TestDerivedWithoutItsSource(t *testing.T) {
	st := newStore(t)
	rec := dependent(t, st)
	none := func() (store.Held, error) { return store.Held{}, nil }
	base := must(st.Lookup("example.com/base"))
	if err := st.RemoveImage(t.Context(), base.ID, none); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Collect(t.Context(), none, 0); err != nil {
		t.Fatal(err)
	}
	if list := findings(t, st, rec); len(list) > 0 {
		t.Fatalf("before: %s", texts(list))
	}
	if err := os.Chmod(filepath.Join(st.LayerFS(rec.Layers[0]), "keep"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := texts(findings(t, st, rec)); !strings.Contains(got, "content: the tree is sha256-") {
		t.Errorf("found %q", got)
	}
}

// TestRecords changes what lies beside the layers.
func TestRecords(t *testing.T) {
	change := func(edit func(*image.Record)) func(*testing.T, *store.Store, image.Record) image.Record {
		return func(t *testing.T, st *store.Store, rec image.Record) image.Record {
			t.Helper()
			edit(&rec)
			writeRecord(t, st, rec)
			return rec
		}
	}
	write := func(elem ...string) func(*testing.T, *store.Store, image.Record) image.Record {
		return func(t *testing.T, st *store.Store, rec image.Record) image.Record {
			t.Helper()
			names := must(filepath.Glob(filepath.Join(append([]string{st.Data(), "store"}, elem...)...)))
			for _, p := range names {
				if err := os.WriteFile(p, []byte(`{"mediaType":"x"}`), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			return rec
		}
	}
	for _, x := range []struct {
		name   string
		damage func(*testing.T, *store.Store, image.Record) image.Record
		want   string
	}{
		{"layer order", change(func(r *image.Record) { r.Layers[0], r.Layers[1] = r.Layers[1], r.Layers[0] }), "layers: are not those of the config"},
		{"own layers", change(func(r *image.Record) { r.Own[0], r.Own[1] = r.Own[1], r.Own[0] }), "own: are not the layers of the config"},
		{"no fix-up", change(func(r *image.Record) { r.Layers = r.Layers[:len(r.Layers)-1] }), "the fix-up layer is missing"},
		{"another config", change(func(r *image.Record) { r.Config = r.Manifest }), "config: is not that of the manifest"},
		{"another manifest", change(func(r *image.Record) { r.Manifest = r.Config }), "id: the manifest's is"},
		{"blobs", write("blobs/sha256/*"), "the content is"},
		{"names", write("names/*"), "the record is of"},
		{"layer records", write("layers/*/meta.json"), `layer record: is of layer ""`},
		{"no layer", func(t *testing.T, st *store.Store, rec image.Record) image.Record {
			if err := os.RemoveAll(st.LayerDir(rec.Own[1])); err != nil {
				t.Fatal(err)
			}
			return rec
		}, "not in the store"},
	} {
		t.Run(x.name, func(t *testing.T) {
			st := newStore(t)
			rec := x.damage(t, st, stacked(t, st))
			if got := texts(findings(t, st, rec)); !strings.Contains(got, x.want) {
				t.Errorf("found %s, want %s", got, x.want)
			}
		})
	}
}

// TestGone: an image that was removed meanwhile is not damaged.
func TestGone(t *testing.T) {
	st := newStore(t)
	rec := stacked(t, st)
	if err := st.RemoveImage(t.Context(), rec.ID, func() (store.Held, error) { return store.Held{}, nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := New(st).Image(t.Context(), rec.ID); !errs.Is(err, errs.NotFound) {
		t.Errorf("error %v", err)
	}
}

// TestACIManifest: the record's manifest has to be the one in the tar.
func TestACIManifest(t *testing.T) {
	st := newStore(t)
	rec := importBytes(t, st, must(images.ACI(images.Manifest("example.com/a", "1", nil), []images.Entry{images.File("f", 0o644, "x")})))
	other := []byte(images.Manifest("example.com/a", "1", []string{"/evil"}))
	d := digest.Of(digest.SHA512, other)
	if err := os.WriteFile(filepath.Join(st.Data(), "store/blobs/sha512", d.Hex), other, 0o600); err != nil {
		t.Fatal(err)
	}
	rec.Manifest = d.String()
	writeRecord(t, st, rec)
	if got := texts(findings(t, st, rec)); !strings.Contains(got, "manifest: is not the one in the image") {
		t.Errorf("found %s", got)
	}
	if f := (Finding{Damage: tree.Damage{What: tree.Records, Detail: "x"}}); f.String() != "record: x" {
		t.Error(f)
	}
}
