package tree

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
)

// How OCI layers say that something of a lower layer is gone.
const (
	whiteoutPrefix = ".wh."
	whiteoutMeta   = ".wh..wh."
	whiteoutOpaque = ".wh..wh..opq"
)

// whiteout turns an entry of that kind, whatever its type, into what overlayfs
// understands. Whiteouts act on lower layers only, so that what this layer has
// at the name stays, before or after it.
func (u *unpacker) whiteout(name string) error {
	dir, base := path.Split(name)
	if base == whiteoutOpaque {
		return u.opaqueParent(path.Clean(dir))
	}
	if strings.HasPrefix(base, whiteoutMeta) {
		return nil // bookkeeping of aufs
	}
	target := strings.TrimPrefix(base, whiteoutPrefix)
	if target == "" || target == "." || target == ".." {
		return errs.Newf(errs.Denied, "a whiteout of %q", target)
	}
	pfd, target, err := u.parent(path.Join(dir, target))
	if err != nil {
		return err
	}
	st, err := lstat(pfd, target)
	switch {
	case errors.Is(err, unix.ENOENT):
		if err := fault.Step("tree.whiteout"); err != nil {
			return err
		}
		real, err := u.root.realName(pfd)
		if err != nil {
			return err
		}
		u.whited[real] = true
		return unix.Mknodat(pfd, target, unix.S_IFCHR, 0)
	case err != nil:
		return err
	case isDir(st):
		real, err := u.realName(pfd, target)
		if err != nil {
			return err
		}
		return u.markOpaque(pfd, target, real)
	default:
		return nil // a file hides whatever is below by itself
	}
}

func (u *unpacker) opaqueParent(dir string) error {
	if dir == "." {
		u.opaque["."] = true
		return setOpaque(u.root.fd)
	}
	pfd, _, err := u.parent(path.Join(dir, "x"))
	if err != nil {
		return err
	}
	real, err := u.root.realName(pfd)
	if err != nil {
		return err
	}
	u.opaque[real] = true
	return setOpaque(pfd)
}

// markOpaque is for a folder that a whiteout names too: it is a new one.
func (u *unpacker) markOpaque(pfd int, base, real string) error {
	fd, err := unix.Openat(pfd, base, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	u.opaque[real], u.replaced[real] = true, true
	return setOpaque(fd)
}

// sweepOpaque removes whiteouts from folders that hide everything below anyway:
// overlayfs lists them in a folder that it merges with no other.
func (u *unpacker) sweepOpaque() error {
	for real := range u.opaque {
		dir, err := u.root.open(real, unix.O_RDONLY|unix.O_DIRECTORY)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			continue // another entry took its place
		}
		if err != nil {
			return err
		}
		names, err := dir.Readdirnames(-1)
		for _, name := range names {
			var st unix.Stat_t
			if st, err = lstat(int(dir.Fd()), name); err == nil && isWhiteout(st) {
				err = unix.Unlinkat(int(dir.Fd()), name, 0)
			}
			if err != nil {
				break
			}
		}
		_ = dir.Close() // read only
		if err != nil {
			return fmt.Errorf("whiteouts of %q: %w", real, err)
		}
	}
	return nil
}
