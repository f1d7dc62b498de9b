package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/fault"
)

// NotifySocket makes the datagram socket that the app's NOTIFY_SOCKET leads
// to, anew for each execution. What comes over it tells who has sent it.
func (p *Pod) NotifySocket(app string) (*net.UnixConn, error) {
	if err := fault.Step("sandbox.notify"); err != nil {
		return nil, err
	}
	dir, err := os.Open(filepath.Join(p.base, notifyDir))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	// By descriptor: a path to it would not fit into a socket's address.
	path := filepath.Join(fdPath(int(dir.Fd())), app)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("notify socket: %w", err)
	}
	raw, err := c.SyscallConn()
	if err == nil {
		cerr := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
		})
		err = errors.Join(cerr, err, os.Chmod(path, 0o666)) // whichever user the app is
	}
	if err != nil {
		_ = c.Close() // the error says more
		return nil, fmt.Errorf("notify socket: %w", err)
	}
	return c, nil
}
