package fetch

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rkt-pods/rkt/pkg/fetchwire"
	"github.com/rkt-pods/rkt/stage0/remote"
	"github.com/rkt-pods/rkt/stage0/store"
	"github.com/rkt-pods/rkt/tests/images"
	"github.com/rkt-pods/rkt/tests/rktfetch"
)

// FuzzFile imports any file. Nothing of a refused one is in the store, and all of
// an accepted one is.
func FuzzFile(f *testing.F) {
	needRoot(f)
	img := images.Image{Name: "example.com/x:1", Layers: [][]byte{oneLayer()}, Config: map[string]any{"Cmd": []string{"x"}}}
	aci := must(images.ACI(images.Manifest("example.com/x", "1", nil), rootfs()))
	for _, data := range [][]byte{
		aci, must(images.Compress(images.Gzip, aci)), must(images.Compress(images.XZ, aci)), must(images.Compress(images.Bzip2, aci)),
		must(must(images.OCI(img)).Tar()), must(images.Docker(img).Tar()), must(must(images.OCIIndex("x", img)).Tar()),
	} {
		f.Add(data)
	}
	dir := f.TempDir()
	st, err := store.Open(filepath.Join(dir, "data"))
	if err != nil {
		f.Fatal(err)
	}
	file := filepath.Join(dir, "file")
	opt := Options{Policy: unsigned, Decompressor: remote.NewDecompressor(rktfetch.Program(), fetchwire.Limits{})}
	f.Cleanup(func() { _ = opt.Decompressor.Close() })
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		rec, err := Import(t.Context(), st, file, opt)
		if err == nil {
			if got, err := st.Lookup(rec.ID); err != nil || got.ID != rec.ID {
				t.Errorf("lookup: %v", err)
			}
			if _, err := st.Manifest(rec); err != nil {
				t.Errorf("manifest: %v", err)
			}
			if err := st.RemoveImage(t.Context(), rec.ID, none); err != nil {
				t.Fatal(err)
			}
		}
		checkClean(t, st)
	})
}
