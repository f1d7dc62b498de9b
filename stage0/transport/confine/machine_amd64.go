package confine

import "golang.org/x/sys/unix"

// auditArch is the architecture that the filter is for. Calls of the x32 way
// have another number and are not listed.
const auditArch = unix.AUDIT_ARCH_X86_64

// ofThisMachine are calls of Go's runtime that other machines lack.
func ofThisMachine() []call {
	return append(plain(unix.SYS_EPOLL_WAIT), call{unix.SYS_ARCH_PRCTL, []check{{arg: 0, oneOf: []uint32{archSetFS}}}})
}

// archSetFS sets the register that thread-local storage hangs on.
const archSetFS = 0x1002

func statOfThisMachine() []call { return plain(unix.SYS_NEWFSTATAT) }
