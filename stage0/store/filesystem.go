package store

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// keepMode gives a folder that was just made its mode, whatever the umask is.
// File systems without owners and modes refuse that, or forget it: in them the
// store would have to be refused later, folder by folder, and for other reasons.
func (f folder) keepMode() error {
	err := os.Chmod(f.path, f.mode)
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP):
		return unfit(f.path, "the modes of files")
	case err != nil:
		return err
	}
	info, err := os.Stat(f.path)
	if err == nil && info.Mode().Perm() != f.mode.Perm() {
		err = unfit(f.path, "the modes of files")
	}
	return err
}

// unfit is the error for a file system that lacks what the store is made of.
func unfit(path, lacks string) error {
	name := ""
	if kind := fileSystem(path); kind != "" {
		name = " (" + kind + ")"
	}
	return errs.WithHint(errs.Newf(errs.Unsupported, "%s: the file system there%s can't keep %s", path, name, lacks),
		"rkt needs a Linux file system such as ext4, xfs, btrfs or tmpfs: choose another data folder with --dir")
}

// fileSystem is the type of the file system at path, empty if nobody tells.
func fileSystem(path string) string {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_MNT_ID, &st); err != nil || st.Mask&unix.STATX_MNT_ID == 0 {
		return ""
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(mounts)) {
		// The mount's id comes first, the type after a dash.
		id, _, _ := strings.Cut(line, " ")
		_, after, _ := strings.Cut(line, " - ")
		if fields := strings.Fields(after); id == strconv.FormatUint(st.Mnt_id, 10) && len(fields) > 0 {
			return strings.TrimPrefix(fields[0], "fuse.")
		}
	}
	return ""
}
