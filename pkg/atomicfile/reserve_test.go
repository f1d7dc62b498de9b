package atomicfile

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// smallDisk is a file system of 256 KiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k,nr_inodes=16"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill takes all blocks, or all inodes.
func fill(t *testing.T, dir string, blocks bool) {
	t.Helper()
	var err error
	if blocks {
		err = os.WriteFile(filepath.Join(dir, rand.Text()), make([]byte, 1<<20), 0o600)
	}
	for err == nil {
		err = os.WriteFile(filepath.Join(dir, rand.Text()), nil, 0o600)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
}

func TestReserve(t *testing.T) {
	for name, blocks := range map[string]bool{"blocks": true, "inodes": false} {
		t.Run(name, func(t *testing.T) {
			dir := smallDisk(t)
			r := Reserve(filepath.Join(dir, "reserve"))
			old, fresh := filepath.Join(dir, "old"), filepath.Join(dir, "fresh")
			if err := WriteJSON(old, 1, 0o600, Renamed); err != nil {
				t.Fatal(err)
			}
			if err := r.Make(2, 8192); err != nil {
				t.Fatal(err)
			}
			fill(t, dir, blocks)
			if err := WriteJSON(old, 2, 0o600, Renamed); !errors.Is(err, unix.ENOSPC) {
				t.Fatalf("the disk is not full: %v", err)
			}
			text := string(make([]byte, 1000)) // six bytes each as JSON
			for path, d := range map[string]Durability{old: Renamed, fresh: Synced} {
				fill(t, dir, blocks) // what the file had that was replaced, if it was
				if err := r.WriteJSON(path, text, 0o640, d); err != nil {
					t.Error(err)
				}
				var got string
				if err := ReadJSON(path, &got); err != nil || got != text {
					t.Errorf("%s: %d bytes, %v", path, len(got), err)
				}
				if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o640 {
					t.Errorf("%v, %v", st, err)
				}
			}
			fill(t, dir, blocks) // what the replaced file had
			if err := r.WriteJSON(old, 3, 0o600, Renamed); !errors.Is(err, unix.ENOSPC) {
				t.Errorf("used up: %v", err)
			}
			if err := r.Free(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(string(r)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("after Free: %v", err)
			}
		})
	}
}

// TestReserveUnneeded: with space left nothing is taken, and without a reserve
// a write is as any other.
func TestReserveUnneeded(t *testing.T) {
	dir := t.TempDir()
	r := Reserve(filepath.Join(dir, "reserve"))
	path := filepath.Join(dir, "f")
	if err := r.WriteJSON(path, 1, 0o600, Renamed); err != nil {
		t.Fatal(err)
	}
	if err := r.Make(3, 100); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteJSON(path, 2, 0o600, Synced); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(string(r)); err != nil || len(left) != 3 {
		t.Errorf("%d left, %v", len(left), err)
	}
}
