package store

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// removers is how many folders are emptied at a time: removal waits for the
// file system's journal more than it computes.
const removers = 4

// removeTree removes a folder, or a file, with all that is in it. Names are
// looked up in open folders and no link is followed.
func removeTree(path string) error {
	r := &remover{slots: make(chan struct{}, removers-1)}
	err := r.remove(unix.AT_FDCWD, path)
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		return os.RemoveAll(path) // keeps fewer folders open
	}
	return err
}

type remover struct{ slots chan struct{} }

// remove removes one name of an open folder.
func (r *remover) remove(dirfd int, name string) error {
	err := unix.Unlinkat(dirfd, name, 0)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
		return r.removeDir(dirfd, name)
	}
	return ignoreGone(name, err)
}

func (r *remover) removeDir(dirfd int, name string) error {
	fd, err := unix.Openat(dirfd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return ignoreGone(name, err)
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close()
	err = r.empty(dir, fd)
	if rerr := ignoreGone(name, unix.Unlinkat(dirfd, name, unix.AT_REMOVEDIR)); err == nil {
		err = rerr // of a folder that is not empty: the first error says why
	}
	return err
}

// empty removes what is in a folder, folders beside each other where there is
// a slot.
func (r *remover) empty(dir *os.File, fd int) error {
	var below sync.WaitGroup
	var mu sync.Mutex
	var first error
	keep := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if first == nil {
			first = err
		}
	}
	for {
		entries, err := dir.ReadDir(1024)
		for _, e := range entries {
			if !e.IsDir() {
				keep(r.remove(fd, e.Name()))
				continue
			}
			select {
			case r.slots <- struct{}{}:
				below.Go(func() {
					defer func() { <-r.slots }()
					keep(r.removeDir(fd, e.Name()))
				})
			default:
				keep(r.removeDir(fd, e.Name()))
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			keep(ignoreGone(dir.Name(), err))
			break
		}
	}
	below.Wait()
	return first
}

func ignoreGone(name string, err error) error {
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return &fs.PathError{Op: "remove", Path: name, Err: err}
}
