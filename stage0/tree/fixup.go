package tree

import (
	"context"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/layer"
)

// fixup appends the layer that puts right what overlayfs makes of the chain:
// a folder that an upper layer has without an entry of its own shows that
// layer's default owner and mode, a hard link to a file of a lower layer is not
// there at all, whiteouts in a folder that no other layer has are seen, and a
// folder without an entry hides a symlink that leads to where its content
// belongs.
func (c *Chain) fixup(ctx context.Context) error {
	var chain []placed
	for _, key := range c.keys {
		p, err := c.locate(key)
		if err != nil {
			return err
		}
		chain = append(chain, p)
	}
	v, err := newView(chain)
	if err != nil {
		return err
	}
	defer v.close()
	p, err := v.plan()
	if err != nil || p.empty() {
		return err
	}
	key := layer.FixupKey(c.keys)
	missing, err := c.need(ctx, key)
	if err != nil {
		return err
	}
	if slices.Contains(missing, key) {
		dir, err := c.staging.NewLayer()
		if err != nil {
			return err
		}
		meta := layer.Meta{Version: layer.MetaVersion, Key: key, Chain: slices.Clone(c.keys)}
		if err := v.build(dir, p, &meta); err != nil {
			return err
		}
		c.added[key] = placed{dir, meta}
	}
	c.keys = append(c.keys, key)
	return nil
}

// newView opens a chain as it was given, with all places of a layer that comes
// twice, since what is between may need the lower one, and with the layers below
// an opaque root, which keeps their looks.
func newView(chain []placed) (*view, error) {
	lowest, err := lowestSeen(chain)
	if err != nil {
		return nil, err
	}
	v := &view{}
	for i, p := range chain {
		r, err := p.open()
		if err != nil {
			v.close()
			return nil, err
		}
		again := slices.ContainsFunc(chain[i+1:], func(q placed) bool { return q.meta.Key == p.meta.Key })
		v.layers = append(v.layers, viewLayer{
			root: r, implicit: p.meta.Implicit, whited: p.meta.Whiteouts, links: p.meta.HardLinks, unmounted: again || i < lowest,
			oci: strings.HasPrefix(p.meta.Key, string(layer.OCI)+"-"),
		})
	}
	return v, nil
}

// plan is what the fix-up layer has: folders, each to look like that of a
// layer, files of lower layers under one or more names, and whiteouts.
type plan struct {
	dirs  map[string]dirSource
	files map[source]*copied
	gone  []string
}

// dirSource is a folder of a layer.
type dirSource struct {
	layer int
	name  string
}

// source is a file of a layer.
type source struct {
	layer int
	ino   uint64
}

// copied is a file by one of its names in its layer, and its names in the
// fix-up layer.
type copied struct {
	from  string
	names []string
}

func (p *plan) empty() bool { return len(p.dirs)+len(p.files)+len(p.gone) == 0 }

