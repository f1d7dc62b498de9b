package pod

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

// TestNamesRace: of many that want one name one gets it, though gc sweeps the
// names meanwhile, and a name that a killed command left is taken over.
func TestNamesRace(t *testing.T) {
	p := newPods(t)
	for round := range 20 {
		if err := os.MkdirAll(poddir.NamesDir(p.Data), 0o700); err != nil {
			t.Fatal(err)
		}
		// Of a pod that is gone, and half of a write.
		write(t, p.namePath("x"), "0e2ee1c5-8ff1-4a1c-9a5c-1f7ee32a7a2e\n")
		write(t, p.namePath(".tmp-x-1"), "0e")
		var made []*PreparingPod
		for range 6 {
			made = append(made, prepare(t, p))
		}
		won := make([]error, len(made))
		var wg sync.WaitGroup
		for i, m := range made {
			wg.Go(func() { won[i] = p.ClaimName(t.Context(), "x", m.UUID()) })
			wg.Go(func() {
				if err := p.SweepNames(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		holder, err := p.Find("x")
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range made {
			if got := won[i] == nil; got != (holder.UUID == m.UUID()) || !got && !errs.Is(won[i], errs.Busy) {
				t.Errorf("round %d: pod %s has it, and %s was told %v", round, holder.UUID, m.UUID(), won[i])
			}
			if err := errors.Join(p.releaseName("x", m.UUID()), m.Discard(t.Context())); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.SweepNames(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(poddir.NamesDir(p.Data)); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("names are left: %v", err)
		}
	}
}

// TestEnded: a removed pod's end is known by id and name until the grace period
// since that end is over; the clock set back makes it stay.
func TestEnded(t *testing.T) {
	p := newPods(t)
	now := time.Now().UTC()
	dir := poddir.Dir(filepath.Join(t.TempDir(), "0e2ee1c5-8ff1-4a1c-9a5c-1f7ee32a7a2e"))
	if err := os.Mkdir(string(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := p.bury(dir, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.FindEnded("x"); !errs.Is(err, errs.NotFound) {
		t.Errorf("a pod that never ran: %v", err)
	}
	if err := atomicfile.WriteJSON(dir.Exit(), poddir.Exit{Code: 7, FinishedAt: now}, 0o600, atomicfile.Renamed); err != nil {
		t.Fatal(err)
	}
	if err := p.bury(dir, "x"); err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"x", dir.UUID(), "0E2E"} {
		if e, err := p.FindEnded(word); err != nil || e.Exit.Code != 7 {
			t.Errorf("%q: %+v, %v", word, e, err)
		}
	}
	if _, err := p.FindEnded(""); !errs.Is(err, errs.NotFound) {
		t.Errorf("no word: %v", err)
	}
	for at, left := range map[time.Time]bool{now.Add(-time.Hour): true, now.Add(29 * time.Minute): true} {
		if err := p.SweepEnded(30*time.Minute, at); err != nil {
			t.Fatal(err)
		}
		if _, err := p.FindEnded("x"); (err == nil) != left {
			t.Errorf("at %s: %v", at, err)
		}
	}
	if err := p.SweepEnded(30*time.Minute, now.Add(31*time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(poddir.EndedDir(p.Data)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ends are left: %v", err)
	}
}
