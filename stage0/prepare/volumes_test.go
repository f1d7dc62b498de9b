package prepare

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/lock"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/stage0/volume"
)

// ensured notes which volumes were asked for, and whether with what it takes.
type ensured struct {
	t     *testing.T
	in    *Input
	lock  string
	names []string
	err   error
}

func (e *ensured) Ensure(s volume.Spec) error {
	e.names = append(e.names, s.Name)
	held, err := e.in.Pods.Held()
	if locked, lerr := lock.Held(e.lock); !locked || lerr != nil || err != nil || len(held.Volumes[s.Name]) != 1 {
		e.t.Errorf("volume %s is made without lock or holder: %v %v %v", s.Name, locked, held.Volumes, errors.Join(err, lerr))
	}
	return e.err
}

func volumes(in *Input) {
	app := &in.Manifest.Apps[0]
	in.Manifest.Volumes = []podspec.Volume{
		{Name: "db", Kind: podspec.VolumeNamed}, {Name: "more", Kind: podspec.VolumeNamed, Source: "shop-db"},
		{Name: "img", Kind: podspec.VolumeImage, Source: "sha512-11"}, {Name: "unused", Kind: podspec.VolumeNamed},
	}
	own := podspec.Volume{Name: "own", Kind: podspec.VolumeNamed, Source: "shop-db"}
	app.Mounts = []podspec.Mount{{Volume: "db", Path: "/a"}, {Volume: "more", Path: "/b"}, {Volume: "img", Path: "/c"}, {Volume: "own", Path: "/d", AppVolume: &own}}
	in.VolumeImages = map[string]Image{"sha512-11": {
		Record: image.Record{ID: "sha512-11", Layers: []string{"x"}}, Manifest: &image.Manifest{Name: "example.com/img"},
	}}
}

// TestVolumesAreHeld: before a named volume is made the pod names it, and both
// references and what is rebuilt of them hold image volumes too.
func TestVolumesAreHeld(t *testing.T) {
	in, hold, path := input(t)
	volumes(&in)
	e := &ensured{t: t, in: &in, lock: path}
	in.Volumes = e
	p, err := Fill(t.Context(), hold, in)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Discard(t.Context())
	if !slices.Equal(e.names, []string{"db", "shop-db", "shop-db"}) {
		t.Errorf("made %v", e.names)
	}
	var img poddir.AppImage
	if err := atomicfile.ReadJSON(p.Dir().VolumeImage("sha512-11"), &img); err != nil || strings.Join(img.Lowers, " ") != "/store/x/fs" {
		t.Errorf("record %+v, %v", img, err)
	}
	for _, what := range []string{"written", "rebuilt"} {
		held, err := in.Pods.Held()
		if err != nil || len(held.Volumes["db"]) != 1 || len(held.Volumes["shop-db"]) != 1 || len(held.Images["sha512-11"]) != 1 || len(held.Layers["x"]) != 1 || len(held.Unknown) > 0 {
			t.Errorf("%s: held %+v, %v", what, held, err)
		}
		if err := os.WriteFile(p.Dir().Refs(), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(p.Dir().VolumeImage("sha512-11")); err != nil {
		t.Fatal(err)
	}
	if held, err := in.Pods.Held(); err != nil || held.Unknown[p.UUID()] == nil {
		t.Errorf("without the record of the image: %+v, %v", held, err)
	}
}

// TestVolumeFails: no pod without its volumes.
func TestVolumeFails(t *testing.T) {
	in, hold, path := input(t)
	volumes(&in)
	in.Volumes = &ensured{t: t, in: &in, lock: path, err: errors.New("no space")}
	if _, err := Fill(t.Context(), hold, in); err == nil || !strings.Contains(err.Error(), "no space") {
		t.Errorf("got %v", err)
	}
	if held, err := lock.Held(path); held || err != nil {
		t.Errorf("the store is still locked: %v", err)
	}
	if left, err := in.Pods.List(); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
