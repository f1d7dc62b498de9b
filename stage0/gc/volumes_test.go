package gc

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/stage0/volume"
)

// TestVolumes: gc removes named volumes only if it is asked to, those that no
// pod holds, and counts the grace from the removal of the last pod.
func TestVolumes(t *testing.T) {
	h := newHost(t)
	vols := volume.Of(h.store)
	for _, name := range []string{"db", "free"} {
		if err := vols.Create(t.Context(), volume.Spec{Record: volume.Record{Name: name}}); err != nil {
			t.Fatal(err)
		}
		past := time.Now().Add(-24 * time.Hour)
		if err := os.Chtimes(poddir.NamedVolume(h.store.Data(), name).Record(), past, past); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(poddir.VolumesDir(h.store.Data())+"/.rm-1/x", 0o700); err != nil {
		t.Fatal(err)
	}
	ended := h.exited(time.Hour)
	one, err := h.pods.Get(ended)
	if err != nil {
		t.Fatal(err)
	}
	refs := poddir.Refs{CreatedAt: now, Images: []string{}, Layers: []string{}, Volumes: []string{"db"}}
	if err := atomicfile.WriteJSON(one.Dir.Refs(), refs, 0o600, atomicfile.Renamed); err != nil {
		t.Fatal(err)
	}
	gc := func(o Options, forecast, want string) {
		t.Helper()
		p := h.plan(o)
		p.Forecast()
		if got := strings.Join(p.Volumes, " "); got != forecast {
			t.Errorf("%+v: planned %q, want %q", o, got, forecast)
		}
		r := p.Execute(t.Context(), func(Step) {})
		if got := strings.Join(r.Volumes, " "); got != want || len(r.Failures) > 0 {
			t.Errorf("%+v: removed %q, want %q, %+v", o, got, want, r.Failures)
		}
	}
	gc(Options{GracePeriod: 2 * time.Hour, ExpirePrepared: time.Hour}, "", "")
	if _, err := os.Stat(poddir.VolumesDir(h.store.Data()) + "/.rm-1"); err == nil {
		t.Error("what a killed command left is still there")
	}
	gc(Options{GracePeriod: 2 * time.Hour, ExpirePrepared: time.Hour, Volumes: true}, "free", "free")
	// The pod goes now, so its volume was used until now.
	gc(Options{GracePeriod: time.Minute, ExpirePrepared: time.Hour, Volumes: true}, "", "")
	if _, err := h.pods.Get(ended); err == nil {
		t.Fatal("the pod is still there")
	}
	gc(Options{ExpirePrepared: time.Hour, Volumes: true}, "db", "db")
}
