package fetchwire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
)

const (
	// maxPacket fits into the smallest send buffer that a socket has by default.
	maxPacket = 128 << 10
	// maxSetup bounds the set-up, which may hold a host's certificates.
	maxSetup = 16 << 20
	// maxFiles is how many descriptors come with a message at most.
	maxFiles = 2
)

// Conn is one end of the conversation. Send may be called by many goroutines
// at once, Receive by one.
type Conn struct {
	f    *os.File
	mu   sync.Mutex
	buf  []byte
	oob  []byte
	bare bool
}

// Pair returns rkt's end and the descriptor for the other program. Messages to
// rkt's end may not bring descriptors.
func Pair() (*Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, errs.Newf(errs.Internal, "make a socket pair: %w", err)
	}
	own := newConn(os.NewFile(uintptr(fds[0]), "rkt-fetch"))
	own.bare = true
	return own, os.NewFile(uintptr(fds[1]), "rkt"), nil
}

// Inherited is the end that rkt-fetch was started with.
func Inherited() (*Conn, error) {
	if _, err := unix.GetsockoptInt(Socket, unix.SOL_SOCKET, unix.SO_TYPE); err != nil {
		return nil, errs.WithHint(errs.Newf(errs.Usage, "descriptor %d: %w", Socket, err), "rkt starts this program when it needs it")
	}
	if err := unix.SetNonblock(Socket, true); err != nil {
		return nil, errs.Newf(errs.Internal, "descriptor %d: %w", Socket, err)
	}
	unix.CloseOnExec(Socket)
	return newConn(os.NewFile(Socket, "rkt")), nil
}

func newConn(f *os.File) *Conn {
	return &Conn{f: f, buf: make([]byte, maxPacket+1), oob: make([]byte, unix.CmsgSpace(4*maxFiles))}
}

// Close ends the conversation; a Receive that waits returns.
func (c *Conn) Close() { c.f.Close() }

// Send sends a message with descriptors, which stay the caller's.
func (c *Conn) Send(m *Message, files ...*os.File) error {
	data, err := json.Marshal(m)
	if err != nil {
		return errs.Newf(errs.Internal, "message: %w", err)
	}
	if m.Setup != nil && len(data) > maxPacket {
		f, err := spill(data)
		if err != nil {
			return err
		}
		defer f.Close()
		data, files = []byte("{}"), []*os.File{f}
	}
	if len(data) > maxPacket {
		return errs.Newf(errs.Unsupported, "message: %d bytes, more than %d", len(data), maxPacket)
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	return c.send(data, oob)
}

func (c *Conn) send(data, oob []byte) error {
	raw, err := c.f.SyscallConn()
	if err != nil {
		return os.ErrClosed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var sent error
	err = raw.Write(func(fd uintptr) bool {
		for {
			sent = unix.Sendmsg(int(fd), data, oob, nil, unix.MSG_NOSIGNAL)
			if !errors.Is(sent, unix.EINTR) {
				return !errors.Is(sent, unix.EAGAIN)
			}
		}
	})
	if err != nil { // closed, the only thing that it can be
		return os.ErrClosed
	}
	return sent
}

// spill puts a set-up that is too long for a packet into memory that goes along
// as a descriptor.
func spill(data []byte) (*os.File, error) {
	if len(data) > maxSetup {
		return nil, errs.Newf(errs.Unsupported, "certificates: %d bytes, more than %d", len(data), maxSetup)
	}
	fd, err := unix.MemfdCreate("setup", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, errs.Newf(errs.Internal, "set-up: %w", err)
	}
	f := os.NewFile(uintptr(fd), "setup")
	if _, err := f.WriteAt(data, 0); err != nil {
		f.Close()
		return nil, errs.Newf(errs.Internal, "set-up: %w", err)
	}
	return f, nil
}

// Receive waits for a message. Descriptors that came with it are the caller's.
// io.EOF says that the other side is gone.
func (c *Conn) Receive() (*Message, []*os.File, error) {
	raw, err := c.f.SyscallConn()
	if err != nil {
		return nil, nil, os.ErrClosed
	}
	var n, oobn, flags int
	var got error
	err = raw.Read(func(fd uintptr) bool {
		for {
			n, oobn, flags, _, got = unix.Recvmsg(int(fd), c.buf, c.oob, unix.MSG_CMSG_CLOEXEC)
			if !errors.Is(got, unix.EINTR) {
				return !errors.Is(got, unix.EAGAIN)
			}
		}
	})
	switch {
	case err != nil: // closed, the only thing that it can be
		return nil, nil, os.ErrClosed
	case errors.Is(got, unix.ECONNRESET), got == nil && n == 0:
		return nil, nil, io.EOF
	case got != nil:
		return nil, nil, got
	}
	files := rights(c.oob[:oobn])
	m, err := c.message(c.buf[:n], flags, files)
	if err != nil {
		closeAll(files)
		return nil, nil, err
	}
	if m.Setup != nil {
		closeAll(files)
		files = nil
	}
	return m, files, nil
}

func (c *Conn) message(data []byte, flags int, files []*os.File) (*Message, error) {
	switch {
	case len(data) > maxPacket || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		return nil, errs.Newf(errs.Corrupt, "message: too long")
	case c.bare && len(files) > 0:
		return nil, errs.Newf(errs.Corrupt, "message: it brings descriptors")
	}
	if bytes.Equal(data, []byte("{}")) && len(files) == 1 {
		long, err := io.ReadAll(io.NewSectionReader(files[0], 0, maxSetup))
		if err != nil {
			return nil, errs.Newf(errs.Internal, "set-up: %w", err)
		}
		data = long
	}
	m := &Message{}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(m); err != nil {
		return nil, errs.Newf(errs.Corrupt, "message: %w", err)
	}
	if m.parts() != 1 {
		return nil, errs.Newf(errs.Corrupt, "message: %d parts instead of one", m.parts())
	}
	return m, nil
}

// parts counts what the message says.
func (m *Message) parts() int {
	n := 0
	for _, set := range []bool{
		m.Setup != nil, m.Request != nil, m.Cancel != nil, m.Answer != nil, m.Sandbox != nil,
		m.Head != nil, m.Progress != nil, m.End != nil, m.Ask != nil,
	} {
		if set {
			n++
		}
	}
	return n
}

func rights(oob []byte) []*os.File {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	var files []*os.File
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			// Without this a read or write of the pipe can't be given up.
			_ = unix.SetNonblock(fd, true)
			files = append(files, os.NewFile(uintptr(fd), "pipe"))
		}
	}
	return files
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
