package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

// Socket is a descriptor that rkt was given by whoever started it.
type Socket struct {
	FD       int
	Name     string         // "" if nobody named it
	Protocol string         // tcp, udp, sctp; "" for what an app's port can't be
	Addr     netip.AddrPort // where it listens
}

// Listener is a descriptor that an app gets for one of its socket-activated
// ports.
type Listener struct {
	Name     string
	FD       int // of this process; -1: to be opened on the port, in the pod
	Protocol string
	Port     uint16 // of the pod
}

// activated shares the inherited descriptors out. A socket-activated port takes
// those that listen on the port of the host that is to lead to it, or where
// none is, on its own; one that has none left is opened in the pod, and is
// forwarded to as any other is.
type activated struct {
	free      []Socket
	listeners map[string][]Listener // by app
	taken     map[hostPort]bool     // need no forward: the app has them
}

// hostPort is one port of the host that leads to an exposed one.
type hostPort struct {
	name, ip string
	number   uint
}

func activate(pod *podspec.Pod, sockets []Socket) (activated, error) {
	a := activated{free: slices.Clone(sockets), listeners: map[string][]Listener{}, taken: map[hostPort]bool{}}
	for _, app := range pod.Apps {
		if app.App == nil {
			continue
		}
		for _, p := range app.App.Ports {
			if !p.SocketActivated {
				continue
			}
			if err := a.share(pod, app.Name, p); err != nil {
				return a, fmt.Errorf("app %s: port %s: %w", app.Name, p.Name, err)
			}
		}
	}
	for _, e := range pod.Ports {
		if p := e.PodPort; p != nil && p.SocketActivated {
			return a, errs.Newf(errs.Unsupported, "port %s: socketActivated: only of a port that an app declares", e.Name)
		}
	}
	return a, nil
}

func (a *activated) share(pod *podspec.Pod, app string, p appc.Port) error {
	if !forwardable(p.Protocol) {
		return errs.Newf(errs.Unsupported, "protocol %q: only tcp, udp and sctp can be socket-activated", p.Protocol)
	}
	exposed := slices.DeleteFunc(slices.Clone(pod.Ports), func(e podspec.ExposedPort) bool { return e.Name != p.Name })
	for n := range max(p.Count, 1) {
		port := p.Port + n
		if port == 0 || port > 65535 {
			return errs.Newf(errs.Usage, "%d: not a port", port)
		}
		inherited := len(exposed) > 0 || a.take(app, p, uint16(port), "", port)
		for _, e := range exposed {
			at := hostPort{e.Name, e.HostIP, e.HostPort + n}
			a.taken[at] = a.take(app, p, uint16(port), at.ip, at.number)
			inherited = inherited && a.taken[at]
		}
		if !inherited { // something is to be forwarded there, or nothing leads there
			a.listeners[app] = append(a.listeners[app], Listener{Name: p.Name, FD: -1, Protocol: p.Protocol, Port: uint16(port)})
		}
	}
	return nil
}

// take gives the app all sockets that listen there: there can be one for each
// family of addresses.
func (a *activated) take(app string, p appc.Port, port uint16, hostIP string, number uint) bool {
	found := false
	a.free = slices.DeleteFunc(a.free, func(s Socket) bool {
		at, err := netip.ParseAddr(hostIP)
		if s.Protocol != p.Protocol || uint(s.Addr.Port()) != number || err == nil && !at.IsUnspecified() && at != s.Addr.Addr().Unmap() {
			return false
		}
		found = true
		a.listeners[app] = append(a.listeners[app], Listener{Name: cmp.Or(s.Name, p.Name), FD: s.FD, Protocol: p.Protocol, Port: port})
		return true
	})
	return found
}

// forwardable says whether it is a protocol with ports.
func forwardable(protocol string) bool {
	return protocol == "tcp" || protocol == "udp" || protocol == "sctp"
}
