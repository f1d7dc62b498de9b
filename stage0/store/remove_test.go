package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRemoveTree removes what is large, deep and odd, and nothing that a link
// leads to.
func TestRemoveTree(t *testing.T) {
	top := t.TempDir()
	outside := filepath.Join(top, "outside")
	if err := os.MkdirAll(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outside, "canary"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(top, "root")
	for i := range 40 {
		dir := filepath.Join(root, fmt.Sprintf("d%d/e/f", i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for j := range 30 {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(j)), nil, 0o444); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
	}
	// Deeper than a path can name.
	r, err := os.OpenRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("x", 250)
	for range 30 {
		if err := r.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := r.OpenRoot(name)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Close()
		r = next
	}
	_ = r.Close()
	if err := removeTree(root); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(outside, "canary")); err != nil {
		t.Errorf("a link was followed: %v", err)
	}
	if err := removeTree(root); err != nil {
		t.Errorf("of what is gone: %v", err)
	}
}
