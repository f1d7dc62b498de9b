package remote

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
)

// nobody is the user and group that rkt-fetch runs as if rkt is root.
const nobody = 65534

// firstFree is a descriptor that the ones handed to the child never reach.
const firstFree = 16

// endDeadline is how long a process may take to end after it hung up.
const endDeadline = 2 * time.Second

// Find returns the rkt-fetch program that was built or installed with this one.
func Find() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find rkt-fetch: %w", err)
	}
	dir := filepath.Dir(self)
	places := []string{filepath.Join(dir, "rkt-fetch"), filepath.Join(dir, "../libexec/rkt/rkt-fetch")}
	for _, path := range places {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", errs.WithHint(errs.Newf(errs.NotFound, "find rkt-fetch: neither %s nor %s is there", places[0], places[1]),
		"\"make\" builds it beside rkt")
}

// process is a running rkt-fetch.
type process struct {
	cmd    *exec.Cmd
	stderr lastWords
	done   chan struct{}
	state  error // once done is closed: how it ended
}

// launch starts rkt-fetch with the other end of a conversation. It ends with
// ctx, with this process, and when the conversation is closed.
func launch(ctx context.Context, program string, mode fetchwire.Mode) (*process, *fetchwire.Conn, error) {
	if program == "" {
		found, err := Find()
		if err != nil {
			return nil, nil, err
		}
		program = found
	}
	if err := fault.Step("remote.start"); err != nil {
		return nil, nil, err
	}
	file, err := openProgram(program)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	conn, theirs, err := fetchwire.Pair()
	if err != nil {
		return nil, nil, err
	}
	defer theirs.Close()
	p := &process{done: make(chan struct{})}
	p.cmd = exec.CommandContext(ctx, fmt.Sprintf("/proc/self/fd/%d", file.Fd()), string(mode))
	p.cmd.Args[0] = "rkt-fetch"
	p.cmd.Dir = "/"
	p.cmd.Env = []string{}
	p.cmd.WaitDelay = endDeadline
	p.cmd.Stderr = &p.stderr
	p.cmd.ExtraFiles = []*os.File{theirs} // becomes fetchwire.Socket
	p.cmd.SysProcAttr = attributes()
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		conn.Close()
		return nil, nil, errs.Newf(errs.Unavailable, "start %s: %w", program, err)
	}
	return p, conn, nil
}

// openProgram opens the program for an exec by descriptor: nobody may not be
// able to reach it by its path.
func openProgram(program string) (*os.File, error) {
	f, err := os.OpenFile(program, unix.O_PATH, 0)
	if err != nil {
		return nil, errs.Newf(errs.NotFound, "start rkt-fetch: %w", err)
	}
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, firstFree)
	if err != nil {
		return nil, errs.Newf(errs.Internal, "start %s: %w", program, err)
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
func (p *process) run(started chan<- error) {
	runtime.LockOSThread()
	err := giveUp()
	if err == nil {
		err = p.cmd.Start()
	}
	started <- err
	if err != nil {
		return
	}
	p.state = p.cmd.Wait()
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

// kill ends the process; what it is for is over.
func (p *process) kill() {
	// It may have ended by itself.
	_ = p.cmd.Process.Kill()
	<-p.done
}

// ended says how the process ended, which it has or is about to: one that has
// hung up and stays is killed.
func (p *process) ended() error {
	select {
	case <-p.done:
	case <-time.After(endDeadline):
		p.kill()
	}
	if words := p.stderr.String(); words != "" {
		return (&fetchwire.Failure{Class: errs.Unavailable, Message: "rkt-fetch ended: " + words}).Err()
	}
	if p.state != nil {
		return errs.Newf(errs.Unavailable, "rkt-fetch ended: %w", p.state)
	}
	return errs.Newf(errs.Unavailable, "rkt-fetch ended too early")
}

// lastWords keeps the beginning of what a process writes to stderr.
type lastWords struct {
	mu  sync.Mutex
	buf []byte
}

// Write keeps what there is still room for and takes everything.
func (l *lastWords) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, p[:min(len(p), 512-len(l.buf))]...)
	return len(p), nil
}

// String returns the first line.
func (l *lastWords) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	line, _, _ := strings.Cut(strings.TrimSpace(string(l.buf)), "\n")
	return strings.TrimPrefix(line, "rkt-fetch: ")
}
