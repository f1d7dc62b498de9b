package pod

import (
	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/lock"
)

// dup copies a lock's descriptor, as exec would hand it on.
func dup(l *lock.Lock) (int, error) { return unix.Dup(l.FD()) }
