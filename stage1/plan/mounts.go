package plan

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/idrange"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

// volumeSet is the pod's volumes and which of them are in use.
type volumeSet struct {
	list  []Volume
	ids   *idrange.Range
	spec  map[string]podspec.Volume
	inUse map[string]bool
}

func newVolumeSet(volumes []podspec.Volume, ids *idrange.Range) (*volumeSet, error) {
	s := &volumeSet{ids: ids, spec: map[string]podspec.Volume{}, inUse: map[string]bool{}}
	for _, v := range volumes {
		if err := s.add(v); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *volumeSet) add(v podspec.Volume) error {
	if _, twice := s.spec[v.Name]; twice {
		return errs.Newf(errs.Usage, "volume %q: named twice", v.Name)
	}
	if v.Name == "" || strings.ContainsAny(v.Name, "/\x00") || v.Name == "." || v.Name == ".." {
		return errs.Newf(errs.Usage, "volume %q: not a name", v.Name)
	}
	c, err := compileVolume(v)
	if err == nil {
		err = s.mapIDs(&c, v)
	}
	if err != nil {
		return err
	}
	s.list = append(s.list, c)
	s.spec[v.Name] = v
	return nil
}

// mapIDs says whether ids in the volume are the pod's own. What the host's ids
// mean to a pod with others, only whoever asks for the volume knows.
func (s *volumeSet) mapIDs(c *Volume, v podspec.Volume) error {
	if s.ids == nil {
		if v.IDMap != nil && *v.IDMap {
			return errs.WithHint(errs.Newf(errs.Usage, "volume %q: idmap: the pod's ids are the host's", v.Name), "--private-users gives it others")
		}
		return nil
	}
	switch v.Kind {
	case podspec.VolumeImage, podspec.VolumeNamed:
		c.IDMap = v.IDMap == nil || *v.IDMap
	case podspec.VolumeHost:
		c.IDMap = v.IDMap != nil && *v.IDMap
	}
	for what, id := range map[string]*int{"uid": v.UID, "gid": v.GID} {
		if id != nil && !s.ids.Has(*id) {
			return errs.Newf(errs.Usage, "volume %q: %s %d: the pod has only ids below %d", v.Name, what, *id, s.ids.Count)
		}
	}
	return nil
}

func compileVolume(v podspec.Volume) (Volume, error) {
	c := Volume{Name: v.Name, Kind: v.Kind, Source: v.Source}
	ids := 0 // of whom nobody is named
	switch v.Kind {
	case podspec.VolumeHost:
		if !path.IsAbs(v.Source) {
			return c, errs.Newf(errs.Usage, "volume %q: source %q: not absolute", v.Name, v.Source)
		}
		c.Source, c.Recursive = path.Clean(v.Source), v.Recursive == nil || *v.Recursive
		c.FollowSymlinks = v.FollowSymlinks
	case podspec.VolumeEmpty:
		c.Mode = 0o755
	case podspec.VolumeNamed:
		c.Source = v.NamedSource()
	case podspec.VolumeTmpfs:
		c.Mode = 0o1777
	case podspec.VolumeImage:
	case podspec.VolumeSecret:
		c.Mode, ids = 0o400, -1
		c.Credentials = v.Credentials
	default:
		return c, errs.Newf(errs.Usage, "volume %q: kind %q: unknown", v.Name, v.Kind)
	}
	if v.Mode != "" {
		n, err := strconv.ParseUint(v.Mode, 8, 12)
		if err != nil {
			return c, errs.Newf(errs.Usage, "volume %q: mode %q: not octal", v.Name, v.Mode)
		}
		c.Mode = uint32(n)
	}
	c.UID, c.GID = ids, ids
	if v.UID != nil {
		c.UID = *v.UID
	}
	if v.GID != nil {
		c.GID = *v.GID
	}
	var err error
	if c.Size, err = v.SizeBytes(); err != nil {
		return c, errs.Newf(errs.Usage, "volume %q: size %w", v.Name, err)
	}
	return c, nil
}

// used returns the volumes that an app mounts; the others are of no interest,
// and a missing source of theirs is no error.
func (s *volumeSet) used() []Volume {
	var list []Volume
	for _, v := range s.list {
		if s.inUse[v.Name] {
			list = append(list, v)
		}
	}
	return list
}

// standard are the mounts that every app gets. /dev/shm and the cgroup view
// are the pod's and the app's own, which only the run time knows.
func standard(rwSys bool) []Mount {
	ro := []string{"nosuid", "noexec", "nodev", "ro"}
	sys := ro
	if rwSys {
		sys = []string{"nosuid", "noexec", "nodev"}
	}
	return []Mount{
		{Type: "proc", Target: "/proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Type: "sysfs", Target: "/sys", Options: sys, ReadOnly: !rwSys},
		{Type: "cgroup", Target: "/sys/fs/cgroup", Options: []string{"nosuid", "noexec", "nodev", "relatime", "ro"}, ReadOnly: true},
		{Type: "tmpfs", Target: "/dev", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Type: "devpts", Target: "/dev/pts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{Type: "bind", Target: "/dev/shm", Options: []string{"nosuid", "noexec", "nodev"}, CreateAs: "dir", Volume: ShmVolume},
		{Type: "mqueue", Target: "/dev/mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
	}
}

// ShmVolume names the pod-wide /dev/shm. It can't be a volume of a manifest,
// whose names hold no dot.
const ShmVolume = ".shm"

// mounts lists the app's volumes and the standard mounts, parents first.
func mounts(app *App, in Input, ra *podspec.App, spec *appc.App, set *volumeSet) error {
	volumes, err := appVolumes(app, ra, spec, set)
	if err != nil {
		return err
	}
	byTarget := map[string]string{}
	for _, m := range volumes {
		if other, twice := byTarget[m.Target]; twice {
			return errs.Newf(errs.Usage, "mount at %s: volumes %q and %q", m.Target, other, m.Volume)
		}
		byTarget[m.Target] = m.Volume
		if err := CheckTarget(m.Target); err != nil {
			return err
		}
	}
	if err := checkNested(volumes, ra, spec); err != nil {
		return err
	}
	credentials(app, volumes, set)
	for _, m := range standard(in.Options.InsecurePaths) {
		if _, replaced := byTarget[m.Target]; replaced {
			continue
		}
		// An app that brings parts of /sys itself gets no other /sys, whose
		// read-only tree has no place for them.
		if Below(m.Target, "/sys") && slices.ContainsFunc(volumes, func(v Mount) bool { return Below(v.Target, "/sys") }) {
			continue
		}
		app.Mounts = append(app.Mounts, m)
	}
	if app.Notifies() {
		app.Mounts = append(app.Mounts, Mount{
			Type: "bind", Target: NotifyPath, Options: []string{"nosuid", "noexec", "nodev"}, CreateAs: "file", Volume: NotifyVolume,
		})
	}
	app.Mounts = append(app.Mounts, volumes...)
	slices.SortStableFunc(app.Mounts, func(a, b Mount) int {
		return slices.Compare(strings.Split(a.Target, "/"), strings.Split(b.Target, "/"))
	})
	return nil
}

// checkNested refuses a mount inside another volume, where a slip would hide a
// part of it, unless that is what was asked for. Mount points are the image
// maker's, who knows what lies where.
func checkNested(volumes []Mount, ra *podspec.App, spec *appc.App) error {
	meant := func(target string) bool {
		return slices.ContainsFunc(ra.Mounts, func(m podspec.Mount) bool { return m.Nested && path.Clean(m.Path) == target }) ||
			slices.ContainsFunc(spec.MountPoints, func(p appc.MountPoint) bool { return path.Clean(p.Path) == target })
	}
	for _, in := range volumes {
		for _, over := range volumes {
			if in.Target != over.Target && Below(in.Target, over.Target) && !meant(in.Target) {
				return errs.WithHint(errs.Newf(errs.Usage, "mount at %s: inside volume %q at %s, of which it would hide a part", in.Target, over.Volume, over.Target),
					"mount it elsewhere, or with nested=true if that is meant")
			}
		}
	}
	return nil
}

// credentials tells the app where its secrets are, as systemd does. With
// several volumes of them it is the first; what the manifest says wins.
func credentials(app *App, volumes []Mount, set *volumeSet) {
	const name = "CREDENTIALS_DIRECTORY"
	i := slices.IndexFunc(volumes, func(m Mount) bool { return set.spec[m.Volume].Kind == podspec.VolumeSecret })
	if i < 0 || slices.ContainsFunc(app.Env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") }) {
		return
	}
	app.Env = append(app.Env, name+"="+volumes[i].Target)
	slices.Sort(app.Env)
}

// CheckTarget refuses mounts where they would take away what confines the
// app. It is asked again once symlinks in the image are resolved.
func CheckTarget(target string) error {
	switch {
	case target == "/":
		return errs.Newf(errs.Denied, "mount at /: would replace the whole rootfs")
	case Below(target, "/proc"):
		return errs.Newf(errs.Denied, "mount at %s: /proc is the executor's", target)
	case target == "/dev":
		// The device nodes would be made in the volume, and stay there.
		return errs.WithHint(errs.Newf(errs.Denied, "mount at /dev: it is the executor's"),
			"mount single devices and folders below it, such as /dev/shm")
	}
	return nil
}

// Below says whether the clean path p is dir or something below it.
func Below(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}

// appVolumes pairs mount points and volumes: a mount entry for the path wins,
// else the volume that has the mount point's name, else an implicit empty
// volume of the app's own.
func appVolumes(app *App, ra *podspec.App, spec *appc.App, set *volumeSet) ([]Mount, error) {
	p := pairing{app: app, set: set, seeds: map[string]bool{}, points: map[string]appc.MountPoint{}}
	if list, ok := ra.Annotations.Get(podspec.AnnSeed); ok {
		for name := range strings.SplitSeq(list, ",") {
			p.seeds[name] = true
		}
	}
	for _, point := range spec.MountPoints {
		if !path.IsAbs(point.Path) {
			return nil, errs.Newf(errs.Usage, "mount point %q: path %q: not absolute", point.Name, point.Path)
		}
		p.points[path.Clean(point.Path)] = point
	}
	for _, m := range ra.Mounts {
		if err := p.entry(m); err != nil {
			return nil, err
		}
	}
	for _, point := range spec.MountPoints {
		if err := p.point(point); err != nil {
			return nil, err
		}
	}
	return p.mounts, nil
}

// pairing is the work of appVolumes.
type pairing struct {
	app    *App
	set    *volumeSet
	seeds  map[string]bool            // names of mount points
	points map[string]appc.MountPoint // by path
	mounts []Mount
}

// entry takes a mount entry of the pod manifest.
func (p *pairing) entry(m podspec.Mount) error {
	if !path.IsAbs(m.Path) {
		return errs.Newf(errs.Usage, "mount of volume %q: path %q: not absolute", m.Volume, m.Path)
	}
	name := m.Volume
	if m.AppVolume != nil {
		// A volume of this mount alone, which may share its name with one of
		// the pod. Names in manifests hold no dot.
		v := *m.AppVolume
		v.Name = p.app.Name + "." + strconv.Itoa(len(p.mounts)) + "." + v.Name
		if err := p.set.add(v); err != nil {
			return err
		}
		name = v.Name
	}
	return p.add(name, path.Clean(m.Path), m)
}

// point takes a mount point for which there is no entry.
func (p *pairing) point(point appc.MountPoint) error {
	target := path.Clean(point.Path)
	if slices.ContainsFunc(p.mounts, func(m Mount) bool { return m.Target == target }) {
		return nil
	}
	name := point.Name
	if _, ok := p.set.spec[name]; !ok {
		name = p.app.Name + "-" + point.Name
		if _, ok := p.set.spec[name]; !ok {
			if err := p.set.add(podspec.Volume{Name: name, Kind: podspec.VolumeEmpty}); err != nil {
				return err
			}
			p.app.Notes = append(p.app.Notes, "no volume for mount point "+point.Name+": an empty one is used")
		}
	}
	return p.add(name, target, podspec.Mount{})
}

func (p *pairing) add(volume, target string, entry podspec.Mount) error {
	point, ok := p.points[target]
	mount, err := p.set.mount(volume, target, point.ReadOnly, entry)
	if err != nil {
		return err
	}
	if entry.SubPath == "" && p.set.seeded(volume, ok && p.seeds[point.Name]) {
		p.set.seed(volume, p.app.Name, target)
	}
	p.mounts = append(p.mounts, mount)
	return nil
}

// mount is the volume at a target. An explicit readOnly of the volume wins
// over that of the mount point; that of the mount only adds to either.
func (s *volumeSet) mount(name, target string, pointRO bool, entry podspec.Mount) (Mount, error) {
	v, ok := s.spec[name]
	if !ok {
		return Mount{}, errs.Newf(errs.NotFound, "mount at %s: volume %q: not in the pod", target, name)
	}
	s.inUse[name] = true
	m := Mount{
		Type: "bind", Target: target, Volume: name, VolumeEntry: true, ReadOnly: pointRO,
		Recursive: v.Kind == podspec.VolumeHost && (v.Recursive == nil || *v.Recursive),
	}
	if v.ReadOnly != nil {
		m.ReadOnly = *v.ReadOnly
	}
	m.ReadOnly = m.ReadOnly || entry.ReadOnly || v.Kind == podspec.VolumeImage || v.Kind == podspec.VolumeSecret
	m.SubPath = strings.TrimPrefix(path.Clean("/"+entry.SubPath), "/")
	if m.SubPath != "" && v.Kind == podspec.VolumeSecret {
		return m, errs.Newf(errs.Usage, "mount at %s: volume %q: a volume of secrets is mounted as a whole", target, name)
	}
	// A mount that comes later would be writable: the kernel takes its flags
	// from the host's.
	m.Private = v.Propagation == podspec.PropagationPrivate || v.Propagation == "" && m.Recursive && m.ReadOnly
	if m.ReadOnly {
		m.Options = []string{"ro"}
	}
	if m.Private {
		m.Options = append(m.Options, "rprivate")
	}
	return m, nil
}

// seeded says whether the volume begins with the image's content: by what the
// volume says itself, else a named one and what asks marks.
func (s *volumeSet) seeded(name string, asks bool) bool {
	v := s.spec[name]
	switch {
	case v.Kind != podspec.VolumeEmpty && v.Kind != podspec.VolumeNamed:
		return false
	case v.Seed != nil:
		return *v.Seed
	}
	return asks || v.Kind == podspec.VolumeNamed
}

// seed has the volume filled from the image of the first app that mounts it.
func (s *volumeSet) seed(name, app, target string) {
	for i := range s.list {
		if v := &s.list[i]; v.Name == name && v.SeedApp == "" {
			v.SeedApp, v.SeedPath = app, target
		}
	}
}
