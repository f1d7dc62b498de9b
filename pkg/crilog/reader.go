package crilog

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// lineLimit is more than any entry takes that Writer has written.
const lineLimit = maxContent + 1024

// Reader gives a log's entries, the oldest first, over all of its files. It
// sees what had been written when it came to the end of each file; the newest
// file can be read on from there.
type Reader struct {
	files   []*os.File // the oldest first
	at      int
	line    int
	buf     *bufio.Reader
	pending []byte // of an entry whose end was not there yet
}

// Open opens the log at path with its rotated files. The error is
// fs.ErrNotExist if there is no log.
func Open(path string) (*Reader, error) {
	// Keeps out a rotation, which would hide files or show them twice.
	unlock, err := lockDir(path, unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	defer unlock()
	files, err := openAll(path)
	if err != nil {
		return nil, err
	}
	return &Reader{files: files}, nil
}

// Next returns the next entry; io.EOF is the end, until more is written. After
// an error of class Corrupt the next call goes on behind what could not be
// read. The content is valid until the next call.
func (r *Reader) Next() (Entry, error) {
	for r.at < len(r.files) {
		f := r.files[r.at]
		if r.buf == nil {
			r.buf = bufio.NewReaderSize(f, lineLimit)
		}
		line, err := r.buf.ReadSlice('\n')
		if err == nil && len(r.pending) > 0 {
			line = append(r.pending, line...)
			r.pending = r.pending[:0]
		}
		switch {
		case err == nil:
			r.line++
			e, err := parse(line[:len(line)-1])
			if err != nil {
				return Entry{}, fmt.Errorf("%s:%d: %w", f.Name(), r.line, err)
			}
			return e, nil
		case errors.Is(err, io.EOF) && r.at == len(r.files)-1 && len(r.pending)+len(line) <= lineLimit:
			r.pending = append(r.pending, line...)
			return Entry{}, io.EOF
		case errors.Is(err, io.EOF):
			// What stands here without a newline is the torn entry of a
			// writer that was killed.
			r.at, r.line, r.buf, r.pending = r.at+1, 0, nil, nil
		case errors.Is(err, bufio.ErrBufferFull):
			r.line++
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = r.buf.ReadSlice('\n')
			}
			return Entry{}, errs.Newf(errs.Corrupt, "%s:%d: log entry: too long", f.Name(), r.line)
		default:
			return Entry{}, fmt.Errorf("read log: %w", err)
		}
	}
	return Entry{}, io.EOF
}

// Refresh takes in the files that rotations have made since. The path may be
// another one than at first, if the log's folder was moved. Files that have come
// and gone meanwhile are lost to the reader.
func (r *Reader) Refresh(path string) error {
	unlock, err := lockDir(path, unix.LOCK_SH)
	if err != nil {
		return err
	}
	defer unlock()
	last := r.files[len(r.files)-1]
	if now, err := os.Stat(path); err == nil {
		if was, err := last.Stat(); err == nil && os.SameFile(now, was) {
			return nil
		}
	}
	files, err := openAll(path)
	if err != nil {
		return err
	}
	newer := 0
	for i, f := range files {
		if sameFile(f, last) {
			newer = i + 1
		}
	}
	closeAll(files[:newer])
	r.files = append(r.files, files[newer:]...)
	return nil
}

// Close closes all files.
func (r *Reader) Close() error {
	closeAll(r.files)
	return nil
}

// lockDir locks the log's folder with flock(2), which works on a folder opened
// for reading, until the function that is returned is called.
func lockDir(path string, how int) (func(), error) {
	// O_DIRECTORY: a pipe in the folder's place must not hold us.
	d, err := os.OpenFile(filepath.Dir(path), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(d.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		_ = d.Close() // only opened for the lock
		return nil, fmt.Errorf("lock %s: %w", d.Name(), err)
	}
	return func() { _ = d.Close() }, nil
}

// openAll opens the newest file first, then the older ones, and returns them
// oldest first, each once.
func openAll(path string) ([]*os.File, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	files := []*os.File{f}
	for _, n := range numbers(path) {
		f, err := openFile(numbered(path, n))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			closeAll(files)
			return nil, err
		}
		if sameFile(f, files[len(files)-1]) {
			_ = f.Close() // only read
			continue
		}
		files = append(files, f)
	}
	slices.Reverse(files)
	return files, nil
}

// openFile opens a file of the log. What lies there may be anything by now:
// O_NONBLOCK lets the open of a pipe without a writer return, and what is no
// regular file has no end that a reader would come to.
func openFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
		return nil, noLog(errs.WithClass(errs.Corrupt, err)) // links in a circle, a socket
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = noLog(errs.Newf(errs.Corrupt, "%s: not a regular file", path))
	}
	if err != nil {
		_ = f.Close() // nothing was read
		return nil, err
	}
	return f, nil
}

func noLog(err error) error {
	return errs.WithHint(err, "something else was put in the place of the log; move it away to read what is left")
}

// numbers lists the rotated files' numbers, the newest first.
func numbers(path string) []int {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil
	}
	prefix := filepath.Base(path) + "."
	var all []int
	for _, e := range entries {
		if len(e.Name()) <= len(prefix) || e.Name()[:len(prefix)] != prefix {
			continue
		}
		if n, err := strconv.Atoi(e.Name()[len(prefix):]); err == nil && n > 0 {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all
}

func sameFile(a, b *os.File) bool {
	x, err1 := a.Stat()
	y, err2 := b.Stat()
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// closeAll closes files that were only read, so errors mean nothing.
func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
