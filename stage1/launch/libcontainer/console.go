package libcontainer

import (
	"fmt"
	"os"

	rlc "github.com/opencontainers/runc/libcontainer"
	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/launch/cell"
)

// console is the socket over which the child sends its pty's master; nil
// without a pty.
type console struct {
	parent, child *os.File
}

// attach gives the library's process its standard streams.
func attach(p *rlc.Process, s launch.Stdio, uid int) (*console, error) {
	if s.TTY {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("console: %w", err)
		}
		c := &console{parent: os.NewFile(uintptr(fds[0]), "console"), child: os.NewFile(uintptr(fds[1]), "console")}
		p.ConsoleSocket, p.ConsoleWidth, p.ConsoleHeight = c.child, s.Width, s.Height
		return c, nil
	}
	// A nil *os.File in an interface is not nil, and would not become /dev/null.
	if s.Stdin != nil {
		p.Stdin = s.Stdin
	}
	if s.Stdout != nil {
		p.Stdout = s.Stdout
	}
	if s.Stderr != nil {
		p.Stderr = s.Stderr
	}
	for _, f := range []*os.File{s.Stdin, s.Stdout, s.Stderr} {
		if err := cell.Own(f, uid); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// receive returns the master. The child sent it before it said that it was
// ready, so it is there or never comes.
func (c *console) receive() (*os.File, error) {
	if c == nil {
		return nil, nil
	}
	data, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(int(c.parent.Fd()), data, oob, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
	if err != nil {
		return nil, fmt.Errorf("console: receive: %w", err)
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(msgs) != 1 {
		return nil, errs.Newf(errs.Internal, "console: receive: %d messages: %v", len(msgs), err)
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil || len(fds) != 1 {
		return nil, errs.Newf(errs.Internal, "console: receive: %d descriptors: %v", len(fds), err)
	}
	// Non-blocking, so that Close ends a Read of it.
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		return nil, fmt.Errorf("console: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "/dev/ptmx"), nil
}

func (c *console) close() {
	if c != nil {
		c.parent.Close()
		c.child.Close()
	}
}
