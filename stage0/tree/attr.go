package tree

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/layer"
	"github.com/rkt-pods/rkt/pkg/proc"
)

const (
	paxXattr   = "SCHILY.xattr."
	paxACL     = "SCHILY.acl."
	aclDefault = "system.posix_acl_default"
)

// opaqueMarks tell overlayfs that a folder hides the one below: the first in
// ordinary mounts, the second in those of a user namespace.
var opaqueMarks = []string{"trusted.overlay.opaque", "user.overlay.opaque"}

// dropXattr says whether an attribute is not for us to write: overlayfs would
// obey its own, and labels belong to the host that made the tar.
func dropXattr(name string) bool {
	return strings.HasPrefix(name, "trusted.overlay.") || strings.HasPrefix(name, "user.overlay.") ||
		name == "security.selinux" || name == "system.nfs4_acl"
}

// xattrs hands the entry's attributes to set, in order, and notes those that
// are left out.
func (u *unpacker) xattrs(name string, h *tar.Header, set func(string, []byte) error) error {
	if len(h.PAXRecords) == 0 {
		return nil
	}
	var keys []string
	for key := range h.PAXRecords {
		switch {
		case strings.HasPrefix(key, paxXattr):
			keys = append(keys, key)
		case strings.HasPrefix(key, paxACL):
			// Text with names of users: of which host's, nobody says.
			u.meta.Dropped = append(u.meta.Dropped, layer.Dropped{Path: layer.Path(name), XAttr: key})
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		attr := strings.TrimPrefix(key, paxXattr)
		if dropXattr(attr) {
			u.meta.Dropped = append(u.meta.Dropped, layer.Dropped{Path: layer.Path(name), XAttr: attr})
			continue
		}
		value := []byte(h.PAXRecords[key])
		if err := set(attr, value); err != nil {
			return fmt.Errorf("attribute %q: %w", attr, u.attrError(err, attr, len(value)))
		}
	}
	return nil
}

// attrError says what is wrong with an attribute that can't be set. A file system
// calls one that is too large for it a lack of space.
func (u *unpacker) attrError(err error, attr string, size int) error {
	const larger = "put the data folder on a file system that takes larger attributes, such as XFS"
	var fs unix.Statfs_t
	switch {
	case errors.Is(err, unix.ENOTSUP):
		err = errs.WithClass(errs.Unsupported, err)
		return errs.WithHint(err, "put the data folder on a file system with extended attributes")
	case errors.Is(err, unix.E2BIG):
		return errs.Newf(errs.Unsupported, "its value of %d bytes is larger than Linux allows", size)
	case errors.Is(err, unix.ERANGE):
		return errs.Newf(errs.Unsupported, "its name of %d bytes is longer than Linux allows", len(attr))
	case !errors.Is(err, unix.ENOSPC) || unix.Fstatfs(u.root.fd, &fs) != nil:
		return err
	// What an attribute takes at most is little, so that a full disk is told from it.
	case fs.Bavail > 1<<20/uint64(fs.Bsize):
		err = errs.Newf(errs.Unsupported, "with its value of %d bytes the file's attributes are larger than the file system takes", size)
		return errs.WithHint(err, larger)
	}
	return err
}

// listXattrs returns the names of the attributes of a path whose last element
// is followed if it is a link of /proc/self/fd only.
func listXattrs(p string, list func(string, []byte) (int, error)) ([]string, error) {
	for {
		size, err := list(p, nil)
		if err != nil || size == 0 {
			return nil, ignoreUnsupported(err)
		}
		buf := make([]byte, size)
		n, err := list(p, buf)
		if errors.Is(err, unix.ERANGE) {
			continue // it grew
		}
		if err != nil {
			return nil, err
		}
		var names []string
		for name := range bytes.SplitSeq(buf[:n], []byte{0}) {
			if len(name) > 0 {
				names = append(names, string(name))
			}
		}
		return names, nil
	}
}

func ignoreUnsupported(err error) error {
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}

// clearXattrs removes all attributes but overlayfs's marks, which we set.
func clearXattrs(p string) error {
	names, err := listXattrs(p, unix.Listxattr)
	if err != nil {
		return err
	}
	for _, name := range names {
		if slices.Contains(opaqueMarks, name) || name == "security.selinux" {
			continue
		}
		if err := unix.Removexattr(p, name); err != nil && !errors.Is(err, unix.ENODATA) {
			return fmt.Errorf("remove attribute %s: %w", name, err)
		}
	}
	return nil
}

// setOpaque marks an open folder. Where user attributes don't exist neither
// do mounts that would look for them.
func setOpaque(fd int) error {
	p := fdPath(fd)
	err := unix.Setxattr(p, opaqueMarks[0], []byte("y"), 0)
	if errors.Is(err, unix.EPERM) && !proc.HostUsers() {
		// Only the host's root may set it, and needs it. The other is needed then.
		if err = unix.Setxattr(p, opaqueMarks[1], []byte("y"), 0); err == nil {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("mark as opaque: %w", err)
	}
	return ignoreUnsupported(unix.Setxattr(p, opaqueMarks[1], []byte("y"), 0))
}

// isOpaque says whether the folder hides those below. No tar has brought either
// mark.
func isOpaque(p string) (bool, error) {
	for _, mark := range opaqueMarks {
		var b [4]byte
		n, err := unix.Lgetxattr(p, mark, b[:])
		if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
			continue
		}
		if err != nil || n == 1 && b[0] == 'y' {
			return err == nil, err
		}
	}
	return false, nil
}

func headerTimes(h *tar.Header) times {
	t := times{access: timespec(h.AccessTime), mod: timespec(h.ModTime)}
	if h.AccessTime.IsZero() {
		t.access = t.mod
	}
	return t
}

// timespec does not go through nanoseconds since 1970, which end in 2262.
func timespec(t time.Time) unix.Timespec {
	return unix.Timespec{Sec: t.Unix(), Nsec: int64(t.Nanosecond())}
}

func setTimes(dirfd int, p string, t times, flags int) error {
	return unix.UtimesNanoAt(dirfd, p, []unix.Timespec{t.access, t.mod}, flags)
}
