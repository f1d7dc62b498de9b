package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/network"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

// ports holds a socket for each port of the host that leads to the pod, as long
// as the supervisor lives. So the kernel keeps others off, programs of the host
// and pods of every store alike, and lets go when the supervisor is killed.
// Packets never reach these sockets: the rules lead them away before. Only a
// connection to [::1], which no rule can lead to another host, is carried to
// the pod by this process.
type ports struct {
	fds       []int
	listeners []net.Listener
	wg        sync.WaitGroup
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
		switch {
		case errors.Is(err, unix.EADDRINUSE):
			return taken(ctx, f)
		case errors.Is(err, unix.EADDRNOTAVAIL):
			return errs.Newf(errs.Usage, "port %s: %s is no address of this host", f.Name, host)
		case errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.ESOCKTNOSUPPORT):
			continue // the host's programs can't have it then; the rules can
		case err != nil:
			return fmt.Errorf("port %s: %s: %w", f.Name, what(f), err)
		}
		p.fds = append(p.fds, fd)
	}
	return nil
}

func bind(protocol string, at netip.AddrPort) (int, error) {
	domain, kind, proto := unix.AF_INET, unix.SOCK_STREAM, 0
	if at.Addr().Is6() {
		domain = unix.AF_INET6
	}
	switch protocol {
	case "udp":
		kind = unix.SOCK_DGRAM
	case "sctp":
		proto = unix.IPPROTO_SCTP
	}
	fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto)
	if err != nil {
		return -1, err
	}
	var sa unix.Sockaddr = &unix.SockaddrInet4{Port: int(at.Port()), Addr: v4(at.Addr())}
	if domain == unix.AF_INET6 {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
		sa = &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	}
	if err == nil {
		err = unix.Bind(fd, sa)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// serve carries what comes to [::1].
func (p *ports) serve(list []poddir.Forward) {
	for _, f := range list {
		if f.Protocol != "tcp" || f.HostIP != "" || f.To6 == "" {
			continue
		}
		l := p.listener(f.HostPort)
		if l == nil {
			continue
		}
		p.listeners = append(p.listeners, l)
		to := net.JoinHostPort(f.To6, strconv.Itoa(int(f.PodPort)))
		p.wg.Go(func() { p.accept(l, to) })
	}
}

// listener turns the held socket of the port into one that listens; nil if
// there is none.
func (p *ports) listener(port uint16) net.Listener {
	for i, fd := range p.fds {
		sa, err := unix.Getsockname(fd)
		in6, ok := sa.(*unix.SockaddrInet6)
		kind, kerr := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
		if err != nil || !ok || in6.Port != int(port) || kerr != nil || kind != unix.SOCK_STREAM {
			continue
		}
		if unix.Listen(fd, unix.SOMAXCONN) != nil {
			return nil
		}
		f := os.NewFile(uintptr(fd), "port")
		l, err := net.FileListener(f)
		if err != nil {
			return nil
		}
		_ = f.Close() // the listener has its own
		p.fds = append(p.fds[:i], p.fds[i+1:]...)
		return l
	}
	return nil
}

func (p *ports) accept(l net.Listener, to string) {
	for {
		c, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Too many open files, say: those that wait are served when some
			// have ended.
			<-time.After(time.Second / 10)
			continue
		}
		if a, ok := c.RemoteAddr().(*net.TCPAddr); !ok || !a.IP.IsLoopback() {
			// Nobody else comes here unless the rules are gone.
			_ = c.Close()
			continue
		}
		go carry(c.(*net.TCPConn), to)
	}
}

// carry copies both ways until both have ended.
func carry(c *net.TCPConn, to string) {
	defer func() { _ = c.Close() }() // what was to be sent is sent
	dialed, err := net.DialTimeout("tcp", to, 10*time.Second)
	if err != nil {
		return
	}
	pod := dialed.(*net.TCPConn)
	defer func() { _ = pod.Close() }()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(pod, c)
		_ = pod.CloseWrite()
	}()
	_, _ = io.Copy(c, pod)
	_ = c.CloseWrite()
	<-done
}

func (p *ports) close() {
	for _, l := range p.listeners {
		_ = l.Close()
	}
	p.wg.Wait()
	for _, fd := range p.fds {
		_ = unix.Close(fd)
	}
	p.fds, p.listeners = nil, nil
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
