// Package cgroup makes, kills and removes a pod's cgroups. A pod has one folder
// of the same relative path in each hierarchy,
//
//	rkt-<store id>/<uuid>/{supervisor,helpers,apps/<app>/{main,exec-N}}
//
// and its processes are found, and killed, through the one in the cgroup2
// hierarchy, which every kernel since 5.10 has beside v1 controllers too
// (cgroups(7)). What a release does comes from the pod's record alone.
package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/proc"
)

// Host is where this host has its cgroup hierarchies mounted.
type Host struct {
	Unified string   // mount point of cgroup2
	V1      []string // mount points of v1 hierarchies, named ones included
	Systemd bool     // systemd is this host's init and owns the tree
	own     string   // this process's own cgroup in the cgroup2 hierarchy
	// The mount points of the v1 hierarchies by controller.
	controllers map[string]string
	recursive   bool // memory.low holds for what is below, too
}

// Detect reads the mounts of this process. The error is of class Unsupported
// if there is no cgroup2 hierarchy.
func Detect() (Host, error) {
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return Host{}, err
	}
	defer mounts.Close()
	h, err := parseMounts(mounts)
	if err != nil {
		return Host{}, err
	}
	if h.Unified == "" {
		err := errs.Newf(errs.Unsupported, "cgroup: no cgroup2 hierarchy is mounted")
		return Host{}, errs.WithHint(err, "mount one: mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 none /sys/fs/cgroup/unified")
	}
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		h.Systemd = true
	}
	if !proc.HostUsers() {
		// Nobody but the host's root may change anything in them.
		h.V1, h.controllers = nil, map[string]string{}
	}
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return Host{}, err
	}
	for line := range strings.Lines(string(self)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			h.own = path
		}
	}
	return h, nil
}

// parseMounts takes the first mount of the whole of each hierarchy; a second
// mount of one shows the same folders.
func parseMounts(r io.Reader) (Host, error) {
	h := Host{controllers: map[string]string{}}
	seen := map[string]bool{}
	scan := bufio.NewScanner(r)
	for scan.Scan() {
		left, right, ok := strings.Cut(scan.Text(), " - ")
		f, t := strings.Fields(left), strings.Fields(right)
		if !ok || len(f) < 5 || len(t) < 3 || f[3] != "/" {
			continue
		}
		switch {
		case t[0] == "cgroup2" && h.Unified == "":
			h.Unified = f[4]
			h.recursive = slices.Contains(strings.Split(t[2], ","), "memory_recursiveprot")
		case t[0] == "cgroup" && !seen[f[2]]:
			seen[f[2]] = true
			h.V1 = append(h.V1, f[4])
			for c := range strings.SplitSeq(t[2], ",") {
				h.controllers[c] = f[4] // `rw` and its like are no controllers, and nobody asks for them
			}
		}
	}
	slices.Sort(h.V1)
	return h, scan.Err()
}

