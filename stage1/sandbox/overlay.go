package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/idrange"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/proc"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// MountRootFS mounts the overlay of one execution of an app and returns where.
// Upper and work folder are made if they are not there; an upper that is there
// is used as it is.
func (p *Pod) MountRootFS(app plan.App, att poddir.AttemptDir) (string, error) {
	wrap := func(err error) error {
		return errs.WithClass(errs.ClassOf(err), fmt.Errorf("rootfs of %s: %w", app.Name, err))
	}
	if p.plan.Copy {
		return "", wrap(errs.Newf(errs.Unsupported, "a copy instead of an overlay (--no-overlay): not supported yet"))
	}
	target := filepath.Join(p.base, rootsDir, app.Name+"-"+filepath.Base(string(att)))
	o, err := p.newOverlay(app.Lowers, att, !p.plan.Durable && !app.KeepRootFS)
	if err != nil {
		return "", wrap(err)
	}
	defer o.close()
	if err := os.Mkdir(target, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", wrap(err)
	}
	if err := o.mount(target); err != nil {
		return "", wrap(p.stackError(err))
	}
	if err := checkWritable(target); err != nil {
		return "", wrap(errors.Join(err, p.UnmountRootFS(target)))
	}
	return target, nil
}

// UnmountRootFS takes down what MountRootFS and Prepare mounted at the path.
// It may be called twice.
func (p *Pod) UnmountRootFS(target string) error {
	if err := fault.Step("rootfs.umount"); err != nil {
		return err
	}
	if err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil &&
		!errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", target, err)
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// overlay without an upper folder is read-only. It holds its layers by descriptor: the paths in mount options can't
// hold every name, and are short.
type overlay struct {
	lowers      []int    // the topmost first, as the kernel wants them
	laid        []string // where lowers with the pod's ids are attached
	upper, work int
	volatile    bool
}

func (p *Pod) newOverlay(lowers []string, att poddir.AttemptDir, volatile bool) (_ *overlay, err error) {
	o := &overlay{upper: -1, work: -1, volatile: volatile}
	defer func() {
		if err != nil {
			o.close()
		}
	}()
	if err := p.openLowers(o, lowers); err != nil {
		return nil, err
	}
	if o.upper, err = makeUpper(att.Upper(), o.lowers[0]); err != nil {
		return nil, err
	}
	if err := makeDir(att.Work(), 0o700); err != nil {
		return nil, err
	}
	// The kernel refuses an upper that was mounted volatile before, since it
	// may lack what was not synced. In this boot it lacks nothing, and one of
	// another boot is never mounted again.
	if err := os.RemoveAll(filepath.Join(att.Work(), "work", "incompat")); err != nil {
		return nil, err
	}
	o.work, err = openDir(att.Work())
	return o, err
}

func (p *Pod) openLowers(o *overlay, lowers []string) error {
	for _, path := range slices.Backward(lowers) {
		fd, err := openDir(path)
		if err == nil && p.plan.IDs != nil && path != p.emptyDir() {
			var at string
			layer := fd
			fd, at, err = p.lay(layer)
			_ = unix.Close(layer)
			if err == nil {
				o.laid = append(o.laid, at)
			}
		}
		if err != nil {
			return layerError(path, err)
		}
		o.lowers = append(o.lowers, fd)
	}
	if len(o.lowers) == 0 {
		return errs.Newf(errs.Corrupt, "no layers")
	}
	return nil
}

func (o *overlay) close() {
	for _, fd := range append(o.lowers, o.upper, o.work) {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	for _, at := range o.laid {
		lift(at)
	}
	o.lowers, o.laid, o.upper, o.work = nil, nil, -1, -1
}

// makeUpper makes the upper folder like the root of the topmost layer: it is
// what shows as the rootfs's `/`.
func makeUpper(path string, top int) (int, error) {
	if err := fault.Step("rootfs.mkdir"); err != nil {
		return -1, err
	}
	err := os.Mkdir(path, 0o700)
	fresh := err == nil
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return -1, err
	}
	fd, err := openDir(path)
	if err != nil {
		return -1, err
	}
	if !fresh {
		return fd, nil
	}
	if err := copyMeta(top, fd, nil); err != nil {
		_ = unix.Close(fd)
		// An upper that is there counts as complete.
		return -1, errors.Join(err, os.Remove(path))
	}
	return fd, nil
}

func makeDir(path string, perm fs.FileMode) error {
	if err := fault.Step("rootfs.mkdir"); err != nil {
		return err
	}
	if err := os.Mkdir(path, perm); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func openDir(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// errNoLowerdirPlus says that this kernel takes all lowers in one option only.
var errNoLowerdirPlus = errors.New("lowerdir+ not known")

var lowerdirPlus struct {
	sync.Mutex
	missing bool
}

// mount uses the new mount calls, which take any number of lowers, and the
// old one where the kernel's overlay doesn't know them (before 6.5).
func (o *overlay) mount(target string) error {
	if err := fault.Step("rootfs.mount"); err != nil {
		return err
	}
	lowerdirPlus.Lock()
	missing := lowerdirPlus.missing
	lowerdirPlus.Unlock()
	if !missing {
		err := o.mountFS(target)
		if !errors.Is(err, errNoLowerdirPlus) {
			return err
		}
		lowerdirPlus.Lock()
		lowerdirPlus.missing = true
		lowerdirPlus.Unlock()
	}
	return o.mountOld(target)
}

func (o *overlay) mountFS(target string) error {
	ctx, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if errors.Is(err, unix.ENOSYS) {
		return errNoLowerdirPlus
	}
	if err != nil {
		return overlayError("fsopen", ctx, err)
	}
	defer unix.Close(ctx)
	if err := unix.FsconfigSetString(ctx, "source", "rkt"); err != nil {
		return overlayError("source", ctx, err)
	}
	if !proc.HostUsers() {
		if err := unix.FsconfigSetFlag(ctx, "userxattr"); err != nil {
			return errs.WithHint(errs.WithClass(errs.Unsupported, overlayError("userxattr", ctx, err)), "Linux 5.11 lets a user namespace mount an overlay")
		}
	}
	for i, fd := range o.lowers {
		if err := unix.FsconfigSetString(ctx, "lowerdir+", fdPath(fd)); err != nil {
			if i == 0 && errors.Is(err, unix.EINVAL) {
				return errNoLowerdirPlus
			}
			return overlayError(fmt.Sprintf("layer %d of %d", len(o.lowers)-i, len(o.lowers)), ctx, err)
		}
	}
	if err := o.configureUpper(ctx); err != nil {
		return err
	}
	if err := unix.FsconfigCreate(ctx); err != nil {
		return overlayError("create", ctx, err)
	}
	fd, err := unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return overlayError("fsmount", ctx, err)
	}
	defer unix.Close(fd)
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount overlay at %s: %w", target, err)
	}
	return nil
}

func (o *overlay) configureUpper(ctx int) error {
	if o.upper < 0 {
		return nil
	}
	if err := unix.FsconfigSetString(ctx, "upperdir", fdPath(o.upper)); err != nil {
		return errs.WithHint(errs.WithClass(errs.Unsupported, overlayError("upper folder", ctx, err)),
			"the file system of the data folder can't hold what an overlay writes; --dir names another place")
	}
	if err := unix.FsconfigSetString(ctx, "workdir", fdPath(o.work)); err != nil {
		return overlayError("work folder", ctx, err)
	}
	if o.volatile {
		if err := unix.FsconfigSetFlag(ctx, "volatile"); err != nil {
			return overlayError("volatile", ctx, err)
		}
	}
	return nil
}

// mountOld has one page for all options, which is enough for some 180 lowers.
func (o *overlay) mountOld(target string) error {
	var lowers []string
	for _, fd := range o.lowers {
		lowers = append(lowers, fdPath(fd))
	}
	data := "lowerdir=" + strings.Join(lowers, ":")
	if o.upper >= 0 {
		data += ",upperdir=" + fdPath(o.upper) + ",workdir=" + fdPath(o.work)
	}
	if o.volatile {
		data += ",volatile"
	}
	if !proc.HostUsers() {
		data += ",userxattr"
	}
	if len(data) >= os.Getpagesize() {
		return errs.Newf(errs.Unsupported, "mount overlay: %d layers: more than this kernel takes", len(o.lowers))
	}
	if err := unix.Mount("rkt", target, "overlay", 0, data); err != nil {
		return overlayError("mount", -1, err)
	}
	return nil
}

// overlayError adds what the kernel says in the context's own log.
func overlayError(what string, ctx int, err error) error {
	said := ""
	if ctx >= 0 {
		buf := make([]byte, 1024)
		for {
			n, err := unix.Read(ctx, buf)
			if err != nil || n <= 0 {
				break
			}
			// "e " stands before the text of an error, "w " before a warning's.
			text := strings.TrimSpace(string(buf[:n]))
			if len(text) > 2 && text[1] == ' ' {
				text = text[2:]
			}
			said += " (" + realPaths(text) + ")"
		}
	}
	err = fmt.Errorf("mount overlay: %s: %w%s", what, err, said)
	if errors.Is(err, unix.ENODEV) {
		return errs.WithHint(errs.WithClass(errs.Unsupported, err), "the kernel's overlay module is missing")
	}
	return err
}

// realPaths puts back the names that are hidden behind descriptors.
func realPaths(text string) string {
	const hidden = "/proc/self/fd/"
	before, rest, found := strings.Cut(text, hidden)
	if !found {
		return text
	}
	number := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	name := hidden + number
	if real, err := os.Readlink(name); err == nil {
		name = real
	}
	return before + name + realPaths(rest[len(number):])
}

// checkWritable: overlay mounts read-only, with a line in the kernel's log and
// no error, when it can't use the work folder.
func checkWritable(target string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(target, &st); err != nil {
		return fmt.Errorf("statfs %s: %w", target, err)
	}
	if st.Flags&unix.ST_RDONLY != 0 {
		return errs.WithHint(errs.Newf(errs.Unsupported, "mount overlay: the kernel made it read-only"),
			"the data folder's file system may lack what overlay needs of an upper folder; dmesg tells")
	}
	return nil
}

// copyMeta gives the folder dst the owner, mode and extended attributes of
// src, or of who that is inside the pod with the ids. Marks of overlay itself are
// not copied: they would be obeyed.
func copyMeta(src, dst int, ids *idrange.Range) error {
	var st unix.Stat_t
	if err := unix.Fstat(src, &st); err != nil {
		return fmt.Errorf("stat: %w", err)
	}
	// Descriptors opened with O_PATH take these calls only by name.
	if err := unix.Chown(fdPath(dst), ids.Inside(int(st.Uid)), ids.Inside(int(st.Gid))); err != nil {
		return fmt.Errorf("chown: %w", err)
	}
	if err := unix.Chmod(fdPath(dst), st.Mode&0o7777); err != nil {
		return fmt.Errorf("chmod: %w", err)
	}
	return copyXattrs(fdPath(src), fdPath(dst))
}

func copyXattrs(src, dst string) error {
	size, err := unix.Listxattr(src, nil)
	if errors.Is(err, unix.ENOTSUP) || err == nil && size == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list xattrs: %w", err)
	}
	names := make([]byte, size)
	if size, err = unix.Listxattr(src, names); err != nil {
		return fmt.Errorf("list xattrs: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(names[:size]), "\x00"), "\x00") {
		if name == "" || strings.HasPrefix(name, "trusted.overlay.") || strings.HasPrefix(name, "user.overlay.") {
			continue
		}
		value := make([]byte, 64<<10)
		n, err := unix.Getxattr(src, name, value)
		if err == nil {
			err = unix.Setxattr(dst, name, value[:n], 0)
		}
		if err != nil && !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.ENOTSUP) {
			return fmt.Errorf("xattr %s: %w", name, err)
		}
	}
	return nil
}
