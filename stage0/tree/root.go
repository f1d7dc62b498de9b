package tree

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// root is a folder that names of strangers are resolved in. Nothing it does
// leaves the folder: parents go through openat2 with RESOLVE_IN_ROOT, where the
// kernel itself holds symlinks and ".." inside, and the last element is never
// followed. It keeps the last parent open, since entries of a tar come by
// folder; removing any folder drops it.
type root struct {
	fd     int
	real   string // the folder's path as /proc/self/fd tells it
	parent string // name that parentFD was resolved from
	pfd    int    // -1: none
}

func openRoot(dir string) (*root, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("open tree: %s: %w", dir, err)
	}
	r := &root{fd: fd, pfd: -1}
	if r.real, err = procName(fd); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return r, nil
}

func (r *root) close() {
	r.forget()
	_ = unix.Close(r.fd) // O_PATH: nothing to flush
}

// forget drops the parent that is kept open.
func (r *root) forget() {
	if r.pfd >= 0 {
		_ = unix.Close(r.pfd)
		r.pfd = -1
	}
}

var inRoot = uint64(unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS)

// openDir opens a folder below the root as O_PATH.
func (r *root) openDir(name string) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: inRoot}
	for {
		fd, err := unix.Openat2(r.fd, name, &how)
		// EAGAIN: a rename somewhere on the host raced with a ".." of a symlink.
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// at returns the open parent of name, valid until the next call, and its last
// element.
func (r *root) at(name string) (int, string, error) {
	dir, base := path.Split(name)
	dir = strings.TrimSuffix(dir, "/")
	if dir == "" {
		return r.fd, base, nil
	}
	if r.pfd >= 0 && r.parent == dir {
		return r.pfd, base, nil
	}
	fd, err := r.openDir(dir)
	if err != nil {
		return -1, base, err
	}
	r.forget()
	r.pfd, r.parent = fd, dir
	return fd, base, nil
}

// realName is the name below the root that an open folder has, with no symlink
// in it.
func (r *root) realName(fd int) (string, error) {
	p, err := procName(fd)
	if err != nil {
		return "", err
	}
	if p == r.real {
		return ".", nil
	}
	rel, ok := strings.CutPrefix(p, r.real+"/")
	if !ok {
		return "", errs.Newf(errs.Internal, "tree: %s is not below %s", p, r.real)
	}
	return rel, nil
}

func procName(fd int) (string, error) {
	p, err := os.Readlink(fdPath(fd))
	if err != nil {
		return "", fmt.Errorf("name of descriptor: %w", err)
	}
	return p, nil
}

func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// lstat is fstatat without following the last element.
func lstat(dirfd int, base string) (unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Fstatat(dirfd, base, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, err
}

// stat is lstat of a name below the root; "." is the root itself.
func (r *root) stat(name string) (unix.Stat_t, error) {
	if name == "." {
		var st unix.Stat_t
		return st, unix.Fstatat(r.fd, "", &st, unix.AT_EMPTY_PATH)
	}
	fd, base, err := r.at(name)
	if err != nil {
		return unix.Stat_t{}, err
	}
	return lstat(fd, base)
}

// open opens a file or folder below the root whose last element is no symlink.
func (r *root) open(name string, flags int) (*os.File, error) {
	flags |= unix.O_CLOEXEC | unix.O_NOFOLLOW
	if name == "." {
		fd, err := unix.Openat(r.fd, ".", flags, 0)
		return newFile(fd, name, err)
	}
	dirfd, base, err := r.at(name)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Openat(dirfd, base, flags, 0)
	return newFile(fd, name, err)
}

func newFile(fd int, name string, err error) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// rawFile is a regular file without what os.File does for all that may block: three
// system calls for each file of a layer.
type rawFile int

// openRaw is open for such a file.
func (r *root) openRaw(name string, flags int) (rawFile, error) {
	dirfd, base, err := r.at(name)
	if err != nil {
		return -1, err
	}
	fd, err := unix.Openat(dirfd, base, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	return rawFile(fd), err
}

// Read reads the next bytes.
func (f rawFile) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(int(f), p)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, err
		case n == 0 && len(p) > 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

// Write writes all of p.
func (f rawFile) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		n, err := unix.Write(int(f), p[done:])
		if err != nil && !errors.Is(err, unix.EINTR) {
			return done, err
		}
		done += max(n, 0)
	}
	return done, nil
}

// WriteAt writes all of p at an offset.
func (f rawFile) WriteAt(p []byte, at int64) (int, error) {
	done := 0
	for done < len(p) {
		n, err := unix.Pwrite(int(f), p[done:], at+int64(done))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return done, err
		}
		done += max(n, 0)
	}
	return done, nil
}

// Close closes the descriptor.
func (f rawFile) Close() error { return unix.Close(int(f)) }

func isDir(st unix.Stat_t) bool     { return st.Mode&unix.S_IFMT == unix.S_IFDIR }
func isReg(st unix.Stat_t) bool     { return st.Mode&unix.S_IFMT == unix.S_IFREG }
func isSymlink(st unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFLNK }

// isWhiteout says whether overlayfs takes the file for "nothing here".
func isWhiteout(st unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
}

// removeAll removes what is at base, with all below if it is a folder. Each is
// shown to going before, which may move a file elsewhere instead.
func removeAll(dirfd int, base string, going func(dirfd int, base string, st unix.Stat_t) error) error {
	st, err := lstat(dirfd, base)
	if err != nil {
		return ignoreMissing(err)
	}
	if isDir(st) {
		if err := removeChildren(dirfd, base, going); err != nil {
			return err
		}
	}
	if err := going(dirfd, base, st); err != nil {
		return err
	}
	if isDir(st) {
		return unix.Unlinkat(dirfd, base, unix.AT_REMOVEDIR)
	}
	return ignoreMissing(unix.Unlinkat(dirfd, base, 0))
}

func removeChildren(dirfd int, base string, going func(int, string, unix.Stat_t) error) error {
	fd, err := unix.Openat(dirfd, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	dir := os.NewFile(uintptr(fd), base)
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := removeAll(fd, name, going); err != nil {
			return err
		}
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
