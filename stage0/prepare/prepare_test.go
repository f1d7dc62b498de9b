package prepare

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/lock"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/stage0/pod"
)

type layers struct{}

func (layers) LayerFS(key string) string { return "/store/" + key + "/fs" }

func (layers) LayerStore(string) (id, dir string) { return "", "" }

func input(t *testing.T) (Input, *lock.Lock, string) {
	t.Helper()
	in := Input{
		Pods:   pod.Pods{Data: t.TempDir(), StoreID: "feedbeeffeedbeef"},
		Layers: layers{},
		Manifest: &podspec.Pod{ACVersion: appc.SpecVersion, ACKind: podspec.Kind, Apps: []podspec.App{{
			Name: "web", Image: podspec.Image{ID: "sha512-00", Name: "example.com/web", Labels: appc.Labels{{Name: "version", Value: "1"}}},
			App: &appc.App{Exec: []string{"/web", "--token=hunter2"}, User: "0", Group: "0", Environment: []appc.EnvVar{{Name: "SECRET", Value: "hunter2"}}},
		}}},
		Images: map[string]Image{"web": {
			Record:   image.Record{ID: "sha512-00", Layers: []string{"b", "a", "b"}, Trust: image.Trust{By: "key 1"}},
			Manifest: &image.Manifest{Name: "example.com/web", App: &appc.App{Exec: []string{"/web"}}, Annotations: appc.Annotations{{Name: "n", Value: "v"}}},
		}},
		Options: poddir.RunOptions{Net: []string{"host"}, Hostname: "h"},
	}
	t.Cleanup(func() { os.RemoveAll(filepath.Dir(poddir.RunDir(in.Pods.StoreID, "x"))) })
	path := filepath.Join(t.TempDir(), "lock")
	hold, err := lock.TryShared(path)
	if err != nil {
		t.Fatal(err)
	}
	return in, hold, path
}

func TestFill(t *testing.T) {
	in, hold, path := input(t)
	told := ""
	in.Created = func(uuid string) error { told = uuid; return nil }
	p, err := Fill(t.Context(), hold, in)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Discard(t.Context())
	if told != p.UUID() {
		t.Errorf("told %q", told)
	}
	if held, err := lock.Held(path); held || err != nil {
		t.Errorf("the store is still locked: %v", err)
	}
	held, err := in.Pods.Held()
	if err != nil || len(held.Layers["a"]) != 1 || len(held.Layers["b"]) != 1 || len(held.Images["sha512-00"]) != 1 {
		t.Errorf("held %+v, %v", held, err)
	}
	var img poddir.AppImage
	if err := atomicfile.ReadJSON(p.Dir().App("web").Image(), &img); err != nil {
		t.Fatal(err)
	}
	if strings.Join(img.Lowers, " ") != "/store/b/fs /store/a/fs /store/b/fs" || img.Verified != "key 1" || img.Original.Exec[0] != "/web" || len(img.Notes) != 1 {
		t.Errorf("image %+v", img)
	}
	one, err := in.Pods.Get(p.UUID())
	if err != nil || one.State != pod.Preparing {
		t.Fatal(one, err)
	}
	f, err := in.Pods.Facts(one)
	if err != nil || f.Manifest.Apps[0].App.Exec[1] != "--token=hunter2" || f.Options.Hostname != "h" {
		t.Errorf("facts %+v, %v", f, err)
	}
	// Anyone may read the summary: it must not tell.
	file := filepath.Join(poddir.RunDir(in.Pods.StoreID, p.UUID()), poddir.SummaryFile)
	text, err := os.ReadFile(file)
	if err != nil || strings.Contains(string(text), "hunter2") || !strings.Contains(string(text), "example.com/web:1") {
		t.Errorf("summary %s, %v", text, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("summary's mode: %v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(string(p.Dir())); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("folder's mode: %v, %v", info.Mode(), err)
	}
}

// TestFillFails: nothing of the pod is left, and nothing locked.
func TestFillFails(t *testing.T) {
	refused := errors.New("refused")
	for name, spoil := range map[string]func(*Input){
		"created":  func(in *Input) { in.Created = func(string) error { return refused } },
		"manifest": func(in *Input) { in.Manifest.Apps[0].Image.ID = "" },
	} {
		in, hold, path := input(t)
		spoil(&in)
		if _, err := Fill(t.Context(), hold, in); err == nil || name == "created" && !errors.Is(err, refused) {
			t.Errorf("%s: %v", name, err)
		}
		if held, err := lock.Held(path); held || err != nil {
			t.Errorf("%s: the store is still locked: %v", name, err)
		}
		if left, err := in.Pods.List(); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v", name, left, err)
		}
		if _, err := os.Stat(filepath.Dir(poddir.RunDir(in.Pods.StoreID, "x"))); err == nil {
			t.Errorf("%s: run folder left", name)
		}
	}
}
