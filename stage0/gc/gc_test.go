package gc

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/proc"
	"github.com/rkt-pods/rkt/stage0/pod"
	"github.com/rkt-pods/rkt/stage0/store"
)

const (
	imageID  = "sha512-00aa"
	manifest = `{"acVersion":"0.8.11","acKind":"PodManifest","apps":[{"name":"a","image":{"id":"` + imageID + `"},"app":{"exec":["/a"],"user":"0","group":"0"}}]}`
)

var now = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

type host struct {
	*testing.T
	store *store.Store
	pods  pod.Pods
}

func newHost(t *testing.T) *host {
	t.Helper()
	s, err := store.Open(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(filepath.Dir(poddir.RunDir(s.ID(), "x"))) })
	return &host{t, s, pod.Pods{Data: s.Data(), StoreID: s.ID()}}
}

// made makes a filled pod that was created the given time ago.
func (h *host) made(ago time.Duration) *pod.PreparingPod {
	h.Helper()
	p, err := h.pods.Create(poddir.Refs{CreatedAt: now.Add(-ago), Images: []string{imageID}, Layers: []string{}})
	if err != nil {
		h.Fatal(err)
	}
	if err := os.WriteFile(p.Dir().Manifest(), []byte(manifest), 0o600); err != nil {
		h.Fatal(err)
	}
	return p
}

// exited makes a pod that ended the given time ago; negative: whose supervisor
// died.
func (h *host) exited(ago time.Duration) string {
	h.Helper()
	p, err := h.made(time.Hour).Start()
	if err != nil {
		h.Fatal(err)
	}
	if ago >= 0 {
		end := poddir.Exit{Cause: poddir.CausePolicy, FinishedAt: now.Add(-ago)}
		if err := atomicfile.WriteJSON(p.Dir().Exit(), end, 0o600, atomicfile.Renamed); err != nil {
			h.Fatal(err)
		}
	}
	if err := p.Close(); err != nil {
		h.Fatal(err)
	}
	return p.UUID()
}

func (h *host) prepared(ago time.Duration) string {
	h.Helper()
	p, err := h.made(ago).Ready()
	if err != nil {
		h.Fatal(err)
	}
	if err := p.Close(); err != nil {
		h.Fatal(err)
	}
	return p.UUID()
}

func (h *host) plan(o Options) *Plan {
	h.Helper()
	o.Now = now
	p, err := Make(h.store, h.pods, o)
	if err != nil {
		h.Fatal(err)
	}
	return p
}

func (p *Plan) of(uuid string) []Action {
	var actions []Action
	for _, s := range p.Steps {
		if s.UUID == uuid {
			actions = append(actions, s.Action)
		}
	}
	return actions
}

func TestDue(t *testing.T) {
	h := newHost(t)
	running, err := h.made(100 * time.Hour).Start()
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	// By the host's clock, which was set, it was an hour and more ago.
	stamped := h.exited(2 * time.Hour)
	end := poddir.Exit{Cause: poddir.CausePolicy, FinishedAt: now.Add(-2 * time.Hour), Moment: proc.Now()}
	if err := atomicfile.WriteJSON(poddir.Dir(poddir.Path(h.pods.Data, poddir.Run, stamped)).Exit(), end, 0o600, atomicfile.Renamed); err != nil {
		t.Fatal(err)
	}
	aborted := h.made(0)
	if err := aborted.Close(); err != nil {
		t.Fatal(err)
	}
	preparing := h.made(100 * time.Hour)
	defer preparing.Close()
	o := Options{GracePeriod: 30 * time.Minute, ExpirePrepared: 24 * time.Hour}
	cases := []struct {
		what, uuid   string
		normal, mark []Action
	}{
		{"running", running.UUID(), nil, nil},
		{"preparing", preparing.UUID(), nil, nil},
		{"aborted prepare", aborted.UUID(), []Action{CollectFailed}, nil},
		{"exited long ago", h.exited(31 * time.Minute), []Action{Collect}, []Action{Mark}},
		{"exited just now", h.exited(29 * time.Minute), []Action{Mark}, []Action{Mark}},
		{"exited just now, the clock was set", stamped, []Action{Mark}, []Action{Mark}},
		{"supervisor died", h.exited(-1), []Action{Mark}, []Action{Mark}},
		{"old prepared", h.prepared(25 * time.Hour), []Action{CollectExpired}, nil},
		{"new prepared", h.prepared(23 * time.Hour), nil, nil},
	}
	normal := h.plan(o)
	o.MarkOnly = true
	mark := h.plan(o)
	for _, c := range cases {
		if got := normal.of(c.uuid); !slices.Equal(got, c.normal) {
			t.Errorf("%s: %v, want %v", c.what, got, c.normal)
		}
		if got := mark.of(c.uuid); !slices.Equal(got, c.mark) {
			t.Errorf("%s, mark only: %v, want %v", c.what, got, c.mark)
		}
	}
}

