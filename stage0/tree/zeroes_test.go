package tree

import (
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/layer"
	"github.com/rkt-pods/rkt/tests/images"
)

// TestZeroesAreHoles: a file of zeroes takes no space, and one with data anywhere
// keeps each byte.
func TestZeroesAreHoles(t *testing.T) {
	needRoot(t)
	zero := strings.Repeat("\x00", 3*layer.Hole+5)
	with := func(places ...int) string {
		b := []byte(zero)
		for _, at := range places {
			b[at] = 'x'
		}
		return string(b)
	}
	files := map[string]string{
		"zero": zero, "begin": with(0), "end": with(len(zero) - 1), "middle": with(layer.Hole), "before": with(layer.Hole - 1),
		"two": with(10, 2*layer.Hole+1), "all": with(0, layer.Hole, 2*layer.Hole, 3*layer.Hole), "one": "\x00", "whole": strings.Repeat("\x00", layer.Hole),
	}
	random := rand.New(rand.NewSource(1))
	long := make([]byte, 40*layer.Hole)
	for i := 0; i < len(long); i += random.Intn(3 * layer.Hole) {
		random.Read(long[i:min(len(long), i+random.Intn(layer.Hole/2))])
	}
	files["long"] = string(long)
	var entries []images.Entry
	for name, content := range files {
		entries = append(entries, images.File(name, 0o644, content))
	}
	fs, meta := unpackOK(t, entries...) // rebuilds the tar too
	for name, content := range files {
		if got := must(os.ReadFile(filepath.Join(fs, name))); string(got) != content {
			t.Errorf("%s: %d bytes, not what was in the tar", name, len(got))
		}
	}
	for _, name := range []string{"zero", "one", "whole"} {
		if st := stat(t, fs, name); st.Blocks != 0 {
			t.Errorf("%s takes %d blocks", name, st.Blocks)
		}
	}
	if found := verifyRoot(t, fs, meta); len(found) > 0 {
		t.Errorf("%v", found)
	}
}

// TestZeroesBesideFiles: bytes that don't become a file are bounded all the same.
func TestZeroesBesideFiles(t *testing.T) {
	needRoot(t)
	small := layerTar(images.File("f", 0o644, "x"))
	_, err := newCage(t).unpack(append(small, make([]byte, maxTail)...), Options{Kind: layer.OCI})
	if !errs.Is(err, errs.Denied) || !strings.Contains(err.Error(), "zeroes after the end of the archive") {
		t.Errorf("a tail: %v", err)
	}
	whiteout := images.File(".wh.f", 0o600, strings.Repeat("\x00", 1<<20))
	_, err = newCage(t).unpack(layerTar(whiteout), Options{Kind: layer.OCI, Budget: NewBudget(Limits{Size: 1<<20 - 1})})
	if !errs.Is(err, errs.Denied) || !strings.Contains(err.Error(), "more than 1048575 bytes") {
		t.Errorf("a whiteout's content: %v", err)
	}
	if _, err := newCage(t).unpack(layerTar(whiteout), Options{Kind: layer.OCI}); err != nil {
		t.Error(err)
	}
}
