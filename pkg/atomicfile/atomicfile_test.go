package atomicfile

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
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
