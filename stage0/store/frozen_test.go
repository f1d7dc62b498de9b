package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// TestFrozenStoreOfOthers is refused where somebody else than root could change
// or replace it.
func TestFrozenStoreOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("root's folders")
	}
	for what, x := range map[string]struct {
		spoil func(dir string) error
		text  string
	}{
		"gone":           {os.RemoveAll, "no such file or directory"},
		"not frozen":     {func(dir string) error { return os.Remove(filepath.Join(dir, frozenFile)) }, "is not frozen"},
		"writable":       {func(dir string) error { return os.Chmod(dir, 0o775) }, "mode 0775"},
		"owner":          {func(dir string) error { return os.Chown(dir, 1, 1) }, "owner 1"},
		"open layers":    {func(dir string) error { return os.Chmod(filepath.Join(dir, "layers"), 0o755) }, "layers: owner 0, mode 0755"},
		"parent's owner": {func(dir string) error { return os.Chown(filepath.Dir(dir), 1, 1) }, "could put another store there"},
		"open parent":    {func(dir string) error { return os.Chmod(filepath.Dir(dir), 0o777) }, "could put another store there"},
		"no id":          {func(dir string) error { return os.WriteFile(filepath.Join(dir, "id"), nil, 0o644) }, "is no id"},
		"newer":          {func(dir string) error { return os.WriteFile(filepath.Join(dir, "version"), []byte("99"), 0o644) }, "version 99"},
	} {
		t.Run(what, func(t *testing.T) {
			data := filepath.Join(t.TempDir(), "data")
			made, err := Open(data)
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(data, "store")
			if err := os.WriteFile(filepath.Join(dir, frozenFile), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := CheckFrozen(dir, made.ID()); err != nil {
				t.Fatal(err)
			}
			if _, err := made.Hold(t.Context()); !errs.Is(err, errs.Denied) {
				t.Errorf("hold: %v", err)
			}
			if err := CheckFrozen(dir, "0123456789abcdef"); !errs.Is(err, errs.Unavailable) || !strings.Contains(err.Error(), made.ID()) {
				t.Errorf("another id: %v", err)
			}
			if err := x.spoil(dir); err != nil {
				t.Fatal(err)
			}
			err = CheckFrozen(dir, made.ID())
			if err == nil || errs.Is(err, errs.NotFound) || !strings.Contains(err.Error(), x.text) || !strings.Contains(err.Error(), dir) {
				t.Errorf("error %v (%s)", err, errs.ClassOf(err))
			}
		})
	}
}
