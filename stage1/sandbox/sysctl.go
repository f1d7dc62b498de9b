package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/idrange"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// setSysctls sets the pod's kernel parameters. /proc/sys shows each thread
// those of its own namespaces, so a thread joins the pod's and ends with this.
func setSysctls(list []plan.Sysctl, ns launch.Namespaces, ids *idrange.Range) error {
	if len(list) == 0 {
		return nil
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread goes with the goroutine
		done <- setInside(list, ns, ids)
	}()
	return <-done
}

func setInside(list []plan.Sysctl, ns launch.Namespaces, ids *idrange.Range) error {
	for _, n := range []struct{ fd, kind int }{
		{ns.IPC, unix.CLONE_NEWIPC}, {ns.UTS, unix.CLONE_NEWUTS}, {ns.Net, unix.CLONE_NEWNET},
	} {
		if n.fd < 0 {
			continue // the host's network, of which nothing is set
		}
		if err := unix.Setns(n.fd, n.kind); err != nil {
			return fmt.Errorf("sysctl: join the pod's namespace: %w", err)
		}
	}
	for _, s := range list {
		err := setSysctl(s)
		if errs.Is(err, errs.Denied) && ids != nil {
			err = setAs(ids.Host(0), s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// setAs sets a parameter that is the namespace's root's, and nobody else's
// whatever rights he has. This thread alone becomes that one.
func setAs(id int, s plan.Sysctl) error {
	const same = ^uintptr(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, uintptr(id), same); errno != 0 {
		return fmt.Errorf("sysctl: user %d: %w", id, errno)
	}
	err := setSysctl(s)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, 0, same); errno != 0 {
		return errors.Join(err, fmt.Errorf("sysctl: user 0: %w", errno))
	}
	return err
}

func setSysctl(s plan.Sysctl) error {
	if err := fault.Step("sandbox.sysctl"); err != nil {
		return err
	}
	name := strings.ReplaceAll(s.Key, "/", ".")
	// Checked when it was planned, and /proc has no symlinks there; the kernel
	// sees to it all the same.
	proc, err := openDir("/proc/sys")
	if err != nil {
		return fmt.Errorf("sysctl: %w", err)
	}
	defer unix.Close(proc)
	fd, err := unix.Openat2(proc, s.Key, &unix.OpenHow{
		Flags: unix.O_WRONLY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if errors.Is(err, unix.ENOENT) {
		return errs.Newf(errs.NotFound, "sysctl %s: this kernel has none by that name in a pod", name)
	}
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EISDIR) {
		return errs.Newf(errs.Denied, "sysctl %s: can't be written", name)
	}
	if err != nil {
		return fmt.Errorf("sysctl %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if _, err := f.WriteString(s.Value); err != nil {
		return errs.Newf(errs.Usage, "sysctl %s=%s: %w", name, s.Value, blame(err))
	}
	return nil
}

// blame is the kernel's own word on it.
func blame(err error) error {
	if e, ok := errors.AsType[unix.Errno](err); ok {
		return e
	}
	return err
}
