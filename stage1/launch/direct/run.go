package direct

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/launch/cell"
	"github.com/rkt-pods/rkt/stage1/sealed"
)

// files are the descriptors that the launcher process gets, in the order of
// their numbers there.
type files struct {
	open    []*os.File
	cgroups int
}

func (f *files) close() {
	for _, file := range f.open {
		file.Close()
	}
}

// inherit copies namespaces, or the pidfd of a process that is in them, and
// tells the numbers that all the files have in the launcher process.
func (f *files) inherit(ns launch.Namespaces, main int) inherited {
	next := programFD + 1
	in := inherited{}
	for range f.cgroups {
		in.cgroups = append(in.cgroups, next)
		next++
	}
	for _, n := range []struct {
		fd  int
		dst *int
	}{{ns.PID, &in.pid}, {ns.IPC, &in.ipc}, {ns.UTS, &in.uts}, {ns.Net, &in.net}, {ns.User, &in.user}, {main, &in.main}} {
		*n.dst = -1
		if n.fd >= 0 {
			// The number alone: it is the caller's to close, at its time.
			f.open = append(f.open, borrowed(n.fd))
			*n.dst = next
			next++
		}
	}
	in.count = next
	return in
}

// borrowed is a duplicate of a descriptor, nil if there can be none: then the
// start fails with what the kernel says of a descriptor that is not open.
func borrowed(fd int) *os.File {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(own), "borrowed")
}

// process implements launch.Process.
type process struct {
	*cell.Process
	released bool // it may have executed its program
}

// abandon leaves nothing of a start that failed.
func (p *process) abandon() error {
	p.Abandon()
	return p.Destroy()
}

// job is one start of a process.
type job struct {
	exe     int // applaunch
	program *program
	files   *files
	stdio   launch.Stdio
	uid     int          // on the host
	release func() error // looks after the process that waits, before it may go on
}

