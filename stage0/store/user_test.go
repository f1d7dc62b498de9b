package store

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// asNobody runs f on a thread whose file accesses are those of another user,
// and which ends with it.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("RKT_TEST_UNPRIVILEGED") == "1" {
			t.Skip("needs root")
		}
		t.Fatal("needs root; RKT_TEST_UNPRIVILEGED=1 leaves such tests out")
	}
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread() // and never unlocked
		defer close(done)
		if _, err := unix.SetfsuidRetUid(65534); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}

func TestOrdinaryUsersMayReadTheIDOnly(t *testing.T) {
	s := newStore(t)
	rec := put(t, s, "example.com/one", "1", layerKey("a"))
	// The folders above a test's are private.
	for dir := filepath.Dir(s.Data()); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	asNobody(t, func() {
		existing, err := OpenExisting(s.Data())
		if err != nil || existing.ID() != s.ID() {
			t.Errorf("open: %v", err)
			return
		}
		if _, err := existing.Images(); !errs.Is(err, errs.Denied) {
			t.Errorf("images: %v", err)
		}
		if _, err := existing.Image(rec.ID); !errs.Is(err, errs.Denied) {
			t.Errorf("image: %v", err)
		}
		if _, err := existing.Lookup("example.com/one"); !errs.Is(err, errs.Denied) {
			t.Errorf("lookup: %v", err)
		}
		if _, err := os.ReadDir(existing.LayerFS(layerKey("a"))); err == nil {
			t.Error("a layer can be read")
		}
		if _, err := Open(filepath.Join(filepath.Dir(s.Data()), "other")); !errs.Is(err, errs.Denied) {
			t.Errorf("make a store: %v", err)
		}
	})
}
