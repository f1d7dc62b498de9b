package cell

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/proc"
)

// Own lets the app's user open its streams again by name, as in
// `echo >/dev/stderr`. Only pipes and sockets without a name: a file, a fifo or
// a terminal of the caller's keeps its owner.
func Own(f *os.File, uid int) error {
	if f == nil {
		return nil
	}
	anonymous, err := anonymous(f)
	if err != nil || !anonymous {
		return err
	}
	err = f.Chown(uid, -1)
	if errors.Is(err, unix.EPERM) && !proc.HostUsers() {
		return nil // another user's, who has handed it to this one: it is used as it is
	}
	if err != nil {
		return fmt.Errorf("standard streams: %w", err)
	}
	return nil
}

// anonymous does not use f.Fd, which would change the file's mode.
func anonymous(f *os.File) (bool, error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return false, fmt.Errorf("standard streams: %w", err)
	}
	var fs unix.Statfs_t
	var serr error
	if err := conn.Control(func(fd uintptr) { serr = unix.Fstatfs(int(fd), &fs) }); err != nil {
		return false, fmt.Errorf("standard streams: %w", err)
	}
	return fs.Type == unix.PIPEFS_MAGIC || fs.Type == unix.SOCKFS_MAGIC, serr
}
