package fetch

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/stage0/store"
	"github.com/rkt-pods/rkt/stage0/tree"
	"github.com/rkt-pods/rkt/stage0/trust"
	"github.com/rkt-pods/rkt/tests/images"
)

var unsigned = trust.Policy{AllowUnsigned: true}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("RKT_TEST_UNPRIVILEGED") == "1" {
		t.Skip("needs root")
	}
	t.Fatal("needs root; RKT_TEST_UNPRIVILEGED=1 leaves such tests out")
}

func newStore(t testing.TB) *store.Store {
	t.Helper()
	needRoot(t)
	st, err := store.Open(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func none() (store.Held, error) { return store.Held{}, nil }

// checkClean fails if anything of a failed import is left after a collection.
func checkClean(t testing.TB, st *store.Store) {
	t.Helper()
	if _, err := st.Collect(t.Context(), none, 0); err != nil {
		t.Fatalf("collect: %v", err)
	}
	checkEmpty(t, st)
}

// checkEmpty fails if there is anything in the store.
func checkEmpty(t testing.TB, st *store.Store) {
	t.Helper()
	for _, dir := range []string{"tmp", "layers", "images", "names", "blobs/sha256", "blobs/sha512"} {
		entries, err := os.ReadDir(filepath.Join(st.Data(), "store", dir))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for _, e := range entries {
			t.Errorf("left in store/%s: %s", dir, e.Name())
		}
	}
}

func writeFile(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func rootfs() []images.Entry {
	return []images.Entry{
		images.Dir("bin", 0o755), images.File("bin/hello", 0o4755, "hello\n"), images.Dir("root", 0o700).Owned(0, 7),
		images.Symlink("bin/hi", "hello"), images.Link("bin/also", "bin/hello"),
	}
}

func importFile(t testing.TB, st *store.Store, path string) image.Record {
	t.Helper()
	rec, err := importWith(t.Context(), st, path, Options{Policy: unsigned})
	if err != nil {
		t.Fatalf("import: %v", err)
	}
	return rec
}

// checkRebuild fails if the tar of a layer can't be had back from the store.
func checkRebuild(t testing.TB, st *store.Store, rec image.Record, want []byte) {
	t.Helper()
	meta, err := st.LayerMeta(rec.Layers[0])
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := tree.Rebuild(st.LayerDir(meta.Key), meta, &got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Error("the rebuilt tar is another")
	}
}

func TestACI(t *testing.T) {
	plainTar := must(images.ACI(images.Manifest("example.com/hello", "1.0", []string{"/bin/hello"}), rootfs()))
	var id string
	for _, c := range []images.Compression{images.None, images.Gzip, images.Bzip2, images.XZ} {
		t.Run(string(c), func(t *testing.T) {
			st := newStore(t)
			rec := importFile(t, st, writeFile(t, "hello", must(images.Compress(c, plainTar))))
			if id != "" && rec.ID != id {
				t.Errorf("id %s, want %s whatever it is packed with", rec.ID, id)
			}
			id = rec.ID
			if len(rec.Layers) != 1 || rec.Layers[0] != "aci-"+rec.ID || rec.Name != "example.com/hello" {
				t.Errorf("record: %+v", rec)
			}
			info, err := os.Lstat(filepath.Join(st.LayerFS(rec.Layers[0]), "bin/hello"))
			if err != nil || info.Mode() != 0o755|os.ModeSetuid {
				t.Errorf("bin/hello: %v, %v", info, err)
			}
			checkRebuild(t, st, rec, plainTar)
			for _, arg := range []string{"example.com/hello", "example.com/hello:1.0", rec.ID, rec.ID[:9]} {
				if got, err := st.Lookup(arg); err != nil || got.ID != rec.ID {
					t.Errorf("lookup %q: %v, %v", arg, got.ID, err)
				}
			}
			if m, err := st.Manifest(rec); err != nil || !slices.Equal(m.App.Exec, []string{"/bin/hello"}) {
				t.Errorf("manifest: %+v, %v", m, err)
			}
			if err := st.RemoveImage(t.Context(), rec.ID, none); err != nil {
				t.Fatal(err)
			}
			checkClean(t, st)
		})
	}
}

func TestUnsignedIsRefused(t *testing.T) {
	st := newStore(t)
	path := writeFile(t, "hello.aci", must(images.ACI(images.Manifest("example.com/hello", "", nil), rootfs())))
	_, err := importWith(t.Context(), st, path, Options{})
	if !errs.Is(err, errs.Denied) || !strings.Contains(strings.Join(errs.Hints(err), " "), "--insecure-options=image") {
		t.Errorf("error %v, hints %q", err, errs.Hints(err))
	}
	checkClean(t, st)
}

func TestOCI(t *testing.T) {
	layers := [][]byte{
		must(images.Tar([]images.Entry{images.Dir("root", 0o700), images.File("root/a", 0o644, "a"), images.File("gone", 0o644, "x")})),
		must(images.Tar([]images.Entry{images.File("root/b", 0o644, "b"), images.Whiteout("gone")})),
	}
	img := images.Image{Name: "example.com/two:1.0", Layers: layers, Pack: images.Gzip, Config: map[string]any{
		"Entrypoint": []string{"/bin/x"}, "Cmd": []string{"y"}, "User": "app:users", "ExposedPorts": map[string]any{"80/tcp": map[string]any{}},
	}}
	files := must(images.OCI(img))
	dir := t.TempDir()
	if err := files.WriteDir(dir); err != nil {
		t.Fatal(err)
	}
	img.Pack = images.Zstd
	zstdFiles := must(images.OCI(img))
	for name, path := range map[string]string{
		"folder":    dir,
		"tar":       writeFile(t, "x.tar", must(files.Tar())),
		"tar.gz":    writeFile(t, "x.tar.gz", must(images.Compress(images.Gzip, must(files.Tar())))),
		"zstd":      writeFile(t, "x.tar", must(zstdFiles.Tar())),
		"index":     writeFile(t, "x.tar", must(must(images.OCIIndex(img.Name, img, images.Image{Arch: "s390x"})).Tar())),
		"docker":    writeFile(t, "x.tar", must(images.Docker(img).Tar())),
		"docker.xz": writeFile(t, "x.tar.xz", must(images.Compress(images.XZ, must(images.Docker(img).Tar())))),
	} {
		t.Run(name, func(t *testing.T) {
			st := newStore(t)
			rec := importFile(t, st, path)
			if rec.Kind != image.OCI || rec.Name != "example.com/two" || len(rec.Layers) != 3 || !strings.HasPrefix(rec.Layers[2], "fix-") {
				t.Fatalf("record: %+v", rec)
			}
			info, err := os.Lstat(filepath.Join(st.LayerFS(rec.Layers[2]), "root"))
			if err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("fix-up of root: %v, %v", info, err)
			}
			m, err := st.Manifest(rec)
			if err != nil || !slices.Equal(m.App.Exec, []string{"/bin/x", "y"}) || m.App.Group != "users" || m.App.Ports[0].Name != "80-tcp" {
				t.Errorf("manifest: %+v, %v", m, err)
			}
			if got, err := st.Lookup("example.com/two:1.0"); err != nil || got.ID != rec.ID {
				t.Errorf("lookup: %v, %v", got.ID, err)
			}
			again := importFile(t, st, path)
			if again.ID != rec.ID || !slices.Equal(again.Layers, rec.Layers) {
				t.Errorf("second import: %+v", again)
			}
			if err := st.RemoveImage(context.Background(), rec.ID, none); err != nil {
				t.Fatal(err)
			}
			checkClean(t, st)
		})
	}
}

func TestNames(t *testing.T) {
	full := func(name, tag string) images.Files {
		f := must(images.OCI(images.Image{Name: tag, Layers: [][]byte{oneLayer()}}))
		f["index.json"] = bytes.Replace(f["index.json"], []byte(`"org.opencontainers`), []byte(`"io.containerd.image.name":"`+name+`","org.opencontainers`), 1)
		return f
	}
	for _, x := range []struct {
		files images.Files
		name  string
		refs  []string
		args  []string
	}{
		{must(images.OCI(images.Image{Layers: [][]byte{oneLayer()}})), "busy", []string{"busy"}, []string{"busy"}},
		{must(images.OCI(images.Image{Name: "1.36", Layers: [][]byte{oneLayer()}})), "busy", []string{"busy:1.36"}, []string{"busy", "busy:1.36"}},
		{must(images.OCI(images.Image{Name: "localhost:5000/x", Layers: [][]byte{oneLayer()}})), "localhost:5000/x", []string{"localhost:5000/x"}, []string{"localhost:5000/x"}},
		{full("docker.io/library/busybox:1.36", "1.36"), "docker.io/library/busybox", []string{"docker.io/library/busybox:1.36"}, []string{"busybox", "busybox:1.36", "docker://busybox", "docker.io/library/busybox"}},
		{full("docker.io/me/it:2", "2"), "docker.io/me/it", []string{"docker.io/me/it:2"}, []string{"me/it", "docker://me/it:2"}},
		{images.Docker(images.Image{Name: "busybox:latest", Layers: [][]byte{oneLayer()}}), "busybox", []string{"busybox:latest"}, []string{"busybox", "busybox:latest", "docker://busybox"}},
	} {
		st := newStore(t)
		rec := importFile(t, st, writeFile(t, "busy.tar", must(x.files.Tar())))
		if rec.Name != x.name || !slices.Equal(rec.Names, x.refs) {
			t.Errorf("name %q, names %q; want %q, %q", rec.Name, rec.Names, x.name, x.refs)
		}
		for _, arg := range x.args {
			if got, err := st.Lookup(arg); err != nil || got.ID != rec.ID {
				t.Errorf("%s: lookup %q: %v", x.name, arg, err)
			}
		}
		if _, err := st.Lookup("busybox:none"); !errs.Is(err, errs.NotFound) {
			t.Errorf("lookup of another version: %v", err)
		}
	}
}
