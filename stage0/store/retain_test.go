package store

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
)

func TestRetention(t *testing.T) {
	now := time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC)
	ago := func(hours int) time.Time { return now.Add(-time.Duration(hours) * time.Hour) }
	list := []Candidate{
		{ID: "a", LastUsed: ago(100), Layers: []string{"base", "a"}},
		{ID: "b", LastUsed: ago(50), Layers: []string{"base", "b"}},
		{ID: "c", LastUsed: ago(30), Layers: []string{"base", "c"}, Pods: []string{"pod"}},
		{ID: "d", LastUsed: ago(40), Layers: []string{"d"}, Pinned: true},
		{ID: "e", LastUsed: ago(2), Layers: []string{"e"}},
		{ID: "f", LastUsed: ago(1), Layers: []string{"base", "f"}},
	}
	size := map[string]int64{"base": 1000, "a": 10, "b": 20, "c": 30, "d": 40, "e": 500, "f": 60}
	for _, x := range []struct {
		name  string
		r     Retention
		list  []Candidate
		inUse map[string]bool
		gone  string // ids, the one used last first
		freed int64
	}{
		{"age", Retention{Grace: 24 * time.Hour}, list, nil, "b a", 30},
		{"longer", Retention{Grace: 60 * time.Hour}, list, nil, "a", 10},
		{"none", Retention{}, list, nil, "f e b a", 590},
		{"keep", Retention{Keep: 1}, list, nil, "e b a", 530},
		{"keep counts all", Retention{Keep: 5}, list, nil, "a", 10},
		{"size, all fit", Retention{Grace: 1000 * time.Hour, MaxSize: 1660}, list, nil, "", 0},
		{"size, the oldest go", Retention{Grace: 1000 * time.Hour, MaxSize: 1640}, list, nil, "b a", 30},
		{"size, not what is held", Retention{Grace: 1000 * time.Hour, MaxSize: 1}, list, nil, "f e b a", 590},
		{"size and keep", Retention{Grace: 1000 * time.Hour, MaxSize: 1, Keep: 1}, list, nil, "e b a", 530},
		{"size after age", Retention{Grace: 24 * time.Hour, MaxSize: 1200}, list, nil, "e b a", 530},
		{"shared layers go with the last", Retention{}, list[:2], nil, "b a", 1030},
		{"layers of pods stay", Retention{}, list[:2], map[string]bool{"base": true, "a": true}, "b a", 20},
		{"nothing", Retention{}, nil, nil, "", 0},
	} {
		var gone []string
		freed := int64(0)
		decisions := x.r.Decide(now, x.list, size, x.inUse)
		for _, d := range decisions {
			if d.Remove {
				gone = append(gone, d.ID)
			}
			freed += d.Freed
			if d.Reason == "" {
				t.Errorf("%s: %s: no reason", x.name, d.ID)
			}
		}
		if strings.Join(gone, " ") != x.gone || freed != x.freed || len(decisions) != len(x.list) {
			t.Errorf("%s: removes %q with %d bytes, want %q with %d", x.name, gone, freed, x.gone, x.freed)
		}
	}
}

func age(t *testing.T, s *Store, id string, d time.Duration) {
	t.Helper()
	rec, err := s.Image(id)
	if err != nil {
		t.Fatal(err)
	}
	rec.ImportedAt = time.Now().Add(-d)
	g, err := s.Stage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if _, err := g.Commit(t.Context(), Import{Record: rec}); err != nil {
		t.Fatal(err)
	}
}

