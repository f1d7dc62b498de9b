package tree

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/layer"
)

// derive copies what all of the meta's whitelists name, and the folders it lies
// in, from a layer to dir/fs. An entry of a list is exactly one path.
func derive(ctx context.Context, from placed, dir string, meta *layer.Meta) error {
	if err := fault.Step("tree.derive"); err != nil {
		return err
	}
	src, err := from.open()
	if err != nil {
		return err
	}
	defer src.close()
	fs := filepath.Join(dir, "fs")
	if err := unix.Mkdir(fs, 0o755); err != nil {
		return err
	}
	dst, err := openRoot(fs)
	if err != nil {
		return err
	}
	defer dst.close()
	d := &deriver{from: src, to: dst, meta: meta, dirs: map[string]bool{".": true}, links: map[uint64]string{}}
	allowed := intersect(meta.Whitelist)
	for _, name := range allowed {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := d.keep(name); err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
	}
	if err := d.finish(); err != nil {
		return err
	}
	for _, p := range from.meta.Implicit {
		if d.dirs[string(p)] {
			meta.Implicit = append(meta.Implicit, p)
		}
	}
	for _, l := range from.meta.HardLinks {
		if slices.Contains(allowed, string(l.Path)) {
			meta.HardLinks = append(meta.HardLinks, l)
		}
	}
	if meta.Tree, err = dst.digest(); err != nil {
		return err
	}
	return atomicfile.WriteJSON(filepath.Join(dir, metaFile), meta, 0o600, atomicfile.Renamed)
}

// intersect returns the paths that are in each list, relative and sorted.
func intersect(lists [][]string) []string {
	var out []string
	for _, p := range lists[0] {
		if !slices.ContainsFunc(lists[1:], func(l []string) bool { return !slices.Contains(l, p) }) {
			out = append(out, path.Join(".", p))
		}
	}
	slices.Sort(out)
	return out
}

type deriver struct {
	from, to *root
	meta     *layer.Meta
	dirs     map[string]bool   // those that exist in to
	links    map[uint64]string // inode → its first name in to
}

// keep copies one path. What the layer does not have is no error: it may be
// another image's. A symlink on the way is not followed: the path is then not
// in this layer.
func (d *deriver) keep(name string) error {
	for i := range len(name) {
		if name[i] != '/' {
			continue
		}
		st, err := lstat(d.from.fd, name[:i])
		if errors.Is(err, unix.ENOENT) || err == nil && !isDir(st) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	st, err := d.from.stat(name)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	parents := path.Dir(name)
	if isDir(st) {
		parents = name
	}
	if err := d.mkdirs(parents); err != nil || isDir(st) {
		return err
	}
	d.meta.Entries++
	if first, ok := d.links[st.Ino]; ok {
		return unix.Linkat(d.to.fd, first, d.to.fd, name, 0)
	}
	if st.Nlink > 1 {
		d.links[st.Ino] = name
	}
	if isReg(st) {
		d.meta.Size += st.Size
	}
	return copyFile(d.from, name, d.to, name)
}

func (d *deriver) mkdirs(name string) error {
	if d.dirs[name] {
		return nil
	}
	if err := d.mkdirs(path.Dir(name)); err != nil {
		return err
	}
	d.dirs[name] = true
	d.meta.Entries++
	return unix.Mkdirat(d.to.fd, name, 0o700)
}

// finish gives the folders their properties, children first.
func (d *deriver) finish() error {
	names := slices.Sorted(maps.Keys(d.dirs))
	slices.Reverse(names)
	for _, name := range names {
		st, err := d.from.stat(name)
		if err == nil {
			err = copyMetadata(procPath(d.from, name)+"/.", procPath(d.to, name)+"/.", st)
		}
		if err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
	}
	return nil
}
