package cgroup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/proc"
)

// The folders below a pod's.
const (
	Supervisor = "supervisor" // the supervisor and pod init
	Helpers    = "helpers"    // plugins, probes, whatever else rkt starts for the pod
	Apps       = "apps"       // one folder an app, limits on it and on this one
)

// AppPath is an app's folder relative to each hierarchy's root.
func AppPath(rec poddir.Cgroup, app string) string { return filepath.Join(rec.Rel, Apps, app) }

// EnterSupervisor moves this process into the pod's supervisor leaf, so that
// whatever it forks is born in the pod's cgroup. Under a systemd unit that did
// not delegate its subtree the supervisor stays where systemd put it.
func EnterSupervisor(rec poddir.Cgroup) error {
	if rec.Stays {
		return nil
	}
	return Attach(rec, Supervisor, os.Getpid())
}

// Attach moves a process into a leaf of the pod's cgroup2 folder.
func Attach(rec poddir.Cgroup, leaf string, pid int) error {
	if err := fault.Step("cgroup.attach"); err != nil {
		return err
	}
	path := filepath.Join(rec.Paths[0].Path, leaf, "cgroup.procs")
	if err := os.WriteFile(path, []byte(strconv.Itoa(pid)), 0); err != nil {
		return fmt.Errorf("enter cgroup: %w", err)
	}
	return nil
}

// Populated says whether a process lives in the pod's cgroup or below it.
func Populated(rec poddir.Cgroup) (bool, error) {
	path, err := unified(rec)
	if err != nil || path == "" {
		return false, err
	}
	return populated(path)
}

// Kill sends SIGKILL to every process in the pod's cgroup and below, also to
// those forked meanwhile. It does not wait for them to be gone.
func Kill(rec poddir.Cgroup) error {
	path, err := unified(rec)
	if err != nil || path == "" {
		return err
	}
	return KillPath(path)
}

// Processes lists the processes in the pod's cgroup and below it.
func Processes(rec poddir.Cgroup) ([]int, error) {
	path, err := unified(rec)
	if err != nil || path == "" {
		return nil, err
	}
	return pidsBelow(path)
}

// WaitEmpty returns once no process is left in the pod's cgroup, or with an
// error of class Busy that names who is left when ctx ends.
func WaitEmpty(ctx context.Context, rec poddir.Cgroup) error {
	path, err := unified(rec)
	if err != nil || path == "" {
		return err
	}
	return WaitPathEmpty(ctx, path)
}

// Remove removes the pod's folders in all hierarchies, which must be empty of
// processes, and the store's folder if it was the last pod. Done is done: a
// folder that is gone is no error, nor is a record of another boot.
func Remove(rec poddir.Cgroup) error {
	if rec.BootID != proc.BootID() {
		return nil
	}
	if err := fault.Step("cgroup.remove"); err != nil {
		return err
	}
	var all error
	for _, p := range rec.Paths {
		if err := check(p); err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				all = errors.Join(all, err)
			}
			continue
		}
		if err := RemovePath(p.Path); err != nil {
			all = errors.Join(all, fmt.Errorf("remove cgroup: %w", err))
			continue
		}
		// Other pods of the store may be in it: then it stays.
		_ = unix.Rmdir(filepath.Dir(p.Path))
	}
	return all
}

// Folder is the absolute path of the pod's cgroup2 folder, for messages.
func Folder(rec poddir.Cgroup) string {
	if len(rec.Paths) == 0 {
		return ""
	}
	return rec.Paths[0].Path
}

// unified returns the pod's cgroup2 folder if it is there and the pod's.
func unified(rec poddir.Cgroup) (string, error) {
	if rec.BootID != proc.BootID() || len(rec.Paths) == 0 {
		return "", nil
	}
	err := check(rec.Paths[0])
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return rec.Paths[0].Path, err
}

