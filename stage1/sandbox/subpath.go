package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/idrange"
)

// openBeneath opens a path in a folder. A symlink may be on the way as long
// as it stays inside; an absolute one never does.
func openBeneath(dir int, name string) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	return openat2(dir, name, &how)
}

// openat2 tries again where the kernel can't tell whether a ".." got out,
// because something was renamed or mounted anywhere on the host meanwhile.
func openat2(dir int, name string, how *unix.OpenHow) (int, error) {
	for range 100 {
		fd, err := unix.Openat2(dir, name, how)
		if err == nil {
			return fd, nil
		}
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return -1, &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
	return -1, &fs.PathError{Op: "open", Path: name, Err: unix.EAGAIN}
}

// makeBeneath makes the folders of the path that are missing. They have the
// volume's own owner and mode: who may write in it may write in its parts.
func makeBeneath(ids *idrange.Range, dir int, name string) error {
	var like unix.Stat_t
	if err := unix.Fstat(dir, &like); err != nil {
		return fmt.Errorf("stat the volume: %w", err)
	}
	done := ""
	for part := range strings.SplitSeq(name, "/") {
		parent := dir
		if done != "" {
			fd, err := openBeneath(dir, done)
			if err != nil {
				return err
			}
			parent = fd
		}
		done = path.Join(done, part)
		err := asRoot(ids, func() error { return makeAt(parent, part, done, true) })
		if err == nil {
			err = makeLike(parent, part, &like)
		}
		if parent != dir {
			_ = unix.Close(parent)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// makeLike works on the descriptor, as makeAt does.
func makeLike(parent int, part string, like *unix.Stat_t) error {
	fd, err := unix.Openat(parent, part, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: part, Err: err}
	}
	defer unix.Close(fd)
	// chown clears setuid and setgid bits, so the mode comes after it.
	if err := unix.Fchown(fd, int(like.Uid), int(like.Gid)); err != nil {
		return &fs.PathError{Op: "chown", Path: part, Err: err}
	}
	if err := unix.Fchmod(fd, like.Mode&0o7777); err != nil {
		return &fs.PathError{Op: "chmod", Path: part, Err: err}
	}
	return nil
}
