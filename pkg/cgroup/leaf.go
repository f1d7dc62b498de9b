package cgroup

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rkt-pods/rkt/pkg/fault"
)

// Hierarchy is one of cgroup v1, as it can be mounted once more.
type Hierarchy struct {
	Name    string   // of its mount point, such as cpu,cpuacct
	Options []string // its controllers, or name=…
}

// Hierarchies are those of cgroup v1 on the group's host, none if it has cgroup
// v2 alone.
func (g Group) Hierarchies() []Hierarchy {
	var all []Hierarchy
	for _, mount := range g.host.V1 {
		one := Hierarchy{Name: filepath.Base(mount)}
		for _, option := range slices.Sorted(maps.Keys(g.host.controllers)) {
			if g.host.controllers[option] == mount && isController(option) {
				one.Options = append(one.Options, option)
			}
		}
		all = append(all, one)
	}
	return all
}

// isController tells controllers, and the names of hierarchies without one,
// from the other options of a mount.
func isController(option string) bool {
	name, _, hasValue := strings.Cut(option, "=")
	switch name {
	case "rw", "ro", "xattr", "noprefix", "clone_children", "release_agent", "cpuset_v2_mode", "favordynmods", "nofavordynmods":
		return false
	}
	return !hasValue || name == "name"
}

// Paths are the group's folders by controller; that of "" is in the cgroup2
// hierarchy.
func (g Group) Paths() map[string]string {
	paths := map[string]string{"": g.unified()}
	for controller, mount := range g.host.controllers {
		if isController(controller) {
			paths[controller] = filepath.Join(mount, g.rel)
		}
	}
	return paths
}

// Make makes the group's folders, ready for processes, with all the
// controllers that v2 has.
func (g Group) Make() error {
	if err := fault.Step("cgroup.create"); err != nil {
		return err
	}
	paths := g.Paths()
	for _, path := range paths {
		if err := mkdirAll(path); err != nil {
			return fmt.Errorf("create cgroup: %w", err)
		}
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		if dir, ok := paths["cpuset"]; ok {
			if err := fillCPUSet(g.host.controllers["cpuset"], dir, file); err != nil {
				return fmt.Errorf("create cgroup: %w", err)
			}
		}
	}
	return g.controllers()
}

// controllers turns on what v2 has of them: all that the store's tree has, and
// where that is systemd's, those that are on just above.
func (g Group) controllers() error {
	above := filepath.Dir(g.unified())
	for _, step := range []struct {
		dir  string
		turn func(controller string) error
	}{
		{filepath.Join(g.host.Unified, g.base), func(c string) error { _, _, err := g.control(c); return err }},
		{above, func(c string) error { return enable(above, c) }},
	} {
		all, err := os.ReadFile(filepath.Join(step.dir, "cgroup.controllers"))
		if err != nil {
			return fmt.Errorf("create cgroup: %w", err)
		}
		for _, c := range strings.Fields(string(all)) {
			if err := step.turn(c); err != nil {
				if _, ok := errors.AsType[*missing](err); !ok {
					return err
				}
			}
		}
	}
	return nil
}
