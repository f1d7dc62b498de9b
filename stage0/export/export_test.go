package export

import (
	"bytes"
	"io/fs"
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
	"github.com/rkt-pods/rkt/stage0/remote"
	"github.com/rkt-pods/rkt/stage0/store"
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

func importPath(t *testing.T, st *store.Store, path string, keep bool) image.Record {
	t.Helper()
	rec, err := importing(t, st, path, keep)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func importBytes(t *testing.T, st *store.Store, data []byte, keep bool) image.Record {
	t.Helper()
	return importPath(t, st, writeFile(t, data), keep)
}

func writeFile(t *testing.T, data []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func exported(t *testing.T, st *store.Store, rec image.Record, f Format) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(t.Context(), st, []image.Record{rec}, f, &b); err != nil {
		t.Fatal(err)
	}
	if entries := must(os.ReadDir(filepath.Join(st.Data(), "store/tmp"))); len(entries) > 0 {
		t.Errorf("left in store/tmp: %v", entries)
	}
	return b.Bytes()
}

func layered(pack images.Compression) images.Image {
	var tars [][]byte
	for _, l := range [][]images.Entry{
		{images.Dir("root", 0o700), images.File("root/a", 0o4755, "a"), images.File("twice", 0o644, "1"), images.File("twice", 0o644, "2")},
		{images.File("root/c", 0o644, "c"), images.Link("d", "root/a"), images.Whiteout("twice")},
	} {
		tars = append(tars, must(images.Tar(l)))
	}
	return images.Image{Name: "example.com/x:1", Layers: tars, Pack: pack, Config: map[string]any{"Cmd": []string{"x"}}}
}

func TestACIIsTheSameTar(t *testing.T) {
	st := newStore(t)
	aci := must(images.ACI(images.Manifest("example.com/a", "1", nil), []images.Entry{images.File("f", 0o644, "x"), images.Link("g", "f")}))
	for _, c := range []images.Compression{images.None, images.Gzip, images.XZ} {
		rec := importBytes(t, st, must(images.Compress(c, aci)), false)
		if !bytes.Equal(exported(t, st, rec, ""), aci) {
			t.Errorf("packed with %s: another tar", c)
		}
	}
}

// TestImportsAsTheSameImage exports and imports, twice over.
func TestImportsAsTheSameImage(t *testing.T) {
	for name, x := range map[string]struct {
		data   []byte
		format Format
	}{
		"oci":          {must(must(images.OCI(layered(images.Gzip))).Tar()), OCI},
		"zstd":         {must(must(images.OCI(layered(images.Zstd))).Tar()), OCI},
		"uncompressed": {must(must(images.OCI(layered(images.None))).Tar()), OCI},
		"docker":       {must(images.Docker(layered("")).Tar()), Docker},
		"no name":      {must(must(images.OCI(images.Image{Layers: layered("").Layers, Pack: images.Gzip})).Tar()), OCI},
	} {
		t.Run(name, func(t *testing.T) {
			first := newStore(t)
			rec := importBytes(t, first, x.data, false)
			if f := FormatOf(rec); f != x.format {
				t.Errorf("format %s", f)
			}
			out := exported(t, first, rec, "")
			second := newStore(t)
			again := importBytes(t, second, out, false)
			if again.ID != rec.ID || again.Manifest != rec.Manifest || !slices.Equal(again.Layers, rec.Layers) || !slices.Equal(again.Labels, rec.Labels) {
				t.Errorf("got %+v\nwant %+v", again, rec)
			}
			if name != "no name" && !slices.Equal(again.Names, rec.Names) {
				t.Errorf("names %q, want %q", again.Names, rec.Names)
			}
			if !bytes.Equal(exported(t, second, again, ""), out) {
				t.Error("the second export is another")
			}
		})
	}
}

func TestOtherFormats(t *testing.T) {
	st := newStore(t)
	rec := importBytes(t, st, must(must(images.OCI(layered(images.Gzip))).Tar()), false)
	again := importBytes(t, newStore(t), exported(t, st, rec, Docker), false)
	if again.Config != rec.Config || !slices.Equal(again.Layers, rec.Layers) || FormatOf(again) != Docker {
		t.Errorf("got %+v", again)
	}
	for _, f := range []Format{ACI, "zip"} {
		if err := Write(t.Context(), st, []image.Record{rec}, f, &bytes.Buffer{}); err == nil {
			t.Errorf("%s: no error", f)
		}
	}
}

// TestKeptBlobs: the exported layout is the imported one, file by file.
func TestKeptBlobs(t *testing.T) {
	for _, pack := range []images.Compression{images.Gzip, images.None} {
		files := must(images.OCI(layered(pack)))
		st := newStore(t)
		// The layers may be there already, from an import that kept nothing.
		importBytes(t, st, must(files.Tar()), false)
		rec := importBytes(t, st, must(files.Tar()), true)
		got := unpacked(t, exported(t, st, rec, ""))
		for name, data := range files {
			if !bytes.Equal(got[name], data) {
				t.Errorf("%s: %s is another", pack, name)
			}
			delete(got, name)
		}
		for name := range got {
			t.Errorf("%s: %s should not be there", pack, name)
		}
		none := func() (store.Held, error) { return store.Held{}, nil }
		if g, err := st.Collect(t.Context(), none, 0); err != nil || !g.Empty() && pack == images.None {
			t.Errorf("collected %v, %v", g, err)
		}
		exported(t, st, rec, "")
	}
}

// TestOneOfSeveralKept: the index lists the one image, by its name.
func TestOneOfSeveralKept(t *testing.T) {
	other := layered(images.Gzip)
	other.Name, other.Config = "example.com/y:2", map[string]any{"Cmd": []string{"y"}}
	file := writeFile(t, must(must(images.OCI(layered(images.Gzip), other)).Tar()))
	st := newStore(t)
	rec := importPath(t, st, file+":example.com/y:2", true)
	again := importBytes(t, newStore(t), exported(t, st, rec, ""), true)
	if again.ID != rec.ID || again.Name != "example.com/y" {
		t.Errorf("got %+v", again)
	}
}

func unpacked(t *testing.T, archive []byte) images.Files {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("tar", "-C", dir, "-x")
	cmd.Stdin = bytes.NewReader(archive)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	files := images.Files{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files[must(filepath.Rel(dir, p))] = must(os.ReadFile(p))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestSignaturesComeAlong: whatever signatures the record has are exported with
// the image, and imported with it, whether its blobs were kept or not.
func TestSignaturesComeAlong(t *testing.T) {
	for _, keep := range []bool{false, true} {
		st := newStore(t)
		rec := importBytes(t, st, must(must(images.OCI(layered(images.Gzip))).Tar()), keep)
		g := must(st.Stage(t.Context()))
		rec.Signatures = []string{must(g.AddBlob("sha256", []byte("one"))), must(g.AddBlob("sha256", []byte("two")))}
		must(g.Commit(t.Context(), store.Import{Record: rec}))
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		second := newStore(t)
		again := importBytes(t, second, exported(t, st, rec, ""), keep)
		if again.ID != rec.ID || !slices.Equal(again.Signatures, rec.Signatures) || (again.Kept != nil) != keep {
			t.Errorf("kept %v: signatures %q, want %q", keep, again.Signatures, rec.Signatures)
			continue
		}
		if data, err := second.Blob(again.Signatures[1]); err != nil || string(data) != "two" {
			t.Errorf("%q, %v", data, err)
		}
		// What was signed elsewhere is handed on as it is.
		if third := importBytes(t, newStore(t), exported(t, second, again, ""), keep); !slices.Equal(third.Signatures, rec.Signatures) {
			t.Errorf("kept %v: handed on: signatures %q, want %q", keep, third.Signatures, rec.Signatures)
		}
	}
}

// TestForgedOriginal: a layout can't claim another image's manifest.
func TestForgedOriginal(t *testing.T) {
	st := newStore(t)
	rec := importBytes(t, st, must(must(images.OCI(layered(images.Gzip))).Tar()), false)
	files := unpacked(t, exported(t, st, rec, ""))
	evil := layered(images.Gzip)
	evil.Config = map[string]any{"Cmd": []string{"evil"}}
	evilRec := importBytes(t, st, must(must(images.OCI(evil)).Tar()), false)
	evilFiles := unpacked(t, exported(t, st, evilRec, ""))
	// The new manifest of the one beside the artifact of the other, which is
	// made to refer to it.
	index := string(evilFiles["index.json"])
	digests := func(index string) (img, artifact string) {
		parts := strings.Split(index, `"digest":"`)
		return parts[1][:71], parts[2][:71]
	}
	goodImg, goodArt := digests(string(files["index.json"]))
	evilImg, evilArt := digests(index)
	forged := bytes.ReplaceAll(files["blobs/sha256/"+goodArt[7:]], []byte(goodImg), []byte(evilImg))
	for name, data := range files {
		if _, ok := evilFiles[name]; !ok {
			evilFiles[name] = data
		}
	}
	evilFiles["blobs/sha256/"+images.Digest(forged)[7:]] = forged
	index = strings.Replace(index, evilArt, images.Digest(forged), 1)
	evilFiles["index.json"] = []byte(index)
	path := writeFile(t, must(evilFiles.Tar()))
	_, err := importing(t, newStore(t), path, false)
	if !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), "is of another image than") {
		t.Errorf("error %v", err)
	}
}

func TestFile(t *testing.T) {
	st := newStore(t)
	rec := importBytes(t, st, must(must(images.OCI(layered(images.Gzip))).Tar()), false)
	dir := t.TempDir()
	path := filepath.Join(dir, "out.tar")
	if err := File(t.Context(), st, []image.Record{rec}, "", path, false); err != nil {
		t.Fatal(err)
	}
	if err := File(t.Context(), st, []image.Record{rec}, "", path, false); !errs.Is(err, errs.Usage) || !strings.Contains(err.Error(), "exists") {
		t.Errorf("error %v", err)
	}
	if err := File(t.Context(), st, []image.Record{rec}, "", path, true); err != nil {
		t.Error(err)
	}
	if err := File(t.Context(), st, []image.Record{rec}, "", dir, true); !errs.Is(err, errs.Usage) {
		t.Errorf("error %v", err)
	}
	if err := File(t.Context(), st, []image.Record{rec}, "", filepath.Join(dir, "no/where"), true); !errs.Is(err, errs.NotFound) {
		t.Errorf("error %v", err)
	}
	want := must(os.ReadFile(path))
	// Damage is found on the way, and leaves what was there.
	if err := os.WriteFile(filepath.Join(st.LayerFS(rec.Own[0]), "root/a"), []byte("b"), 0); err != nil {
		t.Fatal(err)
	}
	if err := File(t.Context(), st, []image.Record{rec}, "", path, true); !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), `"root/a"`) {
		t.Errorf("error %v", err)
	}
	if entries := must(os.ReadDir(dir)); len(entries) != 1 || !bytes.Equal(must(os.ReadFile(path)), want) {
		t.Errorf("left %v", entries)
	}
}

