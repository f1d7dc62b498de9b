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
	"github.com/rkt-pods/rkt/pkg/idrange"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// volume is a volume whose source was opened once: what apps mount is what
// was checked, whatever is renamed on the host afterwards.
type volume struct {
	plan.Volume
	ids    *idrange.Range // the pod's
	tree   int            // a detached mount of the content, until it is attached; secret: until the end
	path   string         // where it is attached, in the private tmpfs
	lowers []string       // image: its layers, the lowest first
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

// pin opens the source, or reads what there is to be read of it.
func (p *Pod) pin(v plan.Volume) (*volume, error) {
	pinned := &volume{Volume: v, ids: p.plan.IDs, dir: true, tree: -1}
	var source string
	switch v.Kind {
	case podspec.VolumeTmpfs:
		return pinned, nil
	case podspec.VolumeImage:
		return pinned, pinned.findImage(p.dir)
	case podspec.VolumeSecret:
		return pinned, pinned.readSecrets()
	case podspec.VolumeHost:
		err := pinned.pinHost()
		if err == nil && v.IDMap {
			err = errs.WithHint(p.idmap(pinned.tree, v.Recursive), "without idmap the volume's ids are the host's")
		}
		return pinned, err
	case podspec.VolumeNamed:
		source = poddir.NamedVolume(p.dir.Data(), v.Source).Files()
	case podspec.VolumeEmpty:
		source = p.dir.Volume(v.Name)
		if err := makeVolume(source, v, p.plan.IDs); err != nil {
			return nil, err
		}
	default:
		return nil, errs.Newf(errs.Internal, "kind %q: unknown", v.Kind)
	}
	fd, err := openDir(source)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errs.WithHint(errs.Newf(errs.NotFound, "named volume %s: not there", v.Source), "prepare the pod anew: that makes it")
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	pinned.tree, err = cloneTree(fd, "", false)
	if err == nil && v.IDMap {
		err = errs.WithHint(p.idmap(pinned.tree, false), "idmap=false leaves the volume with the host's ids")
	}
	return pinned, err
}

// pinHost opens a source of the host. It must have no symlink on the way: a
// path that ordinary users can change would lead anywhere. Who knows that it
// can't may allow them.
func (v *volume) pinHost() error {
	var resolve uint64 = unix.RESOLVE_NO_SYMLINKS
	if v.FollowSymlinks {
		resolve = 0
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, v.Source, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: resolve})
	if errors.Is(err, unix.ELOOP) && !v.FollowSymlinks {
		err := errs.Newf(errs.Denied, "source %s: there is a symlink on the way", v.Source)
		if real, lerr := filepath.EvalSymlinks(v.Source); lerr == nil {
			err = errs.WithHint(err, "it leads to %s: name that, or allow it with followSymlinks=true", real)
		}
		return err
	}
	if err != nil {
		err := error(&fs.PathError{Op: "open", Path: v.Source, Err: err})
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			return errs.WithHint(errs.Newf(errs.NotFound, "source %s: not there", v.Source),
				"rkt makes nothing on the host's file systems; create it first")
		}
		return err
	}
	defer unix.Close(fd)
	if v.dir, v.dev, err = kindOf(fd); err != nil {
		return fmt.Errorf("stat %s: %w", v.Source, err)
	}
	if err := v.relabel(fd); err != nil {
		return err
	}
	v.tree, err = cloneTree(fd, "", v.Recursive)
	return err
}

// kindOf says whether a descriptor is of a folder, or of which device.
func kindOf(fd int) (dir bool, dev *plan.Device, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, nil, err
	}
	return st.Mode&unix.S_IFMT == unix.S_IFDIR, deviceOf(&st), nil
}

// deviceOf is the right to the device that a stat is of, nil if it is of none.
func deviceOf(st *unix.Stat_t) *plan.Device {
	d := &plan.Device{Major: int64(unix.Major(st.Rdev)), Minor: int64(unix.Minor(st.Rdev)), RuleOnly: true}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFCHR:
		d.Type = 'c'
	case unix.S_IFBLK:
		d.Type = 'b'
	default:
		return nil
	}
	return d
}

// makeVolume makes an empty volume's folder. It is named last: a folder that
// has the name has the owner and the mode too.
func makeVolume(path string, v plan.Volume, ids *idrange.Range) error {
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
	if err := os.Lchown(tmp, ids.Host(v.UID), ids.Host(v.GID)); err != nil {
		return err
	}
	if err := unix.Chmod(tmp, v.Mode); err != nil {
		return fmt.Errorf("chmod %s: %w", tmp, err)
	}
	return os.Rename(tmp, path)
}