// check makes sure that a recorded path is a pod's cgroup and, where the inode
// is known, still the same one: a damaged record must never get another
// cgroup killed.
func check(p poddir.CgroupPath) error {
	uuid, store := filepath.Base(p.Path), filepath.Base(filepath.Dir(p.Path))
	if _, err := poddir.ParseUUID(uuid); err != nil || !strings.HasPrefix(store, "rkt-") || !filepath.IsAbs(p.Path) {
		return errs.Newf(errs.Corrupt, "cgroup record: %q is not a pod's cgroup", p.Path)
	}
	var st unix.Stat_t
	if err := unix.Lstat(p.Path, &st); err != nil {
		return fmt.Errorf("cgroup %s: %w", p.Path, err)
	}
	var sf unix.Statfs_t
	if err := unix.Statfs(p.Path, &sf); err != nil {
		return fmt.Errorf("cgroup %s: %w", p.Path, err)
	}
	if sf.Type != unix.CGROUP2_SUPER_MAGIC && sf.Type != unix.CGROUP_SUPER_MAGIC {
		return errs.Newf(errs.Corrupt, "cgroup record: %s is not in a cgroup hierarchy", p.Path)
	}
	if p.Inode != 0 && st.Ino != p.Inode {
		return errs.Newf(errs.Corrupt, "cgroup record: %s is another cgroup by now (inode %d, recorded %d)", p.Path, st.Ino, p.Inode)
	}
	return nil
}

// KillPath is Kill for any cgroup2 folder.
func KillPath(path string) error {
	if err := fault.Step("cgroup.kill"); err != nil {
		return err
	}
	err := os.WriteFile(filepath.Join(path, "cgroup.kill"), []byte("1"), 0)
	if err == nil || errors.Is(err, unix.ENODEV) {
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("kill cgroup: %w", err)
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return killEach(path)
}

// killEach does what cgroup.kill does, for kernels before 5.14. A process that
// forks between the read and the kill is found by the next round; freezing is
// not needed as each round only gets shorter.
func killEach(path string) error {
	for range 1000 {
		pids, err := pidsBelow(path)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("kill process %d: %w", pid, err)
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		err = WaitPathEmpty(ctx, path)
		cancel()
		if err == nil {
			return nil
		}
	}
	return errs.Newf(errs.Busy, "kill cgroup: %s: processes keep coming", path)
}

func pidsBelow(path string) ([]int, error) {
	var pids []int
	err := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.Name() != "cgroup.procs" {
			return err
		}
		data, err := os.ReadFile(p)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			return nil
		}
		for _, word := range strings.Fields(string(data)) {
			if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		return err
	})
	return pids, err
}

// PathPopulated is Populated for any cgroup2 folder; anyone may ask.
func PathPopulated(path string) (bool, error) { return populated(path) }

func populated(path string) (bool, error) {
	data, err := os.ReadFile(filepath.Join(path, "cgroup.events"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return bytes.Contains(data, []byte("populated 1")), nil
}

// WaitPathEmpty is WaitEmpty for any cgroup2 folder: it sleeps in poll(2) until
// the kernel says that cgroup.events has changed.
func WaitPathEmpty(ctx context.Context, path string) error {
	empty, err := waitEvents(ctx, path, "populated 0")
	if err == nil && !empty {
		err = stillThere(path)
	}
	return err
}

// waitEvents waits until cgroup.events has the line; a folder that is gone has
// every line. It says no when ctx ends before.
func waitEvents(ctx context.Context, path, line string) (bool, error) {
	events, err := os.Open(filepath.Join(path, "cgroup.events"))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer events.Close()
	for {
		// The read arms the notification: it must come before the poll.
		data := make([]byte, 256)
		n, err := events.ReadAt(data, 0)
		if errors.Is(err, unix.ENODEV) || bytes.Contains(data[:n], []byte(line)) {
			return true, nil
		}
		wait := -1
		if deadline, ok := ctx.Deadline(); ok {
			wait = max(0, int(time.Until(deadline).Milliseconds()))
		}
		if ctx.Err() != nil || wait == 0 {
			return false, nil
		}
		// Bounded, so that a cancelled context without deadline is noticed.
		if wait < 0 || wait > 1000 {
			wait = 1000
		}
		fds := []unix.PollFd{{Fd: int32(events.Fd()), Events: unix.POLLPRI}}
		if _, err := unix.Poll(fds, wait); err != nil && !errors.Is(err, unix.EINTR) {
			return false, fmt.Errorf("wait for cgroup: %w", err)
		}
	}
}

func stillThere(path string) error {
	pids, err := pidsBelow(path)
	if err != nil {
		return err
	}
	return errs.Newf(errs.Busy, "cgroup %s: processes %v are still there", path, pids)
}

// RemovePath removes an empty cgroup folder and those below it.
func RemovePath(path string) error {
	// Most have no folder below: to list one with its files would cost more.
	if err := unix.Rmdir(path); err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := RemovePath(filepath.Join(path, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(path); err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "rmdir", Path: path, Err: err}
	}
	return nil
}
