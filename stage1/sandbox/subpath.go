package sandbox

import (
	"errors"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"
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

// makeBeneath makes the folders of the path that are missing: 0755, root's.
func makeBeneath(dir int, name string) error {
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
		err := makeAt(parent, part, done, true)
		if parent != dir {
			_ = unix.Close(parent)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}
