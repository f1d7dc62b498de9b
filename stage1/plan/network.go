package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

// Network is what the pod has of networks.
type Network struct {
	Host        bool // the host's network namespace; else an own one with loopback up
	Attachments []poddir.Attachment
	Ports       []poddir.Forward // without the pod's addresses, which come with the attachments
	PluginDirs  []string
	PodName     string // by which other pods find it
	Bandwidth   *Bandwidth
	// Listeners are what socket-activated apps get, by their names; Unclaimed
	// are the inherited descriptors that none of them asks for.
	Listeners map[string][]Listener
	Unclaimed []Socket
}

// network plans the interfaces, which are eth0 and so on in the order of the
// networks, and the ports.
func network(in Input, hostname string) (Network, error) {
	o := in.Options
	n := Network{PluginDirs: o.PluginDirs, PodName: hostname}
	if name, ok := in.Pod.Annotations.Get(podspec.AnnPodName); ok {
		n.PodName = name
	}
	for _, word := range []string{"host", "none"} {
		if slices.Contains(o.Net, word) && len(o.Net) > 1 {
			return n, errs.Newf(errs.Usage, "network %s: can't be joined with another", word)
		}
	}
	n.Host = slices.Equal(o.Net, []string{"host"})
	for _, name := range o.Net {
		if name == "host" || name == "none" {
			continue
		}
		i := slices.IndexFunc(o.Networks, func(c poddir.Network) bool { return c.Name == name })
		if i < 0 {
			return n, errs.Newf(errs.NotFound, "network %q: not in the pod's record", name)
		}
		n.Attachments = append(n.Attachments, poddir.Attachment{Network: o.Networks[i], IfName: "eth" + strconv.Itoa(len(n.Attachments))})
	}
	a, err := activate(in.Pod, in.Sockets)
	if err != nil {
		return n, err
	}
	n.Listeners, n.Unclaimed = a.listeners, a.free
	if n.Ports, err = forwards(in.Pod, a.taken); err != nil {
		return n, err
	}
	if len(n.Ports) > 0 && len(n.Attachments) == 0 {
		err := errs.Newf(errs.Usage, "port %s: the pod has no network that it could lead to", n.Ports[0].Name)
		return n, errs.WithHint(err, "leave --net out for the default network; with --net=host the app's own port is the host's")
	}
	return n, nil
}

// forwards finds the app's port of each exposed one, but for those whose
// sockets an app has.
func forwards(pod *podspec.Pod, activated map[hostPort]bool) ([]poddir.Forward, error) {
	var list []poddir.Forward
	for _, e := range pod.Ports {
		app, port, err := portOf(pod, e)
		if err != nil {
			return nil, fmt.Errorf("port %s: %w", e.Name, err)
		}
		if !forwardable(port.Protocol) {
			return nil, errs.Newf(errs.Unsupported, "port %s: protocol %q: only tcp, udp and sctp can be forwarded", e.Name, port.Protocol)
		}
		for i := range max(port.Count, 1) {
			if activated[hostPort{e.Name, e.HostIP, e.HostPort + i}] {
				continue
			}
			if e.HostPort+i > 65535 || port.Port+i > 65535 {
				return nil, errs.Newf(errs.Usage, "port %s: %d ports from %d on: there are only 65535", e.Name, port.Count, max(e.HostPort, port.Port))
			}
			f := poddir.Forward{
				App: app, Name: e.Name, Protocol: port.Protocol, HostIP: e.HostIP,
				HostPort: uint16(e.HostPort + i), PodPort: uint16(port.Port + i),
			}
			if other := overlapping(list, f); other != nil {
				return nil, errs.Newf(errs.Usage, "port %s: %s port %d of the host is taken by port %s", e.Name, f.Protocol, f.HostPort, other.Name)
			}
			list = append(list, f)
		}
	}
	return list, nil
}

func portOf(pod *podspec.Pod, e podspec.ExposedPort) (app string, port appc.Port, err error) {
	if e.PodPort != nil {
		return "", *e.PodPort, nil
	}
	var known []string
	for _, a := range pod.Apps {
		if a.App == nil {
			continue
		}
		for _, p := range a.App.Ports {
			if p.Name == e.Name {
				return a.Name, p, nil
			}
			known = append(known, p.Name)
		}
	}
	if port, ok := spelled(e.Name); ok {
		return "", port, nil
	}
	err = errs.Newf(errs.NotFound, "no app of the pod has it")
	if len(known) > 0 {
		err = errs.WithHint(err, "there are: %s", strings.Join(known, ", "))
	} else {
		err = errs.WithHint(err, "the images declare none; NUMBER-PROTOCOL or FIRST-LAST-PROTOCOL, of tcp, udp or sctp, needs no declaration")
	}
	return "", port, err
}

// spelled reads a port that no image declares: 80-tcp or 8000-8010-udp.
func spelled(name string) (appc.Port, bool) {
	words := strings.Split(name, "-")
	p := appc.Port{Name: name, Protocol: words[len(words)-1], Count: 1}
	if len(words) < 2 || len(words) > 3 {
		return p, false
	}
	first, err := strconv.ParseUint(words[0], 10, 16)
	if err != nil || first == 0 {
		return p, false
	}
	p.Port = uint(first)
	if len(words) == 3 {
		last, err := strconv.ParseUint(words[1], 10, 16)
		if err != nil || last < first {
			return p, false
		}
		p.Count = uint(last-first) + 1
	}
	return p, forwardable(p.Protocol)
}

// overlapping finds a port that f would hide.
func overlapping(list []poddir.Forward, f poddir.Forward) *poddir.Forward {
	for i, o := range list {
		if o.Protocol == f.Protocol && o.HostPort == f.HostPort && sameHost(o.HostIP, f.HostIP) {
			return &list[i]
		}
	}
	return nil
}

// sameHost says whether one of the addresses is, or stands for, the other.
func sameHost(a, b string) bool {
	x, xerr := netip.ParseAddr(a)
	y, yerr := netip.ParseAddr(b)
	if xerr != nil || yerr != nil { // "" is all addresses; others are refused later
		return true
	}
	return x == y || x.Is4() == y.Is4() && (x.IsUnspecified() || y.IsUnspecified())
}

// HostsFile is the content of /etc/hosts once the pod's addresses and its
// neighbours are known; nil if the pod has the host's file.
func HostsFile(o poddir.RunOptions, hostname string, own []netip.Addr, others []poddir.HostEntry) *File {
	if o.HostsFromHost {
		return nil
	}
	var b strings.Builder
	b.WriteString("127.0.0.1 localhost localhost.localdomain\n")
	b.WriteString("::1 localhost ip6-localhost ip6-loopback\n")
	if len(own) == 0 {
		b.WriteString("127.0.1.1 " + hostname + "\n")
	}
	for _, a := range own {
		b.WriteString(a.String() + " " + hostname + "\n")
	}
	// What the user asked for comes first: the first entry of a name counts.
	for _, e := range slices.Concat(o.Hosts, others) {
		b.WriteString(e.IP + " " + strings.Join(e.Names, " ") + "\n")
	}
	return &File{Target: "/etc/hosts", Content: b.String(), IfMissing: len(o.Hosts) == 0}
}
