// Package network gives a pod its interfaces, addresses, ports and names when
// it starts, and takes them away when it ends. What there is stands in
// network.json before it exists, from which stage0 can release it too.
//
//	Setup     ports held, record, plugins, rules, name
//	Watch     the names of other pods, as they come and go
//	Release   all of it back
package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/cni"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/network"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/proc"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// releaseDeadline bounds the release of everything at a pod's end.
const releaseDeadline = 2 * time.Minute

// Config is what a pod is attached by.
type Config struct {
	Plan    plan.Network
	Dir     poddir.Dir
	StoreID string
	NetNS   int // descriptor of the pod's namespace; a copy of it is kept
}

// Attached is a pod's network.
type Attached struct {
	rec   poddir.NetRecord
	dir   poddir.Dir
	netns int
	path  string // of the namespace, for plugins
	ports *ports
	dns   cni.DNS

	silenced bool
}

// Setup attaches the pod. The result is there also with an error, for Release.
func Setup(ctx context.Context, c Config) (*Attached, error) {
	a := &Attached{dir: c.Dir, netns: -1, ports: &ports{}}
	if len(c.Plan.Attachments) == 0 {
		return a, nil
	}
	var err error
	if a.netns, err = unix.FcntlInt(uintptr(c.NetNS), unix.F_DUPFD_CLOEXEC, 3); err != nil {
		return a, fmt.Errorf("network namespace: %w", err)
	}
	// By this process's descriptor: it is there from before the first plugin
	// runs until after the last, whatever becomes of pod init.
	a.path = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), a.netns)
	self, err := proc.Self()
	if err != nil {
		return a, err
	}
	here, err := network.HostNS()
	if err != nil {
		return a, err
	}
	if err := a.ports.hold(ctx, c.Plan.Ports); err != nil {
		return a, err
	}
	a.rec = poddir.NetRecord{
		BootID: self.BootID, HostNS: here, ContainerID: poddir.ContainerID(c.StoreID, c.Dir.UUID()), PluginDirs: c.Plan.PluginDirs,
		Attachments: slices.Clone(c.Plan.Attachments), Ports: slices.Clone(c.Plan.Ports), PodName: c.Plan.PodName,
	}
	for i := range a.rec.Attachments {
		if err := a.attach(ctx, &a.rec.Attachments[i]); err != nil {
			return a, fmt.Errorf("network %s: %w", a.rec.Attachments[i].Name, err)
		}
	}
	if err := a.lead(); err != nil {
		return a, err
	}
	if err := a.write(); err != nil {
		return a, err
	}
	if err := network.Publish(ctx, a.rec); err != nil {
		return a, err
	}
	a.ports.serve(a.rec.Ports)
	return a, network.Announce(ctx, a.rec)
}

func (a *Attached) write() error {
	if err := fault.Step("network.record"); err != nil {
		return err
	}
	return atomicfile.WriteJSON(a.dir.Network(), a.rec, 0o600, atomicfile.Renamed)
}

// attach runs the plugins of one network. The record comes first, and says
// also of those that follow that nothing was done yet.
func (a *Attached) attach(ctx context.Context, at *poddir.Attachment) error {
	l, err := cni.Parse(at.Config)
	if err != nil {
		return err
	}
	at.Started = true
	if err := a.write(); err != nil {
		return err
	}
	runner := network.Runner(a.rec.PluginDirs, a.add)
	result, err := runner.Add(ctx, l, cni.Attachment{ContainerID: a.rec.ContainerID, IfName: at.IfName, NetNS: a.path, Args: at.Args})
	if err != nil {
		return err
	}
	r, err := cni.ParseResult(result)
	if err != nil {
		return err
	}
	at.Result = result
	for _, p := range r.PodIPs() {
		at.IPs = append(at.IPs, p.String())
	}
	if !a.dns.Given() {
		a.dns = r.DNS
	}
	return nil
}

