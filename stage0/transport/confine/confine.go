// Package confine takes from the program that talks to strangers what it does
// not need: rkt has started it as nobody, without capabilities and unable to
// get any; here go the descriptors that were inherited, the limits, the files
// (Landlock) and the system calls (seccomp). It is done before the first byte
// of a stranger is read, for all threads, and can't be undone.
package confine

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
)

const (
	// maxFiles is the limit of open files: each request holds about five.
	maxFiles = 1024
	// memory is what the garbage collector tries to stay below.
	memory = 64 << 20
)

// Enter confines this process for the mode.
func Enter(mode fetchwire.Mode) (fetchwire.Sandbox, error) {
	var s fetchwire.Sandbox
	if mode != fetchwire.Network && mode != fetchwire.Unpack {
		return s, errs.WithHint(errs.Newf(errs.Usage, "mode %q: not known", string(mode)), "rkt starts this program when it needs it")
	}
	debug.SetMemoryLimit(memory)
	// The kernel named it after the descriptor that it was started from.
	_ = os.WriteFile("/proc/self/comm", []byte(filepath.Base(os.Args[0])), 0)
	if err := closeInherited(); err != nil {
		return s, err
	}
	if err := limit(); err != nil {
		return s, err
	}
	if err := noNewPrivileges(); err != nil {
		return s, err
	}
	s.Facts = append(s.Facts, fmt.Sprintf("user %d, no new privileges", os.Getuid()))
	var places []string
	if mode == fetchwire.Network {
		places = readable()
	}
	version, err := landlock(places)
	switch {
	case err != nil:
		return s, err
	case version == 0:
		s.Missing = append(s.Missing, "Landlock: files are protected by user and system call filter only")
	default:
		s.Facts = append(s.Facts, fmt.Sprintf("Landlock %d: %d places can be read", version, len(places)))
	}
	calls, err := filter(mode)
	if err != nil {
		return s, err
	}
	s.Facts = append(s.Facts, fmt.Sprintf("seccomp: %d system calls", calls))
	return s, nil
}

// closeInherited closes what rkt's caller left open for everybody. Descriptors
// of the Go runtime have no name in any file system and stay.
func closeInherited() error {
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return errs.Newf(errs.Internal, "inherited descriptors: %w", err)
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= fetchwire.Socket {
			continue
		}
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err == nil && !strings.HasPrefix(target, "anon_inode:[event") {
			unix.Close(fd)
		}
	}
	return nil
}

func limit() error {
	for resource, most := range map[int]uint64{unix.RLIMIT_CORE: 0, unix.RLIMIT_FSIZE: 0, unix.RLIMIT_NOFILE: maxFiles} {
		var now unix.Rlimit
		if err := unix.Getrlimit(resource, &now); err != nil {
			return errs.Newf(errs.Internal, "limit %d: %w", resource, err)
		}
		most = min(most, now.Max)
		// Not unix.Setrlimit, of which the syscall package would not know.
		if err := syscall.Setrlimit(resource, &syscall.Rlimit{Cur: most, Max: most}); err != nil {
			return errs.Newf(errs.Internal, "limit %d: %w", resource, err)
		}
	}
	// Another process of the same user can't look into this one.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return errs.Newf(errs.Internal, "not dumpable: %w", err)
	}
	return nil
}

func noNewPrivileges() error {
	if _, _, e := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); e != 0 {
		return errs.Newf(errs.Internal, "no new privileges: %w", e)
	}
	return nil
}
