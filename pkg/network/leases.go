package network

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

// A lease is a file of the address's name that says whose it is, in the form
// of the plugin host-local, so that one sweep knows both. Its creation, which
// one process alone can succeed with, is all the locking there is.
const lastFile = "last_reserved_ip.0"

// leaseDir is where the pods of a network of ours keep their addresses.
func leaseDir(network string) string { return filepath.Join(poddir.NetDir(), "leases", network) }

// Lease takes an address in each subnet: the wanted one, or else the next after
// the one that was given last, so that an address rests before it is given
// again.
func Lease(network string, c PTP, containerID, ifName string, wanted netip.Addr) ([]netip.Prefix, error) {
	if err := fault.Step("network.lease"); err != nil {
		return nil, err
	}
	dir := leaseDir(network)
	if wanted.IsValid() {
		return leaseWanted(dir, network, c, containerID, ifName, wanted)
	}
	first := c.Subnets[0]
	used, err := usedNames(dir)
	if err != nil {
		return nil, err
	}
	last := uint64(firstOffset - 1)
	if data, err := os.ReadFile(filepath.Join(dir, lastFile)); err == nil {
		if addr, err := netip.ParseAddr(strings.TrimSpace(string(data))); err == nil && first.Contains(addr) {
			last, _ = offsetOf(first, addr) // 0, the beginning, if it is none of a pod
			last = max(last, firstOffset-1)
		}
	}
	for offset, turned := last+1, false; ; offset++ {
		addr, ok := at(first, offset)
		if !ok && turned || turned && offset > last {
			err := errs.Newf(errs.Unavailable, "no free address in %s: %d are in use", first, len(used))
			return nil, errs.WithHint(err, "\"rkt list\" shows the pods, \"rkt gc\" releases what ended ones still hold; a network in net.d may have a larger subnet")
		}
		if !ok {
			offset, turned = firstOffset-1, true
			continue
		}
		if used[addr.String()] {
			continue
		}
		list, err := lease(dir, c, offset, containerID, ifName)
		if errors.Is(err, fs.ErrExist) {
			continue // another was faster
		}
		return list, err
	}
}

func leaseWanted(dir, network string, c PTP, containerID, ifName string, wanted netip.Addr) ([]netip.Prefix, error) {
	for _, s := range c.Subnets {
		if !s.Contains(wanted) {
			continue
		}
		offset, err := offsetOf(s, wanted)
		if err != nil {
			return nil, errs.WithClass(errs.Usage, err)
		}
		list, err := lease(dir, c, offset, containerID, ifName)
		if errors.Is(err, fs.ErrExist) {
			return nil, errs.Newf(errs.Busy, "requested IP address %q is not available in network: %s", wanted, network)
		}
		return list, err
	}
	return nil, errs.Newf(errs.Usage, "requested IP address %q is not available in network: %s, which has %v", wanted, network, c.Subnets)
}

// lease writes the lease for the addresses at the offset. They are found by the
// first.
func lease(dir string, c PTP, offset uint64, containerID, ifName string) ([]netip.Prefix, error) {
	var list []netip.Prefix
	for _, s := range c.Subnets {
		addr, ok := at(s, offset)
		if !ok {
			err := errs.Newf(errs.Unavailable, "address %d of each subnet: %s has none", offset, s)
			return nil, errs.WithHint(err, "a pod has an address at the same place in each subnet: ask for one that lies in all")
		}
		list = append(list, netip.PrefixFrom(addr, s.Bits()))
	}
	addr := list[0].Addr().String()
	for range 100 {
		err := os.MkdirAll(dir, 0o755)
		if err == nil {
			// Whole from the first moment, so that no sweep finds one of nobody's.
			err = writeOnce(dir, addr, containerID+"\r\n"+ifName)
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue // the empty folder, or that above it, was just removed
		}
		if err != nil {
			return nil, err
		}
		// Without it the search begins elsewhere.
		_ = os.WriteFile(filepath.Join(dir, lastFile), []byte(addr), 0o644)
		return list, nil
	}
	return nil, errs.Newf(errs.Internal, "%s: keeps vanishing", dir)
}

// writeOnce makes a file with its content, or fails if there is one.
func writeOnce(dir, name, content string) error {
	tmp, err := os.CreateTemp(dir, ".new-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // the lease is another name of it
	_, err = tmp.WriteString(content)
	if err := errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Link(tmp.Name(), filepath.Join(dir, name))
}

func usedNames(dir string) (map[string]bool, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	used := map[string]bool{}
	for _, e := range entries {
		if _, err := netip.ParseAddr(e.Name()); err == nil {
			used[e.Name()] = true
		}
	}
	return used, nil
}

// Holding is a lease that is on disk.
type Holding struct {
	File  string // the path; its last element is the address
	Owner string // container id
}

// Leases lists the leases in the folder of one network.
func Leases(dir string) ([]Holding, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []Holding
	for _, e := range entries {
		if _, err := netip.ParseAddr(e.Name()); err != nil || !e.Type().IsRegular() {
			continue
		}
		file := filepath.Join(dir, e.Name())
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		owner, _, _ := strings.Cut(strings.TrimSpace(string(data)), "\n")
		list = append(list, Holding{File: file, Owner: strings.TrimSpace(owner)})
	}
	return list, nil
}

// free removes the leases in the folder of those owners that are meant.
func free(dir string, meant func(owner string) bool) error {
	list, err := Leases(dir)
	if err != nil {
		return err
	}
	for _, h := range list {
		if !meant(h.Owner) {
			continue
		}
		if err := fault.Step("network.free"); err != nil {
			return err
		}
		if err := os.Remove(h.File); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("lease: %w", err)
		}
	}
	return nil
}

// tidy removes the folder of a network of ours when no lease is left in it.
func tidy(dir string) {
	if used, err := usedNames(dir); err != nil || len(used) > 0 {
		return
	}
	// Lost is only where the next search begins. A lease that has come
	// meanwhile keeps the folder.
	_ = os.Remove(filepath.Join(dir, lastFile))
	for _, d := range []string{dir, filepath.Dir(dir)} {
		_ = os.Remove(d)
	}
}
