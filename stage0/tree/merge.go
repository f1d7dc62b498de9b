package tree

import (
	"context"
	"errors"
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/fault"
)

// Merge copies to target, an empty folder, what overlayfs would show of the
// layers' trees, the lowest first: whiteouts are resolved, and names that are
// one file stay one.
func Merge(ctx context.Context, trees []string, target string) error {
	m := &merger{ctx: ctx, links: map[source]string{}}
	defer m.close()
	for _, dir := range trees {
		r, err := openRoot(dir)
		if err != nil {
			return err
		}
		m.layers = append(m.layers, r)
	}
	var err error
	if m.to, err = openRoot(target); err != nil {
		return err
	}
	all := make([]int, len(m.layers))
	for i := range all {
		all[i] = len(all) - 1 - i
	}
	all, err = m.untilOpaque(".", all)
	if err != nil {
		return err
	}
	return m.folder(".", all)
}

type merger struct {
	ctx    context.Context
	layers []*root
	to     *root
	links  map[source]string // a file of several names → its first in to
}

func (m *merger) close() {
	for _, r := range m.layers {
		r.close()
	}
	if m.to != nil {
		m.to.close()
	}
}

// untilOpaque cuts the layers, the topmost first, behind one whose folder hides
// those of lower ones.
func (m *merger) untilOpaque(name string, from []int) ([]int, error) {
	for n, i := range from {
		opaque, err := isOpaque(procPath(m.layers[i], name) + "/.")
		if err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
		if opaque {
			return from[:n+1], nil
		}
	}
	return from, nil
}

// folder fills a folder that exists in to from those of the layers, the topmost
// first, and gives it the properties of the first.
func (m *merger) folder(name string, from []int) error {
	if err := m.ctx.Err(); err != nil {
		return err
	}
	seen := map[string]bool{}
	for n, i := range from {
		children, err := m.layers[i].names(name)
		if err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
		for _, base := range children {
			if seen[base] {
				continue
			}
			seen[base] = true
			if err := m.child(path.Join(name, base), i, from[n:]); err != nil {
				return err
			}
		}
	}
	top := m.layers[from[0]]
	st, err := top.stat(name)
	if err == nil {
		err = copyMetadata(procPath(top, name)+"/.", procPath(m.to, name)+"/.", st)
	}
	if err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	return nil
}

// child copies what the topmost of the layers has at name, merged with those
// below if all are folders.
func (m *merger) child(name string, top int, from []int) error {
	st, err := m.layers[top].stat(name)
	switch {
	case err != nil:
		return fmt.Errorf("%q: %w", name, err)
	case isWhiteout(st):
		return nil
	case !isDir(st):
		return m.file(name, top, st)
	}
	var below []int
	for _, i := range from {
		st, err := m.layers[i].stat(name)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
		if !isDir(st) {
			break
		}
		below = append(below, i)
	}
	if below, err = m.untilOpaque(name, below); err != nil {
		return err
	}
	if err := fault.Step("tree.merge"); err != nil {
		return err
	}
	pfd, base, err := m.to.at(name)
	if err == nil {
		err = unix.Mkdirat(pfd, base, 0o700)
	}
	if err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	return m.folder(name, below)
}

func (m *merger) file(name string, layer int, st unix.Stat_t) error {
	src := source{layer, st.Ino}
	first, ok := m.links[src]
	if !ok {
		if st.Nlink > 1 {
			m.links[src] = name
		}
		if err := copyFile(m.layers[layer], name, m.to, name); err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
		return nil
	}
	if err := unix.Linkat(m.to.fd, first, m.to.fd, name, 0); err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	return nil
}
