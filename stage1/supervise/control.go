package supervise

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

// The control socket speaks one line of JSON each way:
//
//	stage1 stop                        supervisor
//	{"op":"stop","force":false}   ──▶  stops the pod
//	          ◀──  {"withinMs":…}      at once: how long it may take
//	          ◀──  {"exit":{…}}        once the pod's end is on disk
//	          ◀──  end of file         once the supervisor is gone
//	{"op":"state"}                ──▶
//	          ◀──  {"summary":{…}}
//
// It is private to the stage1 whose supervisor listens.
type request struct {
	Op    string `json:"op"`
	Force bool   `json:"force,omitempty"`
}

type reply struct {
	Error    string          `json:"error,omitempty"`
	WithinMs int64           `json:"withinMs,omitempty"`
	Exit     *poddir.Exit    `json:"exit,omitempty"`
	Summary  *poddir.Summary `json:"summary,omitempty"`
}

// The operations of the control socket.
const (
	opStop  = "stop"
	opState = "state"
)

// requestLimit bounds a line, and ioTimeout the time a peer may take for one.
const (
	requestLimit = 4 << 10
	ioTimeout    = 10 * time.Second
)

// call is a request on its way to the event loop, which answers it and closes
// the channel after the last answer.
type call struct {
	request
	answer chan reply // with room for all: two
}

// last answers and ends the call.
func (c call) last(r reply) {
	c.answer <- r
	close(c.answer)
}

// control is the listening socket.
type control struct {
	l     net.Listener
	calls chan<- call
	over  <-chan struct{} // closed when nobody takes calls any more
}

// socketAddress is a path to the socket that fits into sun_path however deep
// the run folder lies, good as long as the descriptor is open.
func socketAddress(runDir string) (path string, dir *os.File, err error) {
	dir, err = os.Open(runDir)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), poddir.SocketFile), dir, nil
}

// listen makes the socket. Calls are sent to the channel until over is closed.
func listen(runDir string, calls chan<- call, over <-chan struct{}) (*control, error) {
	if err := fault.Step("control.listen"); err != nil {
		return nil, err
	}
	// Of an earlier supervisor, which is gone: the pod's lock is ours.
	if err := os.Remove(filepath.Join(runDir, poddir.SocketFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	path, dir, err := socketAddress(runDir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	// Removed with the run folder, by its real path.
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("control socket: %w", err)
	}
	c := &control{l: l, calls: calls, over: over}
	go c.accept()
	return c, nil
}

// close stops listening. Peers that got their answer keep their connection,
// and see its end when the process ends.
func (c *control) close() {
	if c != nil {
		_ = c.l.Close()
	}
}

func (c *control) accept() {
	for {
		conn, err := c.l.Accept()
		if err != nil {
			return // closed
		}
		go c.serve(conn.(*net.UnixConn))
	}
}

func (c *control) serve(conn *net.UnixConn) {
	if err := authorize(conn); err != nil {
		_ = send(conn, reply{Error: err.Error()}) // it may be gone already
		_ = conn.Close()
		return
	}
	in := bufio.NewReaderSize(conn, requestLimit)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			_ = conn.Close()
			return
		}
		var req request
		if err := json.Unmarshal(line, &req); err != nil {
			_ = send(conn, reply{Error: "request: " + err.Error()})
			_ = conn.Close()
			return
		}
		asked := call{request: req, answer: make(chan reply, 2)}
		select {
		case c.calls <- asked:
		case <-c.over:
			_ = conn.Close()
			return
		}
		for r := range asked.answer {
			if err := send(conn, r); err != nil {
				_ = conn.Close()
				return
			}
		}
	}
}

// authorize lets root and the pod's owner in. The socket's mode says the same,
// but a descriptor may have been handed to somebody else.
func authorize(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if credErr != nil {
		return fmt.Errorf("peer credentials: %w", credErr)
	}
	return allowed(int(cred.Uid))
}

func allowed(uid int) error {
	if uid != 0 && uid != os.Geteuid() {
		return errs.Newf(errs.Denied, "user %d: not the pod's owner", uid)
	}
	return nil
}

func send(conn *net.UnixConn, r reply) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := conn.SetWriteDeadline(time.Now().Add(ioTimeout)); err != nil {
		return err
	}
	_, err = conn.Write(append(data, '\n'))
	return err
}

// client is a connection to a pod's supervisor, which ends with it.
type client struct {
	conn *net.UnixConn
	in   *json.Decoder
}

func dial(runDir string) (*client, error) {
	path, dir, err := socketAddress(runDir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	return &client{conn, json.NewDecoder(conn)}, nil
}

// ask sends a request.
func (c *client) ask(r request) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := c.conn.SetWriteDeadline(time.Now().Add(ioTimeout)); err != nil {
		return err
	}
	_, err = c.conn.Write(append(data, '\n'))
	return err
}

// answer waits for a line; the error is os.ErrDeadlineExceeded if none comes
// in time.
func (c *client) answer(within time.Duration) (reply, error) {
	var r reply
	if err := c.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		return r, err
	}
	if err := c.in.Decode(&r); err != nil {
		return r, err
	}
	if r.Error != "" {
		return r, errs.Newf(errs.Internal, "supervisor: %s", r.Error)
	}
	return r, nil
}
