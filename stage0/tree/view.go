package tree

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/layer"
)

// view is a chain of layers as overlayfs would merge them, without mounting.
type view struct {
	layers []viewLayer // the lowest first
}

type viewLayer struct {
	root     *root
	implicit []layer.Path // sorted
	whited   []layer.Path
	links    []layer.HardLink
	oci      bool // whose entries follow symlinks of lower layers
	// unmounted is the lower place of a layer that comes twice, or a layer below an
	// opaque root. It counts for what the image is, and not for what overlayfs shows
	// before the fix-up.
	unmounted bool
}

func (v *view) close() {
	for _, l := range v.layers {
		l.root.close()
	}
}

// found is what one layer says of a name.
type found int

const (
	absent  found = iota // nothing
	hidden               // that it is gone: a whiteout, or something else in the place of a parent
	other                // a file, symlink or device
	folderI              // a folder that its tar has no entry for
	folderE              // a folder with an entry
)

// look asks one layer for a name. cut says that lower layers don't count for
// it: a parent is opaque, or it is a file.
func (l *viewLayer) look(name string) (f found, cut bool, err error) {
	if name == "." {
		return l.folder("."), false, nil
	}
	if cut, err = l.opaque("."); err != nil {
		return absent, false, err
	}
	for end := 0; end < len(name); {
		if i := strings.IndexByte(name[end+1:], '/'); i >= 0 {
			end += 1 + i
		} else {
			end = len(name)
		}
		prefix := name[:end]
		// Each prefix before was a folder, so that nothing is followed here.
		var st unix.Stat_t
		st, err = lstat(l.root.fd, prefix)
		switch {
		case errors.Is(err, unix.ENOENT):
			return absent, cut, nil
		case err != nil:
			return absent, false, fmt.Errorf("%q: %w", prefix, err)
		case isDir(st) && end < len(name):
			o, err := l.opaque(prefix)
			if err != nil {
				return absent, false, err
			}
			cut = cut || o
		case isDir(st):
		case end == len(name) && !isWhiteout(st):
			return other, true, nil
		default:
			return hidden, true, nil
		}
	}
	return l.folder(name), cut, nil
}

func (l *viewLayer) opaque(name string) (bool, error) {
	return isOpaque(path.Join(fdPath(l.root.fd), name) + "/.")
}

func (l *viewLayer) folder(name string) found {
	if _, ok := slices.BinarySearch(l.implicit, layer.Path(name)); ok {
		return folderI
	}
	return folderE
}

// defines returns the layer whose folder name the merged folder should look
// like, be one above it opaque or not, and the topmost that has it, whose it does look like. top is -1 if the
// merged name is no folder. Both are the same if there is nothing to put right.
func (v *view) defines(name string) (top, def int, err error) {
	top = -1
	for i := len(v.layers) - 1; i >= 0; i-- {
		f, cut, err := v.layers[i].look(name)
		if err != nil {
			return -1, -1, err
		}
		switch f {
		case folderE:
			if top < 0 {
				top = i
			}
			return top, i, nil
		case folderI:
			if top < 0 {
				top = i
			}
		case hidden, other:
			return top, top, nil
		case absent:
		}
		if cut {
			break
		}
	}
	return top, top, nil
}

// alone says whether the merged folder is that of layer i and of no other.
func (v *view) alone(i int, name string) (bool, error) {
	if name == "." {
		return false, nil // merged with the pod's own, always
	}
	if seen, err := v.untouched(i, name); err != nil || !seen {
		return false, err
	}
	for j := i; j >= 0; j-- {
		if v.layers[j].unmounted {
			continue
		}
		f, cut, err := v.layers[j].look(name)
		if err != nil {
			return false, err
		}
		isFolder := f == folderE || f == folderI
		if j == i && !isFolder || j < i && isFolder {
			return false, nil
		}
		if j == i && !cut {
			cut, err = v.layers[j].opaque(name)
		}
		if err != nil {
			return false, err
		}
		if cut {
			break
		}
	}
	return true, nil
}

// untouched says whether no layer above i says anything of the name.
func (v *view) untouched(i int, name string) (bool, error) {
	for j := i + 1; j < len(v.layers); j++ {
		f, cut, err := v.layers[j].look(name)
		if err != nil {
			return false, err
		}
		if f != absent || cut || v.layers[j].linked(name) {
			return false, nil
		}
	}
	return true, nil
}

// linked says whether the layer has a hard link of that name that is a note only.
func (l *viewLayer) linked(name string) bool {
	return slices.ContainsFunc(l.links, func(h layer.HardLink) bool { return string(h.Path) == name })
}

// file returns the topmost layer below i that has the file, following hard
// links that are notes only. It is -1 if there is none to be seen from there.
// What layer i itself says of the name came after the link: a whiteout acts on
// lower layers only, and another file leaves the first to the link.
func (v *view) file(i int, name string) (int, string, error) {
	for j := i - 1; j >= 0; j-- {
		f, cut, err := v.layers[j].look(name)
		if err != nil {
			return -1, name, err
		}
		if f == other {
			return j, name, nil
		}
		for _, l := range v.layers[j].links {
			if (f == absent || f == hidden) && string(l.Path) == name {
				return v.file(j, string(l.Target))
			}
		}
		if f != absent || cut {
			return -1, name, nil
		}
	}
	return -1, name, nil
}
