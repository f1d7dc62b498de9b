package network

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// lingering is a port of the loopback that a connection lingers on, whose
// server has ended.
func lingering(t *testing.T, ip string) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		c, err := l.Accept()
		if err == nil {
			err = c.Close() // first, so that this end lingers
		}
		done <- err
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Fatal("read from an ended connection")
	}
	for _, x := range []interface{ Close() error }{c, l} {
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return netip.MustParseAddrPort(l.Addr().String())
}

// TestBind: a port is held by one alone, also if connections linger on it, and
// refuses connections.
func TestBind(t *testing.T) {
	for _, ip := range []string{"127.0.0.1", "::1"} {
		at := lingering(t, ip)
		var held atomic.Int32
		var fd int
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				got, err := bind("tcp", at)
				switch {
				case err == nil:
					held.Add(1)
					fd = got
				case !errors.Is(err, unix.EADDRINUSE):
					t.Errorf("%s: %v", at, err)
				}
			})
		}
		wg.Wait()
		if held.Load() != 1 {
			t.Fatalf("%s: held by %d", at, held.Load())
		}
		if l, err := net.Listen("tcp", at.String()); err == nil {
			t.Errorf("%s: another listens: %v", at, l.Close())
		}
		if _, err := net.Dial("tcp", at.String()); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s: dial: %v", at, err)
		}
		if err := unix.Close(fd); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBindName: a port of a protocol that the kernel has no sockets for is one
// pod's, until that ends.
func TestBindName(t *testing.T) {
	at := netip.MustParseAddrPort("0.0.0.0:1")
	fd, err := bindName("test", at)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bindName("test", at); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("held twice: %v", err)
	}
	other, err := bindName("test", netip.MustParseAddrPort("[::]:1"))
	if err != nil {
		t.Errorf("the other family: %v", err)
	}
	for _, fd := range []int{fd, other} {
		if err := unix.Close(fd); err != nil {
			t.Fatal(err)
		}
	}
	if fd, err = bindName("test", at); err != nil {
		t.Fatalf("given up: %v", err)
	}
	_ = unix.Close(fd)
}