func (v *view) plan() (*plan, error) {
	if follow, err := v.followed(); err != nil {
		return nil, err
	} else if follow {
		return v.replay()
	}
	p := &plan{dirs: map[string]dirSource{}, files: map[source]*copied{}}
	for i, l := range v.layers {
		for _, name := range l.implicit {
			if err := v.planDir(p, string(name)); err != nil {
				return nil, err
			}
		}
		for _, name := range l.whited {
			if l.unmounted {
				break
			}
			// In a folder that overlayfs merges with no other it does not
			// look for whiteouts: they would be listed as broken files.
			alone, err := v.alone(i, string(name))
			if err != nil {
				return nil, err
			}
			if !alone {
				continue
			}
			// Whiteouts alone, of a folder that is nowhere, make none.
			nothing, err := l.onlyWhiteouts(string(name))
			if err != nil {
				return nil, err
			}
			if nothing {
				return v.replay()
			}
			p.dirs[string(name)] = dirSource{i, string(name)}
		}
		for _, link := range l.links {
			if err := v.planLink(p, i, link); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

// onlyWhiteouts says whether a folder without an entry holds nothing else.
func (l *viewLayer) onlyWhiteouts(name string) (bool, error) {
	if l.folder(name) == folderE {
		return false, nil
	}
	only := true
	err := l.each(name, func(_, _ string, st unix.Stat_t) error {
		only = only && isWhiteout(st)
		return nil
	})
	return only, err
}

func (v *view) planDir(p *plan, name string) error {
	top, def, err := v.defines(name)
	if err != nil || top == def {
		return err
	}
	same, err := sameMetadata(v.layers[top].root, name, v.layers[def].root, name)
	if err != nil || same {
		return err
	}
	p.dirs[name] = dirSource{def, name}
	return nil
}

func (v *view) planLink(p *plan, i int, link layer.HardLink) error {
	name, target := string(link.Path), string(link.Target)
	seen, err := v.untouched(i, name)
	if err != nil || !seen {
		return err // an upper layer has something else there
	}
	j, file, err := v.file(i, target)
	if err != nil {
		return err
	}
	if j < 0 {
		return noTarget(link)
	}
	st, err := v.layers[j].root.stat(file)
	if err != nil {
		return err
	}
	src := source{j, st.Ino}
	c, ok := p.files[src]
	if !ok {
		c = &copied{from: file}
		p.files[src] = c
		// All names of the file that are still there to be seen stay one file.
		if c.names, err = v.visibleNames(j, file, st); err != nil {
			return err
		}
	}
	c.names = append(c.names, name)
	slices.Sort(c.names)
	c.names = slices.Compact(c.names)
	return nil
}

// visibleNames are the names of a file in its layer that no upper layer says
// anything of.
func (v *view) visibleNames(layer int, name string, st unix.Stat_t) ([]string, error) {
	names := []string{name}
	if st.Nlink > 1 {
		var err error
		if names, err = v.layers[layer].root.namesOf(".", st.Ino); err != nil {
			return nil, err
		}
	}
	var seen []string
	for _, n := range names {
		ok, err := v.untouched(layer, n)
		if err != nil {
			return nil, err
		}
		if ok {
			seen = append(seen, n)
		}
	}
	return seen, nil
}

// namesOf walks the folder for all names of an inode.
func (r *root) namesOf(dir string, ino uint64) ([]string, error) {
	f, err := r.open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	children, err := f.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, child := range children {
		st, err := lstat(int(f.Fd()), child)
		if err != nil {
			return nil, err
		}
		name := path.Join(dir, child)
		if st.Ino == ino {
			names = append(names, name)
		}
		if !isDir(st) {
			continue
		}
		below, err := r.namesOf(name, ino)
		if err != nil {
			return nil, err
		}
		names = append(names, below...)
	}
	return names, nil
}

// build makes the layer. Folders on the way to what it is about are as the
// merged ones are, since overlayfs takes them from the topmost layer, which
// this is.
func (v *view) build(dir string, p *plan, meta *layer.Meta) error {
	if err := fault.Step("tree.fixup"); err != nil {
		return err
	}
	fs := filepath.Join(dir, "fs")
	if err := unix.Mkdir(fs, 0o755); err != nil {
		return err
	}
	to, err := openRoot(fs)
	if err != nil {
		return err
	}
	defer to.close()
	dirs, err := v.withParents(p)
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(dirs)) // a parent sorts before its children
	for _, name := range names {
		if name == "." {
			continue
		}
		if err := unix.Mkdirat(to.fd, name, 0o700); err != nil {
			return fmt.Errorf("folder %q: %w", name, err)
		}
		meta.Entries++
	}
	if err := v.buildFiles(to, p, meta); err != nil {
		return err
	}
	for _, name := range p.gone {
		if err := makeWhiteout(to, name); err != nil {
			return fmt.Errorf("whiteout %q: %w", name, err)
		}
		meta.Entries++
	}
	slices.Reverse(names)
	for _, name := range names {
		from, source := v.layers[dirs[name].layer].root, dirs[name].name
		st, err := from.stat(source)
		if err == nil {
			err = copyMetadata(procPath(from, source)+"/.", procPath(to, name)+"/.", st)
		}
		if err != nil {
			return fmt.Errorf("folder %q: %w", name, err)
		}
	}
	if meta.Tree, err = to.digest(); err != nil {
		return err
	}
	return atomicfile.WriteJSON(filepath.Join(dir, metaFile), meta, 0o600, atomicfile.Renamed)
}

// withParents adds all folders that the planned names lie in.
func (v *view) withParents(p *plan) (map[string]dirSource, error) {
	dirs := maps.Clone(p.dirs)
	add := func(name string) error {
		for name != "." {
			name = path.Dir(name)
			if _, ok := dirs[name]; ok {
				continue
			}
			_, def, err := v.defines(name)
			if err != nil {
				return err
			}
			if def < 0 {
				return errs.Newf(errs.Internal, "%q: no layer has this folder", name)
			}
			dirs[name] = dirSource{def, name}
		}
		return nil
	}
	if err := add("x"); err != nil { // the root itself
		return nil, err
	}
	for name := range p.dirs {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	for _, c := range p.files {
		for _, name := range c.names {
			if err := add(name); err != nil {
				return nil, err
			}
		}
	}
	return dirs, nil
}

func (v *view) buildFiles(to *root, p *plan, meta *layer.Meta) error {
	sources := slices.SortedFunc(maps.Keys(p.files), func(a, b source) int {
		if a.layer != b.layer {
			return a.layer - b.layer
		}
		return strings.Compare(p.files[a].from, p.files[b].from)
	})
	for _, src := range sources {
		names := p.files[src].names
		from := v.layers[src.layer].root
		if err := copyFile(from, p.files[src].from, to, names[0]); err != nil {
			return fmt.Errorf("hard link %q: %w", names[0], err)
		}
		st, err := to.stat(names[0])
		if err != nil {
			return err
		}
		meta.Entries += int64(len(names))
		meta.Size += st.Size
		for _, name := range names[1:] {
			if err := unix.Linkat(to.fd, names[0], to.fd, name, 0); err != nil {
				return fmt.Errorf("hard link %q: %w", name, err)
			}
		}
	}
	return nil
}

// makeWhiteout makes one of a fixed time, so that the layer can be compared with
// another that is made of the same.
func makeWhiteout(to *root, name string) error {
	if err := fault.Step("tree.whiteout"); err != nil {
		return err
	}
	if err := unix.Mknodat(to.fd, name, unix.S_IFCHR, 0); err != nil {
		return err
	}
	return setTimes(to.fd, name, times{}, unix.AT_SYMLINK_NOFOLLOW)
}
