package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

// Group is one cgroup of a pod: the folder of the same relative path in each
// hierarchy. Its folders need not be there.
type Group struct {
	host Host
	rel  string
	base string // what of rel is not the pod's store's
}

// Group returns the cgroup at a path relative to each hierarchy's root, which
// has to be a pod's or one below it: nothing else is ever written to.
func (h Host) Group(rel string) (Group, error) {
	parts := strings.Split(rel, "/")
	for i := 1; i < len(parts); i++ {
		if _, err := poddir.ParseUUID(parts[i]); err == nil && strings.HasPrefix(parts[i-1], "rkt-") {
			return Group{host: h, rel: rel, base: "/" + filepath.Join(parts[:i-1]...)}, nil
		}
	}
	return Group{}, errs.Newf(errs.Internal, "cgroup %q: not a pod's", rel)
}

// Below is the cgroup of the name in this one.
func (g Group) Below(name string) Group {
	g.rel = filepath.Join(g.rel, name)
	return g
}

// unified is the folder in the cgroup2 hierarchy.
func (g Group) unified() string { return filepath.Join(g.host.Unified, g.rel) }

// v1 is the folder in the v1 hierarchy of a controller.
func (g Group) v1(controller string) (string, bool) {
	mount, ok := g.host.controllers[controller]
	return filepath.Join(mount, g.rel), ok
}

// missing is the reason why a controller can't be had.
type missing struct{ why string }

func (m *missing) Error() string { return m.why }

// control makes the group's folder in the hierarchy that has the controller,
// with the controller on. The error is a *missing one if it can't be had.
func (g Group) control(controller string) (folder string, v2 bool, err error) {
	if dir, ok := g.v1(controller); ok {
		if err := fault.Step("cgroup.create"); err != nil {
			return "", false, err
		}
		err := mkdirAll(dir)
		if err == nil && controller == "memory" {
			err = countBelow(dir)
		}
		return dir, false, err
	}
	if g.host.Systemd && g.base == "/" {
		return "", true, &missing{"the cgroups are systemd's, which has not delegated any (Delegate=yes of the unit does)"}
	}
	base := filepath.Join(g.host.Unified, g.base)
	if !listed(filepath.Join(base, "cgroup.controllers"), controller) {
		return "", true, &missing{"no " + controller + " controller in cgroup " + base}
	}
	if err := fault.Step("cgroup.create"); err != nil {
		return "", true, err
	}
	if err := mkdirAll(g.unified()); err != nil {
		return "", true, err
	}
	for dir := base; dir != g.unified(); {
		if err := enable(dir, controller); err != nil {
			return "", true, err
		}
		rest := strings.TrimPrefix(g.unified(), dir)
		next, _, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
		dir = filepath.Join(dir, next)
	}
	return g.unified(), true, nil
}

// countBelow has a v1 folder's memory limit hold for the folders below it. Since
// Linux 5.11 every one does; before, it had to be said while there were none.
func countBelow(dir string) error {
	const file = "memory.use_hierarchy"
	if n, err := number(filepath.Join(dir, file)); err != nil || n != 0 {
		return nil // a kernel without the file knows nothing else
	}
	err := write(dir, file, "1")
	if errors.Is(err, unix.EBUSY) {
		return &missing{"cgroup " + dir + " does not count the memory of those below"}
	}
	return err
}

// enable gives the folders below one a controller. Where processes are, the
// kernel refuses it.
func enable(dir, controller string) error {
	file := filepath.Join(dir, "cgroup.subtree_control")
	if listed(file, controller) {
		return nil
	}
	if err := fault.Step("cgroup.enable"); err != nil {
		return err
	}
	err := os.WriteFile(file, []byte("+"+controller), 0)
	switch {
	case errors.Is(err, unix.EBUSY):
		return &missing{"processes beside the pods in cgroup " + dir + " keep the " + controller + " controller off"}
	case errors.Is(err, unix.ENOENT):
		return &missing{"no " + controller + " controller in cgroup " + dir}
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EROFS):
		return &missing{"cgroup " + dir + " can't be written to"}
	case err != nil:
		return fmt.Errorf("enable controller: %w", err)
	}
	return nil
}

// listed says whether a word is in a file of words.
func listed(file, word string) bool {
	data, err := os.ReadFile(file)
	return err == nil && slices.Contains(strings.Fields(string(data)), word)
}

// Enter moves a process into the group's cgroup2 folder, which is made.
func (g Group) Enter(pid int) error {
	if err := fault.Step("cgroup.attach"); err != nil {
		return err
	}
	if err := mkdirAll(g.unified()); err != nil {
		return fmt.Errorf("create cgroup: %w", err)
	}
	if err := os.WriteFile(filepath.Join(g.unified(), "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
		return fmt.Errorf("enter cgroup: %w", err)
	}
	return nil
}

// Give lets a user make cgroups below the group, and move processes between
// them (cgroups(7), delegation). What limits the group itself stays root's.
func (g Group) Give(uid int) error {
	for _, name := range []string{"", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"} {
		if err := fault.Step("cgroup.give"); err != nil {
			return err
		}
		if err := os.Chown(filepath.Join(g.unified(), name), uid, uid); err != nil {
			return fmt.Errorf("delegate cgroup: %w", err)
		}
	}
	return nil
}

// Holds says whether a process is in the group or below it in every hierarchy
// that has the group. Without it a limit could be on the pod's cgroup and the
// process in another.
func (g Group) Holds(pid int) error {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return fmt.Errorf("cgroup of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(data)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, path, ok := strings.Cut(rest, ":")
		if !ok || path == g.rel || strings.HasPrefix(path, g.rel+"/") {
			continue
		}
		folder := g.unified()
		if controllers != "" {
			first, _, _ := strings.Cut(controllers, ",")
			if folder, ok = g.v1(first); !ok {
				continue // a hierarchy that is mounted nowhere
			}
		}
		if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return errs.Newf(errs.Internal, "process %d: in cgroup %s of %q, not in %s", pid, path, controllers, g.rel)
	}
	return nil
}

// number reads a file of one number; what is no number, `max` above all, is
// limits.None.
func number(path string) (int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil || n < 0 || n >= unlimited {
		return -1, nil
	}
	return n, nil
}

// unlimited and more is how v1's memory controller shows that there is no
// limit: the largest number, rounded down to a page of any size.
const unlimited = 1<<63 - 1<<21

// fields reads a file of lines "key value".
func fields(path string) map[string]uint64 {
	all := map[string]uint64{}
	data, err := os.ReadFile(path)
	if err != nil {
		return all // too old a kernel, or the controller is off
	}
	for line := range strings.Lines(string(data)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			if n, err := strconv.ParseUint(v, 10, 64); err == nil {
				all[k] = n
			}
		}
	}
	return all
}
