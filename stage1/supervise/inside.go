package supervise

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// localhost is how the pod reaches itself, by either protocol: a program may
// listen on one only.
func localhost(port int) []unix.Sockaddr {
	six := &unix.SockaddrInet6{Port: port}
	six.Addr[15] = 1
	return []unix.Sockaddr{&unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}, six}
}

// connectable says whether something takes connections on the port.
func connectable(ctx context.Context, netns, port int) error {
	f, err := connect(ctx, netns, port)
	if err != nil {
		return err
	}
	return f.Close()
}

// connect connects to a port of the pod's localhost. netns is the descriptor
// of the pod's network namespace, -1 for the host's.
func connect(ctx context.Context, netns, port int) (*os.File, error) {
	var all error
	for _, to := range localhost(port) {
		f, err := connectTo(ctx, netns, to)
		if err == nil {
			return f, nil
		}
		all = errors.Join(all, err)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	// The second says nothing new: the first is what everybody means.
	var joined interface{ Unwrap() []error }
	if errors.As(all, &joined) {
		all = joined.Unwrap()[0]
	}
	return nil, refused("port "+strconv.Itoa(port), all)
}

func connectTo(ctx context.Context, netns int, to unix.Sockaddr) (*os.File, error) {
	family := unix.AF_INET
	if _, six := to.(*unix.SockaddrInet6); six {
		family = unix.AF_INET6
	}
	fd, err := socketIn(netns, family)
	if err != nil {
		return nil, err
	}
	err = unix.Connect(fd, to)
	f := os.NewFile(uintptr(fd), "probe")
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		_ = f.Close() // nothing was written
		return nil, err
	}
	if err := established(ctx, f); err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return f, nil
}

// established waits for the kernel's word on the connection.
func established(ctx context.Context, f *os.File) error {
	stop := until(ctx, f)
	defer stop()
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	err = c.Write(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		if n, err := unix.Poll(fds, 0); n == 0 || errors.Is(err, unix.EINTR) {
			return false // to be called again when there is news
		}
		n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		switch {
		case err != nil:
			result = err
		case n != 0:
			result = unix.Errno(n)
		}
		return true
	})
	return errors.Join(err, result)
}

// until ends reads and writes when ctx does.
func until(ctx context.Context, f *os.File) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = f.SetDeadline(time.Unix(1, 0)) })
}

// socketIn makes a socket in the network namespace. A socket stays where it was
// made, so only this call needs a thread in there. If the thread can't go back
// it is not used again: a goroutine that ends locked takes its thread with it.
func socketIn(netns, family int) (fd int, err error) {
	const kind = unix.SOCK_STREAM | unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC
	if netns < 0 {
		return unix.Socket(family, kind, 0)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		own, oerr := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if oerr != nil {
			fd, err = -1, oerr
			return
		}
		defer unix.Close(own)
		if err = unix.Setns(netns, unix.CLONE_NEWNET); err != nil {
			fd = -1
			return
		}
		fd, err = unix.Socket(family, kind, 0)
		if unix.Setns(own, unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
	}()
	<-done
	if err != nil {
		return -1, fmt.Errorf("socket in the pod's network: %w", err)
	}
	return fd, nil
}

// getPage asks for a page and returns nil if there is one: codes 200 to 399. It
// speaks as much HTTP as that needs: the packages that speak all of it would be
// a third of this program.
func getPage(ctx context.Context, netns, port int, path string) error {
	f, err := connect(ctx, netns, port)
	if err != nil {
		return err
	}
	defer f.Close()
	stop := until(ctx, f)
	defer stop()
	ask := "GET " + path + " HTTP/1.1\r\nHost: localhost:" + strconv.Itoa(port) +
		"\r\nUser-Agent: rkt\r\nAccept: */*\r\nConnection: close\r\n\r\n"
	if _, err := io.WriteString(f, ask); err != nil {
		return refused("GET "+path, err)
	}
	line, err := bufio.NewReader(io.LimitReader(f, 1<<10)).ReadString('\n')
	if err != nil {
		return refused("GET "+path, err)
	}
	version, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	word, _, _ := strings.Cut(rest, " ")
	code, err := strconv.Atoi(word)
	if err != nil || !strings.HasPrefix(version, "HTTP/1.") {
		return errs.Newf(errs.Unavailable, "GET %s: %q: not an answer of HTTP", path, line)
	}
	if code < 200 || code > 399 {
		return errs.Newf(errs.Unavailable, "GET %s: answer %d", path, code)
	}
	return nil
}
