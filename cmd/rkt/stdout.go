package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// checkedFile is the standard output of a command. Each write goes straight to
// the file; the first error is kept, so that no command ends well whose result
// was lost, whether it looked at the error or not.
type checkedFile struct {
	f   *os.File
	err error
}

// Write implements io.Writer.
func (c *checkedFile) Write(p []byte) (int, error) {
	if c.err != nil {
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

// oneOutput says whether stdout and stderr are the same file, as in a terminal.
func (g *globals) oneOutput() bool {
	if g.stdout == nil || g.stderr == nil {
		return false
	}
	out, oerr := g.stdout.f.Stat()
	errout, eerr := g.stderr.Stat()
	return oerr == nil && eerr == nil && os.SameFile(out, errout)
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
