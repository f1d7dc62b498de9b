package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// checkLeft looks at what the launcher will mount: it makes targets that are
// missing, which in a volume from the host must not be.
func (m *mounter) checkLeft() error {
	for _, entry := range m.app.Mounts {
		if err := m.inLeft(entry.Target, entry.Type != "bind" || entry.CreateAs == "dir"); err != nil {
			return errs.WithClass(errs.ClassOf(err), fmt.Errorf("mount at %s: %w", entry.Target, err))
		}
	}
	return nil
}

// inLeft refuses a path that is going to be inside a volume from the host but
// is not there. What the launcher mounts can be seen in its source only.
func (m *mounter) inLeft(target string, dir bool) error {
	over := cover(m.app.Mounts, target)
	if over == nil || !over.VolumeEntry || m.pod.volumes[over.Volume].Own() {
		return nil
	}
	fd, err := unix.Open(over.Source, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: over.Source, Err: err}
	}
	defer unix.Close(fd)
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	}
	if dir {
		how.Flags |= unix.O_DIRECTORY
	}
	in, err := unix.Openat2(fd, strings.TrimPrefix(target, over.Target+"/"), &how)
	switch {
	case errors.Is(err, unix.ENOENT):
		return errs.Newf(errs.NotFound, "%s: not there, and not made in a volume from the host", target)
	case errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR):
		return errs.Newf(errs.Usage, "%s: a symlink or a file is in the way, in volume %s", target, over.Volume)
	case err != nil:
		return &fs.PathError{Op: "open", Path: target, Err: err}
	}
	return unix.Close(in)
}

// cover is the mount that the path is going to be in: the deepest above it.
func cover(list []plan.Mount, target string) *plan.Mount {
	var over *plan.Mount
	for i := range list {
		e := &list[i]
		if e.Target != target && plan.Below(target, e.Target) && (over == nil || plan.Below(e.Target, over.Target)) {
			over = e
		}
	}
	return over
}

// checkCwd refuses a working directory that is missing: it is never made, but
// the launcher would.
func (m *mounter) checkCwd() error {
	cwd := path.Clean(m.app.Cwd)
	if insideStandard(cwd, m.app.Mounts) {
		return m.cwdInLeft(cwd)
	}
	fd, err := m.root.open(cwd, unix.O_PATH|unix.O_DIRECTORY)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errs.Newf(errs.NotFound, "working directory %s: not in the rootfs", cwd)
	case errors.Is(err, unix.ENOTDIR):
		return errs.Newf(errs.Usage, "working directory %s: not a folder", cwd)
	case err != nil:
		return fmt.Errorf("working directory: %w", err)
	}
	defer unix.Close(fd)
	// A symlink of the image may lead to where the launcher mounts.
	place, err := m.root.place(fd)
	if err == nil && insideStandard(place, m.app.Mounts) {
		err = m.cwdInLeft(place)
	}
	return err
}

func (m *mounter) cwdInLeft(cwd string) error {
	if err := m.inLeft(cwd, true); err != nil {
		return errs.WithClass(errs.ClassOf(err), fmt.Errorf("working directory: %w", err))
	}
	return nil
}
