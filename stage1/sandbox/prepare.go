package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// Prepare makes an app's mounted rootfs ready and returns what a launcher
// needs, but for the fields ID, StateDir, CgroupPath and Stdio. Volumes and
// generated files are mounted already; Mounts is left with what can only be
// mounted inside, standard mounts above all. Notes say what the user should
// know.
func (p *Pod) Prepare(app plan.App, rootfs string) (launch.App, error) {
	la, err := p.prepare(app, rootfs)
	if err != nil {
		return launch.App{}, errs.WithClass(errs.ClassOf(err), fmt.Errorf("app %s: %w", app.Name, err))
	}
	return la, nil
}

func (p *Pod) prepare(app plan.App, rootfs string) (launch.App, error) {
	la := launch.App{App: app, RootFS: rootfs, Namespaces: p.Namespaces()}
	la.Notes, la.Env, la.Devices = slices.Clone(app.Notes), slices.Clone(app.Env), slices.Clone(app.Devices)
	r, err := openRoot(rootfs, p.plan.IDs)
	if err != nil {
		return la, err
	}
	defer r.close()
	if err := p.seedFrom(app.Name, r); err != nil {
		return la, err
	}
	m := &mounter{pod: p, root: r, app: &la, makeIn: map[uint64]bool{r.mnt: true}, taken: map[string]string{}, made: map[uint64]string{}}
	defer m.close()
	x := p.extras[app.Name]
	x.addTo(&la)
	if err := m.mountAll(inOrder(slices.Concat(app.Mounts, x.mounts))); err != nil {
		return la, err
	}
	if err := checkTops(r, la.Mounts); err != nil {
		return la, err
	}
	if err := m.checkLeft(); err != nil {
		return la, err
	}
	for _, f := range m.pod.currentFiles() {
		err := m.file(f)
		if f.IfMissing && (errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR)) {
			m.note("%s is left as the image has it: %v", f.Target, err)
			continue // nobody asked for it
		}
		if err != nil {
			return la, fmt.Errorf("%s: %w", f.Target, err)
		}
	}
	if err := linkMtab(r); err != nil {
		return la, err
	}
	u, err := lookupUser(r, app)
	if err != nil {
		return la, err
	}
	if err := checkIDs(p.plan.IDs, u); err != nil {
		return la, err
	}
	la.UID, la.GID, la.Gids = u.uid, u.gid, slices.Concat(u.groups, x.gids)
	if err := m.fillSecrets(u.uid, u.gid); err != nil {
		return la, err
	}
	la.Env = u.environment(la.Env)
	return la, m.checkCwd()
}

// mounter mounts an app's volumes and files into its rootfs.
type mounter struct {
	pod    *Pod
	root   *root
	app    *launch.App
	makeIn map[uint64]bool   // mounts in which missing targets may be made
	taken  map[string]string // resolved target → volume
	made   map[uint64]string // mount → volume
	placed []placed
	// secrets are without content until the app's user is known.
	secrets []secretMount
}

func (m *mounter) close() {
	for _, s := range m.secrets {
		s.close()
	}
}

// placed is a mount that was made, as the app is to find it.
type placed struct {
	plan.Mount
	id uint64
}

// mountAll goes parents first, so that a target inside another volume is
// looked for there.
func (m *mounter) mountAll(list []plan.Mount) error {
	m.app.Mounts = nil
	for _, entry := range list {
		switch entry.Volume {
		case plan.ShmVolume:
			entry.Source = filepath.Join(m.pod.base, shmDir)
		case plan.NotifyVolume:
			entry.Source = filepath.Join(m.pod.base, notifyDir, m.app.Name)
		}
		if !entry.VolumeEntry {
			m.app.Mounts = append(m.app.Mounts, entry)
			continue
		}
		v := m.pod.volumes[entry.Volume]
		if v == nil {
			return errs.Newf(errs.Internal, "volume %s: not in the pod", entry.Volume)
		}
		if err := m.volume(v, entry, list); err != nil {
			return errs.WithClass(errs.ClassOf(err), fmt.Errorf("volume %s at %s: %w", entry.Volume, entry.Target, err))
		}
	}
	if err := m.checkReached(); err != nil {
		return err
	}
	m.app.Mounts = inOrder(m.app.Mounts)
	return nil
}

// inOrder sorts parents first.
func inOrder(list []plan.Mount) []plan.Mount {
	slices.SortStableFunc(list, func(a, b plan.Mount) int {
		return slices.Compare(strings.Split(a.Target, "/"), strings.Split(b.Target, "/"))
	})
	return list
}

func (m *mounter) volume(v *volume, entry plan.Mount, list []plan.Mount) error {
	if v.Kind == podspec.VolumeSecret {
		return m.place(v, part{fd: -1, dir: true}, entry, list)
	}
	t, err := v.open(entry)
	if err != nil {
		return err
	}
	defer t.close()
	if t.dev != nil {
		d := *t.dev
		d.Path, d.Access = entry.Target, "rw"
		if entry.ReadOnly {
			d.Access = "r"
		}
		m.app.Devices = append(m.app.Devices, d)
	}
	return m.place(v, t, entry, list)
}

