package errs

import (
	"fmt"
	"io/fs"
	"slices"
	"testing"
)

func TestClassAndHints(t *testing.T) {
	inner := WithHint(Newf(NotFound, "pod %s: %w", "u", fs.ErrNotExist), "look %s", "there")
	err := WithHint(fmt.Errorf("status: %w", WithClass(Busy, inner)), "wait")
	if ClassOf(err) != Busy || ClassOf(inner) != NotFound || ClassOf(fs.ErrExist) != Internal {
		t.Errorf("classes %s %s", ClassOf(err), ClassOf(inner))
	}
	if Is(nil, Internal) {
		t.Error("nil has a class")
	}
	if got := Hints(err); !slices.Equal(got, []string{"wait", "look there"}) {
		t.Errorf("hints %q", got)
	}
	if err.Error() != "status: pod u: file does not exist" {
		t.Errorf("text %q", err)
	}
	if WithHint(nil, "x") != nil || WithClass(Busy, nil) != nil {
		t.Error("nil became an error")
	}
}
