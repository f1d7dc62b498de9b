package cell

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestParseLimit(t *testing.T) {
	got, ok := parseLimit("Max open files            1024                 524288               files     \n")
	if want := (Rlimit{Type: unix.RLIMIT_NOFILE, Soft: 1024, Hard: 524288}); !ok || got != want {
		t.Errorf("%+v, %v", got, ok)
	}
	got, ok = parseLimit("Max cpu time              unlimited            unlimited            seconds   \n")
	if !ok || got.Hard != unix.RLIM_INFINITY {
		t.Errorf("%+v, %v", got, ok)
	}
	if got, ok := parseLimit("Limit                     Soft Limit           Hard Limit           Units     \n"); ok {
		t.Errorf("%+v", got)
	}
}
