// Package orphan compares what a host and a store have with what the records
// say: everything that carries the store's id, or lies in its data folder, and
// belongs to nobody. It changes nothing.
package orphan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/proc"
	"github.com/rkt-pods/rkt/stage0/gc"
	"github.com/rkt-pods/rkt/stage0/netctl"
	"github.com/rkt-pods/rkt/stage0/pod"
	"github.com/rkt-pods/rkt/stage0/store"
)

// Kind is what an orphan is.
type Kind string

// The kinds.
const (
	Process   Kind = "process"
	Mount     Kind = "mount"
	NetNS     Kind = "netns"
	Link      Kind = "link"
	Rule      Kind = "rule"
	Lease     Kind = "lease"
	NetName   Kind = "network-name"
	UserIDs   Kind = "user-ids"
	Cgroup    Kind = "cgroup"
	RunFolder Kind = "run-folder"
	PodFolder Kind = "pod"
	PodName   Kind = "pod-name"
	Reference Kind = "reference"  // of a pod, to what is not there
	Image     Kind = "image"      // one that lacks a layer
	ImageName Kind = "image-name" // one that means no image
	Layer     Kind = "layer"
	Blob      Kind = "blob"
	Staging   Kind = "staging"
)

// order is that in which orphans can be removed.
var order = []Kind{Process, Mount, NetNS, Link, Rule, Lease, NetName, UserIDs, Cgroup, RunFolder, PodFolder, PodName, Reference, Image, ImageName, Layer, Blob, Staging}

// Orphan is one thing that nobody holds, or one that lacks what it holds.
type Orphan struct {
	Kind   Kind   `json:"kind"`
	Name   string `json:"name"`
	Pod    string `json:"pod,omitempty"` // the UUID of the pod that it belonged to, if it is known
	Remedy string `json:"remedy"`        // the command that removes it
}

// The remedies.
const (
	byGC    = "rkt gc"
	byNetGC = "rkt net gc"
)

// Finder looks for orphans.
type Finder struct {
	Store    *store.Store
	Pods     pod.Pods
	Networks []poddir.Network // those that are configured, for their plugins' leases
	Grace    time.Duration    // how long layers of an interrupted fetch wait for the next one

	live map[string]pod.State // of each pod, by UUID
}

// Find lists what there is, in an order in which the remedies work. A part of the host that can't be
// looked at is an error, beside what was found in the others.
func (f *Finder) Find(ctx context.Context) ([]Orphan, error) {
	list := []Orphan{}
	var all error
	for _, look := range []func(context.Context) ([]Orphan, error){
		f.pods, f.mounts, f.netNS, f.links, f.network, f.userIDs, f.cgroups, f.processes, f.runFolders, f.references, f.garbage, f.images,
	} {
		found, err := f.settled(ctx, look)
		list, all = append(list, found...), errors.Join(all, err)
	}
	slices.SortFunc(list, func(a, b Orphan) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Kind), slices.Index(order, b.Kind)), cmp.Compare(a.Name, b.Name))
	})
	return list, all
}

// settled looks twice where something was found: pods come and go meanwhile,
// and what is an orphan stays one.
func (f *Finder) settled(ctx context.Context, look func(context.Context) ([]Orphan, error)) ([]Orphan, error) {
	var last []Orphan
	for range 2 {
		if err := f.readPods(); err != nil {
			return nil, err
		}
		found, err := look(ctx)
		if err != nil || len(found) == 0 {
			return found, err
		}
		if last != nil {
			return slices.DeleteFunc(found, func(o Orphan) bool { return !slices.Contains(last, o) }), nil
		}
		last = found
	}
	return last, nil
}

func (f *Finder) readPods() error {
	all, err := f.Pods.List()
	if err != nil {
		return err
	}
	f.live = map[string]pod.State{}
	for _, p := range all {
		f.live[p.UUID] = p.State
	}
	return nil
}

// runs says whether the pod may have processes and what belongs to them.
func (f *Finder) runs(uuid string) bool {
	switch f.live[uuid] {
	case pod.Preparing, pod.Running, pod.Exiting, pod.ExitedDeleting, pod.Deleting:
		return true
	case pod.Embryo, pod.AbortedPrepare, pod.Prepared, pod.Exited, pod.ExitedGarbage, pod.Garbage:
	}
	return false
}

func (f *Finder) exists(uuid string) bool { return f.live[uuid] != "" }

