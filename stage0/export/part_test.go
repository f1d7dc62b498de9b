package export

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/tests/images"
)

// TestPartsOfTheKilled: what killed commands left beside an output goes with the
// next one there; what another one is at work on stays, as do a stranger's
// file and a link.
func TestPartsOfTheKilled(t *testing.T) {
	st := newStore(t)
	rec := importBytes(t, st, must(must(images.OCI(layered(images.Gzip))).Tar()), false)
	for name, write := range map[string]func(path string) error{
		"file":   func(path string) error { return File(t.Context(), st, []image.Record{rec}, "", path, false) },
		"folder": func(path string) error { return Folder(t.Context(), st, rec, path, FolderOptions{}) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			in := func(name string) string { return filepath.Join(dir, name) }
			for _, name := range []string{"LEFT", "BUSY", "STRANGE"} {
				if err := os.WriteFile(in(partPrefix+name), []byte("x"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.MkdirAll(in(partPrefix+"LEFTFOLDER/a/b"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("/etc", in(partPrefix+"LINK")); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(in(partPrefix+"STRANGE"), 12345, 0); err != nil {
				t.Fatal(err)
			}
			busy := must(os.Open(in(partPrefix + "BUSY")))
			defer busy.Close()
			if err := unix.Flock(int(busy.Fd()), unix.LOCK_EX); err != nil {
				t.Fatal(err)
			}
			if err := write(in("out")); err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, e := range must(os.ReadDir(dir)) {
				names = append(names, e.Name())
			}
			if want := []string{partPrefix + "BUSY", partPrefix + "LINK", partPrefix + "STRANGE", "out"}; !slices.Equal(names, want) {
				t.Errorf("there are %v, want %v", names, want)
			}
		})
	}
}

// TestPartTaken: a part that another command removes before it is locked is made
// once more.
func TestPartTaken(t *testing.T) {
	dir, made := t.TempDir(), 0
	p, err := newPart(dir, func(path string) error {
		made++
		if err := os.Mkdir(path, 0o700); err != nil || made > 1 {
			return err
		}
		return removeParts(dir)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.release()
	if err := removeParts(dir); err != nil {
		t.Error(err)
	}
	if entries := must(os.ReadDir(dir)); made != 2 || len(entries) != 1 || filepath.Join(dir, entries[0].Name()) != p.path {
		t.Errorf("made %d times, there are %v", made, entries)
	}
}