func TestFolder(t *testing.T) {
	st := newStore(t)
	rec := importBytes(t, st, must(must(images.OCI(layered(images.Gzip))).Tar()), false)
	dir := t.TempDir()
	path := filepath.Join(dir, "a/b")
	if err := Folder(t.Context(), st, rec, path, FolderOptions{Manifest: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"manifest", "rootfs/root/a", "rootfs/root/c", "rootfs/d"} {
		if _, err := os.Lstat(filepath.Join(path, name)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(filepath.Join(path, "rootfs/twice")); err == nil {
		t.Error("a removed file is there")
	}
	if err := Folder(t.Context(), st, rec, path, FolderOptions{}); !errs.Is(err, errs.Usage) || !strings.Contains(err.Error(), "output directory exists (try --overwrite)") {
		t.Errorf("error %v", err)
	}
	if err := Folder(t.Context(), st, rec, path, FolderOptions{Overwrite: true}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(filepath.Join(path, "root")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("root: %v, %v", info, err)
	}
	if entries := must(os.ReadDir(filepath.Dir(path))); len(entries) != 1 {
		t.Errorf("left %v", entries)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{"/", "/.", st.Data(), filepath.Dir(st.Data()), filepath.Join(st.Data(), "store"), link} {
		err := Folder(t.Context(), st, rec, target, FolderOptions{Overwrite: true})
		if !errs.Is(err, errs.Denied) && !errs.Is(err, errs.Usage) {
			t.Errorf("%s: %v", target, err)
		}
	}
	if _, err := st.Image(rec.ID); err != nil {
		t.Error(err)
	}
}
