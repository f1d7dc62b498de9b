//go:build amd64 || arm64

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// start is where rkt begins when it is linked with "-E main.start": the runtime
// opens /dev/null for each standard descriptor that is closed, before anything
// in Go runs, and a result that goes there would seem to be written.
func start() //nolint:unused // the linker is told of it

// stdoutFlags is what fcntl said of descriptor 1 before that.
var stdoutFlags int64

// refuseClosed lets writes to a stdout that was closed fail as they would have.
// The descriptor stays taken, so that no other file can get its number.
func refuseClosed() {
	if stdoutFlags != -int64(unix.EBADF) {
		return
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return // then /dev/null is not what is at its place
	}
	defer null.Close()
	_ = unix.Dup3(int(null.Fd()), 1, 0) // both are open
}
