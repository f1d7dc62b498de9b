package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/abi"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/idrange"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/sandbox"
)

// enterAs takes over what the caller wants to be otherwise than the app has it.
func enterAs(x *launch.Exec, e abi.Enter, dir poddir.Dir, ids *idrange.Range) error {
	x.Cwd = e.Cwd
	if e.User != "" {
		root, err := openAppRoot(dir, e.App)
		if err != nil {
			return err
		}
		defer root.Close()
		user, group, _ := strings.Cut(e.User, ":")
		u, env, err := sandbox.LookupUser(root, ids, user, group)
		if err != nil {
			return fmt.Errorf("app %s: %w", e.App, err)
		}
		x.User, x.Env = &u, append(x.Env, env...)
	}
	x.Env = append(x.Env, e.Env...)
	return nil
}

// openAppRoot opens the app's root folder as its main process has it. A pid
// may be given to another process at any time: what was opened is the app's if
// that pid was in the pod's cgroup before and after.
func openAppRoot(dir poddir.Dir, app string) (*os.File, error) {
	s, err := dir.App(app).ReadStatus()
	if err != nil {
		return nil, err
	}
	if s == nil || s.PID == 0 {
		return nil, errs.Newf(errs.Unavailable, "app %s: not running", app)
	}
	proc := fmt.Sprintf("/proc/%d", s.PID)
	pidDir, err := os.Open(proc)
	if err != nil {
		return nil, appGone(app, err)
	}
	defer pidDir.Close()
	if err := inPod(pidDir, dir.UUID()); err != nil {
		return nil, appGone(app, err)
	}
	fd, err := unix.Openat(int(pidDir.Fd()), "root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, appGone(app, err)
	}
	root := os.NewFile(uintptr(fd), proc+"/root")
	// The folder in /proc is of this process for ever: once that is gone,
	// nothing in it can be opened.
	if err := inPod(pidDir, dir.UUID()); err != nil {
		return nil, errors.Join(appGone(app, err), root.Close())
	}
	return root, nil
}

func inPod(pidDir *os.File, uuid string) error {
	fd, err := unix.Openat(int(pidDir.Fd()), "cgroup", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "cgroup")
	defer f.Close()
	buf := make([]byte, 1<<16)
	n, err := f.Read(buf)
	if err != nil {
		return err
	}
	if !strings.Contains(string(buf[:n]), "/"+uuid+"/") {
		return fs.ErrNotExist
	}
	return nil
}

func appGone(app string, err error) error {
	return errs.Newf(errs.Unavailable, "app %s: its process has ended: %w", app, err)
}
