// Package libexec finds the programs that come with rkt and are no commands of
// their own, and starts those that read what strangers wrote: as nobody, with no
// way to get a right back, and not for longer than rkt lives.
package libexec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// nobody is the user and group that a program runs as if rkt is root.
const nobody = 65534

// firstFree is a descriptor that the ones handed to the child never reach.
const firstFree = 16

// EndDeadline is how long a program may take to end once nobody wants it.
const EndDeadline = 2 * time.Second

// Find returns the program of that name that was built or installed with this
// one.
func Find(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find %s: %w", name, err)
	}
	dir := filepath.Dir(self)
	places := []string{filepath.Join(dir, name), filepath.Join(dir, "../libexec/rkt", name)}
	for _, path := range places {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", errs.WithHint(errs.Newf(errs.NotFound, "find %s: neither %s nor %s is there", name, places[0], places[1]),
		"\"make\" builds it beside rkt")
}

// Process is a program that was started without rights.
type Process struct {
	Cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// Start starts a program: the one that Find finds, unless another one is named.
// complete gives the command its standard streams and descriptors. The process
// is killed when ctx is done, and when this one ends.
func Start(ctx context.Context, name, program string, args []string, complete func(*exec.Cmd)) (*Process, error) {
	if program == "" {
		found, err := Find(name)
		if err != nil {
			return nil, err
		}
		program = found
	}
	file, err := open(program)
	if err != nil {
		return nil, errs.Newf(errs.ClassOf(err), "start %s: %w", name, err)
	}
	defer file.Close()
	p := &Process{done: make(chan struct{})}
	p.Cmd = exec.CommandContext(ctx, fmt.Sprintf("/proc/self/fd/%d", file.Fd()), args...)
	p.Cmd.Args[0] = name
	p.Cmd.Dir = "/"
	p.Cmd.Env = []string{}
	p.Cmd.WaitDelay = EndDeadline
	p.Cmd.SysProcAttr = attributes()
	complete(p.Cmd)
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, errs.Newf(errs.Unavailable, "start %s: %w", program, err)
	}
	return p, nil
}

// open opens the program for an exec by descriptor: nobody may not be able to
// reach it by its path.
func open(program string) (*os.File, error) {
	f, err := os.OpenFile(program, unix.O_PATH, 0)
	if err != nil {
		return nil, errs.WithClass(errs.NotFound, err)
	}
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, firstFree)
	if err != nil {
		return nil, errs.Newf(errs.Internal, "%s: %w", program, err)
	}
	return os.NewFile(uintptr(fd), program), nil
}

func attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	if os.Geteuid() == 0 {
		attr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	return attr
}

// run starts the process and waits for it, on a thread of its own: the rights
// that the thread gives up are what the child doesn't inherit, and the child's
// parent-death signal comes when this thread ends (prctl(2)). As the thread
// stays locked, it ends with this function and serves nobody else.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	err := giveUp()
	if err == nil {
		err = p.Cmd.Start()
	}
	started <- err
	if err != nil {
		return
	}
	p.err = p.Cmd.Wait()
	close(p.done)
}

// giveUp takes from this thread, and so from what it starts, all that a program
// could get rights back by. What is left in the effective set goes with the
// change of the user.
func giveUp() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	if os.Geteuid() != 0 {
		return nil
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		// EINVAL: the kernel is older than the capability.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	sets[0].Inheritable, sets[1].Inheritable = 0, 0
	if err := unix.Capset(&header, &sets[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	return nil
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says how the process ended, once Done is closed.
func (p *Process) Err() error { return p.err }

// Kill ends the process and returns when it has ended.
func (p *Process) Kill() {
	// It may have ended by itself.
	_ = p.Cmd.Process.Kill()
	<-p.done
}