// attach gives the volume a path, for launchers that mount it from there.
func (p *Pod) attach(v *volume) (err error) {
	if v.Kind == podspec.VolumeSecret {
		return nil // each app gets a copy of its own
	}
	v.path = filepath.Join(p.base, volDir, v.Name)
	if v.dir {
		err = os.Mkdir(v.path, 0o700)
	} else {
		err = os.WriteFile(v.path, nil, 0o600)
	}
	if err != nil {
		return err
	}
	switch v.Kind {
	case podspec.VolumeTmpfs:
		options := fmt.Sprintf("mode=%04o,uid=%d,gid=%d", v.Mode, p.plan.IDs.Host(v.UID), p.plan.IDs.Host(v.GID))
		if v.Size > 0 {
			options += fmt.Sprintf(",size=%d", v.Size)
		}
		return mount("rkt", v.path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options)
	case podspec.VolumeImage:
		return p.mountImage(v)
	}
	if err := attachTree(v.tree, v.path); err != nil {
		return err
	}
	v.close()
	return nil
}

func attachTree(tree int, path string) error {
	if err := fault.Step("sandbox.mount"); err != nil {
		return err
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount at %s: %w", path, err)
	}
	return nil
}

// part is what of a volume one mount is of.
type part struct {
	fd  int
	dir bool
	dev *plan.Device
}

func (t part) close() { _ = unix.Close(t.fd) }

// open finds what a mount is of: the volume, or what is at a path in it. The
// kernel lets no symlink lead out of it, and what is opened here is what is
// mounted, whatever an app renames meanwhile.
func (v *volume) open(m plan.Mount) (part, error) {
	fd, err := unix.Open(v.path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return part{}, &fs.PathError{Op: "open", Path: v.path, Err: err}
	}
	if m.SubPath == "" {
		return part{fd: fd, dir: v.dir, dev: v.dev}, nil
	}
	defer unix.Close(fd)
	if !v.dir {
		return part{}, errs.Newf(errs.Usage, "sub-path %s: the volume is no folder", m.SubPath)
	}
	in, err := openBeneath(fd, m.SubPath)
	if errors.Is(err, fs.ErrNotExist) && v.Own() {
		if err = makeBeneath(v.ids, fd, m.SubPath); err == nil {
			in, err = openBeneath(fd, m.SubPath)
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return part{}, errs.Newf(errs.NotFound, "sub-path %s: not in the volume", m.SubPath)
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.ELOOP):
		return part{}, errs.Newf(errs.Denied, "sub-path %s: a symlink leads out of the volume", m.SubPath)
	case err != nil:
		return part{}, fmt.Errorf("sub-path: %w", err)
	}
	t := part{fd: in}
	if t.dir, t.dev, err = kindOf(in); err != nil {
		t.close()
		return part{}, fmt.Errorf("sub-path %s: %w", m.SubPath, err)
	}
	return t, nil
}

// clone makes the detached mount that an app is to get.
func (t part) clone(m plan.Mount) (int, error) {
	tree, err := cloneTree(t.fd, "", m.Recursive)
	if err != nil {
		return -1, err
	}
	if err := restrict(tree, m); err != nil {
		_ = unix.Close(tree)
		return -1, err
	}
	return tree, nil
}

// restrict gives a detached mount the properties that the plan says.
func restrict(tree int, m plan.Mount) error {
	if m.ReadOnly {
		if err := readOnly(tree, m.Recursive); err != nil {
			return err
		}
	}
	if !m.Private {
		return nil
	}
	attr := unix.MountAttr{Propagation: unix.MS_PRIVATE}
	err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr)
	if err != nil && !errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("make the mount private: %w", err)
	}
	if err != nil {
		return errs.Newf(errs.Unsupported, "make the mount private: this kernel has no mount_setattr (5.12)")
	}
	return nil
}

// mountAt mounts the part on an open target and returns the new mount's id.
func (t part) mountAt(target int, m plan.Mount) (uint64, error) {
	tree, err := t.clone(m)
	if err != nil {
		return 0, err
	}
	defer unix.Close(tree)
	if err := moveTo(tree, target); err != nil {
		return 0, err
	}
	return mountID(tree)
}

// pathFor gives a launcher, which mounts by path, one for a part of a volume.
func (p *Pod) pathFor(v *volume, t part, m plan.Mount) (string, error) {
	if m.SubPath == "" {
		return v.path, nil
	}
	tree, err := t.clone(m)
	if err != nil {
		return "", err
	}
	defer unix.Close(tree)
	dir, err := os.MkdirTemp(filepath.Join(p.base, volDir), v.Name+".part-")
	if err != nil {
		return "", err
	}
	place := filepath.Join(dir, "part")
	if t.dir {
		err = os.Mkdir(place, 0o700)
	} else {
		err = os.WriteFile(place, nil, 0o600)
	}
	if err != nil {
		return "", err
	}
	return place, attachTree(tree, place)
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
