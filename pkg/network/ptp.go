package network

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/rkt-pods/rkt/pkg/cni"
	"github.com/rkt-pods/rkt/pkg/errs"
)

// TypePTP is the plugin that is part of rkt: a pair of interfaces between the
// host and the pod, with the host as the router of all pods.
const TypePTP = "rkt-ptp"

// PTP is its configuration.
type PTP struct {
	Name string `json:"name"` // the network's, when the plugin is called
	// Subnets have an address for each pod, at the same place in each of them.
	Subnets      []netip.Prefix `json:"subnets"`
	DefaultRoute bool           `json:"defaultRoute"`
	Masquerade   bool           `json:"masquerade"` // towards the outside the pod has the host's address
	Confined     bool           `json:"confined"`   // the host forwards nothing between it and the outside
	MTU          int            `json:"mtu"`        // 0: as the kernel has it
	DNS          cni.DNS        `json:"dns"`
}

// ParsePTP reads the configuration of a network that TypePTP makes; any other
// one's is an error.
func ParsePTP(list []byte) (PTP, error) {
	l, err := cni.Parse(list)
	if err != nil {
		return PTP{}, err
	}
	if l.Plugins[0].Type != TypePTP {
		return PTP{}, errs.Newf(errs.Unsupported, "network %s: is made by %s", l.Name, l.Plugins[0].Type)
	}
	data, err := json.Marshal(l.Plugins[0].Config)
	if err != nil {
		return PTP{}, err
	}
	return parsePTP(data)
}

// ownKeys are those of PTP, and what CNI allows in every configuration.
var ownKeys = []string{
	"subnets", "defaultRoute", "masquerade", "confined", "mtu", "dns",
	"type", "name", "cniVersion", "cniVersions", "disableCheck", "disableGC", "capabilities", "args",
}

// CheckPTP refuses what TypePTP could not do as it is asked for: a pod must not
// lack rules, or a limit, for a slip of the pen. Other plugins check themselves.
func CheckPTP(l *cni.List) error {
	for i, p := range l.Plugins {
		if p.Type != TypePTP {
			continue
		}
		if i > 0 {
			return errs.Newf(errs.Corrupt, "plugin %d: %s has to be the first", i+1, TypePTP)
		}
		for _, key := range slices.Sorted(maps.Keys(p.Config)) {
			if !slices.Contains(ownKeys, key) {
				return errs.Newf(errs.Corrupt, "%s: unknown to %s", key, TypePTP)
			}
		}
		data, err := json.Marshal(p.Config)
		if err != nil {
			return err
		}
		if _, err := parsePTP(data); err != nil {
			return err
		}
	}
	return nil
}

func parsePTP(data []byte) (PTP, error) {
	var c PTP
	if err := cni.Unmarshal(data, &c); err != nil {
		return c, err
	}
	if len(c.Subnets) == 0 {
		return c, errs.Newf(errs.Corrupt, "subnets: missing")
	}
	least := 68 // of IPv4 (RFC 791)
	if slices.ContainsFunc(c.Subnets, func(s netip.Prefix) bool { return s.Addr().Is6() }) {
		least = 1280 // of IPv6 (RFC 8200)
	}
	if c.MTU != 0 && (c.MTU < least || c.MTU > 65535) {
		return c, errs.Newf(errs.Corrupt, "mtu: %d: neither 0 nor between %d and 65535", c.MTU, least)
	}
	for _, s := range c.Subnets {
		if s != s.Masked() || s.Addr().BitLen()-s.Bits() < 2 {
			return c, errs.Newf(errs.Corrupt, "subnets: %s: not the address of a network with room for a pod", s)
		}
	}
	return c, nil
}

// Gateway is the host's address in a subnet, its first one.
func Gateway(s netip.Prefix) netip.Addr { return s.Addr().Next() }

// at is the address at an offset in the subnet, false if it is not a pod's.
func at(s netip.Prefix, offset uint64) (netip.Addr, bool) {
	a := s.Addr().As16()
	for i := 15; i >= 0 && offset > 0; i-- {
		offset += uint64(a[i])
		a[i] = byte(offset)
		offset >>= 8
	}
	addr := netip.AddrFrom16(a)
	if s.Addr().Is4() {
		addr = addr.Unmap()
	}
	return addr, offset == 0 && s.Contains(addr) && (s.Addr().Is6() || s.Contains(addr.Next()))
}

// offsetOf is the reverse of at.
func offsetOf(s netip.Prefix, addr netip.Addr) (uint64, error) {
	var n uint64
	a, base := addr.As16(), s.Addr().As16()
	for i := range a {
		if n >= 1<<55 {
			return 0, errs.Newf(errs.Usage, "%s: too far from the beginning of %s", addr, s)
		}
		n = n<<8 + uint64(a[i]) - uint64(base[i])
	}
	if there, ok := at(s, n); !s.Contains(addr) || !ok || there != addr || n < firstOffset {
		return 0, fmt.Errorf("%s: not an address for a pod in %s", addr, s)
	}
	return n, nil
}

// firstOffset is that of the first pod: the network and the host come before.
const firstOffset = 2
