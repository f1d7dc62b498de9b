package tree

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// compareDirs compares two trees entry by entry; got is the one in question.
// The content of files counts only if asked for. The error is about want.
func compareDirs(got, want string, content bool, found *damages) error {
	w, err := openRoot(want)
	if err != nil {
		return err
	}
	defer w.close()
	g, err := openRoot(got)
	if err != nil {
		found.add(".", Missing, "%v", err)
		return nil
	}
	defer g.close()
	var fs unix.Statfs_t
	if err := unix.Fstatfs(g.fd, &fs); err != nil {
		found.add(".", Unread, "%v", err)
		return nil
	}
	c := &comparer{got: g, want: w, content: content, found: found, gotIno: map[uint64]string{}, wantIno: map[uint64]string{}}
	// A store that was packed into a squashfs has whole seconds only.
	c.seconds = fs.Type == unix.SQUASHFS_MAGIC
	return c.entry(".")
}

type comparer struct {
	got, want       *root
	content         bool
	seconds         bool // fractions of them are not kept where got is
	found           *damages
	gotIno, wantIno map[uint64]string // inode → its first name
}

// entry compares what is at a name that both have, and all below.
func (c *comparer) entry(name string) error {
	w, err := c.want.stat(name)
	if err != nil {
		return err
	}
	g, err := c.got.stat(name)
	if err != nil {
		c.found.add(name, Unread, "%v", err)
		return nil
	}
	if g.Mode&unix.S_IFMT != w.Mode&unix.S_IFMT {
		c.found.add(name, Type, "%s, not %s", typeName(g), typeName(w))
		return nil
	}
	c.metadata(name, g, w)
	if err := c.attributes(name); err != nil {
		return err
	}
	if isDir(w) {
		return c.children(name)
	}
	c.links(name, g, w)
	switch {
	case isSymlink(w):
		return c.target(name)
	case isReg(w) && g.Size != w.Size:
		c.found.add(name, Content, "%d bytes, not %d", g.Size, w.Size)
	case isReg(w) && c.content:
		return c.bytes(name)
	case !isReg(w) && g.Rdev != w.Rdev:
		c.found.add(name, Device, "%d:%d, not %d:%d", unix.Major(g.Rdev), unix.Minor(g.Rdev), unix.Major(w.Rdev), unix.Minor(w.Rdev))
	}
	return nil
}

func (c *comparer) metadata(name string, g, w unix.Stat_t) {
	if c.seconds {
		w.Mtim.Nsec = 0
	}
	if g.Mode != w.Mode {
		c.found.add(name, Mode, "%04o, not %04o", g.Mode&0o7777, w.Mode&0o7777)
	}
	if g.Uid != w.Uid || g.Gid != w.Gid {
		c.found.add(name, Owner, "%d:%d, not %d:%d", g.Uid, g.Gid, w.Uid, w.Gid)
	}
	if g.Mtim != w.Mtim && !isWhiteout(w) { // nobody sees the time of one
		c.found.add(name, MTime, "%d.%09d, not %d.%09d", g.Mtim.Sec, g.Mtim.Nsec, w.Mtim.Sec, w.Mtim.Nsec)
	}
}

// links compares which names are one file.
func (c *comparer) links(name string, g, w unix.Stat_t) {
	first := func(m map[uint64]string, st unix.Stat_t) string {
		if _, ok := m[st.Ino]; !ok && st.Nlink > 1 {
			m[st.Ino] = name
		}
		if f, ok := m[st.Ino]; ok {
			return f
		}
		return name
	}
	if a, b := first(c.gotIno, g), first(c.wantIno, w); a != b {
		c.found.add(name, HardLink, "the same file as %q, not as %q", a, b)
	}
}

func (c *comparer) attributes(name string) error {
	want, err := xattrMap(c.want, name)
	if err != nil {
		return err
	}
	got, err := xattrMap(c.got, name)
	if err != nil {
		c.found.add(name, Unread, "%v", err)
		return nil
	}
	for attr, value := range want {
		have, ok := got[attr]
		switch {
		case !ok:
			c.found.add(name, XAttr, "%s is missing", attr)
		case have != value:
			c.found.add(name, XAttr, "%s is %q, not %q", attr, have, value)
		}
	}
	for attr := range got {
		if _, ok := want[attr]; !ok {
			c.found.add(name, XAttr, "%s should not be there", attr)
		}
	}
	return nil
}

// xattrMap are all attributes but the host's own label.
func xattrMap(r *root, name string) (map[string]string, error) {
	p, err := r.pathOf(name)
	if err != nil {
		return nil, err
	}
	names, err := listXattrs(p, unix.Llistxattr)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	m := map[string]string{}
	for _, attr := range names {
		if attr == "security.selinux" {
			continue
		}
		value, err := getXattr(p, attr)
		if err != nil {
			return nil, err
		}
		m[attr] = string(value)
	}
	return m, nil
}