// TestGraceFromRecordedEnd: marking does not start the grace period anew.
func TestGraceFromRecordedEnd(t *testing.T) {
	h := newHost(t)
	uuid := h.exited(29 * time.Minute)
	o := Options{GracePeriod: 30 * time.Minute}
	h.run(o, 0)
	later := h.plan(Options{GracePeriod: 29 * time.Minute})
	if got := later.of(uuid); !slices.Equal(got, []Action{Collect}) {
		t.Errorf("after mark: %v", got)
	}
}

func (h *host) run(o Options, failures int) Report {
	h.Helper()
	r := h.plan(o).Execute(h.Context(), func(Step) {})
	if len(r.Failures) != failures {
		h.Fatalf("failures %+v, want %d", r.Failures, failures)
	}
	return r
}

func TestExecute(t *testing.T) {
	h := newHost(t)
	gone := []string{h.exited(time.Hour), h.exited(-1), h.prepared(time.Hour)}
	plan := h.plan(Options{})
	r := plan.Execute(t.Context(), func(Step) {})
	if len(r.Failures) > 0 || len(r.Done) != 3 {
		t.Fatalf("%+v", r)
	}
	for _, uuid := range gone {
		if _, err := h.pods.Get(uuid); !errs.Is(err, errs.NotFound) {
			t.Errorf("%s: %v", uuid, err)
		}
	}
	if r := plan.Execute(t.Context(), func(Step) {}); len(r.Failures) != 1 {
		t.Errorf("a plan was carried out twice: %+v", r)
	}
	again := h.plan(Options{})
	again.Forecast()
	if len(again.Steps) > 0 || !again.Store.Empty() {
		t.Errorf("left: %+v", again)
	}
}

// TestUnknownReferences: such a pod is named, and stays, and nothing of the
// store is collected.
func TestUnknownReferences(t *testing.T) {
	h := newHost(t)
	uuid := h.exited(time.Hour)
	dir := poddir.Dir(poddir.Path(h.pods.Data, poddir.Run, uuid))
	if err := os.WriteFile(dir.Refs(), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	layer := filepath.Join(h.store.Data(), "store", "layers", "aci-sha512-"+strings.Repeat("00", 64))
	if err := os.Mkdir(layer, 0o700); err != nil {
		t.Fatal(err)
	}
	forecast := h.plan(Options{})
	forecast.Forecast()
	if len(forecast.Store.Layers) > 0 {
		t.Errorf("forecast %+v", forecast.Store)
	}
	r := h.run(Options{}, 1)
	if r.Failures[0].What != uuid {
		t.Errorf("failure %+v", r.Failures[0])
	}
	if _, err := os.Stat(layer); err != nil {
		t.Error("the layer that the pod may need is gone")
	}
	if err := h.pods.Collect(t.Context(), uuid); err != nil {
		t.Fatalf("rm: %v", err)
	}
	forecast = h.plan(Options{})
	forecast.Forecast()
	if len(forecast.Store.Layers) != 1 {
		t.Errorf("forecast %+v", forecast.Store)
	}
	r = h.run(Options{}, 0)
	if _, err := os.Stat(layer); err == nil || len(r.Store.Layers) != 1 {
		t.Errorf("the layer stays: %+v", r.Store)
	}
}

// TestTakenOver: what others lock or remove between plan and step is theirs.
func TestTakenOver(t *testing.T) {
	h := newHost(t)
	expired, started, removed := h.prepared(time.Hour), h.prepared(time.Hour), h.exited(time.Hour)
	plan := h.plan(Options{})
	locked, err := h.pods.OpenPrepared(expired)
	if err != nil {
		t.Fatal(err)
	}
	defer locked.Close()
	other, err := h.pods.OpenPrepared(started)
	if err != nil {
		t.Fatal(err)
	}
	run, err := other.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	if err := h.pods.Collect(t.Context(), removed); err != nil {
		t.Fatal(err)
	}
	if r := plan.Execute(t.Context(), func(Step) {}); len(r.Failures) > 0 {
		t.Errorf("failures %+v", r.Failures)
	}
	for uuid, want := range map[string]pod.State{expired: pod.Prepared, started: pod.Running} {
		if one, err := h.pods.Get(uuid); err != nil || one.State != want {
			t.Errorf("%+v, %v; want %s", one, err, want)
		}
	}
}

func TestSecondGC(t *testing.T) {
	h := newHost(t)
	l, err := Lock(t.Context(), h.store, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(t.Context(), h.store, 0); !errs.Is(err, errs.Busy) || !strings.Contains(err.Error(), "another gc is at work") {
		t.Errorf("second gc: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = Lock(t.Context(), h.store, 0); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestHeldTellsTheStore(t *testing.T) {
	h := newHost(t)
	uuid := h.prepared(0)
	held, err := Held(h.pods)()
	if err != nil || !slices.Equal(held.Images[imageID], []string{uuid}) {
		t.Errorf("%+v, %v", held, err)
	}
	err = h.store.RemoveImage(context.Background(), "sha512-"+strings.Repeat("0", 128), Held(h.pods))
	if !errs.Is(err, errs.NotFound) {
		t.Errorf("remove: %v", err)
	}
}
