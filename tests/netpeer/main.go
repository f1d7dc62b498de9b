// Command netpeer is both ends of the connections that the network tests make,
// for pods and for hosts alike:
//
//	netpeer serve tcp:80 udp:53 …     answers each with who asks
//	netpeer activated                 the same, on the descriptors that it is given
//	netpeer ask tcp|udp ADDR          prints the answer, or the error
//	netpeer send BYTES ADDR           sends so much, and prints the milliseconds it took
//	netpeer sink ADDR                 takes what is sent
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// deadline is for one question.
const deadline = 3 * time.Second

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) > 1 && args[0] == "serve":
		return serve(args[1:])
	case len(args) == 1 && args[0] == "activated":
		return activated()
	case len(args) == 3 && args[0] == "ask":
		return ask(args[1], args[2])
	case len(args) == 3 && args[0] == "send":
		return send(args[1], args[2])
	case len(args) == 2 && args[0] == "sink":
		return sink(args[1])
	}
	return fmt.Errorf("arguments not understood: %q", args)
}

func serve(list []string) error {
	failed := make(chan error)
	for _, one := range list {
		network, port, _ := strings.Cut(one, ":")
		switch network {
		case "tcp":
			l, err := net.Listen("tcp", ":"+port)
			if err != nil {
				return err
			}
			go func() { failed <- serveTCP(l) }()
		case "udp":
			c, err := net.ListenPacket("udp", ":"+port)
			if err != nil {
				return err
			}
			go func() { failed <- serveUDP(c) }()
		}
	}
	fmt.Println("serving")
	return <-failed
}

// activated reads what sd_listen_fds(3) has, and says how it understood it.
func activated() error {
	if pid := os.Getenv("LISTEN_PID"); pid != strconv.Itoa(os.Getpid()) {
		return fmt.Errorf("LISTEN_PID %q in process %d", pid, os.Getpid())
	}
	n, err := strconv.Atoi(os.Getenv("LISTEN_FDS"))
	if err != nil {
		return err
	}
	names := strings.Split(os.Getenv("LISTEN_FDNAMES"), ":")
	if len(names) != n {
		return fmt.Errorf("%d names of %d descriptors: %q", len(names), n, names)
	}
	failed := make(chan error)
	for i, name := range names {
		f := os.NewFile(uintptr(3+i), name)
		if l, err := net.FileListener(f); err == nil {
			go func() { failed <- serveTCP(l) }()
		} else if c, err := net.FilePacketConn(f); err == nil {
			go func() { failed <- serveUDP(c) }()
		} else {
			return fmt.Errorf("descriptor %d (%s): %w", 3+i, name, err)
		}
		_ = f.Close() // the listener has its own
	}
	fmt.Println("serving", strings.Join(names, " "))
	return <-failed
}

func serveTCP(l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
		_, _ = fmt.Fprintf(c, "tcp from %s\n", host)
		_ = c.Close()
	}
}

func serveUDP(c net.PacketConn) error {
	buf := make([]byte, 1500)
	for {
		_, from, err := c.ReadFrom(buf)
		if err != nil {
			return err
		}
		host, _, _ := net.SplitHostPort(from.String())
		_, _ = c.WriteTo([]byte("udp from "+host+"\n"), from)
	}
}

func ask(network, addr string) error {
	c, err := net.DialTimeout(network, addr, deadline)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(deadline)); err != nil {
		return err
	}
	if network == "udp" {
		if _, err := c.Write([]byte("?")); err != nil {
			return err
		}
	}
	buf := make([]byte, 1500)
	n, err := c.Read(buf)
	if err != nil {
		return err
	}
	fmt.Print(string(buf[:n]))
	return nil
}

func send(bytes, addr string) error {
	n, err := strconv.ParseInt(bytes, 10, 64)
	if err != nil {
		return err
	}
	c, err := net.DialTimeout("tcp", addr, deadline)
	if err != nil {
		return err
	}
	defer c.Close()
	begin := time.Now()
	if _, err := io.CopyN(c, zeros{}, n); err != nil {
		return err
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, c); err != nil {
		return err
	}
	fmt.Println(time.Since(begin).Milliseconds())
	return nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func sink(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Println("serving")
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	}
}