// place mounts a part of a volume at its target, or leaves that to the
// launcher.
func (m *mounter) place(v *volume, t part, entry plan.Mount, list []plan.Mount) error {
	if insideStandard(entry.Target, list) {
		// What is there now will be hidden: only the launcher, which mounts
		// that, can mount this.
		return m.leave(v, t, entry, entry.Target)
	}
	target, err := m.target(entry.Target, t.dir, v.SeedApp == "")
	if err != nil {
		return err
	}
	defer unix.Close(target)
	place, err := m.root.place(target)
	if err != nil {
		return err
	}
	// Symlinks in the image may have led anywhere in it.
	if err := plan.CheckTarget(place); err != nil {
		return err
	}
	if other, twice := m.taken[place]; twice {
		return errs.Newf(errs.Usage, "it is %s, where volume %s is already", place, other)
	}
	m.taken[place] = entry.Volume
	if insideStandard(place, list) {
		return m.leave(v, t, entry, place)
	}
	var id uint64
	if v.Kind == podspec.VolumeSecret {
		id, err = m.secretsAt(v, target)
	} else {
		id, err = t.mountAt(target, entry)
	}
	if err != nil {
		return err
	}
	if v.Own() && !entry.ReadOnly {
		m.makeIn[id] = true
	}
	m.made[id] = entry.Volume
	m.placed = append(m.placed, placed{entry, id})
	return nil
}

// checkReached looks for each volume once all are mounted: a symlink inside
// one may have led a second to where a third was mounted over it.
func (m *mounter) checkReached() error {
	for _, p := range m.placed {
		fd, err := m.root.open(p.Target, unix.O_PATH)
		var at uint64
		if err == nil {
			at, err = mountID(fd)
			_ = unix.Close(fd)
		}
		if err == nil && at == p.id {
			continue
		}
		why := "something else is found there"
		switch {
		case err != nil:
			why = err.Error()
		case m.made[at] != "":
			why = "volume " + m.made[at] + " is found there"
		}
		return errs.WithHint(errs.Newf(errs.Unsupported, "volume %s at %s: hidden by another volume: %s", p.Volume, p.Target, why),
			"a symlink leads to where another volume is mounted; mount at paths without symlinks")
	}
	return nil
}

// leave has the launcher mount the volume.
func (m *mounter) leave(v *volume, t part, entry plan.Mount, target string) (err error) {
	if v.Kind == podspec.VolumeSecret {
		return errs.Newf(errs.Usage, "secrets can't be below /dev, /proc or /sys")
	}
	if entry.Source, err = m.pod.pathFor(v, t, entry); err != nil {
		return err
	}
	entry.Target, entry.CreateAs = target, "file"
	if t.dir {
		entry.CreateAs = "dir"
	}
	m.app.Mounts = append(m.app.Mounts, entry)
	return nil
}

// insideStandard says whether a mount that the launcher makes covers the path.
func insideStandard(target string, list []plan.Mount) bool {
	return slices.ContainsFunc(list, func(s plan.Mount) bool {
		return !s.VolumeEntry && plan.Below(target, s.Target)
	})
}

// target opens the mount target. A file in the image where a folder is to be
// mounted gives way.
func (m *mounter) target(name string, dir, warn bool) (int, error) {
	mayMake := func(mnt uint64) bool { return m.makeIn[mnt] }
	fd, err := m.root.ensure(name, dir, mayMake)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("stat: %w", err)
	}
	switch isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR; {
	case dir && !isDir:
		err = m.replace(fd)
		_ = unix.Close(fd)
		if err != nil {
			return -1, err
		}
		m.note("the image has a file at %s; a folder takes its place for the volume", name)
		return m.root.ensure(name, true, mayMake)
	case !dir && isDir:
		_ = unix.Close(fd)
		return -1, errs.Newf(errs.Usage, "the source is a file, the target a folder")
	case dir && warn && !emptyDir(fd):
		m.note("what the image has at %s is hidden by a volume", name)
	}
	return fd, nil
}

// replace removes the file at a descriptor, if it is the image's own.
func (m *mounter) replace(fd int) error {
	place, err := m.root.place(fd)
	if err != nil {
		return err
	}
	parent, err := m.root.openPlain(path.Dir(place), unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	if id, err := mountID(parent); err != nil || !m.makeIn[id] {
		return errors.Join(err, errs.Newf(errs.Usage, "the source is a folder, the target a file of another volume"))
	}
	if err := fault.Step("rootfs.unlink"); err != nil {
		return err
	}
	if err := unix.Unlinkat(parent, path.Base(place), 0); err != nil {
		return &fs.PathError{Op: "unlink", Path: place, Err: err}
	}
	return nil
}

func (m *mounter) note(format string, args ...any) {
	m.app.Notes = append(m.app.Notes, fmt.Sprintf(format, args...))
}

func emptyDir(fd int) bool {
	f, err := os.Open(fdPath(fd))
	if err != nil {
		return true
	}
	defer f.Close()
	names, _ := f.Readdirnames(1)
	return len(names) == 0
}

// checkTops refuses an image in which /proc, /sys or /dev is anything but a
// folder or nothing: what is said about paths below them would not hold for
// where a symlink there leads.
func checkTops(r *root, list []plan.Mount) error {
	for _, m := range list {
		if m.VolumeEntry || path.Dir(m.Target) != "/" {
			continue
		}
		fd, err := r.openPlain(m.Target, unix.O_DIRECTORY)
		switch {
		case err == nil:
			_ = unix.Close(fd)
		case errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR):
			return errs.Newf(errs.Denied, "%s: the image has a symlink or a file there", m.Target)
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	return nil
}

// linkMtab: programs from before /proc/self/mounts read /etc/mtab.
func linkMtab(r *root) error {
	etc, err := r.open("/etc", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil // an image without /etc has no use for it either
	}
	defer unix.Close(etc)
	if id, err := mountID(etc); err != nil || id != r.mnt {
		return err
	}
	if err := fault.Step("rootfs.symlink"); err != nil {
		return err
	}
	err = asRoot(r.ids, func() error { return unix.Symlinkat("../proc/self/mounts", etc, "mtab") })
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return &fs.PathError{Op: "symlink", Path: "/etc/mtab", Err: err}
	}
	return nil
}
