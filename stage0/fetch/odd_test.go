package fetch

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/tests/images"
)

// TestOddLayersAsUmoci has what real tools have written and few expect.
func TestOddLayersAsUmoci(t *testing.T) {
	needRoot(t)
	base := []images.Entry{
		at(images.Dir("a", 0o711), 100), at(images.Dir("a/b", 0o701), 200), at(images.File("a/b/f", 0o640, "f"), 300),
		at(images.File("a/g", 0o600, "g"), 400), at(images.Dir("c", 0o2755), 500), at(images.File("c/h", 0o644, "h"), 600),
	}
	linked := images.Link("a/.wh.g", "c/new")
	for name, upper := range map[string][]images.Entry{
		"a whiteout that is a hard link":                  {at(images.File("c/new", 0o644, "new"), 700), linked},
		"a whiteout that is a symlink":                    {images.Symlink("a/.wh.g", "nowhere")},
		"a whiteout that is a folder":                     {images.Dir("a/.wh.b", 0o755)},
		"files below a folder that goes, before":          {at(images.Dir("a/b", 0o750), 5), at(images.File("a/b/new", 0o644, "n"), 800), images.Whiteout("a/b")},
		"files below a folder that goes, after":           {images.Whiteout("a/b"), at(images.File("a/b/new", 0o644, "n"), 800), at(images.Dir("a/b", 0o750), 5), at(images.Dir("a", 0o700), 6)},
		"a hard link whose parents have no entry":         {at(images.File("x/y/one", 0o644, "1"), 900), images.Link("p/q/two", "x/y/one"), images.Link("r/s/three", "a/b/f")},
		"a hard link before its target's folder":          {images.Link("z", "a/g"), at(images.Dir("a", 0o700), 950)},
		"a hard link, then its target goes":               {images.Link("a/l", "a/g"), images.Whiteout("a/g")},
		"a hard link, then its target's folder goes":      {images.Link("l", "a/b/f"), images.Whiteout("a"), at(images.File("n", 0o644, ""), 1)},
		"a hard link, then its target's folder is opaque": {images.Link("a/l", "a/g"), images.Opaque("a"), images.Link("a/m", "a/l")},
		"a hard link, then its target is another":         {images.Link("a/l", "a/g"), at(images.File("a/g", 0o644, "new"), 7)},
		"a hard link, then a whiteout of it":              {images.Link("a/l", "a/g"), images.Whiteout("a/l")},
		"a hard link to a hard link whose target goes":    {images.Link("a/l", "a/g"), images.Whiteout("a/g"), images.Link("c/m", "a/l")},
		"a hard link in the place of what goes":           {images.Whiteout("c/h"), images.Link("c/h", "a/g"), images.Whiteout("a/g")},
		"the bookkeeping of aufs":                         {images.Dir(".wh..wh.plnk", 0o700), images.File(".wh..wh.aufs", 0o444, ""), at(images.File("n", 0o644, ""), 1)},
		"names with dots and slashes":                     {at(images.File("./a//b/./n", 0o644, "n"), 960), at(images.File("/c/abs", 0o644, "n"), 970)},
		"a folder twice":                                  {at(images.Dir("c", 0o700), 1), at(images.File("c/i", 0o600, "i"), 2), at(images.Dir("c", 0o750), 3)},
		"a file in the place of a folder":                 {at(images.File("a", 0o644, "a"), 5)},
		"a folder in the place of a file":                 {at(images.Dir("a/g", 0o750), 5), at(images.File("a/g/x", 0o644, "x"), 6)},
		"a symlink in the place of a folder":              {images.Symlink("a", "c")},
		"nothing at all":                                  {},
		"a root of its own":                               {at(images.Dir("./", 0o750).Owned(1, 2), 5), at(images.File("n", 0o644, ""), 1)},
		"a name of 200 letters in a folder of as many":    {at(images.File(fmt.Sprintf("%0200d/%0200d", 1, 2), 0o644, "long"), 7)},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			img := images.Image{Name: "1.0", Layers: [][]byte{must(images.Tar(base)), must(images.Tar(upper))}, Pack: images.Gzip}
			if err := must(images.OCI(img)).WriteDir(dir); err != nil {
				t.Fatal(err)
			}
			st := newStore(t)
			rec := importFile(t, st, dir)
			want, got, folder := umoci(t, dir, "1.0"), merged(t, st, rec.Layers), rendered(t, st, rec)
			untime(want, got, folder)
			compare(t, got, maps.Clone(want))
			compare(t, folder, want)
			undamaged(t, st, rec)
		})
	}
}

// untime leaves out the time of a folder without an entry in all descriptions:
// that of its making in want, and none here. There the root gets that time too when
// such a folder is made in it.
func untime(want map[string]string, others ...map[string]string) {
	for name, line := range want {
		i := strings.Index(line, fmt.Sprintf(" %d", time.Now().Unix()/1000))
		if i < 0 {
			continue
		}
		for _, m := range append(others, want) {
			m[name] = m[name][:min(i, len(m[name]))]
		}
	}
}
