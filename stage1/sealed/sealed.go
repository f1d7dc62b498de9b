// Package sealed starts rkt's own programs inside a pod from copies that
// nobody can write to again, not even one who finds them as /proc/<pid>/exe
// (CVE-2019-5736).
package sealed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
)

// Copy returns a descriptor of a sealed copy of the program, which the caller
// closes.
func Copy(name, path string) (int, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return -1, errs.WithHint(errs.WithClass(errs.NotFound, err), "it belongs beside stage1, in %s", filepath.Dir(path))
	}
	if err != nil {
		return -1, err
	}
	if err := fault.Step("sandbox.seal"); err != nil {
		return -1, err
	}
	// A process that is forked while the copy is open for writing would hold
	// it, and the kernel executes nothing that someone may write to.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	rw, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, fmt.Errorf("memfd: %w", err)
	}
	defer unix.Close(rw)
	for rest := data; len(rest) > 0; {
		n, err := unix.Write(rw, rest)
		if err != nil {
			return -1, fmt.Errorf("memfd: %w", err)
		}
		rest = rest[n:]
	}
	if err := unix.Fchmod(rw, 0o555); err != nil {
		return -1, fmt.Errorf("memfd: %w", err)
	}
	seals := unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(uintptr(rw), unix.F_ADD_SEALS, seals); err != nil {
		return -1, fmt.Errorf("seal memfd: %w", err)
	}
	ro, err := unix.Open(Path(rw), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("memfd: %w", err)
	}
	return ro, nil
}

// Path is how a child finds the program.
func Path(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// Clear duplicates the program's descriptor to a number by which a child finds
// it beside these files. Go's fork moves the child's files, and the pipe that
// reports an error, to the numbers right above the greatest of the files,
// whatever is open there: the path would lead to the pipe then, and the start
// fail with EACCES, if another goroutine has closed a file at the right moment.
func Clear(fd int, files ...*os.File) (int, error) {
	most := 0
	for _, f := range files {
		if f == nil {
			continue
		}
		conn, err := f.SyscallConn() // not f.Fd, which would change the file's mode
		if err == nil {
			err = conn.Control(func(fd uintptr) { most = max(most, int(fd)) })
		}
		if err != nil {
			return -1, err
		}
	}
	// Standard streams that are opened for the child, and the pipe.
	most = max(most, len(files)) + len(files) + 8
	high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, most)
	if errors.Is(err, unix.EINVAL) {
		err = unix.EMFILE // what the kernel means is that the least number is above the limit
	}
	if err != nil {
		return -1, fmt.Errorf("memfd: %w", err)
	}
	return high, nil
}

// ControlPair makes the socket over which a program and the supervisor speak;
// the first end, which is the supervisor's, can be read with a deadline.
func ControlPair() (local, remote *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		_, _ = unix.Close(fds[0]), unix.Close(fds[1])
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "supervisor's end"), os.NewFile(uintptr(fds[1]), "program's end"), nil
}
