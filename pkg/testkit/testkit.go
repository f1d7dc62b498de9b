// Package testkit has what tests of several packages share. Only tests import it.
package testkit

import (
	"os"
	"syscall"
	"testing"
)

// WriteProgram writes a file that is going to be executed, with mode 0755. A
// child that another goroutine forks while the file is open for writing holds
// the descriptor until it execs, and for that long nobody can execute the file
// (ETXTBSY, execve(2)). So nobody forks meanwhile.
func WriteProgram(path string, data []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, data, 0o755)
}

// Program is WriteProgram, or the end of the test.
func Program(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := WriteProgram(path, data); err != nil {
		t.Fatal(err)
	}
}
