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
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/stage1/cdi"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// maxNodes bounds how many devices one folder may bring.
const maxNodes = 1024

// extras are what the devices that an app asks for bring along.
type extras struct {
	devices []plan.Device
	mounts  []plan.Mount
	env     []string
	gids    []int
}

// findDevices looks up what the apps ask for. Mounts that come with devices
// become volumes of the pod.
func (p *Pod) findDevices() error {
	registry := func() (*cdi.Registry, error) { return cdi.Load(p.cdiDirs) }
	var loaded *cdi.Registry
	for _, app := range p.plan.Apps {
		var x extras
		for _, d := range app.DeviceRequests {
			var err error
			if d.CDI == "" {
				err = x.addPath(d)
			} else {
				if loaded == nil {
					if loaded, err = registry(); err != nil {
						return err
					}
				}
				err = p.addCDI(&x, app.Name, d.CDI, loaded)
			}
			if err != nil {
				return errs.WithClass(errs.ClassOf(err), fmt.Errorf("app %s: %w", app.Name, err))
			}
		}
		if err := x.checkNodes(app); err != nil {
			return errs.WithClass(errs.ClassOf(err), fmt.Errorf("app %s: %w", app.Name, err))
		}
		p.extras[app.Name] = x
	}
	return nil
}

// addPath takes a device node of the host, or all below a folder.
func (x *extras) addPath(d podspec.Device) error {
	info, err := os.Stat(d.Source)
	if errors.Is(err, fs.ErrNotExist) {
		return errs.Newf(errs.NotFound, "device %s: not there", d.Source)
	}
	if err != nil {
		return fmt.Errorf("device: %w", err)
	}
	if !info.IsDir() {
		return x.addNode(cdi.Node{Path: d.Target, HostPath: d.Source, Permissions: d.Access})
	}
	before := len(x.devices)
	err = filepath.WalkDir(d.Source, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.Type()&fs.ModeDevice == 0 {
			return err
		}
		if len(x.devices)-before >= maxNodes {
			return errs.Newf(errs.Usage, "device %s: more than %d devices in it", d.Source, maxNodes)
		}
		return x.addNode(cdi.Node{Path: path.Join(d.Target, strings.TrimPrefix(name, d.Source)), HostPath: name, Permissions: d.Access})
	})
	if err == nil && len(x.devices) == before {
		err = errs.Newf(errs.NotFound, "device %s: a folder without devices", d.Source)
	}
	return err
}

// addNode adds a device node, with what is not said of it as the host has it.
func (x *extras) addNode(n cdi.Node) error {
	if n.HostPath == "" {
		n.HostPath = n.Path
	}
	d := plan.Device{Path: path.Clean(n.Path), HostPath: n.HostPath, Mode: 0o666, Access: n.Permissions}
	if d.Access == "" {
		d.Access = "rw"
	}
	if strings.Trim(d.Access, "rwm") != "" {
		return errs.Newf(errs.Usage, "device %s: permissions %q: not of r, w, m", n.Path, d.Access)
	}
	var st unix.Stat_t
	err := unix.Stat(n.HostPath, &st)
	host := deviceOf(&st)
	switch {
	case err == nil && host != nil:
		d.Type, d.Major, d.Minor = host.Type, host.Major, host.Minor
		d.Mode, d.UID, d.GID = st.Mode&0o777, int(st.Uid), int(st.Gid)
	case n.Type == "" || n.Major == nil || n.Minor == nil:
		return errs.Newf(errs.NotFound, "device %s: no device on the host", n.HostPath)
	}
	switch n.Type {
	case "":
	case "c", "u":
		d.Type = 'c'
	case "b":
		d.Type = 'b'
	default:
		return errs.Newf(errs.Unsupported, "device %s: type %q", n.Path, n.Type)
	}
	for _, o := range []struct{ from, to *int64 }{{n.Major, &d.Major}, {n.Minor, &d.Minor}} {
		if o.from != nil {
			*o.to = *o.from
		}
	}
	if n.FileMode != nil {
		d.Mode = *n.FileMode & 0o777
	}
	for _, o := range []struct{ from, to *int }{{n.UID, &d.UID}, {n.GID, &d.GID}} {
		if o.from != nil {
			*o.to = *o.from
		}
	}
	x.devices = append(x.devices, d)
	return nil
}

// addCDI takes what a specification says of a device.
func (p *Pod) addCDI(x *extras, app, name string, registry *cdi.Registry) error {
	list, err := registry.Find(name)
	if err != nil {
		return err
	}
	for _, e := range list {
		for _, n := range e.DeviceNodes {
			if err := x.addNode(n); err != nil {
				return fmt.Errorf("device %s: %w", name, err)
			}
		}
		for _, m := range e.Mounts {
			// The specification is the administrator's, as its paths are.
			v, err := p.pin(plan.Volume{
				Name: fmt.Sprintf("%s.device.%d", app, len(x.mounts)), Kind: podspec.VolumeHost,
				Source: path.Clean(m.HostPath), Recursive: true, FollowSymlinks: true,
			})
			if err != nil {
				return fmt.Errorf("device %s: %w", name, err)
			}
			p.volumes[v.Name] = v
			x.mounts = append(x.mounts, deviceMount(v.Name, m))
		}
		x.env = append(x.env, e.Env...)
		for _, gid := range e.AdditionalGIDs {
			x.gids = append(x.gids, int(gid))
		}
	}
	return nil
}

// deviceMount is read-only unless rw is asked for.
func deviceMount(volume string, m cdi.Mount) plan.Mount {
	out := plan.Mount{Type: "bind", Target: path.Clean(m.ContainerPath), Volume: volume, VolumeEntry: true, Recursive: true}
	out.ReadOnly = !slices.Contains(m.Options, "rw")
	out.Private = out.ReadOnly
	if out.ReadOnly {
		out.Options = []string{"ro", "rprivate"}
	}
	return out
}

// checkNodes refuses what would take the place of the app's own devices.
func (x *extras) checkNodes(app plan.App) error {
	seen := map[string]bool{}
	for _, d := range app.Devices {
		seen[d.Path] = true
	}
	for _, d := range x.devices {
		if seen[d.Path] {
			return errs.Newf(errs.Usage, "device %s: there is one by that name already", d.Path)
		}
		seen[d.Path] = true
		for _, own := range []string{"/dev/pts", "/dev/shm", "/dev/mqueue", "/dev/fd"} {
			if plan.Below(d.Path, own) {
				return errs.Newf(errs.Denied, "device %s: %s is the executor's", d.Path, own)
			}
		}
	}
	return nil
}

// addTo gives the app what its devices bring. Their variables win: some are
// there to take others' effect away.
func (x *extras) addTo(la *launch.App) {
	la.Devices = append(la.Devices, x.devices...)
	for _, kv := range x.env {
		name, _, _ := strings.Cut(kv, "=")
		la.Env = slices.DeleteFunc(la.Env, func(s string) bool { return strings.HasPrefix(s, name+"=") })
		la.Env = append(la.Env, kv)
	}
	slices.Sort(la.Env)
}
