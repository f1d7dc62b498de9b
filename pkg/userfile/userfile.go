// Package userfile reads and writes the small files that a user names. At such
// a name there may be anything: a pipe that nobody writes to, a device without
// an end, a link that must stay one. None of it may hang the program, fill its
// memory, or be replaced by a file.
package userfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
)

// The limits of what is read.
const (
	MaxID   = 4 << 10 // a file with a UUID
	MaxText = 1 << 20 // manifests, environments, configuration
)

// maxLinks is the kernel's own limit.
const maxLinks = 40

// Read reads a whole file of at most limit bytes: a regular one, a pipe such as
// a shell's <(…), or this program's standard input by whatever name. A pipe is
// waited for until ctx ends. Errors name the path.
func Read(ctx context.Context, path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, classify(err)
	}
	var data []byte
	switch {
	case info.Mode().IsRegular():
		return ReadRegular(path, limit)
	case isStdin(info):
		data, err = cancellable(ctx, func() ([]byte, error) { return readAll(os.Stdin, limit) })
	case info.Mode()&fs.ModeNamedPipe != 0:
		data, err = cancellable(ctx, func() ([]byte, error) { return readPipe(path, limit) })
	default:
		err = errs.Newf(errs.Usage, "is %s, not a file", kindOf(info))
	}
	if err != nil {
		return nil, named(path, err)
	}
	return data, nil
}

// ReadRegular is Read for a file that can't be a pipe: one that is found in a
// folder.
func ReadRegular(path string, limit int64) ([]byte, error) {
	// O_NONBLOCK lets the open return if it is a pipe after all.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, classify(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errs.Newf(errs.Usage, "is %s, not a file", kindOf(info))
	}
	var data []byte
	if err == nil {
		data, err = readAll(f, limit)
	}
	if err != nil {
		return nil, named(path, err)
	}
	return data, nil
}

// Write puts data at path, and keeps what kind of thing is there: a regular
// file is replaced by rename, so that nobody reads half of it; a link stays,
// and what it points to is written; a pipe or a character device, and a
// descriptor of this program by its name in /dev/fd, gets the bytes. A pipe
// without a reader is waited for until ctx ends.
func Write(ctx context.Context, path string, data []byte, perm fs.FileMode) error {
	place, fd, err := target(path)
	if err != nil {
		return classify(err)
	}
	if fd >= 0 {
		return named(path, writeTo(ctx, func() (*os.File, error) { return dup(fd, path) }, data))
	}
	info, err := os.Lstat(place)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return classify(err)
	case info.Mode()&(fs.ModeNamedPipe|fs.ModeCharDevice) != 0:
		return named(path, writeTo(ctx, func() (*os.File, error) { return os.OpenFile(place, os.O_WRONLY, 0) }, data))
	case !info.Mode().IsRegular():
		return named(path, errs.Newf(errs.Usage, "is %s, not a file", kindOf(info)))
	}
	err = atomicfile.Write(place, data, perm, atomicfile.Renamed)
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = fmt.Errorf("%s: %w", path, pe.Err) // the temporary name tells nobody anything
	}
	return classify(err)
}

// Place says where a large file for path belongs, which its writer makes in
// parts: place is what a regular file is to be renamed to or, if direct, what
// is to be opened and written as Write does it.
func Place(path string) (place string, direct bool, err error) {
	place, fd, err := target(path)
	if err != nil || fd >= 0 {
		return path, fd >= 0, classify(err)
	}
	info, err := os.Lstat(place)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return place, false, nil
	case err != nil:
		return place, false, classify(err)
	case info.Mode()&(fs.ModeNamedPipe|fs.ModeCharDevice) != 0:
		return place, true, nil
	case !info.Mode().IsRegular():
		return place, false, named(path, errs.Newf(errs.Usage, "is %s, not a file", kindOf(info)))
	}
	return place, false, nil
}

// target follows the links that path ends in, and returns where the last one
// points to, there or not, or the number of the descriptor that path names.
// The kernel would open the file behind a descriptor anew; to replace that file
// would take it from under whoever writes to the descriptor.
func target(path string) (place string, fd int, err error) {
	for range maxLinks {
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return "", -1, err
		}
		name := filepath.Base(path)
		if dir == "/proc/"+strconv.Itoa(os.Getpid())+"/fd" {
			if n, err := strconv.Atoi(name); err == nil {
				return "", n, nil
			}
		}
		path = filepath.Join(dir, name)
		link, err := os.Readlink(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EINVAL) {
			return path, -1, nil // nothing there yet, or no link
		}
		if err != nil {
			return "", -1, err
		}
		if !filepath.IsAbs(link) {
			link = filepath.Join(dir, link)
		}
		path = link
	}
	return "", -1, &fs.PathError{Op: "open", Path: path, Err: unix.ELOOP}
}

func writeTo(ctx context.Context, open func() (*os.File, error), data []byte) error {
	if err := fault.Step("userfile.write"); err != nil {
		return err
	}
	_, err := cancellable(ctx, func() ([]byte, error) {
		f, err := open()
		if err != nil {
			return nil, err
		}
		_, err = f.Write(data)
		return nil, errors.Join(err, f.Close())
	})
	return err
}

// dup shares the descriptor's offset, which a second open would not.
func dup(fd int, path string) (*os.File, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(n), path), nil
}

func readPipe(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f, limit)
}

func readAll(f *os.File, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, errs.Newf(errs.Usage, "larger than %d KiB", limit>>10)
	}
	return data, nil
}

// cancellable runs what may block in the kernel, where nothing but the end of
// the process may reach it: open(2) of a pipe has no deadline.
func cancellable(ctx context.Context, f func() ([]byte, error)) ([]byte, error) {
	type result struct {
		data []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		data, err := f()
		done <- result{data, err}
	}()
	select {
	case r := <-done:
		return r.data, r.err
	case <-ctx.Done():
		return nil, errs.Newf(errs.Unavailable, "interrupted while waiting for the other end")
	}
}

// isStdin says whether it is the very thing that standard input is: a terminal
// or a socket there is the user's choice, by any name.
func isStdin(info fs.FileInfo) bool {
	in, err := os.Stdin.Stat()
	return err == nil && os.SameFile(info, in) && !info.IsDir()
}

func kindOf(info fs.FileInfo) string {
	switch m := info.Mode(); {
	case m.IsDir():
		return "a folder"
	case m&fs.ModeNamedPipe != 0:
		return "a pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return "something else"
}

// named puts the path in front, unless the error has it.
func named(path string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return classify(err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

func classify(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errs.WithClass(errs.NotFound, err)
	case errors.Is(err, fs.ErrPermission):
		return errs.WithClass(errs.Denied, err)
	}
	return err
}
