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
	*os.File
	err error
}

// Write implements io.Writer.
func (c *checkedFile) Write(p []byte) (int, error) {
	n, err := c.File.Write(p)
	return n, c.keep(err)
}

// WriteString implements io.StringWriter, which the file would do else.
func (c *checkedFile) WriteString(s string) (int, error) { return c.Write([]byte(s)) }

// keep returns the error in the words in which it is told.
func (c *checkedFile) keep(err error) error {
	if err == nil {
		return nil
	}
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err // its path is /dev/stdout, whatever that is
	}
	err = fmt.Errorf("write to stdout: %w", err)
	if c.err == nil {
		c.err = err
	}
	return err
}

// lost is the kept error, unless the command ends with one of the same write.
func (c *checkedFile) lost(told error) error {
	if c.err == nil || errors.Is(told, errors.Unwrap(c.err)) {
		return nil
	}
	return c.err
}