// pods are those that no command works on and that no command could use.
func (f *Finder) pods(context.Context) ([]Orphan, error) {
	var list []Orphan
	for uuid, state := range f.live {
		switch state {
		case pod.Embryo, pod.AbortedPrepare, pod.Garbage:
			list = append(list, Orphan{PodFolder, fmt.Sprintf("%s (%s)", uuid, state), uuid, byGC})
		case pod.Preparing, pod.Prepared, pod.Running, pod.Exiting, pod.Exited, pod.ExitedDeleting, pod.ExitedGarbage, pod.Deleting:
		}
	}
	names, err := f.Pods.StaleNames()
	for _, n := range names {
		list = append(list, Orphan{PodName, n, "", byGC})
	}
	return list, err
}

// uuidIn finds a pod's id among the parts of a path, "" if there is none.
func uuidIn(path string) string {
	for part := range strings.SplitSeq(path, "/") {
		if uuid, err := poddir.ParseUUID(part); err == nil {
			return uuid
		}
	}
	return ""
}

// network is what the packet filter, the folders of leases and the files of
// names have of pods that are gone or have ended.
func (f *Finder) network(ctx context.Context) ([]Orphan, error) {
	if !proc.HostUsers() {
		return nil, nil // an ordinary user's pods have no network
	}
	o, err := netctl.Orphans(ctx, f.Networks, func(owner string) bool {
		id, uuid, ok := netctl.OwnerPod(owner)
		return ok && id == f.Pods.StoreID && !f.runs(uuid)
	})
	var list []Orphan
	add := func(k Kind, name, owner string) {
		_, uuid, _ := netctl.OwnerPod(owner)
		remedy := byNetGC
		if f.exists(uuid) {
			remedy = byGC
		}
		list = append(list, Orphan{k, name, uuid, remedy})
	}
	for _, e := range o.Elements {
		add(Rule, fmt.Sprintf("table inet rkt: %s: %s", e.Set, e.Key), e.Owner)
	}
	for _, h := range o.Leases {
		add(Lease, h.File, h.Owner)
	}
	for _, n := range o.Names {
		add(NetName, n.Name, n.Owner)
	}
	return list, err
}

// runFolders are those below /run of pods that are gone.
func (f *Finder) runFolders(context.Context) ([]Orphan, error) {
	root := filepath.Join(poddir.RunRoot(), f.Pods.StoreID)
	entries, err := os.ReadDir(root)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var list []Orphan
	for _, e := range entries {
		if !f.exists(e.Name()) {
			path := filepath.Join(root, e.Name())
			list = append(list, Orphan{RunFolder, path, uuidIn(path), "rm -r " + path})
		}
	}
	return list, err
}

// references are those of pods to images, layers and volumes that are not there.
func (f *Finder) references(context.Context) ([]Orphan, error) {
	held, err := f.Pods.Held()
	if err != nil {
		return nil, err
	}
	var list []Orphan
	add := func(what, name string, pods []string) {
		for _, uuid := range pods {
			list = append(list, Orphan{Reference, fmt.Sprintf("%s %s", what, name), uuid, "rkt rm " + uuid})
		}
	}
	for key, pods := range held.Layers {
		if strings.Contains(key, "/") {
			continue // a frozen store's, which need not be here all the time
		}
		if ok, herr := f.Store.HasLayer(key); herr != nil {
			err = errors.Join(err, herr)
		} else if !ok {
			add("layer", key, pods)
		}
	}
	for name, pods := range held.Volumes {
		if _, serr := os.Lstat(string(poddir.NamedVolume(f.Pods.Data, name))); errors.Is(serr, os.ErrNotExist) {
			add("volume", name, pods)
		}
	}
	for uuid, uerr := range held.Unknown {
		list = append(list, Orphan{Reference, "unreadable: " + strings.TrimSpace(uerr.Error()), uuid, "rkt rm " + uuid})
	}
	return list, err
}

// garbage is what the store's own collection would take.
func (f *Finder) garbage(context.Context) ([]Orphan, error) {
	g, err := f.Store.Plan(gc.Held(f.Pods), f.Grace)
	var list []Orphan
	for kind, names := range map[Kind][]string{Layer: g.Layers, Blob: g.Blobs, Staging: g.Staging} {
		for _, n := range names {
			list = append(list, Orphan{kind, n, "", byGC})
		}
	}
	return list, err
}

// images are those that lack a layer, and names that mean none.
func (f *Finder) images(context.Context) ([]Orphan, error) {
	all, err := f.Store.Images()
	var list []Orphan
	for _, rec := range all {
		for _, key := range store.Layers(rec) {
			if ok, herr := f.Store.HasLayer(key); herr != nil {
				err = errors.Join(err, herr)
			} else if !ok {
				list = append(list, Orphan{Image, fmt.Sprintf("%s lacks layer %s", rec.ID, key), "", "rkt image rm " + rec.ID})
			}
		}
	}
	names, nerr := f.Store.DanglingNames()
	for _, n := range names {
		list = append(list, Orphan{ImageName, n, "", byGC})
	}
	return list, errors.Join(err, nerr)
}
