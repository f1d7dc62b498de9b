package atomicfile

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
)

func TestWriteReplaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for i, d := range []Durability{Renamed, Synced} {
		if err := WriteJSON(path, map[string]int{"n": i}, 0o640, d); err != nil {
			t.Fatal(err)
		}
		var got map[string]int
		if err := ReadJSON(path, &got); err != nil || got["n"] != i {
			t.Errorf("read %v, %v", got, err)
		}
		if st, _ := os.Stat(path); st.Mode().Perm() != 0o640 {
			t.Errorf("mode %v", st.Mode())
		}
	}
	onlyFile(t, path)
}

// TestFailureKeepsTheOld: a write that can't be finished leaves the old content
// and no other file.
func TestFailureKeepsTheOld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := Write(path, []byte("old"), 0o600, Renamed); err != nil {
		t.Fatal(err)
	}
	if err := WriteJSON(path, func() {}, 0o600, Renamed); err == nil {
		t.Error("a func was written")
	}
	if data, _ := os.ReadFile(path); string(data) != "old" {
		t.Errorf("content %q", data)
	}
	onlyFile(t, path)
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(dir, nil, 0o600, Renamed); err == nil {
		t.Error("a folder was replaced")
	}
	onlyFile(t, dir)
}

func onlyFile(t *testing.T, path string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("entries %v, %v", entries, err)
	}
}

func TestReadMissingAndBroken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	var v any
	if err := ReadJSON(path, &v); !os.IsNotExist(err) {
		t.Errorf("missing: %v", err)
	}
	if err := os.WriteFile(path, []byte("{"), fs.FileMode(0o600)); err != nil {
		t.Fatal(err)
	}
	if err := ReadJSON(path, &v); err == nil {
		t.Error("half a value was read")
	}
}

// TestReadNoRecord: what took a record's place neither blocks the reader nor
// fills its memory.
func TestReadNoRecord(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"fifo":   func(path string) error { return unix.Mkfifo(path, 0o600) },
		"loop":   func(path string) error { return os.Symlink(path, path) },
		"device": func(path string) error { return os.Symlink("/dev/zero", path) },
		"socket": func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) },
		"huge": func(path string) error {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return err
			}
			return os.Truncate(path, 100<<20)
		},
	} {
		path := filepath.Join(t.TempDir(), "f")
		if err := put(path); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadFile(path); !errs.Is(err, errs.Corrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A file that says it is empty, as those of the kernel do, is read whole.
	if data, err := ReadFile("/proc/self/mountinfo"); err != nil || len(data) == 0 {
		t.Errorf("a growing file: %d bytes, %v", len(data), err)
	}
}
