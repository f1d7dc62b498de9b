package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/proc"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/plan"
	"github.com/rkt-pods/rkt/stage1/sealed"
)

// The words of pod init's protocol; stage1/podinit/podinit.c draws it.
const (
	initReady  = "R"
	initGo     = "G"
	initJailed = "K"
	initAnswer = "A"
	initError  = 'E'
)

// noNamespaces is what there is before StartInit: 0 would be a descriptor.
var noNamespaces = launch.Namespaces{PID: -1, Net: -1, IPC: -1, UTS: -1, User: -1}

// podInit is PID 1 of the pod, seen from the supervisor.
type podInit struct {
	id     proc.ID
	pidfd  int
	ns     launch.Namespaces
	exited chan struct{}
	once   sync.Once
}

// StartInit makes the pod's namespaces and starts pod init in them, in the
// caller's cgroup. It must be called on the process's main thread, locked to
// its goroutine: the death signal that pod init asks for comes when the
// *thread* that made it ends, and only the main thread lives as long as the
// process.
func (p *Pod) StartInit(ctx context.Context) error {
	if p.init.Load() != nil {
		return errs.Newf(errs.Internal, "pod init: started twice")
	}
	if unix.Gettid() != os.Getpid() {
		return errs.Newf(errs.Internal, "pod init: not started from the main thread")
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("pod init: %w", err)
	}
	defer null.Close()
	control, remote, err := sealed.ControlPair()
	if err != nil {
		return fmt.Errorf("pod init: %w", err)
	}
	defer control.Close()
	defer remote.Close()
	program, err := sealed.Copy("podinit", p.program)
	if err != nil {
		return fmt.Errorf("pod init: %w", err)
	}
	defer unix.Close(program)
	exe, err := sealed.Clear(program, null, remote)
	if err != nil {
		return fmt.Errorf("pod init: %w", err)
	}
	defer unix.Close(exe)

	if err := fault.Step("sandbox.startinit"); err != nil {
		return err
	}
	in := &podInit{pidfd: -1, ns: noNamespaces, exited: make(chan struct{})}
	cmd := p.initCommand(exe, null, remote, &in.pidfd)
	if err := cmd.Start(); err != nil {
		if p.plan.IDs != nil {
			err = userNSError(err)
		}
		return fmt.Errorf("pod init: %w", err)
	}
	// Only its own copy may keep the socket open, or its death would not be
	// the end of the file here.
	remote.Close()
	stop := context.AfterFunc(ctx, func() { _ = control.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	// It is not reaped before this is over, so the pid is its own.
	err = in.handshake(control, cmd.Process.Pid, p.plan)
	if err == nil {
		err = setSysctls(p.plan.Sysctls, in.ns, p.plan.IDs)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", err, ctx.Err())
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		in.close()
		return fmt.Errorf("pod init: %w", err)
	}
	go func() {
		// How it ended tells nothing: it is killed in the end, and what it
		// has to say it said over the socket.
		_ = cmd.Wait()
		close(in.exited)
	}()
	p.init.Store(in)
	return nil
}

func (p *Pod) initCommand(exe int, null, remote *os.File, pidfd *int) *exec.Cmd {
	flags := uintptr(unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNS)
	net := "host"
	if !p.plan.Network.Host {
		flags |= unix.CLONE_NEWNET
		net = "own"
	}
	attr := &syscall.SysProcAttr{Cloneflags: flags, PidFD: pidfd}
	if inUserNS(attr, p.plan.IDs); p.plan.IDs != nil {
		attr.Credential = &syscall.Credential{} // its root
	}
	return &exec.Cmd{
		Path: sealed.Path(exe), Args: []string{"podinit", p.plan.Hostname, net}, Env: []string{}, Dir: "/",
		Stdin: null, Stdout: null, Stderr: null, ExtraFiles: []*os.File{remote},
		SysProcAttr: attr,
	}
}

// handshake opens the namespaces between the two halves of pod init's set-up:
// once it is jailed, not even root may look into it.
func (in *podInit) handshake(control *os.File, pid int, pod plan.Pod) (err error) {
	if err := expect(control, initReady); err != nil {
		return err
	}
	if in.id, err = proc.Of(pid); err != nil {
		return err
	}
	open := func(kind string, dst *int) (err error) {
		path := fmt.Sprintf("/proc/%d/ns/%s", pid, kind)
		if *dst, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return fmt.Errorf("open %s: %w", path, err)
		}
		return nil
	}
	if err := errors.Join(open("pid", &in.ns.PID), open("ipc", &in.ns.IPC), open("uts", &in.ns.UTS)); err != nil {
		return err
	}
	if pod.IDs != nil {
		if err := open("user", &in.ns.User); err != nil {
			return err
		}
	}
	if !pod.Network.Host {
		if err := open("net", &in.ns.Net); err != nil {
			return err
		}
	}
	if err := fault.Step("sandbox.jailinit"); err != nil {
		return err
	}
	if _, err := control.WriteString(initGo); err != nil {
		return fmt.Errorf("let it go: %w", err)
	}
	if err := expect(control, initJailed); err != nil {
		return err
	}
	if err := fault.Step("sandbox.answerinit"); err != nil {
		return err
	}
	if _, err := control.WriteString(initAnswer); err != nil {
		return fmt.Errorf("answer it: %w", err)
	}
	// It closes the socket next, its last descriptor. No app may run before:
	// podinit.c says what one could do with it.
	if n, err := control.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		return errs.Newf(errs.Internal, "did not close its socket: %w", err)
	}
	return nil
}

