// Package netctl looks after the networks of all pods of a store: it shows who
// is on which, compares what there is with the records, restores rules that
// were flushed and removes what no pod holds.
package netctl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/rkt-pods/rkt/pkg/cni"
	"github.com/rkt-pods/rkt/pkg/network"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/stage0/pod"
)

// Member is a pod with its network record.
type Member struct {
	Pod    pod.Pod
	Record poddir.NetRecord
}

// Members are the pods that have something of a network, by their UUID.
func Members(pods pod.Pods) ([]Member, error) {
	all, err := pods.List()
	if err != nil {
		return nil, err
	}
	var list []Member
	for _, p := range all {
		rec, err := pods.Network(p.Dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("pod %s: %w", p.UUID, err)
		}
		list = append(list, Member{p, rec})
	}
	return list, nil
}

// ofStore takes a container id apart.
var ofStore = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^rkt-([0-9a-f]{16})-([0-9a-f-]{36})$`)
})

// OwnerPod takes apart whose something is: the id of a store and a pod's UUID.
func OwnerPod(owner string) (storeID, uuid string, ok bool) {
	m := ofStore().FindStringSubmatch(owner)
	if m == nil {
		return "", "", false
	}
	return m[1], m[2], true
}

// Orphans are what the host has for owners that are gone.
func Orphans(ctx context.Context, networks []poddir.Network, gone func(owner string) bool) (network.Orphans, error) {
	return network.FindOrphans(ctx, leaseDirs(networks), gone)
}

// Gone says which owners no longer exist. It judges the pods of this store
// only. A pod that holds anything has a record: that is written before and
// removed after.
func Gone(pods pod.Pods) func(owner string) bool {
	return func(owner string) bool {
		store, uuid, ok := OwnerPod(owner)
		if !ok || store != pods.StoreID {
			return false
		}
		for range 2 { // a pod that moves meanwhile is found in its next folder
			for _, f := range poddir.Folders() {
				if _, err := os.Lstat(poddir.Dir(poddir.Path(pods.Data, f, uuid)).Network()); err == nil {
					return false
				}
			}
		}
		return true
	}
}

// leaseDirs are the folders of leases that plugins keep for the networks.
func leaseDirs(networks []poddir.Network) []string {
	dirs := network.HostLocalRoot()
	for _, n := range networks {
		l, err := cni.Parse(n.Config)
		if err != nil {
			continue
		}
		for _, d := range network.HostLocalDirs(l) {
			if !slices.Contains(dirs, d) {
				dirs = append(dirs, d)
			}
		}
	}
	return dirs
}

// Sweep removes what belongs to no pod any more, and lets plugins that can do
// the same with what only they know of.
func Sweep(ctx context.Context, pods pod.Pods, networks []poddir.Network, pluginDirs []string) (network.Orphans, error) {
	found, err := network.Sweep(ctx, leaseDirs(networks), Gone(pods))
	members, merr := Members(pods)
	if err = errors.Join(err, merr); merr != nil {
		return found, err
	}
	for _, n := range networks {
		if l, lerr := cni.Parse(n.Config); lerr == nil && foreign(l) {
			gerr := network.Runner(pluginDirs, nil).GC(ctx, l, attachments(members, n.Name))
			if gerr != nil {
				err = errors.Join(err, fmt.Errorf("network %s: %w", n.Name, gerr))
			}
		}
	}
	return found, err
}

// Ended is an ended pod that held something of networks.
type Ended struct {
	UUID string
	Err  error // why it does so still
}

// ReleaseEnded gives back what ended pods hold still. With abandon, what the
// plugins of others made is left to them.
func ReleaseEnded(ctx context.Context, pods pod.Pods, abandon bool) ([]Ended, error) {
	members, err := Members(pods)
	if err != nil {
		return nil, err
	}
	var list []Ended
	for _, m := range members {
		if m.Pod.State != pod.Running {
			list = append(list, Ended{m.Pod.UUID, pods.ReleaseNetwork(ctx, m.Pod.UUID, abandon)})
		}
	}
	return list, nil
}

// foreign says whether other programs are to be asked.
func foreign(l *cni.List) bool {
	return slices.ContainsFunc(l.Plugins, func(p cni.Plugin) bool { return p.Type != network.TypePTP })
}

func attachments(members []Member, name string) []cni.Attachment {
	list := []cni.Attachment{}
	for _, m := range members {
		for _, a := range m.Record.Attachments {
			if a.Name == name {
				list = append(list, cni.Attachment{ContainerID: m.Record.ContainerID, IfName: a.IfName})
			}
		}
	}
	return list
}

// Reload makes the rules of all running pods whole again, as after somebody
// flushed them.
func Reload(ctx context.Context, pods pod.Pods) (int, error) {
	members, err := Members(pods)
	if err != nil {
		return 0, err
	}
	var recs []poddir.NetRecord
	for _, m := range members {
		if m.Pod.State == pod.Running {
			recs = append(recs, m.Record)
		}
	}
	return len(recs), network.Restore(ctx, recs, Gone(pods))
}

// Problem is a difference between the records and the host.
type Problem struct {
	Pod  string `json:"pod,omitempty"` // its UUID; "" if it is nobody's
	Text string `json:"problem"`
}

// Check compares. Pods that are not running are gc's business.
func Check(ctx context.Context, pods pod.Pods, networks []poddir.Network) ([]Problem, error) {
	list := []Problem{}
	members, err := Members(pods)
	if err != nil {
		return list, err
	}
	var recs []poddir.NetRecord
	for _, m := range members {
		if m.Pod.State != pod.Running {
			text := fmt.Sprintf("is %s and holds its network still", m.Pod.State)
			if why := m.Record.Failed; why != "" {
				text += ": " + strings.ReplaceAll(why, "\n", "; ")
			}
			list = append(list, Problem{m.Pod.UUID, text})
			continue
		}
		recs = append(recs, m.Record)
		list = append(list, checkOne(ctx, pods, m)...)
	}
	missing, whole, err := network.Missing(ctx, recs)
	if err != nil {
		return list, err
	}
	if !whole && slices.ContainsFunc(recs, func(r poddir.NetRecord) bool { return len(network.Elements(r)) > 0 }) {
		list = append(list, Problem{"", "table inet rkt: rules are missing"})
	}
	for _, e := range missing {
		_, uuid, _ := OwnerPod(e.Owner)
		list = append(list, Problem{uuid, fmt.Sprintf("table inet rkt: %s: %s is missing", e.Set, e.Key)})
	}
	orphans, err := Orphans(ctx, networks, Gone(pods))
	for _, e := range orphans.Elements {
		list = append(list, Problem{"", fmt.Sprintf("table inet rkt: %s: %s is of no pod (%s)", e.Set, e.Key, e.Owner)})
	}
	for _, h := range orphans.Leases {
		list = append(list, Problem{"", fmt.Sprintf("lease %s is of no pod (%s)", h.File, h.Owner)})
	}
	for _, n := range orphans.Names {
		list = append(list, Problem{"", fmt.Sprintf("name %s is of no pod (%s)", n.Name, n.Owner)})
	}
	return list, err
}

func checkOne(ctx context.Context, pods pod.Pods, m Member) []Problem {
	f, err := pods.Facts(m.Pod)
	if err != nil || f.Supervisor == nil {
		return nil // it has just ended
	}
	var list []Problem
	for _, a := range m.Record.Attachments {
		netNS := sandboxOf(a.Result, f.Supervisor.PID)
		if netNS == "" {
			continue // it is just being attached, or the result doesn't say where
		}
		l, err := cni.Parse(a.Config)
		if err == nil {
			at := cni.Attachment{ContainerID: m.Record.ContainerID, IfName: a.IfName, NetNS: netNS, Args: a.Args}
			err = network.Runner(m.Record.PluginDirs, nil).Check(ctx, l, at, a.Result)
		}
		if err != nil {
			list = append(list, Problem{m.Pod.UUID, fmt.Sprintf("network %s: %v", a.Name, err)})
		}
	}
	return list
}

// sandboxOf is the namespace as the plugins were given it, if it is one of the
// supervisor's: they compare it with what they are asked about.
func sandboxOf(result []byte, supervisor int) string {
	r, err := cni.ParseResult(result)
	if err != nil {
		return ""
	}
	for _, i := range r.Interfaces {
		if strings.HasPrefix(i.Sandbox, fmt.Sprintf("/proc/%d/fd/", supervisor)) {
			return i.Sandbox
		}
	}
	return ""
}