// delegated says whether systemd has given a cgroup away (Delegate= in
// systemd.resource-control(5) sets the attribute).
func (h Host) delegated(group string) bool {
	for _, name := range []string{"trusted.delegate", "user.delegate"} {
		value := make([]byte, 8)
		n, err := unix.Getxattr(filepath.Join(h.Unified, group), name, value)
		if err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	return false
}

// base is the folder below which pods are placed, relative to each
// hierarchy's root: the unit's own subtree where systemd has delegated it,
// else the root. A delegated unit's processes may also be in a folder right
// below it, by DelegateSubgroup= or by what the unit itself has made: pods
// need the unit's, because there can be no controllers beside processes.
func (h Host) base() string {
	if !proc.HostUsers() {
		for _, group := range []string{h.own, filepath.Dir(h.own)} {
			if h.writable(group) {
				return group
			}
		}
		return "/"
	}
	if !h.Systemd {
		return "/"
	}
	for _, group := range []string{h.own, filepath.Dir(h.own)} {
		if group != "/" && h.delegated(group) {
			return group
		}
	}
	return "/"
}

// Writable says whether this process may make cgroups below its own, or beside
// it.
func Writable() bool {
	h, err := Detect()
	return err == nil && (h.writable(h.own) || h.writable(filepath.Dir(h.own)))
}

// writable says whether this process may make cgroups below one, and move itself
// there.
func (h Host) writable(group string) bool {
	for _, name := range []string{"", "cgroup.procs"} {
		if unix.Faccessat(unix.AT_FDCWD, filepath.Join(h.Unified, group, name), unix.W_OK, unix.AT_EACCESS) != nil {
			return false
		}
	}
	return true
}

// Slice is the slice of the scopes that systemd makes for pods.
const Slice = "machine.slice"

// ScopePath is the cgroup of a scope.
func ScopePath(name string) string { return filepath.Join("/", Slice, name) }

// scopes says whether systemd can be asked for a scope with all controllers.
// With v1 hierarchies systemd makes it in some of them only, and takes none of
// what rkt would add there down with it.
func (h Host) scopes() bool {
	_, err := os.Stat("/run/systemd/private")
	return err == nil && len(h.V1) == 0
}

// Plan names the pod's cgroups without making any: the record that is to be
// on disk before Create.
func Plan(storeID, uuid string) (poddir.Cgroup, error) {
	h, err := Detect()
	if err != nil {
		return poddir.Cgroup{}, err
	}
	base := h.base()
	if base == "/" && !proc.HostUsers() && !h.writable(base) {
		err := errs.Newf(errs.Unsupported, "cgroup %s: not this user's to change, nor the one above it", h.own)
		return poddir.Cgroup{}, errs.WithHint(err, "\"systemd-run --user --scope -p Delegate=yes rkt run …\" runs rkt in one that is")
	}
	rec := poddir.Cgroup{BootID: proc.BootID(), Stays: h.Systemd && base == "/" && proc.HostUsers()}
	if rec.Stays && h.scopes() {
		rec.Scope = "rkt-" + uuid + ".scope"
		base = ScopePath(rec.Scope)
	}
	rel := filepath.Join(base, "rkt-"+storeID, uuid)
	for _, mount := range append([]string{h.Unified}, h.V1...) {
		rec.Paths = append(rec.Paths, poddir.CgroupPath{Path: filepath.Join(mount, rel)})
	}
	rec.Rel = rel
	return rec, nil
}

// Create makes the pod's folders in all hierarchies, and the leaves of the
// cgroup2 one, and puts the inodes into the record. Folders that are there
// already, from a try that was killed, are taken.
func Create(rec *poddir.Cgroup) error {
	if err := fault.Step("cgroup.create"); err != nil {
		return err
	}
	for i := range rec.Paths {
		p := &rec.Paths[i]
		if err := mkdirAll(p.Path); err != nil {
			return fmt.Errorf("create cgroup: %w", err)
		}
		var st unix.Stat_t
		if err := unix.Stat(p.Path, &st); err != nil {
			return fmt.Errorf("create cgroup: %s: %w", p.Path, err)
		}
		p.Inode = st.Ino
	}
	for _, leaf := range []string{Supervisor, Helpers, Apps} {
		if err := mkdirAll(filepath.Join(rec.Paths[0].Path, leaf)); err != nil {
			return fmt.Errorf("create cgroup: %w", err)
		}
	}
	return nil
}

// mkdirAll is os.MkdirAll for folders whose parent another pod's release may
// remove meanwhile, because it was empty.
func mkdirAll(path string) error {
	if err := unix.Mkdir(path, 0o755); err == nil || errors.Is(err, unix.EEXIST) {
		return nil
	}
	for {
		err := os.MkdirAll(path, 0o755)
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if _, err := os.Stat(filepath.Dir(filepath.Dir(path))); err != nil {
			return err
		}
	}
}