// lead chooses where the ports lead to: the first network whose pods go out by
// the host's address, else the last.
func (a *Attached) lead() error {
	if len(a.rec.Ports) == 0 {
		return nil
	}
	i := slices.IndexFunc(a.rec.Attachments, masquerades)
	if i < 0 {
		i = len(a.rec.Attachments) - 1
	}
	target := a.rec.Attachments[i]
	var to4, to6 string
	for _, ip := range target.IPs {
		p, err := netip.ParsePrefix(ip)
		switch {
		case err != nil:
		case p.Addr().Is4() && to4 == "":
			to4 = p.Addr().String()
		case p.Addr().Is6() && to6 == "":
			to6 = p.Addr().String()
		}
	}
	for i := range a.rec.Ports {
		f := &a.rec.Ports[i]
		f.To4, f.To6 = to4, to6
		if host, err := netip.ParseAddr(f.HostIP); err == nil {
			if host.Is4() {
				f.To6 = ""
			} else {
				f.To4 = ""
			}
		}
		if f.To4 == "" && f.To6 == "" {
			return errs.Newf(errs.Usage, "port %s: network %s gave the pod no address that %s could be forwarded to", f.Name, target.Name, what(*f))
		}
	}
	if to4 != "" {
		return fromLoopback(to4)
	}
	return nil
}

func masquerades(a poddir.Attachment) bool {
	if c, err := network.ParsePTP(a.Config); err == nil {
		return c.Masquerade
	}
	l, err := cni.Parse(a.Config)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(l.Plugins, func(p cni.Plugin) bool { return string(p.Config["ipMasq"]) == "true" })
}

// fromLoopback lets the host's own connections to 127.0.0.1 be led to the pod:
// the kernel forwards no such address unless the interface says so. The table
// keeps others off these addresses.
func fromLoopback(addr string) error {
	ip, err := netip.ParseAddr(addr)
	if err != nil {
		return err
	}
	routes, err := netlink.RouteGet(ip.AsSlice())
	if err != nil {
		return fmt.Errorf("route to %s, which ports lead to: %w", addr, err)
	}
	link, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return fmt.Errorf("route to %s, which ports lead to: %w", addr, err)
	}
	file := "/proc/sys/net/ipv4/conf/" + link.Attrs().Name + "/route_localnet"
	return step("network.loopback", func() error { return os.WriteFile(file, []byte("1"), 0o644) })
}

// Addresses are the pod's own, without prefix lengths.
func (a *Attached) Addresses() []netip.Addr {
	var list []netip.Addr
	for _, at := range a.rec.Attachments {
		for _, ip := range at.IPs {
			if p, err := netip.ParsePrefix(ip); err == nil {
				list = append(list, p.Addr())
			}
		}
	}
	return list
}

// Public is what anyone may see.
func (a *Attached) Public() []poddir.Address { return a.rec.Addresses() }

// DNS is what the first network that says anything says of name servers.
func (a *Attached) DNS() cni.DNS { return a.dns }

// Silence keeps packets from the pod while its processes are dying. Release
// comes after it and does the rest, and the whole where it failed.
func (a *Attached) Silence(ctx context.Context) {
	if a == nil || a.netns < 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, releaseDeadline)
	defer cancel()
	a.silenced = network.Silence(ctx, a.rec) == nil
}

// Release gives everything back. No process may be left in the namespace. A
// nil Attached never was.
func (a *Attached) Release(ctx context.Context) error {
	if a == nil || a.netns < 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, releaseDeadline)
	defer cancel()
	left, err := network.Release(ctx, a.rec, network.Released{NetNS: a.path, Silenced: a.silenced})
	a.ports.close()
	_ = unix.Close(a.netns) // only read
	a.netns = -1
	if err != nil {
		a.rec = left
		return errors.Join(err, a.write())
	}
	if err := fault.Step("network.forget"); err != nil {
		return err
	}
	if err := os.Remove(a.dir.Network()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// what names a port for the user.
func what(f poddir.Forward) string {
	host := f.HostIP
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if host != "" {
		host += ":"
	}
	return fmt.Sprintf("%s %s%d", f.Protocol, host, f.HostPort)
}