func TestRetain(t *testing.T) {
	s := newStore(t)
	a := put(t, s, "example.com/a", "1", layerKey("one"), layerKey("shared"))
	b := put(t, s, "example.com/b", "1", layerKey("two"), layerKey("shared"))
	c := put(t, s, "example.com/c", "1", layerKey("three"))
	d := put(t, s, "example.com/d", "1", layerKey("four"))
	for _, id := range []string{a.ID, b.ID, c.ID, d.ID} {
		age(t, s, id, 48*time.Hour)
	}
	if err := s.PinImage(t.Context(), b.ID); err != nil {
		t.Fatal(err)
	}
	held := func() (Held, error) { return Held{Images: map[string][]string{c.ID: {"p"}}}, nil }
	plan, err := s.PlanImages(time.Now(), Retention{Grace: time.Hour}, held)
	if err != nil {
		t.Fatal(err)
	}
	// Between plan and deed one is used, and stays.
	if err := s.Touch(d.ID); err != nil {
		t.Fatal(err)
	}
	garbage, err := s.Retain(t.Context(), plan, held, 0)
	if err != nil {
		t.Fatal(err)
	}
	left, err := s.Images()
	if err != nil || len(left) != 3 {
		t.Errorf("left %v, %v", left, err)
	}
	for _, dec := range plan {
		want := map[string]string{a.ID: "not used for 48h", b.ID: "pinned", c.ID: "in use by pod p", d.ID: "used right now"}[dec.ID]
		if dec.Remove != (dec.ID == a.ID) || !strings.HasPrefix(dec.Reason, want) {
			t.Errorf("%+v, want %s", dec, want)
		}
	}
	if len(garbage.Layers) != 1 || garbage.Layers[0] != layerKey("one") {
		t.Errorf("collected %v", garbage.Layers)
	}
	if _, err := s.PlanImages(time.Now(), Retention{}, func() (Held, error) { return Held{Unknown: []string{"q"}}, nil }); !errs.Is(err, errs.Busy) {
		t.Errorf("unknown pods: %v", err)
	}
	boom := errors.New("boom")
	if _, err := s.PlanImages(time.Now(), Retention{}, func() (Held, error) { return Held{}, boom }); !errors.Is(err, boom) {
		t.Errorf("error %v", err)
	}
}

func TestPin(t *testing.T) {
	s := newStore(t)
	rec := put(t, s, "example.com/a", "1", layerKey("one"))
	for range 2 {
		if err := s.PinImage(t.Context(), rec.ID); err != nil {
			t.Fatal(err)
		}
	}
	if p, ok := s.Pinned(rec.ID); !ok || time.Since(p.PinnedAt) > time.Minute {
		t.Errorf("pin %v, %v", p, ok)
	}
	if err := s.RemoveImage(t.Context(), rec.ID, none); !errs.Is(err, errs.Busy) {
		t.Errorf("remove: %v", err)
	}
	for range 2 {
		if err := s.UnpinImage(rec.ID); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.RemoveImage(t.Context(), rec.ID, none); err != nil {
		t.Error(err)
	}
	if err := s.PinImage(t.Context(), rec.ID); !errs.Is(err, errs.NotFound) {
		t.Errorf("pin of nothing: %v", err)
	}
	// What a kill leaves beside a record that is gone is swept.
	for _, path := range []string{s.pinPath(rec.ID), s.usedPath(rec.ID), s.path("images", ".tmp-x")} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Collect(t.Context(), none, 0); err != nil {
		t.Fatal(err)
	}
	if left := list(t, s, "images"); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

// TestDamagedRecordCanGo: it keeps everything until it is removed by its id.
func TestDamagedRecordCanGo(t *testing.T) {
	s := newStore(t)
	bad := put(t, s, "example.com/a", "1", layerKey("one"))
	good := put(t, s, "example.com/b", "1", layerKey("two"))
	if err := os.WriteFile(s.imagePath(bad.ID), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := s.Collect(t.Context(), none, 0)
	if !errs.Is(err, errs.Corrupt) || len(errs.Hints(err)) != 1 || !strings.Contains(errs.Hints(err)[0], "rkt image rm "+bad.ID[:19]) {
		t.Errorf("collect: %v, hints %q", err, errs.Hints(err))
	}
	id, err := s.ExpandID(bad.ID[:20])
	if err != nil || id != bad.ID {
		t.Fatalf("%s, %v", id, err)
	}
	if err := s.RemoveImage(t.Context(), id, none); err != nil {
		t.Fatal(err)
	}
	g, err := s.Collect(t.Context(), none, 0)
	if err != nil || len(g.Layers) != 1 {
		t.Errorf("collected %v, %v", g, err)
	}
	if _, err := s.Lookup(good.Name); err != nil {
		t.Error(err)
	}
	if left := list(t, s, "names"); len(left) != 1 {
		t.Errorf("names %q", left)
	}
}

func TestUsage(t *testing.T) {
	s := newStore(t)
	put(t, s, "example.com/a", "1", layerKey("one"), layerKey("shared"))
	put(t, s, "example.com/b", "1", layerKey("two"), layerKey("shared"))
	records, err := s.Images()
	if err != nil {
		t.Fatal(err)
	}
	size := func(text string) int64 {
		m, err := s.LayerMeta(layerKey(text))
		if err != nil {
			t.Fatal(err)
		}
		return m.Size
	}
	usage, err := s.Usage(records)
	if err != nil {
		t.Fatal(err)
	}
	want := Usage{Total: size("one") + size("shared"), Unique: size("one")}
	if usage[records[0].ID] != want || want.Total == 0 {
		t.Errorf("usage %v, want %v", usage, want)
	}
}
