package sandbox

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/idrange"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

// seedFrom fills the volumes that start with what this app's image has at
// their place, before anything is mounted there. It is done once in a pod's
// life, for a restarted app keeps its volumes; the folder's owner and mode
// become the image's.
func (p *Pod) seedFrom(app string, r *root) error {
	p.seeding.Lock()
	defer p.seeding.Unlock()
	for _, v := range p.volumes {
		if v.SeedApp != app || v.seeded {
			continue
		}
		v.seeded = true
		var err error
		if v.Kind == podspec.VolumeNamed {
			err = v.seedNamed(poddir.NamedVolume(p.dir.Data(), v.Source), r)
		} else {
			err = v.seed(r)
		}
		if err != nil {
			return fmt.Errorf("volume %s: fill it with the image's %s: %w", v.Name, v.SeedPath, err)
		}
	}
	return nil
}

func (v *volume) seed(r *root) error {
	fd, err := r.open(v.SeedPath, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	src := os.NewFile(uintptr(fd), v.SeedPath)
	defer src.Close()
	dst, err := os.Open(v.path)
	if err != nil {
		return err
	}
	defer dst.Close()
	if names, _ := dst.Readdirnames(1); len(names) > 0 {
		return nil // an app that does not wait for this one wrote to it
	}
	if err := fault.Step("volume.seed"); err != nil {
		return err
	}
	c := copier{links: map[inode]string{}, top: v.path}
	return c.dir(src, dst, "")
}

type inode struct{ dev, ino uint64 }

// copier copies a tree of an image. Source and destination are walked by
// descriptor and no symlink is followed.
type copier struct {
	top   string
	ids   *idrange.Range   // who is outside what the copy has inside; nil: the same
	links map[inode]string // files with several names → path below top
}

func (c *copier) dir(src, dst *os.File, rel string) error {
	entries, err := src.ReadDir(-1)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := c.entry(src, dst, e.Name(), rel+"/"+e.Name()); err != nil {
			return err
		}
	}
	// Last: what was made inside has changed its times, and a mode without
	// write permission must not come too early.
	var st unix.Stat_t
	if err := unix.Fstat(int(src.Fd()), &st); err != nil {
		return err
	}
	if err := copyMeta(int(src.Fd()), int(dst.Fd()), c.ids); err != nil {
		return err
	}
	return copyTimes(int(dst.Fd()), "", &st)
}

func (c *copier) entry(src, dst *os.File, name, rel string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(int(src.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "stat", Path: rel, Err: err}
	}
	to := int(dst.Fd())
	key := inode{st.Dev, st.Ino}
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFDIR && st.Nlink > 1 {
		if first, ok := c.links[key]; ok {
			return unix.Linkat(unix.AT_FDCWD, c.top+first, to, name, 0)
		}
		c.links[key] = rel
	}
	switch kind {
	case unix.S_IFDIR:
		return c.subdir(src, dst, name, rel)
	case unix.S_IFREG:
		return c.file(src, dst, name, rel, &st)
	case unix.S_IFLNK:
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(int(src.Fd()), name, buf)
		if err == nil {
			err = unix.Symlinkat(string(buf[:n]), to, name)
		}
		if err != nil {
			return &fs.PathError{Op: "symlink", Path: rel, Err: err}
		}
	default:
		if err := unix.Mknodat(to, name, st.Mode, int(st.Rdev)); err != nil {
			return &fs.PathError{Op: "mknod", Path: rel, Err: err}
		}
	}
	if err := unix.Fchownat(to, name, c.ids.Inside(int(st.Uid)), c.ids.Inside(int(st.Gid)), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "chown", Path: rel, Err: err}
	}
	if kind != unix.S_IFLNK {
		if err := chmodNode(dst, name, st.Mode&0o7777); err != nil {
			return err
		}
	}
	return copyTimes(to, name, &st)
}

func (c *copier) subdir(src, dst *os.File, name, rel string) error {
	if err := unix.Mkdirat(int(dst.Fd()), name, 0o700); err != nil {
		return &fs.PathError{Op: "mkdir", Path: rel, Err: err}
	}
	in, err := openAt(src, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := openAt(dst, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer out.Close()
	return c.dir(in, out, rel)
}

func (c *copier) file(src, dst *os.File, name, rel string, st *unix.Stat_t) error {
	in, err := openAt(src, name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := openAt(dst, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		return fmt.Errorf("copy %s: %w", rel, err)
	}
	if err := copyMeta(int(in.Fd()), int(out.Fd()), c.ids); err != nil {
		return fmt.Errorf("copy %s: %w", rel, err)
	}
	return copyTimes(int(out.Fd()), "", st)
}

func openAt(dir *os.File, name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

func copyTimes(dir int, name string, st *unix.Stat_t) error {
	times := []unix.Timespec{st.Atim, st.Mtim}
	if name == "" {
		var tv [2]syscall.Timespec
		tv[0], tv[1] = syscall.Timespec(st.Atim), syscall.Timespec(st.Mtim)
		return syscall.UtimesNano(fdPath(dir), tv[:])
	}
	return unix.UtimesNanoAt(dir, name, times, unix.AT_SYMLINK_NOFOLLOW)
}

// chmodNode goes by a descriptor of the node itself: an app that has the
// volume already may put a symlink in its place.
func chmodNode(dir *os.File, name string, mode uint32) error {
	f, err := openAt(dir, name, unix.O_PATH)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Chmod(fdPath(int(f.Fd())), mode); err != nil {
		return &fs.PathError{Op: "chmod", Path: name, Err: err}
	}
	return nil
}
