//go:build !fault

package fault

import (
	"os"
	"path/filepath"
	"testing"
)

// TestReleased: without the tag no variable is obeyed.
func TestReleased(t *testing.T) {
	if Enabled {
		t.Error("enabled")
	}
	trace := filepath.Join(t.TempDir(), "trace")
	t.Setenv("RKT_FAULT", "some.step:EIO")
	t.Setenv("RKT_FAULT_TRACE", trace)
	if err := Step("some.step"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(trace); err == nil {
		t.Error("a trace was written")
	}
}
