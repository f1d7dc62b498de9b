package tree

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/fault"
)

// copyFile makes a copy of anything but a folder, with all its properties. The
// names' parents exist and are free of symlinks.
func copyFile(from *root, name string, to *root, target string) error {
	if err := fault.Step("tree.copy"); err != nil {
		return err
	}
	st, err := from.stat(name)
	if err != nil {
		return err
	}
	pfd, base, err := to.at(target)
	if err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		err = copyContent(from, name, pfd, base, st.Size)
	case unix.S_IFLNK:
		var link string
		if link, err = readlink(from, name); err == nil {
			err = unix.Symlinkat(link, pfd, base)
		}
	default:
		err = unix.Mknodat(pfd, base, st.Mode&^0o7777|0o600, int(st.Rdev))
	}
	if err != nil {
		return err
	}
	return copyMetadata(procPath(from, name), procPath(to, target), st)
}

func readlink(from *root, name string) (string, error) { return os.Readlink(procPath(from, name)) }

// procPath names a file below an open root. Its parents are no symlinks, and the
// calls it is given to don't follow the last element.
func procPath(r *root, name string) string { return path.Join(fdPath(r.fd), name) }

func copyContent(from *root, name string, pfd int, base string, size int64) error {
	src, err := from.open(name, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer src.Close()
	fd, err := unix.Openat(pfd, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	dst, err := newFile(fd, base, err)
	if err != nil {
		return err
	}
	// Shared blocks where the file system can; else the parts that have data.
	if err = unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())); err != nil {
		err = copyData(dst, src, size)
	}
	if cerr := dst.Close(); err == nil {
		err = cerr
	}
	return err
}

func copyData(dst, src *os.File, size int64) error {
	for at := int64(0); at < size; {
		start, err := unix.Seek(int(src.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // a hole up to the end
		}
		if err != nil {
			return err
		}
		end, err := unix.Seek(int(src.Fd()), start, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if _, err := dst.Seek(start, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.Copy(dst, io.NewSectionReader(src, start, end-start)); err != nil {
			return err
		}
		at = end
	}
	return dst.Truncate(size)
}

// copyMetadata gives the file at to what the one at from has. Both paths end in
// the file itself; a folder's children are made before.
func copyMetadata(from, to string, st unix.Stat_t) error {
	if err := unix.Lchown(to, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if !isSymlink(st) {
		if err := unix.Chmod(to, st.Mode&0o7777); err != nil {
			return err
		}
	}
	if err := copyXattrs(from, to); err != nil {
		return err
	}
	return setTimes(unix.AT_FDCWD, to, times{st.Atim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
}

func copyXattrs(from, to string) error {
	names, err := listXattrs(from, unix.Llistxattr)
	if err != nil {
		return err
	}
	for _, name := range names {
		if dropXattr(name) {
			continue
		}
		value, err := getXattr(from, name)
		if err != nil {
			return fmt.Errorf("attribute %s: %w", name, err)
		}
		if err := unix.Lsetxattr(to, name, value, 0); err != nil {
			return fmt.Errorf("attribute %s: %w", name, err)
		}
	}
	return nil
}

func getXattr(p, name string) ([]byte, error) {
	for {
		size, err := unix.Lgetxattr(p, name, nil)
		if err != nil || size == 0 {
			return nil, err
		}
		buf := make([]byte, size)
		n, err := unix.Lgetxattr(p, name, buf)
		if errors.Is(err, unix.ERANGE) {
			continue // it grew
		}
		return buf[:max(n, 0)], err
	}
}

// sameMetadata says whether two folders look the same but for their content.
func sameMetadata(a *root, nameA string, b *root, nameB string) (bool, error) {
	sa, err := a.stat(nameA)
	if err != nil {
		return false, err
	}
	sb, err := b.stat(nameB)
	if err != nil {
		return false, err
	}
	if sa.Uid != sb.Uid || sa.Gid != sb.Gid || sa.Mode != sb.Mode || sa.Mtim != sb.Mtim {
		return false, nil
	}
	xa, err := visibleXattrs(procPath(a, nameA) + "/.")
	if err != nil {
		return false, err
	}
	xb, err := visibleXattrs(procPath(b, nameB) + "/.")
	return xa == xb, err
}

func visibleXattrs(p string) (string, error) {
	names, err := listXattrs(p, unix.Llistxattr)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, name := range names {
		if dropXattr(name) {
			continue
		}
		value, err := getXattr(p, name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%q=%q\n", name, value)
	}
	return b.String(), nil
}
