package direct

import (
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/idrange"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// mount is a mount of the plan with its options understood.
type mount struct {
	plan.Mount
	set, clear  uint64 // MOUNT_ATTR_*
	propagation []int
	data        [][2]string // options of the file system, the second "" for those without a value
}

func (m mount) what() string {
	source := m.Source
	if source == "" {
		source = m.Type
	}
	return "mount " + source + " at " + m.Target
}

// attributes are the options of mount(8) that every mount can have, by what
// they set and what they clear.
var attributes = map[string]struct{ set, clear uint64 }{
	"ro":          {set: unix.MOUNT_ATTR_RDONLY},
	"rw":          {clear: unix.MOUNT_ATTR_RDONLY},
	"nosuid":      {set: unix.MOUNT_ATTR_NOSUID},
	"suid":        {clear: unix.MOUNT_ATTR_NOSUID},
	"nodev":       {set: unix.MOUNT_ATTR_NODEV},
	"dev":         {clear: unix.MOUNT_ATTR_NODEV},
	"noexec":      {set: unix.MOUNT_ATTR_NOEXEC},
	"exec":        {clear: unix.MOUNT_ATTR_NOEXEC},
	"noatime":     {set: unix.MOUNT_ATTR_NOATIME, clear: unix.MOUNT_ATTR__ATIME},
	"atime":       {clear: unix.MOUNT_ATTR__ATIME},
	"relatime":    {clear: unix.MOUNT_ATTR__ATIME},
	"strictatime": {set: unix.MOUNT_ATTR_STRICTATIME, clear: unix.MOUNT_ATTR__ATIME},
	"nodiratime":  {set: unix.MOUNT_ATTR_NODIRATIME},
	"diratime":    {clear: unix.MOUNT_ATTR_NODIRATIME},
	"bind":        {},
	"rbind":       {},
	"defaults":    {},
}

var propagations = map[string]int{
	"private":  unix.MS_PRIVATE,
	"rprivate": unix.MS_PRIVATE | unix.MS_REC,
	"slave":    unix.MS_SLAVE,
	"rslave":   unix.MS_SLAVE | unix.MS_REC,
}

// canSetAttr probes for mount_setattr(2), with a call that does nothing.
var canSetAttr = sync.OnceValue(func() bool {
	err := unix.MountSetattr(-1, "/", 0, &unix.MountAttr{})
	return !errors.Is(err, unix.ENOSYS)
})

func parseMounts(list []plan.Mount, setAttr bool) ([]mount, error) {
	all := make([]mount, 0, len(list))
	for _, m := range list {
		parsed, err := parseMount(m, setAttr)
		if err != nil {
			return nil, err
		}
		all = append(all, parsed)
	}
	return all, nil
}

func parseMount(m plan.Mount, setAttr bool) (mount, error) {
	out := mount{Mount: m}
	if !filepath.IsAbs(m.Target) || strings.Contains(m.Target+m.Source, "\x00") {
		return out, errs.Newf(errs.Usage, "mount at %q: not an absolute path", m.Target)
	}
	if filepath.Clean(m.Target) == "/" {
		return out, errs.Newf(errs.Usage, "mount at %s: that is the rootfs", m.Target)
	}
	bind := m.Type == "bind"
	if bind && !filepath.IsAbs(m.Source) {
		return out, errs.Newf(errs.Usage, "mount at %s: source %q is not an absolute path", m.Target, m.Source)
	}
	for _, o := range m.Options {
		if f, ok := attributes[o]; ok {
			out.set, out.clear = out.set&^f.clear|f.set, out.clear&^f.set|f.clear
			if o == "rbind" {
				out.Recursive = true
			}
		} else if p, ok := propagations[o]; ok {
			out.propagation = append(out.propagation, p)
		} else if bind {
			return out, errs.Newf(errs.Unsupported, "mount at %s: option %q: unknown, or not for a bind mount", m.Target, o)
		} else {
			key, value, _ := strings.Cut(o, "=")
			out.data = append(out.data, [2]string{key, value})
		}
	}
	// mount(2) changes the flags of the uppermost mount only: a read-only
	// recursive volume would be writable below each mount point in it.
	const restricting = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	if bind && out.Recursive && out.set&restricting != 0 && !setAttr {
		return out, errs.WithHint(
			errs.Newf(errs.Unsupported, "mount at %s: options for a recursive mount take mount_setattr(2), of Linux 5.12", m.Target),
			"make the volume not recursive, or writable")
	}
	return out, nil
}

// mount makes one mount inside the root.
func (p *program) mount(m mount, tree slot, f facts) {
	what := m.what()
	if m.Type == "cgroup" {
		p.mountCgroup(m, f)
		return
	}
	if m.Type == "bind" {
		to, _ := p.get(what, opTarget, p.string(m.Target), tree.arg(), flags(0))
		p.moveMount(what, tree, to)
		p.bindAttributes(m, tree, f)
		p.close(what, tree, to)
		return
	}
	fs := tree
	if tree == noSlot {
		fs = p.newMount(what, m.Type, hostIDs(m.data, f.ids), m.set)
		p.ownMount(m, fs, f.ids)
	}
	resolve := 0
	if m.Type == "proc" || m.Type == "sysfs" {
		// What is hidden is hidden by its path: no image may put it elsewhere.
		resolve = unix.RESOLVE_NO_SYMLINKS
	}
	to, _ := p.get(what, opTarget, p.string(m.Target), imm(-1), flags(resolve))
	p.moveMount(what, fs, to)
	if m.Type == "sysfs" && f.inside && f.files.net < 0 {
		p.attr(what, fs, m.set, 0, 0, true, f)
	}
	p.propagate(m, fs, f)
	p.close(what, fs, to)
}

// hostIDs are a file system's options with ids of the host: it is mounted from
// outside of the pod's user namespace.
func hostIDs(data [][2]string, ids *idrange.Range) [][2]string {
	out := slices.Clone(data)
	for i, d := range out {
		if n, err := strconv.Atoi(d[1]); err == nil && (d[0] == "uid" || d[0] == "gid") {
			out[i][1] = strconv.Itoa(ids.Host(n))
		}
	}
	return out
}

// ownMount gives the pod's root what the kernel has made for the host's.
func (p *program) ownMount(m mount, fs slot, ids *idrange.Range) {
	names := map[string][]string{"devpts": {"", "ptmx"}, "mqueue": {""}}[m.Type]
	if ids == nil {
		return
	}
	root := imm(ids.Host(0))
	for _, name := range names {
		p.do(m.what(), unix.SYS_FCHOWNAT, fs.arg(), p.string(name), root, root, flags(unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW))
	}
}

// bindAttributes gives a bind mount what is asked for; the rest stays as it
// is at the source.
func (p *program) bindAttributes(m mount, tree slot, f facts) {
	if m.set|m.clear != 0 {
		p.attr(m.what(), tree, m.set, m.clear, 0, m.Recursive && f.setAttr, f)
	}
	p.propagate(m, tree, f)
}

func (p *program) propagate(m mount, fd slot, f facts) {
	for _, kind := range m.propagation {
		p.attr(m.what(), fd, 0, 0, kind&^unix.MS_REC, kind&unix.MS_REC != 0, f)
	}
}

// newMount makes a mount that is attached nowhere.
func (p *program) newMount(what, fstype string, data [][2]string, attrs uint64) slot {
	fs, _ := p.get(what, unix.SYS_FSOPEN, p.string(fstype), flags(unix.FSOPEN_CLOEXEC))
	p.do(what, unix.SYS_FSCONFIG, fs.arg(), imm(unix.FSCONFIG_SET_STRING), p.string("source"), p.string(fstype), imm(0))
	for _, d := range data {
		if d[1] == "" {
			p.do(what, unix.SYS_FSCONFIG, fs.arg(), imm(unix.FSCONFIG_SET_FLAG), p.string(d[0]), imm(0), imm(0))
		} else {
			p.do(what, unix.SYS_FSCONFIG, fs.arg(), imm(unix.FSCONFIG_SET_STRING), p.string(d[0]), p.string(d[1]), imm(0))
		}
	}
	p.do(what, unix.SYS_FSCONFIG, fs.arg(), imm(unix.FSCONFIG_CMD_CREATE), imm(0), imm(0), imm(0))
	mnt, _ := p.get(what, unix.SYS_FSMOUNT, fs.arg(), flags(unix.FSMOUNT_CLOEXEC), flags(attrs))
	p.close(what, fs)
	return mnt
}

// mountCgroup shows the app its own cgroup: the one hierarchy of v2, or a
// folder with each of v1's. The cgroup namespace makes the app's leaf the root.
func (p *program) mountCgroup(m mount, f facts) {
	what := m.what()
	to, _ := p.get(what, opTarget, p.string(m.Target), imm(-1), flags(unix.RESOLVE_NO_SYMLINKS))
	if len(f.hierarchies) == 0 {
		fs := p.newMount(what, "cgroup2", m.data, m.set)
		p.moveMount(what, fs, to)
		p.close(what, fs, to)
		return
	}
	const quiet = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	readOnly := m.set & unix.MOUNT_ATTR_RDONLY
	folder := p.newMount(what, "tmpfs", [][2]string{{"mode", "755"}}, quiet)
	p.moveMount(what, folder, to)
	for _, h := range f.hierarchies {
		name := p.string(h.Name)
		p.do(what, unix.SYS_MKDIRAT, folder.arg(), name, octal(0o755))
		var data [][2]string
		for _, o := range h.Options {
			key, value, _ := strings.Cut(o, "=")
			data = append(data, [2]string{key, value})
		}
		fs := p.newMount(what, "cgroup", data, quiet|readOnly)
		empty := p.string("")
		p.do(what, unix.SYS_MOVE_MOUNT, fs.arg(), empty, folder.arg(), name, flags(unix.MOVE_MOUNT_F_EMPTY_PATH))
		p.close(what, fs)
	}
	for _, h := range f.hierarchies {
		if !strings.Contains(h.Name, ",") {
			continue
		}
		for one := range strings.SplitSeq(h.Name, ",") {
			p.do(what, unix.SYS_SYMLINKAT, p.string(h.Name), folder.arg(), p.string(one)).may(0, unix.EEXIST)
		}
	}
	if readOnly != 0 {
		p.attr(what, folder, readOnly, 0, 0, false, f)
	}
	p.close(what, folder, to)
}
