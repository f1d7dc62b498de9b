package network

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/poddir"
)

const (
	dialTimeout = 10 * time.Second
	// udpIdle is how long nothing may come back from the pod before who asked
	// is forgotten.
	udpIdle = time.Minute
	// udpMost bounds the sockets that programs of the host can make this
	// process open.
	udpMost = 256
)

// serve carries what comes to [::1], over tcp and udp.
func (p *ports) serve(list []poddir.Forward) {
	for _, f := range list {
		if f.To6 == "" || f.HostIP != "" && f.HostIP != "::" && f.HostIP != "::1" {
			continue
		}
		to := net.JoinHostPort(f.To6, strconv.Itoa(int(f.PodPort)))
		switch f.Protocol {
		case "tcp":
			p.serveTCP(f.HostPort, to)
		case "udp":
			p.serveUDP(f.HostPort, to)
		}
	}
}

func (p *ports) serveTCP(port uint16, to string) {
	f := p.take("tcp", port)
	if f == nil {
		return
	}
	defer func() { _ = f.Close() }() // the listener has its own
	// Its connections inherit that they are in nobody's way when they linger.
	if reuse(int(f.Fd()), 1) != nil || unix.Listen(int(f.Fd()), unix.SOMAXCONN) != nil {
		return
	}
	if l, err := net.FileListener(f); err == nil {
		p.served = append(p.served, l)
		p.wg.Go(func() { accept(l, to) })
	}
}

func (p *ports) serveUDP(port uint16, to string) {
	f := p.take("udp", port)
	if f == nil {
		return
	}
	defer func() { _ = f.Close() }()
	if c, err := net.FilePacketConn(f); err == nil {
		p.served = append(p.served, c)
		p.wg.Go(func() { relay(c.(*net.UDPConn), to) })
	}
}

// take returns the held IPv6 socket of the port, which is the caller's then;
// nil if there is none.
func (p *ports) take(protocol string, port uint16) *os.File {
	fd, ok := p.fds6[carried{protocol, port}]
	if !ok {
		return nil
	}
	delete(p.fds6, carried{protocol, port})
	return os.NewFile(uintptr(fd), "port")
}

func accept(l net.Listener, to string) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
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
	dialed, err := net.DialTimeout("tcp", to, dialTimeout)
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

// relay passes datagrams on, each sender's by a socket of its own, and the
// answers back.
func relay(c *net.UDPConn, to string) {
	var mu sync.Mutex
	senders := map[netip.AddrPort]net.Conn{}
	buf := make([]byte, 64<<10)
	for {
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			break
		}
		if err != nil || !from.Addr().IsLoopback() {
			continue // an answer could not be delivered, or the rules are gone
		}
		mu.Lock()
		pod := senders[from]
		if pod == nil && len(senders) < udpMost {
			if pod, err = net.DialTimeout("udp", to, dialTimeout); err == nil {
				senders[from] = pod
				go func() {
					answer(c, pod, from)
					mu.Lock()
					delete(senders, from)
					mu.Unlock()
				}()
			}
		}
		mu.Unlock()
		if pod != nil && err == nil {
			_, _ = pod.Write(buf[:n]) // datagrams may be lost
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, pod := range senders {
		_ = pod.Close() // ends its answer
	}
}

// answer passes what the pod sends back to who asked, until nothing has come
// for a while.
func answer(c *net.UDPConn, pod net.Conn, to netip.AddrPort) {
	defer func() { _ = pod.Close() }()
	buf := make([]byte, 64<<10)
	for {
		if pod.SetReadDeadline(time.Now().Add(udpIdle)) != nil {
			return
		}
		n, err := pod.Read(buf)
		if err != nil && !errors.Is(err, unix.ECONNREFUSED) {
			return
		}
		if err == nil {
			_, _ = c.WriteToUDPAddrPort(buf[:n], to)
		}
	}
}