// expect reads one message. An E carries the errno and the step that failed.
func expect(control *os.File, want string) error {
	buf := make([]byte, 128)
	n, err := control.Read(buf)
	msg := string(buf[:n])
	switch {
	case n == 0:
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return errs.Newf(errs.Unavailable, "no answer")
		}
		return errs.Newf(errs.Internal, "ended while it was being set up")
	case msg == want:
		return nil
	case msg[0] == initError:
		digits, step, _ := strings.Cut(msg[1:], " ")
		if errno, err := strconv.Atoi(digits); err == nil {
			return fmt.Errorf("%s: %w", step, unix.Errno(errno))
		}
	}
	return errs.Newf(errs.Internal, "answer %q not understood", msg)
}

// Namespaces are the pod's, open until Close. Before StartInit returned all of
// them are -1.
func (p *Pod) Namespaces() launch.Namespaces {
	if in := p.init.Load(); in != nil {
		return in.ns
	}
	return noNamespaces
}

// Init names pod init, after StartInit.
func (p *Pod) Init() proc.ID { return p.init.Load().id }

// InitFD is a pidfd of pod init, after StartInit and until Close.
func (p *Pod) InitFD() int { return p.init.Load().pidfd }

// InitExited is closed when pod init has ended and is reaped, and with it
// every process of the pod. It is there after StartInit.
func (p *Pod) InitExited() <-chan struct{} { return p.init.Load().exited }

// KillInit ends pod init and so the pod. It does not wait: the kernel holds a
// dying PID 1 until every other process of its namespace is reaped, and the
// apps are this process's children, so they are to be reaped before or
// meanwhile. Then InitExited is closed.
func (p *Pod) KillInit() error {
	in := p.init.Load()
	if in == nil {
		return nil
	}
	if err := fault.Step("sandbox.killinit"); err != nil {
		return err
	}
	if err := unix.PidfdSendSignal(in.pidfd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill pod init: %w", err)
	}
	return nil
}

// WaitInit waits until pod init has ended after KillInit.
func (p *Pod) WaitInit(ctx context.Context) error {
	in := p.init.Load()
	if in == nil {
		return nil
	}
	select {
	case <-in.exited:
		return nil
	case <-ctx.Done():
		return errs.Newf(errs.Unavailable, "pod init: process %d: still there: %w", in.id.PID, ctx.Err())
	}
}

func (in *podInit) close() {
	in.once.Do(func() {
		for _, fd := range []int{in.pidfd, in.ns.PID, in.ns.Net, in.ns.IPC, in.ns.UTS, in.ns.User} {
			if fd >= 0 {
				_ = unix.Close(fd)
			}
		}
	})
}
