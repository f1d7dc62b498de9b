package sandbox

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/idrange"
)

// root is a mounted rootfs, seen from outside. Every path of the image is
// resolved as the app will see it: symlinks, absolute or climbing ones too,
// end inside.
type root struct {
	fd   int
	path string // where the kernel says that it is
	mnt  uint64 // the mount's id: where things may be made
	ids  *idrange.Range
}

func openRoot(p string, ids *idrange.Range) (*root, error) {
	fd, err := openDir(p)
	if err != nil {
		return nil, err
	}
	r := &root{fd: fd, ids: ids}
	if r.path, err = os.Readlink(fdPath(fd)); err == nil {
		r.mnt, err = mountID(fd)
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *root) close() { _ = unix.Close(r.fd) }

// open opens an existing path in the rootfs.
func (r *root) open(name string, flags uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	return openat2(r.fd, name, &how)
}

// read returns a regular file's content, of at most max bytes.
func (r *root) read(name string, max int64) ([]byte, error) {
	// Without O_NONBLOCK an image with a fifo there would hold us for ever.
	fd, err := r.open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: name, Err: unix.EINVAL}
	}
	data, err := io.ReadAll(io.LimitReader(f, max+1))
	if err == nil && int64(len(data)) > max {
		return nil, &fs.PathError{Op: "read", Path: name, Err: unix.EFBIG}
	}
	return data, err
}

// stat resolves the path and describes what it ends at, with the ids that are
// seen inside.
func (r *root) stat(name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	fd, err := r.open(name, unix.O_PATH)
	if err != nil {
		return st, err
	}
	defer unix.Close(fd)
	err = unix.Fstat(fd, &st)
	st.Uid, st.Gid = uint32(r.ids.Inside(int(st.Uid))), uint32(r.ids.Inside(int(st.Gid)))
	return st, err
}

// place returns the path in the rootfs that a descriptor is open on, without
// any symlink.
func (r *root) place(fd int) (string, error) {
	p, err := os.Readlink(fdPath(fd))
	if err != nil {
		return "", err
	}
	if p == r.path {
		return "/", nil
	}
	in, ok := strings.CutPrefix(p, r.path+"/")
	if !ok {
		return "", errs.Newf(errs.Internal, "%s: not in the rootfs", p)
	}
	return "/" + in, nil
}

// maxLinks is the kernel's own limit for one lookup.
const maxLinks = 40

// ensure opens the path as a mount target, a folder or a file, and makes what
// is missing of it: 0755, root's. A dangling symlink is followed and what it
// names is made, inside. Nothing is made where mayMake says no, given the
// mount that a folder is in.
func (r *root) ensure(name string, dir bool, mayMake func(mnt uint64) bool) (int, error) {
	todo := strings.Split(path.Clean("/"+name), "/")[1:]
	at := "/"
	links := 0
	for i := 0; i < len(todo); i++ {
		part := todo[i]
		if part == "" || part == "." {
			continue
		}
		if part == ".." {
			at = path.Dir(at)
			continue
		}
		last := i == len(todo)-1
		link, err := r.step(at, part, !last || dir, mayMake)
		if err != nil {
			return -1, err
		}
		if link == "" {
			at = path.Join(at, part)
			continue
		}
		if links++; links > maxLinks {
			return -1, &fs.PathError{Op: "resolve", Path: name, Err: unix.ELOOP}
		}
		if path.IsAbs(link) {
			at = "/"
		}
		// Not cleaned: "a/.." is not "." when a is a symlink.
		todo = append(strings.Split(link, "/"), todo[i+1:]...)
		i = -1
	}
	return r.openPlain(at, 0)
}

// step looks at one name in a folder that is free of symlinks: it returns the
// target of a symlink, or makes what is missing.
func (r *root) step(at, part string, dir bool, mayMake func(uint64) bool) (link string, err error) {
	parent, err := r.openPlain(at, unix.O_DIRECTORY)
	if err != nil {
		return "", err
	}
	defer unix.Close(parent)
	full := path.Join(at, part)
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(parent, part, buf)
	switch {
	case err == nil && n == 0:
		return "", &fs.PathError{Op: "resolve", Path: full, Err: unix.ENOENT}
	case err == nil:
		return string(buf[:n]), nil
	case errors.Is(err, unix.EINVAL): // there, and no symlink
		return "", nil
	case !errors.Is(err, unix.ENOENT):
		return "", &fs.PathError{Op: "resolve", Path: full, Err: err}
	}
	mnt, err := mountID(parent)
	if err != nil {
		return "", err
	}
	if !mayMake(mnt) {
		return "", errs.Newf(errs.NotFound, "%s: not there, and not made in a volume from the host", full)
	}
	return "", asRoot(r.ids, func() error { return makeAt(parent, part, full, dir) })
}

func makeAt(parent int, part, full string, dir bool) error {
	if err := fault.Step("rootfs.mktarget"); err != nil {
		return err
	}
	if dir {
		if err := unix.Mkdirat(parent, part, 0o755); err != nil {
			return &fs.PathError{Op: "mkdir", Path: full, Err: err}
		}
		// The umask is the caller's. By descriptor: the folder may lie in a
		// volume where another app puts a symlink in its place.
		fd, err := unix.Openat(parent, part, unix.O_PATH|unix.O_NOFOLLOW|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return &fs.PathError{Op: "open", Path: full, Err: err}
		}
		defer unix.Close(fd)
		return unix.Chmod(fdPath(fd), 0o755)
	}
	fd, err := unix.Openat(parent, part, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return &fs.PathError{Op: "create", Path: full, Err: err}
	}
	return unix.Close(fd)
}

// openPlain opens a path that has no symlinks.
func (r *root) openPlain(name string, flags uint64) (int, error) {
	rel := strings.TrimPrefix(name, "/")
	if rel == "" {
		rel = "."
	}
	how := unix.OpenHow{
		Flags:   flags | unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	}
	fd, err := unix.Openat2(r.fd, rel, &how)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, nil
}

// mountID is the id of the mount that a descriptor is in.
func mountID(fd int) (uint64, error) {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st); err != nil {
		return 0, fmt.Errorf("statx: %w", err)
	}
	return st.Mnt_id, nil
}
