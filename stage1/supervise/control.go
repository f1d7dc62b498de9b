package supervise

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/limits"
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
//	{"op":"restart","app":…}      ──▶  as stop; the second answer comes once the
//	                                   new execution has begun, or will not
//	{"op":"stop","app":…}         ──▶  as stop; the second answer comes once
//	                                   that app has ended
//	{"op":"signal","signal":…}    ──▶
//	{"op":"pause","off":false}    ──▶
//	          ◀──  {}                  done
//	{"op":"update","limits":{…}}  ──▶
//	          ◀──  {"results":[…]}
//	{"op":"visit","visitor":{…}}  ──▶
//	          ◀──  {}                  the program that was sent into the app is
//	                                   ended with what it started, if the
//	                                   connection ends before it says:
//	{"op":"visit"}                ──▶
//	          ◀──  {}
//
// It is private to the stage1 whose supervisor listens.
type request struct {
	Op        string `json:"op"`
	Force     bool   `json:"force,omitempty"`
	App       string `json:"app,omitempty"`
	Signal    int    `json:"signal,omitempty"`
	TimeoutMs *int64 `json:"timeoutMs,omitempty"` // nil: the app's own
	Off       bool   `json:"off,omitempty"`

	Limits *limits.Set `json:"limits,omitempty"`

	Visitor *visitor `json:"visitor,omitempty"`
}

type reply struct {
	Error    string          `json:"error,omitempty"`
	Class    errs.Class      `json:"class,omitempty"` // of the error
	Hints    []string        `json:"hints,omitempty"` // to the error
	WithinMs int64           `json:"withinMs,omitempty"`
	Exit     *poddir.Exit    `json:"exit,omitempty"`
	Summary  *poddir.Summary `json:"summary,omitempty"`
	Results  []limits.Result `json:"results,omitempty"`
}

// refusal is the answer that is an error.
func refusal(err error) reply {
	return reply{Error: err.Error(), Class: errs.ClassOf(err), Hints: errs.Hints(err)}
}

// err is the inverse of refusal.
func (r reply) err() error {
	if r.Error == "" {
		return nil
	}
	err := errs.Newf(cmp.Or(r.Class, errs.Internal), "%s", r.Error)
	for _, hint := range slices.Backward(r.Hints) {
		err = errs.WithHint(err, "%s", hint)
	}
	return err
}

// The operations of the control socket.
const (
	opStop    = "stop"
	opState   = "state"
	opRestart = "restart"
	opSignal  = "signal"
	opPause   = "pause"
	opUpdate  = "update"
	opVisit   = "visit"
	opGone    = "gone" // who has sent a visitor; it can't say so itself
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
	var sent *visitor
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			_ = conn.Close()
			c.gone(sent)
			return
		}
		var req request
		if err := json.Unmarshal(line, &req); err != nil {
			_ = send(conn, reply{Error: "request: " + err.Error()})
			_ = conn.Close()
			return
		}
		if req.Op == opVisit {
			sent = req.Visitor
		}
		asked := call{request: req, answer: make(chan reply, 2)}
		if !c.pass(asked) {
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

// pass hands a call to the event loop, if that still takes any.
func (c *control) pass(asked call) bool {
	select {
	case c.calls <- asked:
		return true
	case <-c.over:
		return false
	}
}

// gone tells that nobody waits any more for a visitor, if there was one.
func (c *control) gone(sent *visitor) {
	if sent == nil {
		return
	}
	asked := call{request: request{Op: opGone, Visitor: sent}, answer: make(chan reply, 2)}
	if c.pass(asked) {
		<-asked.answer
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
