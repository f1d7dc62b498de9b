package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/crilog"
	"github.com/rkt-pods/rkt/stage1/launch"
)

// pipeSize is asked for so that an app that prints in bursts needs not wait
// for the supervisor to be scheduled; users' pipes are limited to 1 MiB.
const pipeSize = 1 << 20

// stream is one of an app's output streams: pipe → log → terminal.
type stream struct {
	name crilog.Stream
	log  *crilog.Writer // nil if there is none
	to   *lines
	from *os.File // read end or pty master, in the runtime's poller

	done     chan struct{}
	draining chan struct{} // closed once nobody may write to the pipe any more
	drain    sync.Once
	onError  func(error)
}

// newPipe returns a pipe whose read end is ours and whose write end belongs to
// the app's user, who may open it again as /dev/stdout.
func newPipe(uid, gid int) (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("pipe: %w", err)
	}
	// Best effort: a full quota of pipe pages only costs speed.
	_, _ = unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, pipeSize)
	// Not os.Pipe: it would make the app's end non-blocking too.
	err = unix.SetNonblock(fds[0], true)
	r, w = os.NewFile(uintptr(fds[0]), "pipe"), os.NewFile(uintptr(fds[1]), "pipe")
	if err == nil {
		err = unix.Fchown(fds[1], uid, gid)
	}
	if err != nil {
		_, _ = r.Close(), w.Close()
		return nil, nil, fmt.Errorf("pipe: %w", err)
	}
	return r, w, nil
}

// pump starts to pass on what comes from the file.
func (s *stream) pump() {
	s.done, s.draining = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(s.done)
		s.copy()
		s.to.end()
		_ = s.from.Close() // only read
	}()
}

// finish ends the stream: at its end of file, or once it is empty, for a
// process that left the app's cgroup may hold the other end for ever. It
// returns when all is in the log.
func (s *stream) finish() {
	s.drain.Do(func() {
		close(s.draining)
		// Wakes the pump, which then reads what is there without waiting. An
		// error means that it has come to the end by itself.
		_ = s.from.SetReadDeadline(time.Unix(1, 0))
		s.to.to.wake()
	})
	<-s.done
}

func (s *stream) copy() {
	buf := make([]byte, 64<<10)
	for {
		n, err := s.from.Read(buf)
		s.pass(buf[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			s.readRest(buf)
			return
		}
		if err != nil {
			return // end of file; of a pty's master it is EIO
		}
	}
}

func (s *stream) readRest(buf []byte) {
	c, err := s.from.SyscallConn()
	if err != nil {
		return
	}
	for {
		var n int
		cerr := c.Control(func(fd uintptr) {
			for {
				n, err = unix.Read(int(fd), buf)
				if !errors.Is(err, unix.EINTR) {
					return
				}
			}
		})
		if cerr != nil || err != nil || n <= 0 {
			return
		}
		s.pass(buf[:n])
	}
}

// pass writes the log first: what is on the terminal is in the log too.
func (s *stream) pass(p []byte) {
	if len(p) == 0 {
		return
	}
	if s.log != nil {
		if err := s.log.Append(s.name, time.Now(), p); err != nil {
			s.onError(err)
		}
	}
	s.to.write(p, s.hurried)
}

// hurried says whether the app is gone: waiting for the terminal would then
// keep the rest of its output out of the log. The pipe's size bounds what is
// queued that way.
func (s *stream) hurried() bool {
	select {
	case <-s.draining:
		return true
	default:
		return false
	}
}

// stdio is what an app has as its first three descriptors, seen from here.
type stdio struct {
	log     *crilog.Writer
	streams []*stream
	feed    *feed       // nil unless a terminal's input is passed on
	close   []io.Closer // the app's ends, and what ends with the app
}

// input gives the app the supervisor's standard input, or a pipe in place of a
// terminal.
func (s *stdio) input(to *launch.Stdio, in *os.File) (err error) {
	to.Stdin = in
	if in == nil || !isTerminal(in) {
		return nil
	}
	if s.feed, to.Stdin, err = openFeed(in); err == nil {
		s.close = append(s.close, to.Stdin)
	}
	return err
}

// started closes the app's ends of the pipes, once it has its own.
func (s *stdio) started() {
	for _, c := range s.close {
		_ = c.Close() // only handed on
	}
	s.close = nil
}

// finish returns once all that the app wrote is in the log.
func (s *stdio) finish() {
	s.started()
	s.feed.close()
	for _, x := range s.streams {
		x.finish()
	}
}
