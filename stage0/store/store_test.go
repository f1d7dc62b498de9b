package store

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/layer"
)

func newStore(t testing.TB) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func none() (Held, error) { return Held{}, nil }

// fakeLayer stages a layer without a tree of note.
func fakeLayer(t testing.TB, g *Staging, key string) string {
	t.Helper()
	dir, err := g.NewLayer()
	if err != nil {
		t.Fatal(err)
	}
	meta, err := json.Marshal(layer.Meta{Version: layer.MetaVersion, Key: key, Size: 100 + int64(key[len(key)-1])})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "fs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "meta.json"), meta, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func layerKey(text string) string {
	return layer.Key(layer.OCI, digest.Of(digest.SHA256, []byte(text)))
}

// put commits an image of the layers, which it makes if the store lacks them.
func put(t testing.TB, s *Store, name, version string, layers ...string) image.Record {
	t.Helper()
	rec, err := tryPut(t, s, name, version, layers...)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func tryPut(t testing.TB, s *Store, name, version string, layers ...string) (image.Record, error) {
	g, err := s.Stage(t.Context())
	if err != nil {
		return image.Record{}, err
	}
	defer g.Close()
	missing, err := g.Need(t.Context(), layers)
	if err != nil {
		return image.Record{}, err
	}
	in := Import{Layers: map[string]string{}}
	for _, key := range missing {
		in.Layers[key] = fakeLayer(t, g, key)
	}
	text := []byte(name + ":" + version)
	blob, err := g.AddBlob(digest.SHA512, text)
	if err != nil {
		return image.Record{}, err
	}
	in.Record = image.Record{
		ID: digest.ImageID(digest.Of(digest.SHA512, text)), Kind: image.ACI, Name: name, Labels: appc.Labels{{Name: "version", Value: version}},
		Names: []string{name + ":" + version}, Manifest: blob, Layers: layers, ImportedAt: time.Now().UTC(),
	}
	return g.Commit(t.Context(), in)
}

func list(t testing.TB, s *Store, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(s.path(dir))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestOpenMakesFoldersOnce(t *testing.T) {
	s := newStore(t)
	for path, mode := range map[string]os.FileMode{
		"": 0o755, "store": 0o755, "store/id": 0o644, "store/version": 0o644, "store/layers": 0o700, "store/tmp": 0o700, "pods": 0o700, "volumes": 0o700,
	} {
		info, err := os.Stat(filepath.Join(s.Data(), path))
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%q: %v, %v", path, info, err)
		}
	}
	again, err := Open(s.Data())
	if err != nil || again.ID() != s.ID() || len(s.ID()) != 16 {
		t.Errorf("ids %q and %q, %v", s.ID(), again.ID(), err)
	}
	if left := list(t, s, "tmp"); len(left) > 0 {
		t.Errorf("left in tmp: %q", left)
	}
	if existing, err := OpenExisting(s.Data()); err != nil || existing.ID() != s.ID() {
		t.Errorf("existing: %v", err)
	}
}

func TestOpenAtOnceAgreesOnTheID(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	ids := make([]string, 16)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			if s, err := Open(data); err != nil {
				t.Error(err)
			} else {
				ids[i] = s.ID()
			}
		})
	}
	wg.Wait()
	if slices.Sort(ids); len(slices.Compact(ids)) != 1 {
		t.Errorf("ids %q", ids)
	}
}

func TestOpenRefusesReachableFolders(t *testing.T) {
	for _, x := range []struct {
		path string
		mode os.FileMode
	}{{"store/layers", 0o755}, {"store/tmp", 0o710}, {"pods", 0o701}, {"volumes", 0o777}, {"", 0o777}, {"store", 0o775}} {
		s := newStore(t)
		if err := os.Chmod(filepath.Join(s.Data(), x.path), x.mode); err != nil {
			t.Fatal(err)
		}
		_, err := Open(s.Data())
		if !errs.Is(err, errs.Denied) || len(errs.Hints(err)) == 0 {
			t.Errorf("%q %o: %v", x.path, x.mode, err)
		}
		if _, err := OpenExisting(s.Data()); os.Geteuid() == 0 && !errs.Is(err, errs.Denied) {
			t.Errorf("existing: %q %o: %v", x.path, x.mode, err)
		}
	}
}

