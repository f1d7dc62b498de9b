// Package activation knows the descriptors that a service manager hands on to
// the program that it starts, as sd_listen_fds(3) has it: both stages keep
// them, and an app gets them the same way.
package activation

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// First is the number of the first descriptor; the others follow it.
const First = 3

// most bounds what a number in the environment can make rkt do.
const most = 1 << 16

// The variables of the protocol. They are meant for one process, which its
// children are not.
const (
	PID   = "LISTEN_PID"
	FDs   = "LISTEN_FDS"
	Names = "LISTEN_FDNAMES"
)

// Variable says whether a variable is one of the protocol's.
func Variable(name string) bool { return name == PID || name == FDs || name == Names }

// Given returns the name of each descriptor that the process was given, "" of
// one that nobody named. What is meant for another process is not given.
func Given(getenv func(string) string, pid int) ([]string, error) {
	if getenv(PID) != strconv.Itoa(pid) || getenv(FDs) == "" {
		return nil, nil
	}
	n, err := strconv.Atoi(getenv(FDs))
	if err != nil || n < 0 || n > most {
		return nil, errs.Newf(errs.Usage, "%s: %q: not a number of descriptors", FDs, getenv(FDs))
	}
	names := make([]string, n)
	if text := getenv(Names); text != "" && n > 0 {
		list := strings.Split(text, ":")
		if len(list) != n {
			return nil, errs.Newf(errs.Usage, "%s: %d names for %d descriptors", Names, len(list), n)
		}
		copy(names, list)
	}
	return names, nil
}

// Claim takes n descriptors as this process's own, so that no program that it
// starts gets them. It comes before anything else may have the numbers: what
// this process opens itself is known by being closed on exec already.
func Claim(n int) error {
	for fd := First; fd < First+n; fd++ {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 {
			_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC)
		} else {
			err = unix.EBADF
		}
		if err != nil {
			return errs.Newf(errs.Usage, "%s: descriptor %d was not given", FDs, fd)
		}
	}
	return nil
}

// Pass lets the program that this process becomes have them.
func Pass(n int) error {
	for fd := First; fd < First+n; fd++ {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("descriptor %d: %w", fd, err)
		}
	}
	return nil
}

// Environment is what tells a program of its descriptors, but for its PID,
// which only the process itself knows. Names hold no colon.
func Environment(names []string) []string {
	return []string{FDs + "=" + strconv.Itoa(len(names)), Names + "=" + strings.Join(names, ":")}
}
