package tree

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/rkt-pods/rkt/tests/images"
)

// FuzzRebuild damages what a layer is rebuilt from. Whatever it is then, nothing
// outside of the layer is touched, and it never passes for the layer.
func FuzzRebuild(f *testing.F) {
	needRoot(f)
	fs, meta := unpackOK(f, images.Dir("d", 0o755), images.File("d/f", 0o644, "content"), images.File("d/f", 0o644, "again"),
		images.Symlink("d/s", "../../canary"), images.Link("h", "d/f"), images.Whiteout("w"))
	dir := filepath.Dir(fs)
	split := must(os.ReadFile(filepath.Join(dir, splitFile)))
	residue := must(os.ReadFile(filepath.Join(dir, residueFile)))
	// Uncompressed, a change gets further in.
	plain := gunzip(f, split)
	f.Add(plain, residue)
	f.Add(bytes.ReplaceAll(plain, []byte(`"d/f"`), []byte(`"d/s"`)), residue)
	f.Add(bytes.ReplaceAll(plain, []byte(`"d/f"`), []byte(`"../f"`)), residue)
	var want bytes.Buffer
	if err := Rebuild(dir, meta, &want); err != nil {
		f.Fatal(err)
	}
	canary := filepath.Join(dir, "canary")
	f.Fuzz(func(t *testing.T, plain, residue []byte) {
		for path, data := range map[string][]byte{
			filepath.Join(dir, splitFile): gzipped(t, plain), filepath.Join(dir, residueFile): residue, canary: []byte("untouched"),
		} {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var got bytes.Buffer
		err := Rebuild(dir, meta, &got)
		list, _, verr := Verify(t.Context(), dir, meta, t.TempDir())
		if verr != nil {
			t.Fatalf("verify: %v", verr)
		}
		same := err == nil && bytes.Equal(got.Bytes(), want.Bytes())
		if !same && len(list) == 0 {
			t.Errorf("rebuilt as another (%v), and verify found nothing", err)
		}
		if data, err := os.ReadFile(canary); err != nil || string(data) != "untouched" {
			t.Fatalf("HOST PATH WAS CHANGED: %q, %v", data, err)
		}
	})
}

// TestRebuildReadsNoOtherFile: a name that a damaged record makes of a symlink, or
// of what is outside, is refused.
func TestRebuildReadsNoOtherFile(t *testing.T) {
	fs, meta := unpackOK(t, images.File("f", 0o644, "content"), images.Symlink("s", "f"))
	dir := filepath.Dir(fs)
	path := filepath.Join(dir, splitFile)
	plain := gunzip(t, must(os.ReadFile(path)))
	for _, name := range []string{`"s"`, `"../meta.json"`, `"nosuch"`} {
		data := gzipped(t, bytes.ReplaceAll(plain, []byte(`"name":"f"`), []byte(`"name":`+name)))
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Rebuild(dir, meta, &bytes.Buffer{}); err == nil {
			t.Errorf("%s: no error", name)
		}
		if list := verifyRoot(t, fs, meta); len(list) == 0 {
			t.Errorf("%s: verify found nothing", name)
		}
	}
}

func gunzip(t testing.TB, data []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return must(io.ReadAll(z))
}

func gzipped(t testing.TB, data []byte) []byte {
	t.Helper()
	return must(images.Compress(images.Gzip, data))
}