func TestOpenExistingWithoutStore(t *testing.T) {
	if _, err := OpenExisting(filepath.Join(t.TempDir(), "never", "made")); !errs.Is(err, errs.NotFound) {
		t.Error(err)
	}
	s := newStore(t)
	if err := os.WriteFile(s.path("version"), []byte("99\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenExisting(s.Data()); !errs.Is(err, errs.Unsupported) {
		t.Error(err)
	}
}

func TestLookup(t *testing.T) {
	s := newStore(t)
	one := put(t, s, "example.com/app", "1.0")
	two := put(t, s, "example.com/app", "2.0")
	for arg, want := range map[string]string{
		"example.com/app": two.ID, "example.com/app:1.0": one.ID, "example.com/app:2.0": two.ID, one.ID: one.ID, two.ID[:20]: two.ID,
		"example.com/app,version=1.0": one.ID,
	} {
		if rec, err := s.Lookup(arg); err != nil || rec.ID != want {
			t.Errorf("%q: %s, %v", arg, rec.ID, err)
		}
	}
	for arg, want := range map[string]string{
		"sha512-": "image ID too short", "sha512-a": "image ID too short", "sha512-" + strings.Repeat("0", 128): "no image IDs found",
		"sha512-zz": "hex digits", "example.com/none": "not in the store", "example.com/app:3.0": "not in the store", "sha256:" + strings.Repeat("0", 64): "no image IDs found",
		"/etc": `image "/etc": not in the store`, "../../etc": `image "../../etc": not in the store`, "file:///x": `image "file:///x": not in the store`,
		"https://x.example/a.aci": `image "https://x.example/a.aci": not in the store`, "docker://none": `image "docker.io/library/none:latest": not in the store`,
	} {
		if _, err := s.Lookup(arg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", arg, err, want)
		}
	}
	// Some two of more images than two digits can tell apart.
	seen := map[string]bool{}
	for i := 0; ; i++ {
		rec := put(t, s, "example.com/many", fmt.Sprint(i))
		prefix := rec.ID[:len("sha512-")+2]
		if seen[prefix] {
			if _, err := s.Lookup(prefix); err == nil || !strings.Contains(err.Error(), "ambiguous image ID") {
				t.Errorf("%q: %v", prefix, err)
			}
			return
		}
		seen[prefix] = true
	}
}

func TestNewestNameWins(t *testing.T) {
	s := newStore(t)
	put(t, s, "example.com/app", "1.0", layerKey("a"))
	g, err := s.Stage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	other := image.Record{ID: digest.ImageID(digest.Of(digest.SHA512, []byte("other"))), Kind: image.OCI, Name: "other", Names: []string{"example.com/app:1.0"}, ImportedAt: time.Now()}
	if other.Config, err = g.AddBlob(digest.SHA256, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Commit(t.Context(), Import{Record: other}); err != nil {
		t.Fatal(err)
	}
	if rec, err := s.Lookup("example.com/app:1.0"); err != nil || rec.ID != other.ID {
		t.Errorf("%s, %v", rec.ID, err)
	}
	if rec, err := s.Lookup(other.Config); err != nil || rec.ID != other.ID {
		t.Errorf("by digest: %s, %v", rec.ID, err)
	}
}

func TestCollectKeepsWhatIsNamed(t *testing.T) {
	s := newStore(t)
	a, b, c := layerKey("a"), layerKey("b"), layerKey("c")
	one := put(t, s, "example.com/one", "1", a, b)
	put(t, s, "example.com/two", "1", b, c)
	held := func() (Held, error) {
		return Held{Images: map[string][]string{one.ID: {"pod-1"}}, Layers: map[string][]string{a: {"pod-1"}}}, nil
	}
	if err := s.RemoveImage(t.Context(), one.ID, held); !errs.Is(err, errs.Busy) || !strings.Contains(err.Error(), "pod-1") {
		t.Errorf("remove a held image: %v", err)
	}
	onlyLayer := func() (Held, error) { return Held{Layers: map[string][]string{a: {"pod-1"}}}, nil }
	if err := s.RemoveImage(t.Context(), one.ID, onlyLayer); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Lookup("example.com/one:1"); !errs.Is(err, errs.NotFound) {
		t.Errorf("lookup of a removed image: %v", err)
	}
	got, err := s.Collect(t.Context(), onlyLayer, 0)
	if err != nil || len(got.Layers) != 0 || len(got.Blobs) != 1 {
		t.Errorf("collected %+v, %v", got, err)
	}
	plan, err := s.Plan(none, 0)
	if err != nil || !slices.Equal(plan.Layers, []string{a}) {
		t.Errorf("plan %+v, %v", plan, err)
	}
	if got, err = s.Collect(t.Context(), none, 0); err != nil || !slices.Equal(got.Layers, []string{a}) {
		t.Errorf("collected %+v, %v", got, err)
	}
	if left := list(t, s, "layers"); len(left) != 2 {
		t.Errorf("layers %q", left)
	}
	if left := list(t, s, "tmp"); len(left) != 0 {
		t.Errorf("tmp %q", left)
	}
}

func TestCollectFailsClosed(t *testing.T) {
	s := newStore(t)
	rec := put(t, s, "example.com/one", "1", layerKey("a"))
	unknown := func() (Held, error) { return Held{Unknown: []string{"pod-x"}}, nil }
	if err := s.RemoveImage(t.Context(), rec.ID, unknown); !errs.Is(err, errs.Busy) || !strings.Contains(err.Error(), "pod-x") {
		t.Errorf("remove: %v", err)
	}
	if err := os.WriteFile(s.imagePath(rec.ID), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Collect(t.Context(), none, 0); !errs.Is(err, errs.Corrupt) {
		t.Errorf("collect with a damaged record: %v", err)
	}
	if err := s.RemoveImage(t.Context(), rec.ID, none); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Collect(t.Context(), unknown, 0); err != nil || len(got.Layers) > 0 {
		t.Errorf("collected %+v, %v", got, err)
	}
	if got, err := s.Collect(t.Context(), none, 0); err != nil || len(got.Layers) != 1 {
		t.Errorf("collected %+v, %v", got, err)
	}
}

func TestCollectTakesStaleEntries(t *testing.T) {
	s := newStore(t)
	live, err := s.Stage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	dead, err := s.Stage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fakeLayer(t, dead, layerKey("a"))
	// What a kill does: the lock goes, the files stay.
	if err := dead.lock.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.path("names", ".tmp-x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := s.Collect(t.Context(), none, 0)
	if err != nil || !slices.Equal(got.Staging, []string{filepath.Base(dead.dir)}) {
		t.Errorf("collected %+v, %v", got, err)
	}
	if left := list(t, s, "tmp"); !slices.Equal(left, []string{filepath.Base(live.dir)}) {
		t.Errorf("tmp %q", left)
	}
	if left := list(t, s, "names"); len(left) > 0 {
		t.Errorf("names %q", left)
	}
}

func TestStagedLayersAreHeld(t *testing.T) {
	s := newStore(t)
	a := layerKey("a")
	rec := put(t, s, "example.com/one", "1", a)
	g, err := s.Stage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if missing, err := g.Need(t.Context(), []string{a, layerKey("b")}); err != nil || !slices.Equal(missing, []string{layerKey("b")}) {
		t.Errorf("missing %q, %v", missing, err)
	}
	if err := s.RemoveImage(t.Context(), rec.ID, none); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Collect(t.Context(), none, 0); err != nil || len(got.Layers) > 0 {
		t.Errorf("collected %+v, %v", got, err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Collect(t.Context(), none, 0); err != nil || len(got.Layers) != 1 {
		t.Errorf("collected %+v, %v", got, err)
	}
}

func TestHoldKeepsOutCollect(t *testing.T) {
	s := newStore(t)
	hold, err := s.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Collect(ctx, none, 0); !errs.Is(err, errs.Busy) {
		t.Errorf("collect beside a holder: %v", err)
	}
	if err := hold.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Collect(t.Context(), none, 0); err != nil {
		t.Error(err)
	}
}

// TestImportsBesideCollect has many imports of the same layers beside collections and
// removals: every import succeeds, and what it reports is there.
func TestImportsBesideCollect(t *testing.T) {
	s := newStore(t)
	stop := make(chan struct{})
	var gc, imports sync.WaitGroup
	gc.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := s.Collect(t.Context(), none, 0); err != nil {
				t.Errorf("collect: %v", err)
			}
		}
	})
	for i := range 8 {
		imports.Go(func() {
			for n := range 12 {
				rec, err := tryPut(t, s, fmt.Sprintf("example.com/app%d", i), fmt.Sprint(n), layerKey("shared"), layerKey(fmt.Sprint(n)))
				if err != nil {
					t.Errorf("import: %v", err)
					return
				}
				for _, key := range rec.Layers {
					if _, err := s.LayerMeta(key); err != nil {
						t.Errorf("layer of an imported image: %v", err)
					}
				}
				if err := s.RemoveImage(t.Context(), rec.ID, none); err != nil {
					t.Errorf("remove: %v", err)
				}
			}
		})
	}
	imports.Wait()
	close(stop)
	gc.Wait()
	if _, err := s.Collect(t.Context(), none, 0); err != nil {
		t.Error(err)
	}
	for _, dir := range []string{"layers", "tmp", "images", "names", "blobs/sha512"} {
		if left := list(t, s, dir); len(left) > 0 {
			t.Errorf("%s: %q", dir, left)
		}
	}
}

func TestTouch(t *testing.T) {
	s := newStore(t)
	rec := put(t, s, "example.com/one", "1")
	if got := s.LastUsed(rec); !got.Equal(rec.ImportedAt) {
		t.Errorf("never used: %v, want %v", got, rec.ImportedAt)
	}
	if err := s.Touch(rec.ID); err != nil {
		t.Fatal(err)
	}
	if got := s.LastUsed(rec); got.Before(rec.ImportedAt) || time.Since(got) > time.Minute {
		t.Errorf("used at %v", got)
	}
	if err := s.Touch("../../etc/passwd"); !errs.Is(err, errs.Usage) {
		t.Error(err)
	}
}

func TestDamagedBlob(t *testing.T) {
	s := newStore(t)
	rec := put(t, s, "example.com/one", "1")
	if data, err := s.Blob(rec.Manifest); err != nil || string(data) != "example.com/one:1" {
		t.Errorf("%q, %v", data, err)
	}
	d, err := digest.Parse(rec.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.blobPath(d), []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Blob(rec.Manifest); !errs.Is(err, errs.Corrupt) {
		t.Error(err)
	}
	if _, err := s.Blob("sha256-../../../../etc/passwd"); !errs.Is(err, errs.Corrupt) {
		t.Error(err)
	}
}