// run starts the job's process and returns once its program has been executed.
func (p *process) run(ctx context.Context, j *job) error {
	if err := fault.Step("launch.start"); err != nil {
		return err
	}
	if !j.stdio.TTY {
		for _, f := range []*os.File{j.stdio.Stdin, j.stdio.Stdout, j.stdio.Stderr} {
			if err := cell.Own(f, j.uid); err != nil {
				return err
			}
		}
	}
	if j.program.full {
		return errs.Newf(errs.Unsupported, "too many volumes")
	}
	list, err := memoryFile(j.program.bytes(programFD + 1 + len(j.files.open)))
	if err != nil {
		return err
	}
	defer list.Close()
	control, remote, err := sealed.ControlPair()
	if err != nil {
		return err
	}
	defer control.Close()
	// Also ends a process that waits to be let go, or is going to.
	var once sync.Once
	stop := context.AfterFunc(ctx, func() {
		once.Do(func() { _ = control.SetDeadline(time.Unix(1, 0)) })
		p.Leaf.Kill()
	})
	err = p.spawn(j, list, remote)
	remote.Close()
	if err == nil {
		err = p.converse(control, j)
	}
	if !stop() && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// spawn runs the launcher process to its end, which is at the fork.
func (p *process) spawn(j *job, list, remote *os.File) error {
	extra := append([]*os.File{remote, list}, j.files.open...)
	exe, err := sealed.Clear(j.exe, append(extra, j.stdio.Stdin, j.stdio.Stdout, j.stdio.Stderr)...)
	if err != nil {
		return err
	}
	cmd := exec.Cmd{Path: sealed.Path(exe), Args: []string{"applaunch"}, Env: []string{}, Dir: "/", ExtraFiles: extra}
	if !j.stdio.TTY {
		// A nil *os.File in an interface is not nil, and would not become /dev/null.
		if j.stdio.Stdin != nil {
			cmd.Stdin = j.stdio.Stdin
		}
		if j.stdio.Stdout != nil {
			cmd.Stdout = j.stdio.Stdout
		}
		if j.stdio.Stderr != nil {
			cmd.Stderr = j.stdio.Stderr
		}
	}
	err = cmd.Start()
	_ = unix.Close(exe)
	if err != nil {
		return fmt.Errorf("applaunch: %w", err)
	}
	// How it ended tells nothing that the socket does not.
	_ = cmd.Wait()
	pid := make([]byte, 4)
	if _, err := list.ReadAt(pid, pidOffset); err != nil {
		return fmt.Errorf("applaunch: %w", err)
	}
	if n := int(binary.LittleEndian.Uint32(pid)); n != 0 {
		p.Pid = n
		p.Child, err = os.FindProcess(n)
	}
	return err
}

// The words of applaunch's messages.
const (
	msgError    = 'E'
	msgReady    = 'R'
	msgTerminal = 'T'
	msgSize     = 16
)

// converse hears what the process has to say until its program runs.
func (p *process) converse(control *os.File, j *job) error {
	for {
		m, fd, err := receive(control)
		if errors.Is(err, io.EOF) {
			if !p.released {
				return errs.Newf(errs.Unavailable, "ended while it was being set up")
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("applaunch: %w", err)
		}
		switch m.what {
		case msgTerminal:
			// Non-blocking, so that Close ends a Read of it.
			if err := unix.SetNonblock(fd, true); err != nil {
				unix.Close(fd)
				return fmt.Errorf("terminal: %w", err)
			}
			p.Terminal = os.NewFile(uintptr(fd), "/dev/ptmx")
		case msgReady:
			// What the set-up itself ran into is not the program's doing.
			p.Leaf.Baseline()
			if err := j.release(); err != nil {
				return err
			}
			p.released = true
			if _, err := control.Write([]byte("G")); err != nil {
				return fmt.Errorf("applaunch: %w", err)
			}
		case msgError:
			return j.program.failed(m)
		}
	}
}

type message struct {
	what   uint32
	op     uint32
	errno  unix.Errno
	detail uint32
}

func receive(control *os.File) (message, int, error) {
	conn, err := control.SyscallConn()
	if err != nil {
		return message{}, -1, err
	}
	data, oob := make([]byte, msgSize), make([]byte, unix.CmsgSpace(4))
	var n, oobn int
	var rerr error
	err = conn.Read(func(fd uintptr) bool {
		n, oobn, _, _, rerr = unix.Recvmsg(int(fd), data, oob, unix.MSG_CMSG_CLOEXEC)
		return !errors.Is(rerr, unix.EAGAIN) && !errors.Is(rerr, unix.EINTR)
	})
	if err == nil {
		err = rerr
	}
	if errors.Is(err, unix.ECONNRESET) || err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return message{}, -1, err
	}
	le := binary.LittleEndian
	m := message{le.Uint32(data), le.Uint32(data[4:]), unix.Errno(le.Uint32(data[8:])), le.Uint32(data[12:])}
	if n != msgSize {
		return m, -1, errs.Newf(errs.Internal, "message of %d bytes", n)
	}
	if m.what != msgTerminal {
		return m, -1, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(msgs) != 1 {
		return m, -1, errs.Newf(errs.Internal, "terminal: %d messages: %v", len(msgs), err)
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil || len(fds) != 1 {
		return m, -1, errs.Newf(errs.Internal, "terminal: %d descriptors: %v", len(fds), err)
	}
	return m, fds[0], nil
}

// failure is an operation that failed.
type failure struct {
	op     string
	errno  unix.Errno
	detail uint32
}

// cause is the errno's text, or that no folder of PATH has the program.
func (f *failure) cause() string {
	if f.detail != 0 {
		return cell.NotInPath
	}
	return f.errno.Error()
}

func (f *failure) Error() string { return f.op + ": " + f.errno.Error() }
func (f *failure) Unwrap() error { return f.errno }

func (p *program) failed(m message) error {
	if int(m.op) >= len(p.ops) {
		return fmt.Errorf("applaunch: %w", m.errno)
	}
	o := p.ops[m.op]
	f := &failure{op: o.what, errno: m.errno, detail: m.detail}
	switch {
	case o.what == whatFork && m.errno == unix.ENOMEM:
		return errs.Newf(errs.Unavailable, "%s", cell.PodInitGone)
	case o.call == opTarget && m.detail > 0:
		// Some part of the path is no folder.
		path, err := strconv.Unquote(o.args[0].text)
		if text := "mkdir " + path; err == nil && o.what == text && int(m.detail) <= len(path) {
			f.op = "mkdir " + trimSlashes(path[:m.detail])
		}
	}
	return f
}

func trimSlashes(path string) string {
	for len(path) > 1 && path[len(path)-1] == '/' {
		path = path[:len(path)-1]
	}
	return path
}

// memoryFile holds the list of operations.
func memoryFile(data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("applaunch", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), "operations")
	if _, err := f.Write(data); err != nil {
		f.Close()
		return nil, fmt.Errorf("memfd: %w", err)
	}
	return f, nil
}
