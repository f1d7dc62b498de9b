package fetch

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/tests/images"
)

// model is what the layers so far have at each name, true for folders.
type model map[string]bool

// below are the names in the folder and the folder itself.
func (m model) below(dir string) []string {
	var names []string
	for name := range m {
		if name == dir || strings.HasPrefix(name, dir+"/") {
			names = append(names, name)
		}
	}
	return names
}

// pick returns some name, folder or not, that meets the condition.
func (m model) pick(r *rand.Rand, ok func(string, bool) bool) (string, bool) {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if ok(name, m[name]) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "", false
	}
	return names[r.IntN(len(names))], true
}

// layerMaker makes random layers as real tools could have: each name once in a
// layer, nothing below what the layer removes, parents with or without an entry.
type layerMaker struct {
	r       *rand.Rand
	m       model
	touched map[string]bool // by this layer, so that it does nothing more there or below
	made    map[string]bool // folders of this layer, which it may fill
	serial  int
}

func (l *layerMaker) free(name string) bool {
	for p := name; p != "."; p = path.Dir(p) {
		if l.touched[p] {
			return false
		}
	}
	return true
}

// used says whether the layer has anything at the name or below.
func (l *layerMaker) used(name string) bool {
	for _, n := range slices.AppendSeq(slices.Collect(maps.Keys(l.touched)), maps.Keys(l.made)) {
		if n == name || strings.HasPrefix(n, name+"/") {
			return true
		}
	}
	return false
}

// layer makes one layer of some operations.
func (l *layerMaker) layer(ops int) []images.Entry {
	l.touched, l.made = map[string]bool{}, map[string]bool{}
	var entries []images.Entry
	for range ops {
		l.serial++
		dir, _ := l.m.pick(l.r, func(name string, isDir bool) bool { return isDir && l.free(name) })
		name := strings.TrimPrefix(path.Join(dir, fmt.Sprintf("n%d", l.r.IntN(4))), "/")
		switch l.r.IntN(7) {
		case 0, 1: // a file, without an entry for its folder
			if l.free(name) && len(l.m.below(name)) <= 1 && !l.m[name] {
				l.m[name], l.touched[name] = false, true
				entries = append(entries, at(images.File(name, 0o600+int64(l.r.IntN(64)), fmt.Sprint(l.serial)).Owned(l.serial, 1), int64(l.serial)))
			}
		case 2: // a folder with an entry, new or not
			if isDir, there := l.m[name]; l.free(name) && (isDir || !there) && !l.used(name) {
				l.m[name], l.made[name] = true, true
				entries = append(entries, at(images.Dir(name, 0o700+int64(l.r.IntN(64))).Owned(l.serial, 2), int64(l.serial)))
			}
		case 3: // something goes
			gone, ok := l.m.pick(l.r, func(n string, _ bool) bool {
				return n != "." && l.free(n) && !l.used(n)
			})
			if ok {
				for _, n := range l.m.below(gone) {
					delete(l.m, n)
				}
				l.touched[gone] = true
				entries = append(entries, images.Whiteout(gone))
			}
		case 4: // all in a folder goes
			if dir != "." && dir != "" && !l.used(dir) {
				for _, n := range l.m.below(dir) {
					if n != dir {
						delete(l.m, n)
					}
				}
				l.touched[dir] = true
				entries = append(entries, images.Opaque(dir))
			}
		default: // a hard link to a file of whatever layer
			target, ok := l.m.pick(l.r, func(_ string, isDir bool) bool { return !isDir })
			if ok && l.free(name) {
				if _, there := l.m[name]; !there {
					l.m[name], l.touched[name], l.touched[target] = false, true, true
					entries = append(entries, images.Link(name, target))
				}
			}
		}
	}
	return entries
}

// TestRandomLayersAsUmoci compares what a pod sees of random images with what
// umoci makes of them.
func TestRandomLayersAsUmoci(t *testing.T) {
	needRoot(t)
	for seed := range uint64(60) {
		l := &layerMaker{r: rand.New(rand.NewPCG(seed, 1)), m: model{".": true}}
		img := images.Image{Name: "1.0"}
		var all []string
		for range 2 + l.r.IntN(5) {
			entries := l.layer(6 + l.r.IntN(10))
			img.Layers = append(img.Layers, must(images.Tar(entries)))
			var names []string
			for _, e := range entries {
				names = append(names, fmt.Sprintf("%c %s %s", e.Typeflag, e.Name, e.Linkname))
			}
			all = append(all, strings.Join(names, "\n\t"))
		}
		dir := t.TempDir()
		if err := must(images.OCI(img)).WriteDir(dir); err != nil {
			t.Fatal(err)
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Logf("layers:\n\t%s", strings.Join(all, "\n----\n\t"))
			st := newStore(t)
			rec := importFile(t, st, dir)
			want := umoci(t, dir, "1.0")
			compare(t, merged(t, st, rec.Layers), maps.Clone(want))
			compare(t, rendered(t, st, rec), want)
			undamaged(t, st, rec)
		})
	}
}
