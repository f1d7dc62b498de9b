package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// checkedFile is the standard output of a command. Each write goes straight to
// the file; the first error is kept, so that no command ends well whose result
// was lost, whether it looked at the error or not.
type checkedFile struct {
	f      *os.File
	closed bool // there was none when the program began
	err    error
}

// closedAtStart says whether the file stands for a descriptor that was closed:
// Go's runtime opens /dev/null there, for reading and writing, which would
// swallow a result without a word. A /dev/null that somebody gave is told from
// it: shells open it for writing only, libraries with O_CLOEXEC, and daemons
// use one opening for several descriptors.
func closedAtStart(f *os.File) bool {
	fd := f.Fd()
	var st unix.Stat_t
	if err := unix.Fstat(int(fd), &st); err != nil {
		return errors.Is(err, unix.EBADF)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(1, 3) {
		return false
	}
	flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
	if err != nil || flags&unix.O_ACCMODE != unix.O_RDWR || flags&(unix.O_CLOEXEC|unix.O_APPEND|unix.O_NONBLOCK) != 0 {
		return false
	}
	for _, other := range []uintptr{0, 2} {
		const file = 0 // KCMP_FILE: 0 is the answer for the same opening
		same, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(os.Getpid()), uintptr(os.Getpid()), file, fd, other, 0)
		if errno != 0 || same == 0 {
			return false // or a kernel that can't tell
		}
	}
	return true
}

// Write implements io.Writer.
func (c *checkedFile) Write(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	if c.closed && len(p) > 0 {
		c.err = fmt.Errorf("write to stdout: %w", unix.EBADF)
		return 0, c.err
	}
	n, err := c.f.Write(p)
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err // its path is /dev/stdout, whatever that is
	}
	if err != nil {
		c.err = fmt.Errorf("write to stdout: %w", err)
	}
	return n, c.err
}

// Fd is the descriptor, for whoever asks whether it is a terminal.
func (c *checkedFile) Fd() uintptr { return c.f.Fd() }

// lost is the kept error, unless the command tells it itself.
func (c *checkedFile) lost(told error) error {
	if errors.Is(told, c.err) {
		return nil
	}
	return c.err
}
