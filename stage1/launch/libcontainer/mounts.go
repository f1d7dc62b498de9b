package libcontainer

import (
	"errors"
	"path/filepath"
	"strings"
	"sync"

	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// mountFlags are the options of mount(8) that are flags of mount(2), by what
// they set and what they clear.
var mountFlags = map[string]struct{ set, clear int }{
	"ro":          {set: unix.MS_RDONLY},
	"rw":          {clear: unix.MS_RDONLY},
	"nosuid":      {set: unix.MS_NOSUID},
	"suid":        {clear: unix.MS_NOSUID},
	"nodev":       {set: unix.MS_NODEV},
	"dev":         {clear: unix.MS_NODEV},
	"noexec":      {set: unix.MS_NOEXEC},
	"exec":        {clear: unix.MS_NOEXEC},
	"sync":        {set: unix.MS_SYNCHRONOUS},
	"async":       {clear: unix.MS_SYNCHRONOUS},
	"noatime":     {set: unix.MS_NOATIME},
	"atime":       {clear: unix.MS_NOATIME},
	"nodiratime":  {set: unix.MS_NODIRATIME},
	"diratime":    {clear: unix.MS_NODIRATIME},
	"relatime":    {set: unix.MS_RELATIME},
	"strictatime": {set: unix.MS_STRICTATIME},
	"bind":        {set: unix.MS_BIND},
	"rbind":       {set: unix.MS_BIND | unix.MS_REC},
	"defaults":    {},
}

var propagation = map[string]int{
	"private":  unix.MS_PRIVATE,
	"rprivate": unix.MS_PRIVATE | unix.MS_REC,
	"slave":    unix.MS_SLAVE,
	"rslave":   unix.MS_SLAVE | unix.MS_REC,
}

func mounts(list []plan.Mount) ([]*configs.Mount, error) {
	all := make([]*configs.Mount, 0, len(list))
	for _, m := range list {
		mount, err := mount(m)
		if err != nil {
			return nil, err
		}
		all = append(all, mount)
	}
	return all, nil
}

// canSetAttr probes for mount_setattr(2), with a call that does nothing.
var canSetAttr = sync.OnceValue(func() bool {
	err := unix.MountSetattr(-1, "/", 0, &unix.MountAttr{})
	return !errors.Is(err, unix.ENOSYS)
})

// mount translates one mount. The library opens the target inside the rootfs
// whatever symbolic links the image has there, and makes it if it is missing:
// a file for a source that is none of a folder, else a folder.
func mount(m plan.Mount) (*configs.Mount, error) {
	if !filepath.IsAbs(m.Target) || strings.Contains(m.Target+m.Source, "\x00") {
		return nil, errs.Newf(errs.Usage, "mount at %q: not an absolute path", m.Target)
	}
	out := &configs.Mount{Source: m.Source, Destination: m.Target, Device: m.Type}
	bind := m.Type == "bind"
	if bind {
		if !filepath.IsAbs(m.Source) {
			return nil, errs.Newf(errs.Usage, "mount at %s: source %q is not an absolute path", m.Target, m.Source)
		}
		out.Flags |= unix.MS_BIND
		if m.Recursive {
			out.Flags |= unix.MS_REC
		}
	} else if out.Source == "" {
		out.Source = m.Type
	}
	var data []string
	for _, o := range m.Options {
		if f, ok := mountFlags[o]; ok {
			out.Flags = out.Flags&^f.clear | f.set
			out.ClearedFlags = out.ClearedFlags&^f.set | f.clear
		} else if p, ok := propagation[o]; ok {
			out.PropagationFlags = append(out.PropagationFlags, p)
		} else if bind {
			return nil, errs.Newf(errs.Unsupported, "mount at %s: option %q: unknown, or not for a bind mount", m.Target, o)
		} else {
			data = append(data, o)
		}
	}
	out.Data = strings.Join(data, ",")
	// mount(2) changes the flags of the uppermost mount only: a read-only
	// recursive volume would be writable below each mount point in it.
	if attrs := attributes(out.Flags); bind && out.Flags&unix.MS_REC != 0 && attrs != 0 {
		if !canSetAttr() {
			return nil, errs.WithHint(
				errs.Newf(errs.Unsupported, "mount at %s: options for a recursive mount take mount_setattr(2), of Linux 5.12", m.Target),
				"make the volume not recursive, or writable")
		}
		out.RecAttr = &unix.MountAttr{Attr_set: attrs}
	}
	return out, nil
}

// attributes are the restricting flags as mount_setattr(2) has them.
func attributes(flags int) uint64 {
	var attrs uint64
	for flag, attr := range map[int]uint64{
		unix.MS_RDONLY: unix.MOUNT_ATTR_RDONLY,
		unix.MS_NOSUID: unix.MOUNT_ATTR_NOSUID,
		unix.MS_NODEV:  unix.MOUNT_ATTR_NODEV,
		unix.MS_NOEXEC: unix.MOUNT_ATTR_NOEXEC,
	} {
		if flags&flag != 0 {
			attrs |= attr
		}
	}
	return attrs
}
