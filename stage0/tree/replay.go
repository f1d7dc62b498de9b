package tree

import (
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/layer"
)

// Unpacked one over the other, as the specification has it, the layers of an OCI
// image see the symlinks of those below: with a lower `bin -> usr/bin`, an upper
// `bin/tool` without an entry for `bin` is usr/bin/tool. Overlayfs merges by
// name and shows a folder bin instead of the link. Where a chain has such an
// entry, what is here plays all layers through in memory, and the fix-up layer is
// all in which overlayfs differs from that.

// maxFollowed is how many symlinks one name may lead through.
const maxFollowed = 255

// inode is one file of the merged image. Hard links are the same node or have the
// same inode of the same layer.
type inode struct {
	layer    int
	name     string // in the layer; of a folder, the one whose looks it has
	ino      uint64
	link     string // of a symlink
	isDir    bool
	isLink   bool
	children map[string]*inode
	layers   []int // of a folder of overlayfs: those it is merged of
	broken   error // a hard link to what is not there
}

func (n *inode) source() source { return source{n.layer, n.ino} }

func newFolder(layer int, name string) *inode {
	return &inode{layer: layer, name: name, isDir: true, children: map[string]*inode{}}
}

// followed says whether a layer has something below what is a symlink to it,
// or may be. Layers of an ACI follow none.
func (v *view) followed() (bool, error) {
	for i, l := range v.layers {
		if !l.oci {
			return false, nil
		}
		for _, name := range l.implicit {
			if yes, err := v.isLink(i, string(name)); err != nil || yes {
				return yes, err
			}
		}
		for _, link := range l.links {
			target := string(link.Target)
			for at := strings.IndexByte(target, '/'); at >= 0; {
				if yes, err := v.isLink(i, target[:at]); err != nil || yes {
					return yes, err
				}
				next := strings.IndexByte(target[at+1:], '/')
				if next < 0 {
					break
				}
				at += 1 + next
			}
		}
	}
	return false, nil
}

// isLink says whether layer i sees a symlink at the name where it has no folder
// with an entry. A hard link that is a note only may be one.
func (v *view) isLink(i int, name string) (bool, error) {
	for j := i; j >= 0 && name != "."; j-- {
		f, cut, err := v.layers[j].look(name)
		if err != nil {
			return false, err
		}
		if (f == absent || f == hidden) && v.layers[j].linked(name) {
			return true, nil
		}
		if f == other {
			st, err := v.layers[j].root.stat(name)
			return err == nil && isSymlink(st), err
		}
		if cut || f == folderE || f == hidden {
			break
		}
	}
	return false, nil
}

// replay is plan for a chain in which symlinks are followed.
func (v *view) replay() (*plan, error) {
	want, have := &replayed{newFolder(0, ".")}, newFolder(0, ".")
	for i := range v.layers {
		l := &v.layers[i]
		below := want.targets(l)
		if err := want.remove(l, ".", "."); err != nil {
			return nil, err
		}
		if err := want.add(l, i, ".", "."); err != nil {
			return nil, err
		}
		if l.folder(".") == folderE {
			want.root.layer = i
		}
		if err := want.hardLinks(l, i, below); err != nil {
			return nil, err
		}
		if l.unmounted {
			continue
		}
		have.layer, have.layers = i, append(have.layers, i)
		if err := l.merge(i, ".", have); err != nil {
			return nil, err
		}
	}
	d := &difference{view: v, plan: &plan{dirs: map[string]dirSource{}, files: map[source]*copied{}}, names: map[source]*shown{}}
	if err := d.folder(".", want.root, have); err != nil {
		return nil, err
	}
	d.finish(want)
	return d.plan, nil
}

