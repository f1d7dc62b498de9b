// Package atomicfile writes small files so that a reader sees the old content
// or the new one, never a part: temporary name in the same folder, then
// rename(2). Whether the bytes must also survive power loss is the caller's
// choice, since each synced write costs milliseconds.
package atomicfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
)

// Durability says what a write survives.
type Durability int

const (
	// Renamed survives a kill of the process: the page cache is not lost.
	Renamed Durability = iota
	// Synced survives power loss too: file and folder are synced.
	Synced
)

// stepName is the file's name; one that is a UUID goes by its folder's, so that
// a step has the same name each time.
func stepName(path string) string {
	name := filepath.Base(path)
	if len(name) == 36 && strings.Count(name, "-") == 4 {
		return filepath.Base(filepath.Dir(path))
	}
	return name
}

// Write replaces path with data.
func Write(path string, data []byte, perm fs.FileMode, d Durability) (err error) {
	name := "write." + stepName(path)
	if err := fault.Step(name); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-"+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			// The error that is returned says more than this one would.
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if err := f.Chmod(perm); err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	if d == Synced {
		if err := f.Sync(); err != nil {
			return err
		}
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := fault.Step(name + ".rename"); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	if d == Synced {
		return SyncDir(filepath.Dir(path))
	}
	return nil
}

// WriteJSON replaces path with v as one line of JSON.
func WriteJSON(path string, v any, perm fs.FileMode, d Durability) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return Write(path, append(data, '\n'), perm, d)
}

// ReadJSON reads the file that WriteJSON wrote into v. The error is
// fs.ErrNotExist if there is none.
func ReadJSON(path string, v any) error {
	data, err := ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// MaxRecord is the size that no record of rkt's own comes near.
const MaxRecord = 64 << 20

// ReadFile reads a record whole. What lies at its path may be anything by now:
// a pipe must not keep the reader, nor a huge file take its memory. What is no
// regular file of a record's size is an error of class Corrupt, a missing one
// is fs.ErrNotExist.
func ReadFile(path string) ([]byte, error) {
	fd, size, err := OpenRegular(path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if size > MaxRecord {
		return nil, errs.Newf(errs.Corrupt, "%s: larger than %d MiB", path, MaxRecord>>20)
	}
	data := make([]byte, 0, size+1) // one more, to find the end at once
	for {
		n, err := unix.Read(fd, data[len(data):cap(data)])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		case n == 0:
			return data, nil
		}
		data = data[:len(data)+n]
		if len(data) > MaxRecord {
			return nil, errs.Newf(errs.Corrupt, "%s: larger than %d MiB", path, MaxRecord>>20)
		}
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
	}
}

// OpenRegular opens a regular file that is there, and tells its size. What else
// lies there is an error of class Corrupt; the open of a pipe does not wait. The
// caller closes the descriptor, which is close-on-exec. It is none of the
// runtime's: whoever looks at some hundred records would pay for the poller with
// each, which is more than the reading.
func OpenRegular(path string, flag int) (fd int, size int64, err error) {
	for {
		// O_NONBLOCK changes nothing for a regular file.
		fd, err = unix.Open(path, flag|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		err = &fs.PathError{Op: "open", Path: path, Err: err}
	}
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
		err = errs.WithClass(errs.Corrupt, err) // links in a circle, a socket
	}
	if err != nil {
		return -1, 0, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err != nil {
		err = &fs.PathError{Op: "stat", Path: path, Err: err}
	} else if st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = errs.Newf(errs.Corrupt, "%s: not a regular file", path)
	}
	if err != nil {
		_ = unix.Close(fd) // nothing was read
		return -1, 0, err
	}
	return fd, st.Size, nil
}

// SyncDir makes the entries of a folder survive power loss.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// SyncFS syncs the whole file system that path is on: one call for a tree of
// any size (syncfs(2)).
func SyncFS(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return fmt.Errorf("syncfs %s: %w", path, err)
	}
	return nil
}

// Rename moves old to a new name, and makes it survive power loss if asked.
// The step is named by the caller, since what a rename means depends on it.
func Rename(step, old, new string, d Durability) error {
	if err := fault.Step(step); err != nil {
		return err
	}
	if err := os.Rename(old, new); err != nil {
		return err
	}
	if d != Synced {
		return nil
	}
	return errors.Join(SyncDir(filepath.Dir(new)), SyncDir(filepath.Dir(old)))
}
