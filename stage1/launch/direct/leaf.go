package direct

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/opencontainers/cgroups"
	_ "github.com/opencontainers/cgroups/devices" // the program that v2 asks about devices
	devices "github.com/opencontainers/cgroups/devices/config"
	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/cgroup"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/proc"
	"github.com/rkt-pods/rkt/stage1/launch/cell"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// rule allows access to a device, or to all of a kind. What no rule is about
// is denied, also to whoever may make a node of it.
type rule struct {
	Type   string `json:"type"` // a, b, c
	Major  int64  `json:"major"`
	Minor  int64  `json:"minor"` // -1 means any
	Access string `json:"access"`
}

func deviceRules(app plan.App) []rule {
	if app.AllDevices {
		return []rule{{Type: "a", Major: -1, Minor: -1, Access: "rwm"}}
	}
	var all []rule
	for _, d := range app.Devices {
		if (d.Type == 'b' || d.Type == 'c') && d.Access != "" {
			all = append(all, rule{string(d.Type), d.Major, d.Minor, d.Access})
		}
	}
	return all
}

// String is the rule as v1's devices.allow takes it.
func (r rule) String() string {
	number := func(n int64) string {
		if n < 0 {
			return "*"
		}
		return strconv.FormatInt(n, 10)
	}
	return fmt.Sprintf("%s %s:%s %s", r.Type, number(r.Major), number(r.Minor), r.Access)
}

// makeLeaf makes the folders of a process's cgroup, and opens the files by
// which the launcher process enters.
func (f *files) makeLeaf(p *process, group cgroup.Group) (map[string]string, error) {
	paths := group.Paths()
	var err error
	if p.Leaf, err = cell.NewLeaf(paths); err != nil { // from here on a failure removes it
		return nil, err
	}
	if err := group.Make(); err != nil {
		return nil, err
	}
	var folders []string
	for controller, path := range paths {
		if controller != "" {
			folders = append(folders, filepath.Join(path, "tasks"))
		}
	}
	slices.Sort(folders)
	folders = append(slices.Compact(folders), filepath.Join(paths[""], "cgroup.procs"))
	for _, path := range folders {
		// Not os.OpenFile, which would offer it to the poller first.
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("enter cgroup: %s: %w", path, err)
		}
		f.open = append(f.open, os.NewFile(uintptr(fd), path))
		f.cgroups++
	}
	return paths, nil
}

// setDevices gives a leaf its device rules.
func setDevices(paths map[string]string, rules []rule) error {
	if err := fault.Step("launch.devices"); err != nil {
		return err
	}
	if err := writeDevices(paths, rules); err != nil {
		return fmt.Errorf("device rules: %w", err)
	}
	return nil
}

func writeDevices(paths map[string]string, rules []rule) error {
	if !proc.HostUsers() {
		// They are the host's root's to set. An app has the nodes that it was
		// given, and can make none.
		return nil
	}
	dir, v1 := paths["devices"]
	if !v1 {
		var all []*devices.Rule
		for _, r := range rules {
			all = append(all, &devices.Rule{
				Type: devices.Type(r.Type[0]), Major: r.Major, Minor: r.Minor, Permissions: devices.Permissions(r.Access), Allow: true,
			})
		}
		return cgroups.DevicesSetV2(paths[""], &cgroups.Resources{Devices: all})
	}
	if len(rules) == 1 && rules[0].Type == "a" {
		return os.WriteFile(filepath.Join(dir, "devices.allow"), []byte("a"), 0)
	}
	if err := os.WriteFile(filepath.Join(dir, "devices.deny"), []byte("a"), 0); err != nil {
		return err
	}
	allow, err := os.OpenFile(filepath.Join(dir, "devices.allow"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer allow.Close()
	for _, r := range rules {
		if _, err := allow.WriteString(r.String()); err != nil {
			return fmt.Errorf("%s: %w", r, err)
		}
	}
	return nil
}
