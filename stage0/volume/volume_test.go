package volume

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/stage0/store"
)

// fixture is a data folder with pods that hold volumes.
type fixture struct {
	*testing.T
	vols Volumes
	data string
	pods Held
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	s, err := store.Open(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{T: t, vols: Of(s), data: s.Data(), pods: Held{Volumes: map[string][]string{}}}
}

func (f *fixture) held() (Held, error) { return f.pods, nil }

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) create(name string, labels map[string]string) {
	f.Helper()
	f.must(f.vols.Create(f.Context(), Spec{Record: Record{Name: name, Labels: labels}, Mode: 0o755, Seed: true}))
}

// left lists what lies in the folder of the volumes.
func (f *fixture) left() string {
	f.Helper()
	entries, err := os.ReadDir(poddir.VolumesDir(f.data))
	f.must(err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func TestCreateAndRemove(t *testing.T) {
	f := newFixture(t)
	id := 7
	s, err := SpecOf(&podspec.Volume{Name: "v", Kind: podspec.VolumeNamed, Source: "db", Mode: "1750", UID: &id})
	f.must(err)
	f.must(f.vols.Create(t.Context(), s))
	one, err := f.vols.Get("db", f.held)
	f.must(err)
	info, err := os.Stat(one.Path)
	f.must(err)
	if info.Mode() != os.ModeDir|os.ModeSticky|0o750 || !one.Fresh || one.Name != "db" || time.Since(one.CreatedAt) > time.Minute || time.Since(one.LastUsed) > time.Minute {
		t.Errorf("mode %v, %+v", info.Mode(), one)
	}
	if err := f.vols.Create(t.Context(), s); !errs.Is(err, errs.Usage) || !strings.Contains(err.Error(), "there already") {
		t.Errorf("twice: %v", err)
	}
	f.must(f.vols.Ensure(s))
	f.pods.Volumes["db"] = []string{"u-2", "u-1"}
	if err := f.vols.Remove(t.Context(), "db", f.held); !errs.Is(err, errs.Busy) || !strings.Contains(err.Error(), "u-1, u-2") {
		t.Errorf("held: %v", err)
	}
	f.pods = Held{Unknown: []string{"u-3"}}
	if err := f.vols.Remove(t.Context(), "db", f.held); !errs.Is(err, errs.Busy) || !strings.Contains(err.Error(), "u-3") {
		t.Errorf("perhaps held: %v", err)
	}
	f.pods = Held{}
	f.must(f.vols.Remove(t.Context(), "db", f.held))
	if err := f.vols.Remove(t.Context(), "db", f.held); !errs.Is(err, errs.NotFound) {
		t.Errorf("removed: %v", err)
	}
	if f.left() != "" {
		t.Errorf("left: %s", f.left())
	}
}

func TestNames(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{"", "..", "a/b", ".new-x", "Db", "-a", strings.Repeat("a", 201)} {
		if err := f.vols.Create(t.Context(), Spec{Record: Record{Name: name}}); !errs.Is(err, errs.Usage) {
			t.Errorf("create %q: %v", name, err)
		}
		if err := f.vols.Remove(t.Context(), name, f.held); !errs.Is(err, errs.Usage) {
			t.Errorf("remove %q: %v", name, err)
		}
		if _, err := f.vols.Get(name, f.held); !errs.Is(err, errs.Usage) {
			t.Errorf("get %q: %v", name, err)
		}
	}
}

func TestCollect(t *testing.T) {
	f := newFixture(t)
	for name, labels := range map[string]map[string]string{"old": nil, "young": nil, "held": nil, "mine": {"app": "shop", "tier": "1"}, "other": {"app": "blog"}} {
		f.create(name, labels)
		if name != "young" {
			past := time.Now().Add(-time.Hour)
			f.must(os.Chtimes(poddir.NamedVolume(f.data, name).Record(), past, past))
		}
	}
	f.pods.Volumes["held"] = []string{"u-1"}
	for _, c := range []struct {
		rule Rule
		want string
	}{
		{Rule{Grace: 30 * time.Minute, Labels: map[string]string{"app": "shop"}}, "mine"},
		{Rule{Grace: 2 * time.Hour}, ""},
		{Rule{Grace: 30 * time.Minute}, "old other"},
		{Rule{}, "young"},
	} {
		c.rule.Now = time.Now()
		due, err := f.vols.Due(c.rule, f.held)
		f.must(err)
		gone, err := f.vols.Collect(t.Context(), c.rule, f.held)
		f.must(err)
		if strings.Join(due, " ") != c.want || !slices.Equal(due, gone) {
			t.Errorf("%+v: due %v, gone %v, want %s", c.rule, due, gone, c.want)
		}
	}
	if f.left() != "held" {
		t.Errorf("left: %s", f.left())
	}
	f.pods.Unknown = []string{"u-2"}
	delete(f.pods.Volumes, "held")
	if gone, err := f.vols.Collect(t.Context(), Rule{Now: time.Now()}, f.held); err != nil || len(gone) > 0 {
		t.Errorf("with a pod that may hold anything: %v, %v", gone, err)
	}
}

// TestSweep: what killed commands left goes, and waits for those at work.
func TestSweep(t *testing.T) {
	f := newFixture(t)
	f.create("db", nil)
	for _, name := range []string{".new-1/data/x", ".rm-2/web/data"} {
		f.must(os.MkdirAll(filepath.Join(poddir.VolumesDir(f.data), name), 0o700))
	}
	list, err := f.vols.List(f.held)
	f.must(err)
	if len(list) != 1 || list[0].Name != "db" {
		t.Errorf("listed: %+v", list)
	}
	hold, err := f.vols.store.Hold(t.Context())
	f.must(err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := f.vols.Sweep(ctx); !errs.Is(err, errs.Busy) {
		t.Errorf("beside somebody who makes a volume: %v", err)
	}
	f.must(hold.Close())
	f.must(f.vols.Sweep(t.Context()))
	if f.left() != "db" {
		t.Errorf("left: %s", f.left())
	}
}

// TestDamagedRecord: a volume is its files.
func TestDamagedRecord(t *testing.T) {
	f := newFixture(t)
	f.create("db", nil)
	f.must(os.WriteFile(poddir.NamedVolume(f.data, "db").Record(), []byte("{"), 0o600))
	list, err := f.vols.List(f.held)
	f.must(err)
	if len(list) != 1 || list[0].Name != "db" || list[0].Pods == nil {
		t.Errorf("listed: %+v", list)
	}
	f.must(f.vols.Remove(t.Context(), "db", f.held))
}

// TestManyAtOnce: of those who make one volume at once one wins, and nobody
// sees half of one or loses one that a pod holds.
func TestManyAtOnce(t *testing.T) {
	f := newFixture(t)
	s := Spec{Record: Record{Name: "db"}, Mode: 0o700, Seed: true}
	var wg sync.WaitGroup
	failed := make(chan error, 64)
	for n := range 8 {
		wg.Go(func() {
			for range 20 {
				hold, err := f.vols.store.Hold(t.Context())
				if err != nil {
					failed <- err
					return
				}
				err = f.vols.Ensure(s)
				if err == nil {
					_, err = os.Stat(poddir.NamedVolume(f.data, "db").Files())
				}
				if cerr := hold.Close(); err == nil {
					err = cerr
				}
				if err == nil && n == 0 {
					err = f.vols.Remove(t.Context(), "db", func() (Held, error) { return Held{}, nil })
				}
				if err != nil && !errs.Is(err, errs.NotFound) {
					failed <- fmt.Errorf("worker %d: %w", n, err)
					return
				}
			}
		})
	}
	wg.Wait()
	close(failed)
	for err := range failed {
		t.Error(err)
	}
	if got := f.left(); got != "db" && got != "" {
		t.Errorf("left: %s", got)
	}
}
