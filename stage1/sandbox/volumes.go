package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// volume is a volume whose source was opened once: what apps mount is what
// was checked, whatever is renamed on the host afterwards.
type volume struct {
	plan.Volume
	tree   int    // a detached copy of the source's mount, until it is attached
	path   string // where it is attached, in the private tmpfs
	dir    bool
	dev    *plan.Device // the source is a device node
	seeded bool
}

func (v *volume) close() {
	if v.tree >= 0 {
		_ = unix.Close(v.tree)
		v.tree = -1
	}
}

// pin opens the source. Symlinks on the way to a host source are followed, as
// upstream does; they are the administrator's.
func (p *Pod) pin(v plan.Volume) (*volume, error) {
	source := v.Source
	if source == "" {
		source = p.dir.Volume(v.Name)
		if err := makeVolume(source, v); err != nil {
			return nil, err
		}
	}
	fd, err := unix.Open(source, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		err := error(&fs.PathError{Op: "open", Path: source, Err: err})
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			return nil, errs.WithHint(errs.Newf(errs.NotFound, "source %s: not there", source),
				"rkt makes nothing on the host's file systems; create it first")
		}
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("stat %s: %w", source, err)
	}
	pinned := &volume{Volume: v, dir: st.Mode&unix.S_IFMT == unix.S_IFDIR, tree: -1}
	if kind := st.Mode & unix.S_IFMT; kind == unix.S_IFCHR || kind == unix.S_IFBLK {
		pinned.dev = &plan.Device{
			Type: 'c', Major: int64(unix.Major(st.Rdev)), Minor: int64(unix.Minor(st.Rdev)), RuleOnly: true,
		}
		if kind == unix.S_IFBLK {
			pinned.dev.Type = 'b'
		}
	}
	pinned.tree, err = cloneTree(fd, "", v.Recursive)
	return pinned, err
}

// makeVolume makes an empty volume's folder. It is named last: a folder that
// has the name has the owner and the mode too.
func makeVolume(path string, v plan.Volume) error {
	if err := fault.Step("volume.mkdir"); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	tmp := path + ".new"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return err
	}
	// chown clears setuid and setgid bits, so the mode comes after it.
	if err := os.Lchown(tmp, v.UID, v.GID); err != nil {
		return err
	}
	if err := unix.Chmod(tmp, v.Mode); err != nil {
		return fmt.Errorf("chmod %s: %w", tmp, err)
	}
	return os.Rename(tmp, path)
}

// attach gives the volume a path, for launchers that mount it from there.
func (p *Pod) attach(v *volume) (err error) {
	v.path = filepath.Join(p.base, volDir, v.Name)
	if v.dir {
		err = os.Mkdir(v.path, 0o700)
	} else {
		err = os.WriteFile(v.path, nil, 0o600)
	}
	if err != nil {
		return err
	}
	if err := fault.Step("sandbox.mount"); err != nil {
		return err
	}
	if err := unix.MoveMount(v.tree, "", unix.AT_FDCWD, v.path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount at %s: %w", v.path, err)
	}
	v.close()
	return nil
}

// mountAt mounts the volume on an open target and returns the new mount's id.
func (v *volume) mountAt(target int, m plan.Mount) (uint64, error) {
	tree, err := cloneTree(unix.AT_FDCWD, v.path, m.Recursive)
	if err != nil {
		return 0, err
	}
	defer unix.Close(tree)
	if m.ReadOnly {
		if err := readOnly(tree, m.Recursive); err != nil {
			return 0, err
		}
	}
	if err := moveTo(tree, target); err != nil {
		return 0, err
	}
	return mountID(tree)
}

func moveTo(tree, target int) error {
	if err := fault.Step("rootfs.mount"); err != nil {
		return err
	}
	flags := unix.MOVE_MOUNT_F_EMPTY_PATH | unix.MOVE_MOUNT_T_EMPTY_PATH
	if err := unix.MoveMount(tree, "", target, "", flags); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	return nil
}

func cloneTree(dir int, path string, recursive bool) (int, error) {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC)
	if path == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	fd, err := unix.OpenTree(dir, path, flags)
	if err != nil {
		return -1, fmt.Errorf("open mount %s: %w", path, err)
	}
	return fd, nil
}

// readOnly covers the mounts below as well: a volume that is said to be
// read-only is, as a whole.
func readOnly(tree int, recursive bool) error {
	flags := uint(unix.AT_EMPTY_PATH)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	err := unix.MountSetattr(tree, "", flags, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	if errors.Is(err, unix.ENOSYS) {
		return errs.Newf(errs.Unsupported, "make the mount read-only: this kernel has no mount_setattr (5.12)")
	}
	if err != nil {
		return fmt.Errorf("make the mount read-only: %w", err)
	}
	return nil
}