// each calls do for all that a folder of the layer has.
func (l *viewLayer) each(dir string, do func(base, name string, st unix.Stat_t) error) error {
	names, err := l.root.names(dir)
	if err != nil {
		return err
	}
	for _, base := range names {
		name := path.Join(dir, base)
		// The folder is one of the layer's own, so that nothing is followed here.
		st, err := lstat(l.root.fd, name)
		if err == nil {
			err = do(base, name, st)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// merge puts the layer's folder on top of n as overlayfs does.
func (l *viewLayer) merge(i int, dir string, n *inode) error {
	return l.each(dir, func(base, name string, st unix.Stat_t) error {
		switch {
		case isWhiteout(st):
			delete(n.children, base)
			return nil
		case !isDir(st):
			var err error
			n.children[base], err = l.file(i, name, st)
			return err
		}
		opaque, err := l.opaque(name)
		if err != nil {
			return err
		}
		c := n.children[base]
		if c == nil || !c.isDir || opaque {
			c = newFolder(i, name)
			n.children[base] = c
		}
		c.layer, c.name, c.layers = i, name, append(c.layers, i)
		return l.merge(i, name, c)
	})
}

func (l *viewLayer) file(i int, name string, st unix.Stat_t) (*inode, error) {
	n := &inode{layer: i, name: name, ino: st.Ino, isLink: isSymlink(st)}
	var err error
	if n.isLink {
		n.link, err = readlink(l.root, name)
	}
	return n, err
}

// replayed is the image as far as its layers were played.
type replayed struct{ root *inode }

// get returns what is at a name, following nothing.
func (m *replayed) get(name string) *inode {
	n := m.root
	for elem := range strings.SplitSeq(name, "/") {
		if n == nil || elem == "." {
			return n
		}
		n = n.children[elem]
	}
	return n
}

// join follows all symlinks in a name, the last element included, and never
// leads out of the root. What is not there is taken as it is written.
func (m *replayed) join(name string) (string, error) {
	at, links := ".", 0
	for rest := name; rest != ""; {
		elem, after, _ := strings.Cut(rest, "/")
		rest = after
		switch elem {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, elem)
		n := m.get(next)
		if n == nil || !n.isLink {
			at = next
			continue
		}
		if links++; links > maxFollowed {
			return "", errs.Newf(errs.Corrupt, "%q: symlinks in a circle", name)
		}
		if path.IsAbs(n.link) {
			at = "."
		}
		rest = n.link + "/" + rest
	}
	return at, nil
}

// mkdirs returns the folder of that name, which no symlink is in. Folders that
// are missing get the looks of one of layer i.
func (m *replayed) mkdirs(name string, i int, like string) *inode {
	n := m.root
	for elem := range strings.SplitSeq(name, "/") {
		if elem == "." {
			break
		}
		c := n.children[elem]
		if c == nil || !c.isDir {
			c = newFolder(i, like)
			n.children[elem] = c
		}
		n = c
	}
	return n
}

// remove takes away what the layer's folder dir, which is pos in the image, says
// is gone. It comes before add, since whiteouts act on lower layers only.
func (m *replayed) remove(l *viewLayer, dir, pos string) error {
	if dir == "." {
		if opaque, err := l.opaque("."); err != nil {
			return err
		} else if opaque {
			m.root.children = map[string]*inode{}
		}
	}
	return l.each(dir, func(base, name string, st unix.Stat_t) error {
		if isWhiteout(st) {
			if n := m.get(pos); n != nil {
				delete(n.children, base)
			}
			return nil
		}
		if !isDir(st) {
			return nil
		}
		at, err := m.place(l, name, path.Join(pos, base))
		if err != nil {
			return err
		}
		n := m.get(at)
		if n == nil || !n.isDir {
			return nil // a new folder, or one in the place of something else
		}
		opaque, err := l.opaque(name)
		if err != nil {
			return err
		}
		if opaque {
			n.children = map[string]*inode{}
		}
		return m.remove(l, name, at)
	})
}

// place returns where in the image a folder of the layer is: one without an
// entry is wherever symlinks lead.
func (m *replayed) place(l *viewLayer, name, at string) (string, error) {
	if l.folder(name) == folderE {
		return at, nil
	}
	return m.join(at)
}

// add brings what the layer's folder has to pos. A folder without an entry is
// made when there is something to go inside.
func (m *replayed) add(l *viewLayer, i int, dir, pos string) error {
	return l.each(dir, func(base, name string, st unix.Stat_t) error {
		switch {
		case isWhiteout(st):
			return nil
		case !isDir(st):
			f, err := l.file(i, name, st)
			if err == nil {
				m.mkdirs(pos, i, dir).children[base] = f
			}
			return err
		}
		at, err := m.place(l, name, path.Join(pos, base))
		if err != nil {
			return err
		}
		if l.folder(name) == folderE {
			m.mkdirs(pos, i, dir) // those above have no entry, or are there
			n := m.mkdirs(at, i, name)
			n.layer, n.name = i, name
		}
		return m.add(l, i, name, at)
	})
}

// targets are the files that the layer's hard links mean in those below it.
func (m *replayed) targets(l *viewLayer) []*inode {
	out := make([]*inode, len(l.links))
	for i, h := range l.links {
		// The layer may remove symlinks in a circle: that is told later, if not.
		if name, err := m.beside(string(h.Target)); err == nil {
			out[i] = m.get(name)
		}
	}
	return out
}

// hardLinks makes the links whose target the layer lacked when they came. A
// target that it removed or replaced afterwards is that of the layers below.
func (m *replayed) hardLinks(l *viewLayer, i int, below []*inode) error {
	for k, h := range l.links {
		name, err := m.beside(string(h.Path))
		if err != nil {
			return err
		}
		target, err := m.beside(string(h.Target))
		if err != nil {
			return err
		}
		if name == target {
			continue
		}
		f, _, err := l.look(string(h.Target))
		if err != nil {
			return err
		}
		n := m.get(target)
		if n == nil || n.isDir || f == other {
			n = below[k]
		}
		if n == nil || n.isDir {
			n = &inode{layer: -1, broken: noTarget(h)}
		}
		m.mkdirs(path.Dir(name), i, path.Dir(string(h.Path))).children[path.Base(name)] = n
	}
	return nil
}

// beside follows all symlinks but the last element.
func (m *replayed) beside(name string) (string, error) {
	dir, err := m.join(path.Dir(name))
	return path.Join(dir, path.Base(name)), err
}

func noTarget(h layer.HardLink) error {
	return errs.Newf(errs.Corrupt, "hard link %q: its target %q is in no layer below", string(h.Path), string(h.Target))
}

// difference collects what overlayfs has to be told.
type difference struct {
	*view
	plan  *plan
	names map[source]*shown
}

// shown is a file of the image, with its names that overlayfs shows by itself and
// those that it doesn't.
type shown struct {
	from          string
	right, others []string
}

// folder compares a folder of the image with what overlayfs has at its name, nil
// if nothing.
func (d *difference) folder(name string, want, have *inode) error {
	if have == nil || !have.isDir {
		d.plan.dirs[name] = dirSource{want.layer, want.name}
		have = newFolder(-1, name)
	} else if same, err := d.sameFolder(name, want, have); err != nil {
		return err
	} else if !same {
		d.plan.dirs[name] = dirSource{want.layer, want.name}
	}
	for base, n := range want.children {
		child, other := path.Join(name, base), have.children[base]
		switch {
		case n.broken != nil:
			return n.broken
		case n.isDir:
			if err := d.folder(child, n, other); err != nil {
				return err
			}
			continue
		}
		f, ok := d.names[n.source()]
		if !ok {
			f = &shown{from: n.name}
			d.names[n.source()] = f
		}
		if other != nil && !other.isDir && other.source() == n.source() {
			f.right = append(f.right, child)
		} else {
			f.others = append(f.others, child)
		}
	}
	for base := range have.children {
		if want.children[base] == nil {
			d.plan.gone = append(d.plan.gone, path.Join(name, base))
		}
	}
	return nil
}

func (d *difference) sameFolder(name string, want, have *inode) (bool, error) {
	// In a folder that overlayfs merges with no other it would show whiteouts.
	if len(have.layers) == 1 && name != "." && slices.Contains(d.layers[have.layer].whited, layer.Path(have.name)) {
		return false, nil
	}
	if want.layer == have.layer && want.name == have.name {
		return true, nil
	}
	return sameMetadata(d.layers[want.layer].root, want.name, d.layers[have.layer].root, have.name)
}

// finish adds the files with all their names, which stay one file, and the
// folders that anything is in.
func (d *difference) finish(want *replayed) {
	for src, f := range d.names {
		if len(f.others) > 0 {
			names := slices.Concat(f.right, f.others)
			slices.Sort(names)
			d.plan.files[src] = &copied{from: f.from, names: names}
		}
	}
	slices.Sort(d.plan.gone)
	if d.plan.empty() {
		return
	}
	inside := slices.Concat(slices.Collect(maps.Keys(d.plan.dirs)), d.plan.gone, []string{"."})
	for _, f := range d.plan.files {
		inside = append(inside, f.names...)
	}
	for _, name := range inside {
		for name != "." {
			name = path.Dir(name)
			n := want.get(name)
			d.plan.dirs[name] = dirSource{n.layer, n.name}
		}
	}
	d.plan.dirs["."] = dirSource{want.root.layer, "."}
}
