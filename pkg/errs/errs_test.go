package errs

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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

// TestHostHints: what is wrong with the host has a hint that nobody had to
// give, unless somebody did.
func TestHostHints(t *testing.T) {
	for errno, want := range map[unix.Errno]string{unix.EMFILE: "ulimit -n", unix.ENFILE: "fs.file-max", unix.EROFS: "writable"} {
		err := fmt.Errorf("open x: %w", &fs.PathError{Op: "open", Path: "x", Err: errno})
		if got := Hints(err); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%v: %q", errno, got)
		}
		if got := Hints(WithHint(err, "own")); !slices.Equal(got, []string{"own"}) {
			t.Errorf("%v: %q", errno, got)
		}
	}
	if got := Hints(unix.ENOENT); got != nil {
		t.Errorf("%q", got)
	}
}

// TestNewfQuotes: of what a stranger wrote the beginning is shown, all else is
// printed as it is.
func TestNewfQuotes(t *testing.T) {
	long := strings.Repeat("ä", 41)
	for _, c := range []struct {
		err  error
		want string
	}{
		{Newf(Usage, "%q: no", "short"), `"short": no`},
		{Newf(Usage, "%q: no", long), `"` + strings.Repeat("ä", 40) + `"…: no`},
		{Newf(Usage, "%q", "\x1b[31m\n"), `"\x1b[31m\n"`},
		{Newf(Usage, "%s %v", long, long), long + " " + long},
		{Newf(Usage, "%-6s|%5d|%w", "ab", 7, fs.ErrNotExist), "ab    |    7|file does not exist"},
	} {
		if c.err.Error() != c.want {
			t.Errorf("%s, want %s", c.err, c.want)
		}
	}
}
