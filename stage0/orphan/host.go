package orphan

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/cgroup"
	"github.com/rkt-pods/rkt/pkg/network"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/proc"
	"github.com/rkt-pods/rkt/stage0/uids"
)

// mounts are those in this mount namespace below the folders of pods. rkt makes
// its mounts in namespaces of their own: none of these may be here.
func (f *Finder) mounts(context.Context) ([]Orphan, error) {
	points, err := proc.MountPoints(os.Getpid())
	if err != nil {
		return nil, err
	}
	var list []Orphan
	for _, at := range points {
		for _, root := range []string{filepath.Join(poddir.RunRoot(), f.Pods.StoreID), poddir.PodsDir(f.Pods.Data)} {
			if strings.HasPrefix(at, root+"/") && uuidIn(at) != "" {
				list = append(list, Orphan{Mount, at, uuidIn(at), "umount " + at})
			}
		}
	}
	return list, nil
}

// netNS are the named ones. rkt gives none of its own a name, plugins may.
func (f *Finder) netNS(context.Context) ([]Orphan, error) {
	const named = "/run/netns"
	entries, err := os.ReadDir(named)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var list []Orphan
	for _, e := range entries {
		uuid, ok := strings.CutPrefix(e.Name(), "rkt-"+f.Pods.StoreID+"-")
		if ok && !f.runs(uuid) {
			list = append(list, Orphan{NetNS, filepath.Join(named, e.Name()), uuid, "ip netns del " + e.Name()})
		}
	}
	return list, err
}

// userIDs are those that a pod of this data folder was given which is no more.
func (f *Finder) userIDs(context.Context) ([]Orphan, error) {
	held, err := uids.OfHost().Held(f.Pods.Data)
	var list []Orphan
	for uuid, ids := range held {
		if _, there := f.live[uuid]; !there {
			list = append(list, Orphan{UserIDs, ids.String(), uuid, byGC})
		}
	}
	return list, err
}

// links are host ends of interfaces. The name of one is a digest; it carries its
// owner as an alias. One that was killed before it had that is known by the
// record of its pod.
func (f *Finder) links(context.Context) ([]Orphan, error) {
	aliases, err := linkAliases()
	if err != nil {
		return nil, fmt.Errorf("look for links: %w", err)
	}
	owner := map[string]string{}
	for uuid := range f.live {
		if rec, err := f.recordOf(uuid); err == nil {
			for _, a := range rec.Attachments {
				owner[network.HostLink(rec.ContainerID, a.IfName)] = uuid
			}
		}
	}
	var list []Orphan
	for name, alias := range aliases {
		uuid, ok := owner[name]
		if !ok {
			uuid, ok = strings.CutPrefix(alias, "rkt-"+f.Pods.StoreID+"-")
		}
		if ok && !f.runs(uuid) {
			list = append(list, Orphan{Link, name, uuid, "ip link del " + name})
		}
	}
	return list, nil
}

// linkAliases are the links of this network namespace, with their aliases. /sys
// may be of another one.
func linkAliases() (map[string]string, error) {
	rib, err := syscall.NetlinkRIB(unix.RTM_GETLINK, unix.AF_UNSPEC)
	if err != nil {
		return nil, err
	}
	messages, err := syscall.ParseNetlinkMessage(rib)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for i := range messages {
		attrs, err := syscall.ParseNetlinkRouteAttr(&messages[i])
		if err != nil || messages[i].Header.Type != unix.RTM_NEWLINK {
			continue
		}
		var name, alias string
		for _, a := range attrs {
			switch a.Attr.Type {
			case unix.IFLA_IFNAME:
				name = unix.ByteSliceToString(a.Value)
			case unix.IFLA_IFALIAS:
				alias = unix.ByteSliceToString(a.Value)
			}
		}
		all[name] = alias
	}
	return all, nil
}

func (f *Finder) recordOf(uuid string) (poddir.NetRecord, error) {
	p, err := f.Pods.Get(uuid)
	if err != nil {
		return poddir.NetRecord{}, err
	}
	return f.Pods.Network(p.Dir)
}

// cgroups are the store's folders in all hierarchies, at any depth: a unit that
// started a pod is anywhere.
func (f *Finder) cgroups(ctx context.Context) ([]Orphan, error) {
	h, err := cgroup.Detect()
	if err != nil {
		return nil, err
	}
	name := "rkt-" + f.Pods.StoreID
	var list []Orphan
	for _, root := range append([]string{h.Unified}, h.V1...) {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || !d.IsDir() {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if d.Name() == name && f.idle(path) {
				list = append(list, Orphan{Cgroup, path, "", "rmdir " + path})
			}
			if filepath.Base(filepath.Dir(path)) != name {
				return nil
			}
			if uuid := d.Name(); !f.runs(uuid) {
				remedy := byGC
				if !f.exists(uuid) {
					remedy = fmt.Sprintf("find %s -depth -type d -exec rmdir {} +", path)
				}
				list = append(list, Orphan{Cgroup, path, uuid, remedy})
			}
			return fs.SkipDir
		})
		if err != nil {
			return list, fmt.Errorf("look for cgroups: %w", err)
		}
	}
	return list, nil
}

// idle says whether the store's folder has no pod's, and no pod is about to make
// one.
func (f *Finder) idle(path string) bool {
	for uuid := range f.live {
		if f.runs(uuid) {
			return false
		}
	}
	entries, err := os.ReadDir(path)
	return err == nil && !slices.ContainsFunc(entries, fs.DirEntry.IsDir)
}

// processes are those in the cgroups of pods that have ended or are gone.
func (f *Finder) processes(context.Context) ([]Orphan, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var list []Orphan
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		group, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cgroup"))
		if err != nil {
			continue // gone meanwhile
		}
		_, below, ok := strings.Cut(string(group), "/rkt-"+f.Pods.StoreID+"/")
		if !ok {
			continue
		}
		below, _, _ = strings.Cut(below, "\n")
		uuid, _, _ := strings.Cut(below, "/")
		if f.runs(uuid) {
			continue
		}
		if _, err := proc.Of(pid); err != nil {
			continue // ended, and not yet waited for
		}
		comm, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "comm"))
		remedy := byGC
		if !f.exists(uuid) {
			remedy = fmt.Sprintf("kill -9 %d", pid)
		}
		list = append(list, Orphan{Process, fmt.Sprintf("%d (%s)", pid, strings.TrimSpace(string(comm))), uuid, remedy})
	}
	return list, nil
}
