package network

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/activation"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// Inherited says what the descriptors are that this process was given, of
// which these are the names.
func Inherited(names []string) []plan.Socket {
	var list []plan.Socket
	for i, name := range names {
		s := plan.Socket{FD: activation.First + i, Name: name}
		s.Protocol, s.Addr = bound(s.FD)
		list = append(list, s)
	}
	return list
}

// bound is the protocol of a socket, "" of what has none that a port can have,
// and the address that it is bound to.
func bound(fd int) (protocol string, addr netip.AddrPort) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return "", addr
	}
	switch x := sa.(type) {
	case *unix.SockaddrInet4:
		addr = netip.AddrPortFrom(netip.AddrFrom4(x.Addr), uint16(x.Port))
	case *unix.SockaddrInet6:
		addr = netip.AddrPortFrom(netip.AddrFrom16(x.Addr), uint16(x.Port))
	default:
		return "", addr
	}
	number, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if err != nil {
		return "", addr
	}
	return map[int]string{
		unix.IPPROTO_TCP: "tcp", unix.IPPROTO_MPTCP: "tcp", unix.IPPROTO_UDP: "udp", unix.IPPROTO_SCTP: "sctp",
	}[number], addr
}

// Listen opens a socket on a port of a network namespace, or with -1 of this
// process's, in both families where there are both. The descriptor is the
// caller's.
func Listen(netns int, protocol string, port uint16) (int, error) {
	if err := fault.Step("network.listen"); err != nil {
		return -1, err
	}
	var fd int
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Never unlocked: the thread ends with the goroutine, and nothing else
		// runs in the pod's namespace.
		runtime.LockOSThread()
		if netns >= 0 {
			if err = unix.Setns(netns, unix.CLONE_NEWNET); err != nil {
				err = fmt.Errorf("network namespace: %w", err)
				return
			}
		}
		fd, err = listen(unix.AF_INET6, protocol, port)
		if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL) {
			fd, err = listen(unix.AF_INET, protocol, port) // there is no IPv6
		}
	}()
	<-done
	if err != nil {
		return -1, fmt.Errorf("listen on %s %d: %w", protocol, port, err)
	}
	return fd, nil
}

func listen(domain int, protocol string, port uint16) (fd int, err error) {
	// Blocking, as a service manager's are.
	fd, kind, err := open(domain, protocol, 0)
	if err != nil {
		return -1, err
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	var sa unix.Sockaddr = &unix.SockaddrInet4{Port: int(port)}
	if domain == unix.AF_INET6 {
		sa = &unix.SockaddrInet6{Port: int(port)}
		if err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0); err != nil {
			return -1, err
		}
	}
	if kind == unix.SOCK_STREAM {
		err = reuse(fd, 1)
	}
	if err == nil {
		err = unix.Bind(fd, sa)
	}
	if err == nil && kind == unix.SOCK_STREAM {
		err = unix.Listen(fd, unix.SOMAXCONN)
	}
	return fd, err
}

// open makes a socket that can have a port of the protocol.
func open(domain int, protocol string, flags int) (fd, kind int, err error) {
	kind, number := unix.SOCK_STREAM, 0
	switch protocol {
	case "udp":
		kind = unix.SOCK_DGRAM
	case "sctp":
		number = unix.IPPROTO_SCTP
	}
	fd, err = unix.Socket(domain, kind|unix.SOCK_CLOEXEC|flags, number)
	return fd, kind, err
}
