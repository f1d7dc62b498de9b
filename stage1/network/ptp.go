package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/cni"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/network"
)

// routerV6 is the host's address on each link, by which pods reach it as their
// router. It means something on the one link only.
var routerV6 = netip.MustParsePrefix("fe80::1/64")

// add makes an interface of the type network.TypePTP. The pod's routes lead
// through the host, also to its neighbours, so that no broadcast, no name
// resolution of neighbours and no bridge grows with the number of pods.
func (a *Attached) add(_ context.Context, c cni.Call) ([]byte, error) {
	conf, err := network.ParsePTP(c.Config)
	if err != nil {
		return nil, err
	}
	if !hasIPv6() {
		conf.Subnets = slices.DeleteFunc(conf.Subnets, func(s netip.Prefix) bool { return s.Addr().Is6() })
	}
	if len(conf.Subnets) == 0 {
		return nil, errs.Newf(errs.Unsupported, "the host has no IPv6, and the network nothing else")
	}
	wanted, err := network.WantedIP(c.Args)
	if err != nil {
		return nil, err
	}
	addrs, err := network.Lease(conf.Name, conf, c.ContainerID, c.IfName, wanted)
	if err != nil {
		return nil, err
	}
	if err := forward(addrs); err != nil {
		return nil, err
	}
	l := link{owner: c.ContainerID, host: network.HostLink(c.ContainerID, c.IfName), pod: c.IfName, addrs: addrs, conf: conf}
	macs, err := l.make(a.netns)
	if err != nil {
		return nil, err
	}
	return json.Marshal(l.result(macs, c))
}

func (l link) result(macs [2]string, c cni.Call) cni.Result {
	r := cni.Result{CNIVersion: "1.1.0", DNS: l.conf.DNS, Interfaces: []cni.Interface{
		{Name: l.host, Mac: macs[0]}, {Name: l.pod, Mac: macs[1], Sandbox: c.NetNS},
	}}
	for _, p := range l.addrs {
		gw := network.Gateway(p.Masked())
		r.IPs = append(r.IPs, cni.IP{Address: p, Gateway: &gw, Interface: new(1)})
		if l.conf.DefaultRoute {
			r.Routes = append(r.Routes, cni.Route{Dst: netip.PrefixFrom(unspecified(p.Addr()), 0), GW: &gw})
		}
	}
	return r
}

// link is a pair of interfaces, one end on the host and one in the pod.
type link struct {
	owner     string // the pod's name towards networks
	host, pod string
	addrs     []netip.Prefix // the pod's
	conf      network.PTP
}

// make makes both ends at once, the pod's in its namespace, so that there is no
// moment at which a kill leaves an end that nobody knows.
func (l link) make(netNS int) (macs [2]string, err error) {
	host, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return macs, fmt.Errorf("netlink: %w", err)
	}
	defer host.Close()
	pod, err := netlink.NewHandleAt(netns.NsHandle(netNS), unix.NETLINK_ROUTE)
	if err != nil {
		return macs, fmt.Errorf("netlink in the pod: %w", err)
	}
	defer pod.Close()
	veth := netlink.NewVeth(netlink.LinkAttrs{Name: l.host, MTU: l.conf.MTU, TxQLen: -1})
	veth.PeerName, veth.PeerNamespace, veth.PeerMTU = l.pod, netlink.NsFd(netNS), uint32(l.conf.MTU)
	if err := step("network.link", func() error { return host.LinkAdd(veth) }); err != nil {
		return macs, fmt.Errorf("make link %s: %w", l.host, err)
	}
	hostEnd, err := host.LinkByName(l.host)
	if err != nil {
		return macs, fmt.Errorf("link %s: %w", l.host, err)
	}
	podEnd, err := pod.LinkByName(l.pod)
	if err != nil {
		return macs, fmt.Errorf("link %s: %w", l.pod, err)
	}
	macs = [2]string{hostEnd.Attrs().HardwareAddr.String(), podEnd.Attrs().HardwareAddr.String()}
	if err := step("network.hostend", func() error { return l.configureHost(host, hostEnd) }); err != nil {
		return macs, fmt.Errorf("link %s: %w", l.host, err)
	}
	if err := step("network.podend", func() error { return l.configurePod(pod, podEnd) }); err != nil {
		return macs, fmt.Errorf("link %s in the pod: %w", l.pod, err)
	}
	return macs, nil
}

