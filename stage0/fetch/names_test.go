package fetch

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/tests/images"
)

// TestEndlessNames: what no command line could name later is not imported.
func TestEndlessNames(t *testing.T) {
	st := newStore(t)
	long := strings.Repeat("x", appc.MaxName)
	layers := [][]byte{oneLayer()}
	label := func(name, value string) string {
		return strings.Replace(images.Manifest("example.com/x", "1", nil), `"labels":[`, `"labels":[{"name":"`+name+`","value":"`+value+`"},`, 1)
	}
	for name, x := range map[string]struct {
		data []byte
		good bool
	}{
		"aci, longest":       {must(images.ACI(images.Manifest(long, "1", nil), nil)), true},
		"aci, name":          {must(images.ACI(images.Manifest(long+"x", "1", nil), nil)), false},
		"aci, huge name":     {must(images.ACI(images.Manifest(strings.Repeat(long, 100), "1", nil), nil)), false},
		"aci, version":       {must(images.ACI(images.Manifest("example.com/x", long+"x", nil), nil)), false},
		"aci, label's name":  {must(images.ACI(label(long+"x", "v"), nil)), false},
		"aci, label's value": {must(images.ACI(label("l", long+"x"), nil)), false},
		"layout, longest":    {must(must(images.OCI(images.Image{Name: long[2:] + ":1", Layers: layers})).Tar()), true},
		"layout, name":       {must(must(images.OCI(images.Image{Name: long + ":1", Layers: layers})).Tar()), false},
		"layout, tag":        {must(must(images.OCI(images.Image{Name: "example.com/y:" + long, Layers: layers})).Tar()), false},
		"docker, name":       {must(images.Docker(images.Image{Name: "z" + strings.Repeat(long, 100) + ":1", Layers: layers}).Tar()), false},
	} {
		t.Run(name, func(t *testing.T) {
			rec, err := importWith(t.Context(), st, writeFile(t, "x.tar", x.data), Options{Policy: unsigned})
			switch {
			case x.good && err != nil:
				t.Error(err)
			case x.good:
				if err := st.RemoveImage(t.Context(), rec.ID, none); err != nil {
					t.Error(err)
				}
			case !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), "longer than 1024 bytes") || len(err.Error()) > 400:
				t.Errorf("name of %d bytes, error %.500v", len(rec.Name), err)
			}
			checkClean(t, st)
		})
	}
}

// TestAttributeBeyondTheFileSystem: the disk is not full.
func TestAttributeBeyondTheFileSystem(t *testing.T) {
	st := newStore(t)
	value := strings.Repeat("v", 60000)
	if unix.Setxattr(writeFile(t, "f", nil), "user.note", []byte(value), 0) == nil {
		t.Skip("this file system takes attributes of any size that Linux allows")
	}
	layer := must(images.Tar([]images.Entry{images.File("f", 0o644, "x").XAttr("user.note", value)}))
	_, err := importWith(t.Context(), st, writeFile(t, "x.tar", must(must(images.OCI(images.Image{Name: "x:1", Layers: [][]byte{layer}})).Tar())), Options{Policy: unsigned})
	if hints := strings.Join(errs.Hints(err), " "); !errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), "user.note") || strings.Contains(hints, "room") {
		t.Errorf("error %v (%s), hints %q", err, errs.ClassOf(err), hints)
	}
	checkClean(t, st)
}

// TestEntriesBelowLinksOfACIs: the files of an image that depends on another
// don't follow that one's symlinks.
func TestEntriesBelowLinksOfACIs(t *testing.T) {
	st := newStore(t)
	mustDependent(t, st, "below", nil, nil, images.Dir("usr", 0o755), images.Dir("usr/bin", 0o755), images.Symlink("bin", "usr/bin"), file("usr/bin/sh", "sh"))
	rec := mustDependent(t, st, "above", []string{"below"}, nil, file("bin/tool", "tool"))
	got := content(t, st, rec, "bin/tool", "usr/bin/tool", "usr/bin/sh", "bin/sh")
	if got["bin/tool"] != "tool" || got["usr/bin/tool"] != "" || got["usr/bin/sh"] != "sh" || got["bin/sh"] != "" {
		t.Errorf("files %q", got)
	}
	undamaged(t, st, rec)
}

// TestLinksInACircle: what leads nowhere is refused.
func TestLinksInACircle(t *testing.T) {
	st := newStore(t)
	below := must(images.Tar([]images.Entry{images.Symlink("a", "b"), images.Symlink("b", "/a")}))
	above := must(images.Tar([]images.Entry{file("a/x", "x")}))
	_, err := importWith(t.Context(), st, writeFile(t, "x.tar", must(must(images.OCI(images.Image{Name: "x:1", Layers: [][]byte{below, above}})).Tar())), Options{Policy: unsigned})
	if !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), "symlinks in a circle") {
		t.Errorf("error %v (%s)", err, errs.ClassOf(err))
	}
	checkClean(t, st)
}
