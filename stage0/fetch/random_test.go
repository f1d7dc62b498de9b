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
	r        *rand.Rand
	m        model
	touched  map[string]bool     // by this layer, so that it does nothing more there or below
	made     map[string]bool     // folders of this layer, which it may fill
	links    map[string]string   // symlinks → the folders they mean
	through  map[string][]string // those that the target of one leads through
	hidden   map[string]bool     // links of this layer that the layer has under another name
	followed []string            // links that were used
	serial   int
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

// unlink forgets what a symlink means, and with it those that lead through others.
func (l *layerMaker) unlink(name string) {
	if _, ok := l.links[name]; ok {
		delete(l.links, name)
		maps.DeleteFunc(l.links, func(link, _ string) bool { return len(l.through[link]) > 0 })
	}
}

// spell gives back the name, or one that leads to it through symlinks. Those are
// not touched any more by the layer. A link of the layer itself is the only one
// on the way.
func (l *layerMaker) spell(name string) string {
	if l.r.IntN(2) == 0 {
		return name
	}
	var ways []string
	for _, link := range slices.Sorted(maps.Keys(l.links)) {
		dir := l.links[link]
		if l.m[dir] && !l.hidden[link] && link != name && !strings.HasPrefix(link, name+"/") && (dir == "." || strings.HasPrefix(name, dir+"/")) {
			ways = append(ways, link)
		}
	}
	if len(ways) == 0 {
		return name
	}
	link := ways[l.r.IntN(len(ways))]
	spelled := link
	if !l.touched[link] {
		spelled = l.spell(link)
	}
	l.follow(link)
	return path.Join(spelled, strings.TrimPrefix(name, l.links[link]))
}

// follow notes that a link and all behind it are used.
func (l *layerMaker) follow(link string) {
	l.touched[link] = true
	l.followed = append(l.followed, link)
	for _, next := range l.through[link] {
		l.follow(next)
	}
}

// symlink makes one to some folder.
func (l *layerMaker) symlink(name string) (images.Entry, bool) {
	dir, _ := l.m.pick(l.r, func(_ string, isDir bool) bool { return isDir })
	if _, there := l.m[name]; there || !l.free(name) {
		return images.Entry{}, false
	}
	l.m[name], l.touched[name] = false, true
	spelled := l.spell(name)
	l.followed = nil
	target := path.Dir("/" + l.spell(path.Join(dir, "x")))
	l.through[name] = l.followed
	if l.r.IntN(2) == 0 && spelled == name { // else ".." would be another folder's in this layer
		target = strings.Repeat("../", strings.Count(name, "/")+l.r.IntN(2)*10) + target[1:]
		if target == "" {
			target = "."
		}
	}
	l.links[name] = dir
	l.hidden[name] = spelled != name
	return at(images.Symlink(spelled, target), int64(l.serial)), true
}

// layer makes one layer of some operations.
func (l *layerMaker) layer(ops int) []images.Entry {
	l.touched, l.made, l.hidden = map[string]bool{}, map[string]bool{}, map[string]bool{}
	var entries []images.Entry
	for range ops {
		l.serial++
		dir, _ := l.m.pick(l.r, func(name string, isDir bool) bool { return isDir && l.free(name) })
		name := strings.TrimPrefix(path.Join(dir, fmt.Sprintf("n%d", l.r.IntN(4))), "/")
		switch l.r.IntN(9) {
		case 0, 1: // a file, without an entry for its folder
			if l.free(name) && len(l.m.below(name)) <= 1 && !l.m[name] {
				l.m[name], l.touched[name] = false, true
				l.unlink(name)
				entries = append(entries, at(images.File(l.spell(name), 0o600+int64(l.r.IntN(64)), fmt.Sprint(l.serial)).Owned(l.serial, 1), int64(l.serial)))
			}
		case 2: // a folder with an entry, new or not
			if isDir, there := l.m[name]; l.free(name) && (isDir || !there) && !l.used(name) {
				l.m[name], l.made[name] = true, true
				entries = append(entries, at(images.Dir(l.spell(name), 0o700+int64(l.r.IntN(64))).Owned(l.serial, 2), int64(l.serial)))
			}
		case 3: // something goes
			gone, ok := l.m.pick(l.r, func(n string, _ bool) bool {
				return n != "." && l.free(n) && !l.used(n)
			})
			if ok {
				spelled := l.spell(gone)
				for _, n := range l.m.below(gone) {
					delete(l.m, n)
					l.unlink(n)
				}
				l.touched[gone] = true
				entries = append(entries, images.Whiteout(spelled))
			}
		case 4: // all in a folder goes
			if dir != "." && dir != "" && !l.used(dir) {
				spelled := path.Dir(l.spell(path.Join(dir, "x")))
				if l.used(dir) {
					continue // the way to it is inside
				}
				for _, n := range l.m.below(dir) {
					if n != dir {
						delete(l.m, n)
						l.unlink(n)
					}
				}
				l.touched[dir] = true
				entries = append(entries, images.Opaque(spelled))
			}
		case 5:
			if e, ok := l.symlink(name); ok {
				entries = append(entries, e)
			}
		default: // a hard link to a file of whatever layer
			target, ok := l.m.pick(l.r, func(_ string, isDir bool) bool { return !isDir })
			if ok && l.free(name) {
				if _, there := l.m[name]; !there {
					l.m[name], l.touched[name], l.touched[target] = false, true, true
					entries = append(entries, images.Link(l.spell(name), l.spell(target)))
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
	for seed := range uint64(120) {
		l := &layerMaker{r: rand.New(rand.NewPCG(seed, 1)), m: model{".": true}, links: map[string]string{}, through: map[string][]string{}}
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
