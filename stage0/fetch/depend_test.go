package fetch

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/stage0/store"
	"github.com/rkt-pods/rkt/tests/images"
)

// dependent imports an ACI of that name with dependencies and a whitelist.
func dependent(t *testing.T, st *store.Store, name string, deps, whitelist []string, entries ...images.Entry) (image.Record, error) {
	t.Helper()
	m := map[string]any{"acKind": "ImageManifest", "acVersion": "0.8.11", "name": name}
	var list []any
	for _, d := range deps {
		dep, id, _ := strings.Cut(d, "@")
		x := map[string]any{"imageName": dep}
		if id != "" {
			x["imageID"] = id
		}
		list = append(list, x)
	}
	if list != nil {
		m["dependencies"] = list
	}
	if whitelist != nil {
		m["pathWhitelist"] = whitelist
	}
	data := must(images.ACI(string(must(json.Marshal(m))), entries))
	return importWith(t.Context(), st, writeFile(t, "x.aci", data), Options{Policy: unsigned})
}

func mustDependent(t *testing.T, st *store.Store, name string, deps, whitelist []string, entries ...images.Entry) image.Record {
	t.Helper()
	rec, err := dependent(t, st, name, deps, whitelist, entries...)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func file(name, body string) images.Entry { return images.File(name, 0o644, body) }

// content returns what a pod sees of the named files, "" for what is not there.
func content(t *testing.T, st *store.Store, rec image.Record, names ...string) map[string]string {
	t.Helper()
	files := merged(t, st, rec.Layers)
	out := map[string]string{}
	for _, name := range names {
		if _, body, ok := strings.Cut(files[name], ` "`); ok {
			out[name] = strings.TrimSuffix(body, `"`)
		} else {
			out[name] = ""
		}
	}
	return out
}

func TestDependencyOrder(t *testing.T) {
	st := newStore(t)
	d := mustDependent(t, st, "d", nil, nil, file("d", "d"), file("all", "d"), file("cd", "d"))
	b := mustDependent(t, st, "b", nil, nil, file("b", "b"), file("all", "b"), file("bc", "b"))
	c := mustDependent(t, st, "c", []string{"d"}, nil, file("c", "c"), file("all", "c"), file("cd", "c"), file("bc", "c"))
	a := mustDependent(t, st, "a", []string{"b", "c"}, nil, file("a", "a"), file("all", "a"))
	want := []string{"aci-" + b.ID, "aci-" + d.ID, "aci-" + c.ID, "aci-" + a.ID}
	if !slices.Equal(a.Layers, want) {
		t.Errorf("layers %q, want %q", a.Layers, want)
	}
	if !slices.Equal(a.Depends, []string{b.ID, c.ID, d.ID}) {
		t.Errorf("depends on %q", a.Depends)
	}
	got := content(t, st, a, "a", "b", "c", "d", "all", "bc", "cd")
	for name, body := range map[string]string{"a": "a", "b": "b", "c": "c", "d": "d", "all": "a", "bc": "c", "cd": "c"} {
		if got[name] != body {
			t.Errorf("%s: %q, want %q", name, got[name], body)
		}
	}
}

func TestDependencySeenTwiceStaysOnTop(t *testing.T) {
	st := newStore(t)
	d := mustDependent(t, st, "d", nil, nil, file("x", "d"))
	b := mustDependent(t, st, "b", []string{"d"}, nil, file("x", "b"))
	c := mustDependent(t, st, "c", []string{"d"}, nil, file("y", "c"))
	a := mustDependent(t, st, "a", []string{"b", "c"}, nil, file("z", "a"))
	want := []string{"aci-" + b.ID, "aci-" + d.ID, "aci-" + c.ID, "aci-" + a.ID}
	if !slices.Equal(a.Layers, want) {
		t.Errorf("layers %q, want %q", a.Layers, want)
	}
	if got := content(t, st, a, "x")["x"]; got != "d" {
		t.Errorf("x is %q: D, B, D, C, A ends with D for it", got)
	}
}

func TestWhitelists(t *testing.T) {
	st := newStore(t)
	deep := []images.Entry{
		images.Dir("usr", 0o711), images.Dir("usr/lib", 0o2755).Owned(1, 2), images.File("usr/lib/keep", 0o4711, "keep").Owned(7, 8),
		images.Link("usr/lib/same", "usr/lib/keep"), file("usr/lib/drop", "drop"), file("own", "own"), file("top", "top"), images.Dir("empty", 0o700), file("empty/inside", "x"),
	}
	mustDependent(t, st, "d", nil, nil, deep...)
	mustDependent(t, st, "c", []string{"d"}, []string{"/usr/lib/keep", "/usr/lib/same", "/own", "/c", "/empty/"}, file("c", "c"), file("c2", "c2"))
	mustDependent(t, st, "b", nil, nil, file("b", "b"))
	a := mustDependent(t, st, "a", []string{"b", "c"}, nil, file("a", "a"))
	got := content(t, st, a, "a", "b", "c", "c2", "usr/lib/keep", "usr/lib/drop", "own", "top", "empty/inside")
	for name, want := range map[string]string{
		"a": "a", "b": "b", // a sibling's list is not theirs
		"c": "c", "c2": "", "usr/lib/keep": `keep" = usr/lib/keep`, "usr/lib/drop": "", "own": "own", "top": "", "empty/inside": "",
	} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
	files := merged(t, st, a.Layers)
	for name, want := range map[string]string{"usr": "040711 0:0", "usr/lib": "042755 1:2", "usr/lib/keep": "104711 7:8", "empty": "040700 0:0"} {
		if !strings.HasPrefix(files[name], want) {
			t.Errorf("%s: %s, want %s", name, files[name], want)
		}
	}
	if files["usr/lib/same"] != files["usr/lib/keep"] {
		t.Errorf("hard links differ: %s and %s", files["usr/lib/same"], files["usr/lib/keep"])
	}
	// All lists on the way count, not the first and the last only.
	mustDependent(t, st, "m", []string{"d"}, []string{"/own"})
	mustDependent(t, st, "n", []string{"m"}, nil)
	top := mustDependent(t, st, "o", []string{"n"}, []string{"/own", "/top", "/usr/lib/keep"})
	got = content(t, st, top, "own", "top", "usr/lib/keep")
	if got["own"] != "own" || got["top"] != "" || got["usr/lib/keep"] != "" {
		t.Errorf("three lists: %q", got)
	}
	derived := slices.DeleteFunc(slices.Clone(a.Layers), func(key string) bool { return !strings.HasPrefix(key, "der-") })
	if len(derived) != 2 {
		t.Errorf("layers %q", a.Layers)
	}
	if err := st.RemoveImage(t.Context(), a.ID, none); err != nil {
		t.Fatal(err)
	}
	collected, err := st.Collect(t.Context(), none, 0)
	if err != nil {
		t.Fatal(err)
	}
	// c's own record still names the derived layers.
	if slices.ContainsFunc(collected.Layers, func(key string) bool { return slices.Contains(derived, key) }) {
		t.Errorf("collected %q", collected.Layers)
	}
}

func TestOwnWhitelistKeepsTheWholeTar(t *testing.T) {
	st := newStore(t)
	rec := mustDependent(t, st, "a", nil, []string{"/kept"}, file("kept", "k"), file("dropped", "d"))
	if got := content(t, st, rec, "kept", "dropped"); got["kept"] != "k" || got["dropped"] != "" {
		t.Errorf("%q", got)
	}
	if _, err := os.Stat(filepath.Join(st.LayerFS("aci-"+rec.ID), "dropped")); err != nil {
		t.Errorf("the image's own layer: %v", err)
	}
	if got, err := st.Collect(t.Context(), none, 0); err != nil || len(got.Layers) > 0 {
		t.Errorf("collected %+v, %v", got, err)
	}
}

func TestDependencyErrors(t *testing.T) {
	st := newStore(t)
	b := mustDependent(t, st, "b", nil, nil, file("b", "b"))
	if _, err := dependent(t, st, "a", []string{"b@" + b.ID[:40]}, nil); err != nil {
		t.Errorf("by id: %v", err)
	}
	for _, x := range []struct {
		dep, text string
		class     errs.Class
	}{
		{"none", "dependency none: not in the store", errs.NotFound},
		{"b@sha512-" + strings.Repeat("0", 128), "dependency b: not in the store", errs.NotFound},
		{"c@" + b.ID, "image " + b.ID[:19] + " is b", errs.Corrupt},
	} {
		_, err := dependent(t, st, "a", []string{x.dep}, nil)
		if !errs.Is(err, x.class) || !strings.Contains(err.Error(), x.text) {
			t.Errorf("%s: %v (%s)", x.dep, err, errs.ClassOf(err))
		}
	}
	_, err := dependent(t, st, "a", []string{"none"}, nil)
	if hints := errs.Hints(err); len(hints) == 0 || !strings.Contains(hints[0], "none") {
		t.Errorf("hints %q", hints)
	}
	// An id can't be foreseen, so that a cycle needs names that change their meaning.
	mustDependent(t, st, "loop", []string{"b"}, nil)
	mustDependent(t, st, "b", []string{"loop"}, nil, file("b", "new"))
	if _, err := dependent(t, st, "a", []string{"loop"}, nil); !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), "depends on itself") {
		t.Errorf("cycle: %v", err)
	}
}
