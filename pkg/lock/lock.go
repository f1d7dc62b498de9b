// Package lock gives advisory locks on files that live as long as the open
// file description: they survive exec, inheritance and a rename of the file's
// folder, and the kernel releases them when the last descriptor is gone
// (F_OFD_SETLK, fcntl(2)). A reader that asks who holds one takes nothing.
package lock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/proc"
)

// Lock is a held lock. It owns its descriptor: Close releases the lock unless
// another process has inherited the descriptor.
type Lock struct{ f *os.File }

// Holder is what an exclusive locker leaves in the file, for messages only.
type Holder struct {
	proc.ID
	Command string    `json:"command"`
	Since   time.Time `json:"since"`
}

type kind int16

const (
	shared    kind = unix.F_RDLCK
	exclusive kind = unix.F_WRLCK
)

// TryExclusive locks the file, which it creates if needed, or returns an error
// of class Busy that names the holder.
func TryExclusive(path string) (*Lock, error) { return try(path, exclusive) }

// TryShared is TryExclusive for a lock that several may hold.
func TryShared(path string) (*Lock, error) { return try(path, shared) }

// Exclusive waits for the lock until ctx ends; the error is then of class Busy
// and names the holder.
func Exclusive(ctx context.Context, path string) (*Lock, error) { return wait(ctx, path, exclusive) }

// Shared is Exclusive for a lock that several may hold.
func Shared(ctx context.Context, path string) (*Lock, error) { return wait(ctx, path, shared) }

// Inherit takes over the descriptor of a lock that this process was started
// with, and sets it close-on-exec: whoever inherited it from here would keep a
// dead pod "running".
func Inherit(fd int, path string) (*Lock, error) {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
		return nil, fmt.Errorf("inherited lock: descriptor %d: %w", fd, err)
	}
	l := &Lock{f: os.NewFile(uintptr(fd), path)}
	if ok, err := l.current(path); err != nil || !ok {
		return nil, errs.Newf(errs.Internal, "inherited lock: descriptor %d is not %s", fd, path)
	}
	// A second request on the same description succeeds if it is ours already.
	if err := setlk(l.f, exclusive); err != nil {
		return nil, fmt.Errorf("inherited lock: %s: %w", path, err)
	}
	return l, nil
}

// Held says whether somebody holds a lock on the file, without taking one
// (F_OFD_GETLK). A missing file is not held. What is no regular file is an
// error of class Corrupt.
func Held(path string) (bool, error) {
	fd, _, err := atomicfile.OpenRegular(path, unix.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if errs.Is(err, errs.Corrupt) {
		err = noLock(path, err)
	}
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	k, err := heldAs(fd, path)
	return k != unix.F_UNLCK, err
}

// heldAs returns the kind of the lock that keeps others from locking the file
// exclusively, F_UNLCK if there is none.
func heldAs(fd int, path string) (kind, error) {
	lk := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &lk); err != nil {
		return unix.F_UNLCK, fmt.Errorf("ask for lock: %s: %w", path, err)
	}
	return kind(lk.Type), nil
}

// ReadHolder returns what the last exclusive locker wrote. It says nothing of
// whether the lock is held.
func ReadHolder(path string) (Holder, error) {
	var h Holder
	data, err := atomicfile.ReadFile(path)
	if err != nil {
		return h, err
	}
	return h, json.Unmarshal(data, &h)
}

// FD returns the descriptor, for a child or an exec that is to keep the lock.
func (l *Lock) FD() int { return int(l.f.Fd()) }

// KeepOnExec clears close-on-exec, so that the next exec keeps the lock.
func (l *Lock) KeepOnExec() error {
	_, err := unix.FcntlInt(l.f.Fd(), unix.F_SETFD, 0)
	return err
}

// Close releases the lock. A nil lock is released already.
func (l *Lock) Close() error {
	if l == nil || l.f == nil {
		return nil
	}
	return l.f.Close()
}

// sign writes this process into the file as the holder. Of the command line
// only program and subcommand: the rest may hold secrets.
func (l *Lock) sign() error {
	self, err := proc.Self()
	if err != nil {
		return err
	}
	command := filepath.Base(os.Args[0])
	if i := slices.IndexFunc(os.Args[1:], func(a string) bool { return !strings.HasPrefix(a, "-") }); i >= 0 {
		command += " " + os.Args[1+i]
	}
	data, err := json.Marshal(Holder{ID: self, Command: command, Since: time.Now().UTC()})
	if err != nil {
		return err
	}
	if err := l.f.Truncate(0); err != nil {
		return err
	}
	_, err = l.f.WriteAt(append(data, '\n'), 0)
	return err
}

func open(path string) (*os.File, error) {
	return openRegular(path, os.O_RDWR|os.O_CREATE)
}

// openRegular opens what can be locked. Anything else can't be held by anyone
// who goes through this package.
func openRegular(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, flag, 0o600)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EISDIR) {
		return nil, noLock(path, err)
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = noLock(path, errs.Newf(errs.Corrupt, "%s: not a regular file", path))
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return f, nil
}

