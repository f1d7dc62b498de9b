package libcontainer

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/opencontainers/cgroups"
	_ "github.com/opencontainers/cgroups/devices" // without it device rules are an error
	devices "github.com/opencontainers/cgroups/devices/config"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runc/libcontainer/seccomp"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/launch/cell"
	"github.com/rkt-pods/rkt/stage1/plan"
)

const commandLabel = "rkt.command="

// configure turns an app into the library's configuration. What can't be had
// on this host is refused here by name: the library would start without it or
// fail with an errno.
func configure(app launch.App) (*configs.Config, error) {
	if err := cell.Check(app); err != nil {
		return nil, err
	}
	if len(app.Sockets) > 0 {
		return nil, errs.Newf(errs.Unsupported, "socket-activated ports: this stage1's launcher passes no descriptors")
	}
	label, err := json.Marshal(cell.CommandOf(app))
	if err != nil {
		return nil, err
	}
	// A process run by Exec gets the same, whatever the caller's is.
	mask := app.Umask
	c := &configs.Config{
		Rootfs:     app.RootFS,
		Readonlyfs: app.ReadOnlyRootFS,
		Umask:      &mask,
		// What the host unmounts must not be held by an app; nothing goes out.
		RootPropagation: unix.MS_SLAVE | unix.MS_REC,
		Namespaces:      namespaces(app.Namespaces),
		MaskPaths:       app.MaskedPaths,
		ReadonlyPaths:   slices.Concat(app.ReadOnlyPaths, cgroupRoots(app.Mounts)),
		NoNewPrivileges: app.NoNewPrivs,
		// The library's keyring has a name, so that others can join it.
		// InitMain makes a nameless one instead.
		NoNewKeyring: true,
		Labels:       []string{commandLabel + string(label)},
		Cgroups: &cgroups.Cgroup{
			Path:      filepath.Join("/", app.CgroupPath, cell.MainLeaf),
			Resources: &cgroups.Resources{Devices: deviceRules(app.App)},
		},
		// No ParentDeathSignal: the library sets it on a process that is gone
		// before the app runs. The app dies with pod init.
	}
	if c.Devices, err = deviceNodes(app.Devices); err != nil {
		return nil, err
	}
	if c.Mounts, err = mounts(app.Mounts); err != nil {
		return nil, err
	}
	if _, err := cell.Capabilities(app.Capabilities); err != nil {
		return nil, err
	}
	c.Capabilities = capabilities(0, app.Capabilities)
	list, err := cell.Rlimits(app.Rlimits)
	if err != nil {
		return nil, err
	}
	for _, l := range list {
		c.Rlimits = append(c.Rlimits, configs.Rlimit(l))
	}
	if app.Nice != nil {
		c.Scheduler = &configs.Scheduler{Policy: specs.SchedOther, Nice: int32(*app.Nice)}
	}
	c.ProcessLabel, c.AppArmorProfile = app.ProcessLabel, app.AppArmor
	if c.OomScoreAdj, err = cell.OOMScoreAdj(app.OOMScoreAdj); err != nil {
		return nil, err
	}
	if app.Seccomp != nil {
		if !seccomp.Enabled {
			return nil, errs.Newf(errs.Unsupported, "seccomp filter: this stage1 was built without seccomp")
		}
		if c.Seccomp, err = specconv.SetupSeccomp(app.Seccomp); err != nil {
			return nil, fmt.Errorf("seccomp filter: %w", err)
		}
	}
	return c, nil
}

// cgroupRoots are the folders that hold a read-only mount of each v1 hierarchy:
// a tmpfs that the library leaves writable.
func cgroupRoots(list []plan.Mount) []string {
	var all []string
	for _, m := range list {
		if m.Type == "cgroup" && slices.Contains(m.Options, "ro") && !cgroups.IsCgroup2UnifiedMode() {
			all = append(all, m.Target)
		}
	}
	return all
}

// namespaces joins the pod's and makes the app's own. The child that joins is
// another process, so the descriptors are named by this process's pid.
func namespaces(pod launch.Namespaces) configs.Namespaces {
	dir := "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/"
	var all configs.Namespaces
	for _, ns := range []struct {
		kind configs.NamespaceType
		fd   int
	}{
		{configs.NEWPID, pod.PID},
		{configs.NEWIPC, pod.IPC},
		{configs.NEWUTS, pod.UTS},
		{configs.NEWNET, pod.Net},
	} {
		if ns.fd >= 0 {
			all.Add(ns.kind, dir+strconv.Itoa(ns.fd))
		}
	}
	all.Add(configs.NEWNS, "")
	all.Add(configs.NEWCGROUP, "")
	return all
}

func deviceNodes(list []plan.Device) ([]*devices.Device, error) {
	var all []*devices.Device
	for _, d := range list {
		if d.RuleOnly || d.Path == "" {
			continue
		}
		if t := devices.Type(d.Type); !t.CanMknod() || d.Major < 0 || d.Minor < 0 {
			return nil, errs.Newf(errs.Usage, "device %s: type %q %d:%d is no device node", d.Path, d.Type, d.Major, d.Minor)
		}
		all = append(all, &devices.Device{Rule: deviceRule(d), Path: d.Path, FileMode: os.FileMode(d.Mode & 0o777), Uid: uint32(d.UID), Gid: uint32(d.GID)})
	}
	return all, nil
}

// deviceRules is the device cgroup's list: everything that is not on it is
// denied, also to whoever may make a node of it.
func deviceRules(app plan.App) []*devices.Rule {
	if app.AllDevices {
		return []*devices.Rule{{
			Type: devices.WildcardDevice, Major: devices.Wildcard, Minor: devices.Wildcard,
			Permissions: "rwm", Allow: true,
		}}
	}
	var all []*devices.Rule
	for _, d := range app.Devices {
		if devices.Type(d.Type).CanCgroup() && d.Access != "" {
			rule := deviceRule(d)
			all = append(all, &rule)
		}
	}
	return all
}

func deviceRule(d plan.Device) devices.Rule {
	return devices.Rule{
		Type: devices.Type(d.Type), Major: d.Major, Minor: d.Minor,
		Permissions: devices.Permissions(d.Access), Allow: true,
	}
}

// capabilities are those of a user's process. Before its program is executed
// anyone but root has none: what a file's capabilities add to others can't be
// kept from one who has them already, not even by no-new-privileges.
func capabilities(uid int, names []string) *configs.Capabilities {
	if uid != 0 {
		return &configs.Capabilities{Bounding: names}
	}
	return &configs.Capabilities{Bounding: names, Permitted: names, Effective: names}
}
