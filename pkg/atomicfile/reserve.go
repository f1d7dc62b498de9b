package atomicfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/fault"
)

// Reserve is a folder of files with space but no content. Writes that must not
// fail when the disk is full take one and rename it into place: that needs no
// block and no inode that others could have taken meanwhile. It lies on the
// file system it is for, and may be missing or used up: then writes are as any
// other. Only one process at a time may use it.
type Reserve string

// Make fills the reserve with n files of the size, which is what one write may
// need. After an error it holds what was made.
func (r Reserve) Make(n int, size int64) error {
	if err := fault.Step("reserve.make"); err != nil {
		return err
	}
	if err := os.MkdirAll(string(r), 0o700); err != nil {
		return err
	}
	for i := range n {
		if err := allocate(filepath.Join(string(r), strconv.Itoa(i)), size); err != nil {
			return err
		}
	}
	return nil
}

func allocate(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) { // such as NFS before 4.2
		_, err = f.Write(make([]byte, size))
	}
	if err != nil {
		err = fmt.Errorf("reserve %d bytes: %s: %w", size, path, err)
	}
	return errors.Join(err, f.Close())
}

// WriteJSON is the function of that name, which takes a file of the reserve
// where there is no space otherwise.
func (r Reserve) WriteJSON(path string, v any, perm fs.FileMode, d Durability) error {
	err := WriteJSON(path, v, perm, d)
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return err
	}
	data, jerr := json.Marshal(v)
	if jerr != nil {
		return err
	}
	spares, derr := os.ReadDir(string(r))
	if derr != nil || len(spares) == 0 {
		return err // says more than that nothing is left
	}
	spare := filepath.Join(string(r), spares[0].Name())
	if serr := use(spare, path, append(data, '\n'), perm, d); serr != nil {
		return errors.Join(err, serr)
	}
	return nil
}

// use writes data into the file, which nobody reads under that name, and gives
// it its place.
func use(spare, path string, data []byte, perm fs.FileMode, d Durability) error {
	if err := fault.Step("reserve.use"); err != nil {
		return err
	}
	f, err := os.OpenFile(spare, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	// Cut only afterwards: to write over blocks is what needs no new ones.
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Truncate(int64(len(data)))
	}
	if err == nil {
		err = f.Chmod(perm)
	}
	if err == nil && d == Synced {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return Rename("reserve.rename", spare, path, d)
}

// Free gives back what was not used.
func (r Reserve) Free() error {
	if err := fault.Step("reserve.free"); err != nil {
		return err
	}
	return os.RemoveAll(string(r))
}
