package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/network"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

// ports holds a socket for each port of the host that leads to the pod, as long
// as the supervisor lives. So the kernel keeps others off, programs of the host
// and pods of every store alike, and lets go when the supervisor is killed.
// Packets never reach these sockets: the rules lead them away before. Only what
// is sent to [::1], which no rule can lead to another host, is carried to the
// pod by this process.
type ports struct {
	fds    []int
	fds6   map[carried]int // those on [::] and [::1], until they are served
	served []io.Closer
	wg     sync.WaitGroup
}

// carried is a port of [::1].
type carried struct {
	protocol string
	port     uint16
}

// hold takes all ports, or none. The error names who has one.
func (p *ports) hold(ctx context.Context, list []poddir.Forward) error {
	for _, f := range list {
		if err := fault.Step("network.hold"); err != nil {
			return err
		}
		if err := p.holdOne(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

func (p *ports) holdOne(ctx context.Context, f poddir.Forward) error {
	hosts := []netip.Addr{netip.IPv4Unspecified()}
	if f.HostIP != "" {
		host, err := netip.ParseAddr(f.HostIP)
		if err != nil {
			return errs.Newf(errs.Usage, "port %s: host address %q: not an IP address", f.Name, f.HostIP)
		}
		hosts = []netip.Addr{host}
	} else if hasIPv6() {
		hosts = append(hosts, netip.IPv6Unspecified())
	}
	for _, host := range hosts {
		fd, err := bind(f.Protocol, netip.AddrPortFrom(host, f.HostPort))
		if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.ESOCKTNOSUPPORT) {
			// The host's programs can't have it then; the rules can.
			fd, err = bindName(f.Protocol, netip.AddrPortFrom(host, f.HostPort))
		}
		switch {
		case errors.Is(err, unix.EADDRINUSE):
			return taken(ctx, f)
		case errors.Is(err, unix.EADDRNOTAVAIL):
			return errs.Newf(errs.Usage, "port %s: %s is no address of this host", f.Name, host)
		case err != nil:
			return fmt.Errorf("port %s: %s: %w", f.Name, what(f), err)
		}
		if host == netip.IPv6Unspecified() || host == netip.IPv6Loopback() {
			if p.fds6 == nil {
				p.fds6 = map[carried]int{}
			}
			p.fds6[carried{f.Protocol, f.HostPort}] = fd
			continue
		}
		p.fds = append(p.fds, fd)
	}
	return nil
}

func bind(protocol string, at netip.AddrPort) (int, error) {
	domain := unix.AF_INET
	if at.Addr().Is6() {
		domain = unix.AF_INET6
	}
	fd, _, err := open(domain, protocol, unix.SOCK_NONBLOCK)
	if err != nil {
		return -1, err
	}
	var sa unix.Sockaddr = &unix.SockaddrInet4{Port: int(at.Port()), Addr: v4(at.Addr())}
	if domain == unix.AF_INET6 {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
		sa = &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	}
	if err == nil && protocol == "tcp" {
		err = reserve(fd, sa)
	} else if err == nil {
		err = unix.Bind(fd, sa)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// bindName keeps other pods off a port of a protocol that the kernel has no
// sockets for: an abstract name is as much a part of the network namespace, and
// goes as surely. It is the port's at all addresses of the family.
func bindName(protocol string, at netip.AddrPort) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	name := fmt.Sprintf("@rkt/port/%s%d/%d", protocol, at.Addr().BitLen(), at.Port())
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// reserve binds a socket of tcp. Connections of an earlier server of the port
// that linger (TIME_WAIT) are in nobody's way with SO_REUSEADDR, but then
// others that have it too get the port as well, as long as nobody listens. So
// this one listens for a moment, which is where the kernel compares again, and
// from then on shares with nobody. Its port stays when it listens no more.
func reserve(fd int, sa unix.Sockaddr) error {
	err := reuse(fd, 1)
	if err == nil {
		err = unix.Bind(fd, sa)
	}
	if err == nil {
		err = unix.Listen(fd, 0)
	}
	if err == nil {
		err = reuse(fd, 0)
	}
	if err == nil {
		err = unix.Shutdown(fd, unix.SHUT_RD)
	}
	return err
}

func reuse(fd, on int) error {
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, on)
}

func (p *ports) close() {
	for _, s := range p.served {
		_ = s.Close()
	}
	p.wg.Wait()
	for _, fd := range slices.AppendSeq(p.fds, maps.Values(p.fds6)) {
		_ = unix.Close(fd)
	}
	p.fds, p.fds6, p.served = nil, nil, nil
}

// taken says who has the port.
func taken(ctx context.Context, f poddir.Forward) error {
	err := errs.Newf(errs.Busy, "port %s: %s of the host is in use", f.Name, what(f))
	if holder := holder(ctx, f); holder != "" {
		err = errs.Newf(errs.Busy, "port %s: %s of the host is held by %s", f.Name, what(f), holder)
	}
	return errs.WithHint(err, "choose another with --port, or end what holds it")
}

// They find a pod in the path of a cgroup and in a container id.
var (
	ofPod       = regexp.MustCompile(`/rkt-[0-9a-f]{16}/([0-9a-f-]{36})`)
	ofContainer = regexp.MustCompile(`^rkt-[0-9a-f]{16}-([0-9a-f-]{36})$`)
)

// holder names the pod or the process that has the socket.
func holder(ctx context.Context, f poddir.Forward) string {
	inodes := map[string]bool{}
	for _, table := range []string{f.Protocol, f.Protocol + "6"} {
		data, err := os.ReadFile("/proc/net/" + table)
		if err != nil {
			continue
		}
		suffix := fmt.Sprintf(":%04X", f.HostPort)
		for line := range strings.Lines(string(data)) {
			w := strings.Fields(line)
			if len(w) > 9 && strings.HasSuffix(w[1], suffix) {
				inodes["socket:["+w[9]+"]"] = true
			}
		}
	}
	if pid := owner(inodes); pid != 0 {
		group, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if m := ofPod.FindStringSubmatch(string(group)); m != nil {
			return "pod " + m[1]
		}
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		return fmt.Sprintf("process %d (%s)", pid, strings.TrimSpace(string(name)))
	}
	// The kernel's tables lack sockets that only have a port.
	t, err := network.ReadTable(ctx)
	if err != nil {
		return ""
	}
	f.To4, f.To6 = "0.0.0.0", "::"
	for _, wanted := range network.Elements(poddir.NetRecord{Ports: []poddir.Forward{f}}) {
		for _, e := range t.Elements {
			if m := ofContainer.FindStringSubmatch(e.Owner); m != nil && e.Set == wanted.Set && e.Key == wanted.Key {
				return "pod " + m[1]
			}
		}
	}
	return ""
}

// owner is the process that has one of the sockets, 0 if none is found.
func owner(inodes map[string]bool) int {
	if len(inodes) == 0 {
		return 0
	}
	dirs, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range dirs {
		if target, err := os.Readlink(fd); err == nil && inodes[target] {
			pid, _ := strconv.Atoi(strings.Split(fd, "/")[2])
			return pid
		}
	}
	return 0
}

func v4(a netip.Addr) [4]byte {
	if !a.Is4() {
		return [4]byte{}
	}
	return a.As4()
}
