//go:build fault

package fault

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFault: the chosen pass through the chosen step fails, and no other.
func TestFault(t *testing.T) {
	if !Enabled {
		t.Error("not enabled")
	}
	trace := filepath.Join(t.TempDir(), "trace")
	t.Setenv("RKT_FAULT", "test.step@2:EIO")
	t.Setenv("RKT_FAULT_TRACE", trace)
	for i, want := range []error{nil, unix.EIO, nil} {
		if err := Step("test.other"); err != nil {
			t.Error(err)
		}
		if err := Step("test.step"); !errors.Is(err, want) {
			t.Errorf("pass %d: %v", i+1, err)
		}
	}
	const steps = "test.other\ntest.step\n"
	if text, err := os.ReadFile(trace); err != nil || string(text) != steps+steps+steps {
		t.Errorf("%q, %v", text, err)
	}
	t.Setenv("RKT_FAULT", "test.step@4:NONE")
	if err := Step("test.step"); err == nil {
		t.Error("an unknown action is obeyed")
	}
}
