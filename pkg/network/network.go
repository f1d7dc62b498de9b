// Package network knows what a pod has outside its own network namespace, how
// that is found from the record network.json and how it is released: addresses,
// interfaces, rules of the packet filter, names. Both stages use it: stage1
// when a pod ends, stage0 for pods whose supervisor could not.
//
//	rules.go, table.go   the table "inet rkt": one for the host, elements by pod
//	leases.go            addresses, as files
//	names.go             by which pods on a network find each other
//	ptp.go, link.go      the plugin that is part of rkt
package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/rkt-pods/rkt/pkg/cni"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

// pluginDeadline is how long a plugin may take for an answer.
const pluginDeadline = 30 * time.Second

// hostLocalDir is where the plugin host-local keeps its leases unless its
// configuration says otherwise.
const hostLocalDir = "/var/lib/cni/networks"

// Runner runs the plugins of a pod. Add is the part of TypePTP that makes an
// interface; nil where none is ever made.
func Runner(dirs []string, add cni.CallFunc) *cni.Runner {
	return &cni.Runner{Dirs: dirs, Deadline: pluginDeadline, Builtin: map[string]cni.CallFunc{
		TypePTP: func(ctx context.Context, c cni.Call) ([]byte, error) {
			switch {
			case c.Command == "ADD" && add != nil:
				return add(ctx, c)
			case c.Command == "DEL":
				return nil, deletePTP(c)
			case c.Command == "CHECK":
				return nil, checkPTP(c)
			}
			return nil, nil // GC: the sweep knows these leases
		},
	}}
}

func networkOf(c cni.Call) (string, error) {
	var conf struct {
		Name string `json:"name"`
	}
	err := json.Unmarshal(c.Config, &conf)
	return conf.Name, err
}

// deletePTP takes the interface away before its address can be given to
// another.
func deletePTP(c cni.Call) error {
	name, err := networkOf(c)
	if err != nil {
		return err
	}
	if err := deleteLink(HostLink(c.ContainerID, c.IfName)); err != nil {
		return err
	}
	dir := leaseDir(name)
	if err := free(dir, func(owner string) bool { return owner == c.ContainerID }); err != nil {
		return err
	}
	tidy(dir)
	return nil
}

// Silence is the first and slow half of Release: no packet for the pod comes
// through any more. The pod's processes may still be dying. The caller holds
// the sockets of the pod's ports, so that the rules for them are the pod's.
func Silence(ctx context.Context, rec poddir.NetRecord) error {
	var links sync.WaitGroup
	for _, a := range rec.Attachments {
		if _, err := ParsePTP(a.Config); err == nil && a.Started {
			// Kernel and packet filter wait for all CPUs, each for itself: one
			// wait does for both. Release tries again, and tells of a failure.
			links.Go(func() { _ = deleteLink(HostLink(rec.ContainerID, a.IfName)) })
		}
	}
	defer links.Wait()
	return Unpublish(ctx, rec)
}

// Released says how much is left to release from, and how.
type Released struct {
	NetNS    string // path of the namespace, "" if it is gone
	Silenced bool   // Silence has done its part
	Abandon  bool   // other plugins are not asked any more
}

// Release gives back everything that the record names, each part also when
// another could not be. With an error, the record of what is left is returned
// too. It may be called again.
func Release(ctx context.Context, rec poddir.NetRecord, o Released) (poddir.NetRecord, error) {
	if rec.ContainerID == "" {
		return rec, nil
	}
	if err := checkHost(rec); err != nil {
		rec.Failed = err.Error()
		return rec, err
	}
	mine := func(owner string) bool { return owner == rec.ContainerID }
	// First, so that no packet for this pod reaches the next with its address,
	// and no element of that one is taken for this pod's.
	if !o.Silenced {
		if err := dropElements(ctx, mine); err != nil {
			rec.Failed = err.Error()
			return rec, err
		}
	}
	var err error
	left := rec
	left.Attachments, left.Ports = nil, nil
	for _, a := range slices.Backward(rec.Attachments) {
		aerr := changeNames(ctx, a.Name, nil, mine)
		if a.Started {
			aerr = errors.Join(aerr, detach(ctx, rec, a, o))
		}
		if aerr != nil {
			left.Attachments = slices.Insert(left.Attachments, 0, a)
		}
		err = errors.Join(err, aerr)
	}
	for _, dir := range hostLocalDirs(rec.Attachments) {
		err = errors.Join(err, free(dir, mine))
	}
	if err != nil {
		left.Failed = err.Error()
	}
	return left, err
}

func detach(ctx context.Context, rec poddir.NetRecord, a poddir.Attachment, o Released) error {
	l, err := cni.Parse(a.Config)
	if err == nil {
		if o.Abandon {
			l.Plugins = slices.DeleteFunc(l.Plugins, func(p cni.Plugin) bool { return p.Type != TypePTP })
		}
		at := cni.Attachment{ContainerID: rec.ContainerID, IfName: a.IfName, NetNS: o.NetNS, Args: a.Args}
		err = Runner(rec.PluginDirs, nil).Del(ctx, l, at, a.Result)
	}
	if o.NetNS == "" && errs.Is(err, errs.NotFound) {
		// The program was removed. With the namespace everything is gone that
		// was in it, and the sweep frees the address.
		return nil
	}
	if err != nil {
		return fmt.Errorf("network %s: %w", a.Name, err)
	}
	return nil
}

// hostLocalDirs are the folders in which host-local keeps the leases of the
// networks.
func hostLocalDirs(list []poddir.Attachment) []string {
	var dirs []string
	for _, a := range list {
		l, err := cni.Parse(a.Config)
		if err != nil {
			continue
		}
		dirs = append(dirs, HostLocalDirs(l)...)
	}
	return dirs
}

// HostLocalDirs are the folders in which host-local keeps the leases of the
// network.
func HostLocalDirs(l *cni.List) []string {
	var dirs []string
	for _, p := range l.Plugins {
		var ipam struct {
			Type    string `json:"type"`
			DataDir string `json:"dataDir"`
		}
		if json.Unmarshal(p.Config["ipam"], &ipam) != nil || ipam.Type != "host-local" {
			continue
		}
		if ipam.DataDir == "" {
			ipam.DataDir = hostLocalDir
		}
		dirs = append(dirs, filepath.Join(ipam.DataDir, l.Name))
	}
	return dirs
}

// dropElements is removeOwned under the lock: between its two steps nobody may
// put another's element in the place of a dead pod's.
func dropElements(ctx context.Context, meant func(owner string) bool) error {
	l, err := exclusive(ctx)
	if err != nil {
		return err
	}
	return errors.Join(removeOwned(ctx, meant), l.Close())
}

// Announce tells the other pods on the pod's networks its name.
func Announce(ctx context.Context, rec poddir.NetRecord) error { return announce(ctx, rec) }

// WantedIP is the address that the arguments ask for, the zero one if none.
func WantedIP(args [][2]string) (netip.Addr, error) {
	for _, kv := range args {
		if kv[0] != "IP" {
			continue
		}
		addr, err := netip.ParseAddr(kv[1])
		if err != nil {
			return addr, errs.Newf(errs.Usage, "IP=%s: not an address", kv[1])
		}
		return addr, nil
	}
	return netip.Addr{}, nil
}
