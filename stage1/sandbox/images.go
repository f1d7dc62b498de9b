package sandbox

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

// emptyDirName is a folder of the private tmpfs with nothing in it, ever.
const emptyDirName = "empty"

func (p *Pod) emptyDir() string { return filepath.Join(p.base, emptyDirName) }

// findImage reads which layers the volume shows.
func (v *volume) findImage(dir poddir.Dir) error {
	var img poddir.AppImage
	if err := atomicfile.ReadJSON(dir.VolumeImage(v.Source), &img); err != nil {
		return fmt.Errorf("image of the volume: %w", err)
	}
	if img.ID != v.Source || len(img.Lowers) == 0 {
		return errs.Newf(errs.Corrupt, "image of the volume: the record is of %s, with %d layers", img.ID, len(img.Lowers))
	}
	v.lowers = img.Lowers
	return nil
}

// mountImage mounts the image's layers without an upper folder: read-only by
// nature. A set-user-id program of it has no effect in another image's app.
func (p *Pod) mountImage(v *volume) error {
	lowers := v.lowers
	if len(lowers) == 1 {
		// The kernel wants two, and one alone would show its whiteouts.
		err := os.MkdirAll(p.emptyDir(), 0o755)
		if err == nil {
			err = os.Chown(p.emptyDir(), p.plan.IDs.Host(0), p.plan.IDs.Host(0))
		}
		if err != nil {
			return err
		}
		lowers = append([]string{p.emptyDir()}, lowers...)
	}
	o := &overlay{upper: -1, work: -1}
	defer o.close()
	if err := p.openLowers(o, lowers); err != nil {
		return err
	}
	if err := o.mount(v.path); err != nil {
		return p.stackError(err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if err := unix.MountSetattr(unix.AT_FDCWD, v.path, 0, &attr); err != nil {
		return fmt.Errorf("mount image at %s: %w", v.path, err)
	}
	return nil
}
