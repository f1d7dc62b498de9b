package confine

import "golang.org/x/sys/unix"

// auditArch is the architecture that the filter is for.
const auditArch = unix.AUDIT_ARCH_AARCH64

// ofThisMachine are calls of Go's runtime that other machines lack.
func ofThisMachine() []call { return nil }

func statOfThisMachine() []call { return plain(unix.SYS_FSTATAT) }
