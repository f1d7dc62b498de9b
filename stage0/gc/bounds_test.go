package gc

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/lock"
)

// TestKeepLast keeps those that ended last, and says so.
func TestKeepLast(t *testing.T) {
	h := newHost(t)
	old, newer, newest := h.exited(9*time.Hour), h.exited(8*time.Hour), h.exited(7*time.Hour)
	p := h.plan(Options{GracePeriod: time.Hour, KeepLast: 2})
	for uuid, want := range map[string][]Action{old: {Collect}, newer: {Mark}, newest: {Mark}} {
		if got := p.of(uuid); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", uuid, got, want)
		}
	}
	if len(p.Kept) != 2 || p.Kept[0].Reason != "is one of the last 2" {
		t.Errorf("kept %+v", p.Kept)
	}
}

// TestOutOfTime begins nothing once the time is over, and the next gc goes on.
func TestOutOfTime(t *testing.T) {
	h := newHost(t)
	uuid := h.exited(time.Hour)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("1s are over"))
	r := h.plan(Options{Measure: true}).Execute(ctx, func(Step) {})
	late := slices.IndexFunc(r.Failures, func(f Failure) bool { return f.What == uuid })
	if late < 0 || !strings.Contains(r.Failures[late].Text, "not reached: 1s are over") || len(r.Done) > 0 {
		t.Errorf("done %+v, failures %+v", r.Done, r.Failures)
	}
	r = h.run(Options{Measure: true}, 0)
	if len(r.Done) != 1 || r.Freed == 0 {
		t.Errorf("afterwards %+v, %d bytes freed", r.Done, r.Freed)
	}
}

// TestWaitForGC waits as long as it may for another gc.
func TestWaitForGC(t *testing.T) {
	h := newHost(t)
	other, err := lock.TryExclusive(filepath.Join(h.store.Data(), "store", "gc.lock"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(t.Context(), h.store, time.Millisecond); !errs.Is(err, errs.Busy) {
		t.Errorf("in a millisecond: %v", err)
	}
	time.AfterFunc(10*time.Millisecond, func() { _ = other.Close() })
	l, err := Lock(t.Context(), h.store, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