func (l link) configureHost(h *netlink.Handle, end netlink.Link) error {
	// Its name is a digest: this tells people, and gc --check, whose it is.
	if err := h.LinkSetAlias(end, l.owner); err != nil {
		return fmt.Errorf("alias: %w", err)
	}
	if err := h.LinkSetUp(end); err != nil {
		return fmt.Errorf("up: %w", err)
	}
	for _, p := range l.addrs {
		list := []netip.Prefix{netip.PrefixFrom(network.Gateway(p.Masked()), p.Addr().BitLen())}
		if p.Addr().Is6() {
			list = append(list, routerV6)
		}
		for _, a := range list {
			if err := h.AddrAdd(end, address(a, 0)); err != nil {
				return fmt.Errorf("address %s: %w", a, err)
			}
		}
		// Replaced, not added: a link of a dead pod may be on its way out.
		to := netip.PrefixFrom(p.Addr(), p.Addr().BitLen())
		if err := h.RouteReplace(&netlink.Route{LinkIndex: end.Attrs().Index, Dst: ipNet(to), Scope: netlink.SCOPE_LINK}); err != nil {
			return fmt.Errorf("route to %s: %w", to, err)
		}
	}
	return nil
}

func (l link) configurePod(h *netlink.Handle, end netlink.Link) error {
	if err := h.LinkSetUp(end); err != nil {
		return fmt.Errorf("up: %w", err)
	}
	for _, p := range l.addrs {
		// The prefix tells programs how large the network is; its route goes
		// through the host.
		if err := h.AddrAdd(end, address(p, unix.IFA_F_NOPREFIXROUTE)); err != nil {
			return fmt.Errorf("address %s: %w", p, err)
		}
		via := network.Gateway(p.Masked())
		if p.Addr().Is6() {
			via = routerV6.Addr()
		} else {
			direct := netip.PrefixFrom(via, via.BitLen())
			if err := h.RouteAdd(&netlink.Route{LinkIndex: end.Attrs().Index, Dst: ipNet(direct), Scope: netlink.SCOPE_LINK}); err != nil {
				return fmt.Errorf("route to %s: %w", via, err)
			}
		}
		to := []netip.Prefix{p.Masked()}
		if l.conf.DefaultRoute {
			to = append(to, netip.PrefixFrom(unspecified(p.Addr()), 0))
		}
		for _, dst := range to {
			// A default route of an earlier network stays the one.
			err := h.RouteAdd(&netlink.Route{LinkIndex: end.Attrs().Index, Dst: ipNet(dst), Gw: via.AsSlice()})
			if err != nil && !(errors.Is(err, unix.EEXIST) && dst.Bits() == 0) {
				return fmt.Errorf("route to %s: %w", dst, err)
			}
		}
	}
	return nil
}

func address(p netip.Prefix, flags int) *netlink.Addr {
	a := &netlink.Addr{IPNet: ipNet(p), Flags: flags}
	if p.Addr().Is6() {
		a.Flags |= unix.IFA_F_NODAD // the addresses are given out: there are no duplicates
	}
	return a
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func unspecified(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

func step(name string, f func() error) error {
	if err := fault.Step(name); err != nil {
		return err
	}
	return f()
}

func hasIPv6() bool {
	off, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/disable_ipv6")
	return err == nil && strings.TrimSpace(string(off)) == "0"
}

// forward makes the host a router, which no pod gets out without. It stays one:
// others may count on it too.
func forward(addrs []netip.Prefix) error {
	for _, p := range addrs {
		file := "/proc/sys/net/ipv4/ip_forward"
		if p.Addr().Is6() {
			file = "/proc/sys/net/ipv6/conf/all/forwarding"
		}
		if err := turnOn(file, p.Addr().Is6()); err != nil {
			return err
		}
	}
	return nil
}

func turnOn(file string, v6 bool) error {
	now, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("forwarding: %w", err)
	}
	if strings.TrimSpace(string(now)) != "0" {
		return nil
	}
	if v6 {
		keepRouterAdvertisements()
	}
	if err := fault.Step("network.forward"); err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte("1"), 0o644); err != nil {
		return errs.WithHint(fmt.Errorf("forwarding: %w", err), "pods need it to reach anything but the host: \"sysctl -w net.ipv4.ip_forward=1\"")
	}
	return nil
}

// keepRouterAdvertisements lets interfaces that learn their routes from a
// router go on doing so: without, the host would lose its own way out when it
// becomes a router (accept_ra, Documentation/networking/ip-sysctl in the
// kernel's sources).
func keepRouterAdvertisements() {
	list, _ := filepath.Glob("/proc/sys/net/ipv6/conf/*/accept_ra")
	for _, file := range list {
		if now, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(now)) == "1" {
			// One that is going away needs none.
			if err := os.WriteFile(file, []byte("2"), 0o644); errors.Is(err, fs.ErrPermission) {
				return
			}
		}
	}
}