// pathOf is procPath for a name that may be too long for one path, valid until the
// next call.
func (r *root) pathOf(name string) (string, error) {
	if name == "." {
		return fdPath(r.fd) + "/.", nil
	}
	fd, base, err := r.at(name)
	return path.Join(fdPath(fd), base), err
}

func (c *comparer) children(name string) error {
	want, err := c.want.names(name)
	if err != nil {
		return err
	}
	got, err := c.got.names(name)
	if err != nil {
		c.found.add(name, Unread, "%v", err)
		return nil
	}
	for _, child := range got {
		if _, ok := slices.BinarySearch(want, child); !ok {
			c.found.add(path.Join(name, child), Extra, "no entry of the layer made it")
		}
	}
	for _, child := range want {
		if _, ok := slices.BinarySearch(got, child); !ok {
			c.found.add(path.Join(name, child), Missing, "an entry of the layer made it")
			continue
		}
		if err := c.entry(path.Join(name, child)); err != nil {
			return err
		}
	}
	return nil
}

func (r *root) readlink(name string) (string, error) {
	p, err := r.pathOf(name)
	if err != nil {
		return "", err
	}
	return os.Readlink(p)
}

func (c *comparer) target(name string) error {
	want, err := c.want.readlink(name)
	if err != nil {
		return err
	}
	got, err := c.got.readlink(name)
	if err != nil {
		c.found.add(name, Unread, "%v", err)
		return nil
	}
	if got != want {
		c.found.add(name, Target, "%q, not %q", got, want)
	}
	return nil
}

func (c *comparer) bytes(name string) error {
	w, err := c.want.open(name, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer w.Close()
	g, err := c.got.open(name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		c.found.add(name, Unread, "%v", err)
		return nil
	}
	defer g.Close()
	a, b := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, err := io.ReadFull(w, a)
		m, gerr := io.ReadFull(g, b)
		if !bytes.Equal(a[:n], b[:m]) {
			c.found.add(name, Content, "the bytes are others")
			return nil
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if gerr != nil {
			c.found.add(name, Unread, "%v", gerr)
			return nil
		}
	}
}

// names are the names in a folder, sorted.
func (r *root) names(dir string) ([]string, error) {
	f, err := r.open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

func typeName(st unix.Stat_t) string {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return "a file"
	case unix.S_IFDIR:
		return "a folder"
	case unix.S_IFLNK:
		return "a symlink"
	case unix.S_IFCHR:
		if isWhiteout(st) {
			return "a whiteout"
		}
		return "a character device"
	case unix.S_IFBLK:
		return "a block device"
	case unix.S_IFIFO:
		return "a fifo"
	default:
		return fmt.Sprintf("of type %o", st.Mode&unix.S_IFMT)
	}
}

// digest is the hash of all that a layer decides: names, properties, content
// and which names are one file.
func (r *root) digest() (string, error) {
	h := sha256.New()
	first := map[uint64]string{}
	var walk func(name string) error
	walk = func(name string) error {
		st, err := r.stat(name)
		if err != nil {
			return err
		}
		attrs, err := visibleXattrs(procPath(r, name) + dirSuffix(st))
		if err != nil {
			return err
		}
		if f, ok := first[st.Ino]; ok && !isDir(st) {
			fmt.Fprintf(h, "%q = %q\n", name, f)
			return nil
		}
		first[st.Ino] = name
		fmt.Fprintf(h, "%q %o %d:%d %d.%d %x %q ", name, st.Mode, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec, st.Rdev, attrs)
		switch {
		case isSymlink(st):
			target, err := os.Readlink(procPath(r, name))
			fmt.Fprintf(h, "%q\n", target)
			return err
		case isReg(st):
			return r.hashFile(h, name)
		case !isDir(st):
			return nil
		}
		names, err := r.names(name)
		for _, child := range names {
			if err := walk(path.Join(name, child)); err != nil {
				return err
			}
		}
		return err
	}
	if err := walk("."); err != nil {
		return "", err
	}
	return "sha256-" + hex.EncodeToString(h.Sum(nil)), nil
}

func (r *root) hashFile(w io.Writer, name string) error {
	f, err := r.open(name, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.Copy(w, f)
	fmt.Fprintf(w, " %d\n", n)
	return err
}

// dirSuffix makes a path of /proc/self/fd end in the folder itself, since the
// calls it is given to don't follow a last element.
func dirSuffix(st unix.Stat_t) string {
	if isDir(st) {
		return "/."
	}
	return ""
}