func noLock(path string, err error) error {
	return errs.WithHint(errs.WithClass(errs.Corrupt, err), "something else lies where the lock file was; \"rm -r %s\" and try again", path)
}

// current says whether the descriptor is still the file at path. After any
// lock it must be asked again: the file may have been deleted or moved between
// open and lock.
func (l *Lock) current(path string) (bool, error) {
	mine, err := l.f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return os.SameFile(mine, there), nil
}

func setlk(f *os.File, k kind) error {
	lk := unix.Flock_t{Type: int16(k)}
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lk)
}

func try(path string, k kind) (*Lock, error) {
	for {
		f, err := open(path)
		if err != nil {
			return nil, err
		}
		if err := setlk(f, k); err != nil {
			if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
				err = busy(path, f)
			} else {
				err = fmt.Errorf("lock %s: %w", path, err)
			}
			_ = f.Close() // nothing was written
			return nil, err
		}
		if l, err := checked(f, path, k); l != nil || err != nil {
			return l, err
		}
	}
}

// checked returns the lock, or nothing if the file is another one by now.
func checked(f *os.File, path string, k kind) (*Lock, error) {
	l := &Lock{f: f}
	ok, err := l.current(path)
	if err != nil || !ok {
		_ = f.Close()
		return nil, err
	}
	if k == exclusive {
		// Only for messages: the lock is ours whatever becomes of this.
		_ = l.sign()
	}
	return l, nil
}

func wait(ctx context.Context, path string, k kind) (*Lock, error) {
	for {
		f, err := open(path)
		if err != nil {
			return nil, err
		}
		if err := setlkw(ctx, f, k); err != nil {
			if ctx.Err() != nil {
				return nil, busyAt(path)
			}
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if l, err := checked(f, path, k); l != nil || err != nil {
			return l, err
		}
	}
}

// setlkw blocks in a goroutine of its own, since fcntl can't be cancelled. If
// ctx ends first the descriptor is closed there once the kernel has answered.
func setlkw(ctx context.Context, f *os.File, k kind) error {
	if err := setlk(f, k); err == nil {
		return nil
	}
	done := make(chan error, 1)
	go func() {
		lk := unix.Flock_t{Type: int16(k)}
		for {
			err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLKW, &lk)
			if !errors.Is(err, unix.EINTR) {
				done <- err
				return
			}
		}
	}()
	select {
	case err := <-done:
		if err != nil {
			_ = f.Close()
		}
		return err
	case <-ctx.Done():
		go func() {
			// Whether it came or not, nobody wants the lock any more.
			_ = errors.Join(<-done, f.Close())
		}()
		return ctx.Err()
	}
}

// signTime is how long a new holder may take to write its name into the file.
const signTime = 200 * time.Millisecond

// busyAt is busy for who has no descriptor of the file any more.
func busyAt(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return unnamed(path)
	}
	defer f.Close()
	return busy(path, f)
}

// busy names the holder. It is asked for by the descriptor: the file may be
// moved at this moment.
func busy(path string, f *os.File) error {
	h, ok := holder(f)
	if !ok {
		return unnamed(path)
	}
	err := errs.Newf(errs.Busy, "%s: locked by %q, pid %d, for %s", path, h.Command, h.PID, max(0, time.Since(h.Since)).Round(time.Second))
	return errs.WithHint(err, "it is free when that process ends: try again then")
}

func unnamed(path string) error {
	return errs.WithHint(errs.Newf(errs.Busy, "%s: locked by another process", path), "another rkt is at work on it: try again when that is done")
}

// holder reads who holds the file exclusively. Whoever locks it signs it only
// then, so that what stands there may be of the one before: the write is waited
// for. Those who share a lock don't sign.
func holder(f *os.File) (h Holder, ok bool) {
	end := time.Now().Add(signTime)
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return readHolder(f)
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, "/proc/self/fd/"+strconv.Itoa(int(f.Fd())), unix.IN_MODIFY); err != nil {
		return readHolder(f)
	}
	for {
		if h, ok = readHolder(f); ok {
			return h, true
		}
		left := time.Until(end)
		if k, err := heldAs(int(f.Fd()), f.Name()); err != nil || k != exclusive || left <= 0 {
			return h, false
		}
		// A holder that ends unsigned leaves no event, hence the short turns.
		turn := min(left, signTime/8)
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(turn.Milliseconds())+1); err != nil && !errors.Is(err, unix.EINTR) {
			return h, false
		}
		// Only whether there was one counts.
		_, _ = unix.Read(fd, make([]byte, 4096))
	}
}

// readHolder returns the holder that stands in the file if it still lives.
func readHolder(f *os.File) (h Holder, ok bool) {
	data := make([]byte, 4096)
	n, err := f.ReadAt(data, 0)
	if err != nil && !errors.Is(err, io.EOF) || json.Unmarshal(data[:n], &h) != nil {
		return h, false
	}
	return h, h.Alive()
}
