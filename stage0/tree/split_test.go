package tree

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/vbatts/tar-split/tar/asm"
	"github.com/vbatts/tar-split/tar/storage"

	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/layer"
	"github.com/rkt-pods/rkt/tests/images"
)

// TestSplitIsTarSplits gives what is kept of a tar to the program that defined
// the format: with the tree it makes the same tar.
func TestSplitIsTarSplits(t *testing.T) {
	needRoot(t)
	data, err := images.Tar([]images.Entry{
		images.Dir("d", 0o700), images.File("d/f", 0o644, "content"), images.File("d/caf\xe9", 0o600, "not UTF-8"),
		images.File("empty", 0o644, ""), images.Symlink("s", "d"), images.Link("h", "d/f"),
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := Unpack(t.Context(), bytes.NewReader(data), dir, Options{Kind: layer.OCI, Want: digest.Of(digest.SHA256, data)}); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(dir, splitFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	again := asm.NewOutputTarStream(storage.NewPathFileGetter(filepath.Join(dir, "fs")), storage.NewJSONUnpacker(z))
	defer again.Close()
	got, err := io.ReadAll(again)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes of %d, %v", len(got), len(data), err)
	}
}
