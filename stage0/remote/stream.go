package remote

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
)

// pipeSize is what a pipe holds: enough that neither side waits for each chunk.
const pipeSize = 1 << 20

// stream is the content of an answer. It gives io.EOF only if rkt-fetch says
// that it is whole.
type stream struct {
	c    *Client
	ctx  context.Context
	id   uint64
	call *call
	pipe *os.File
	head fetchwire.Head

	close  func() // once
	detach func() bool
}

// open sends a request and waits for the head of the answer. Further files go
// with it, behind the pipe for the content.
func (c *Client) open(ctx context.Context, r *fetchwire.Request, progress func(int64), more ...*os.File) (*stream, error) {
	r0, w, err := pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	return c.openInto(ctx, r, progress, r0, append([]*os.File{w}, more...)...)
}

// openInto is open with a pipe that is there already; files is all that goes
// with the request.
func (c *Client) openInto(ctx context.Context, r *fetchwire.Request, progress func(int64), from *os.File, files ...*os.File) (*stream, error) {
	s := &stream{c: c, ctx: ctx, pipe: from, call: &call{
		head: make(chan fetchwire.Head, 1), ended: make(chan struct{}), progress: progress,
	}}
	s.close = sync.OnceFunc(s.release)
	id, err := c.register(s.call)
	s.id = id
	if err == nil {
		err = c.send(&fetchwire.Message{ID: id, Request: r}, files...)
	}
	if err != nil {
		c.forget(id)
		from.Close()
		return nil, err
	}
	s.detach = context.AfterFunc(ctx, s.close)
	select {
	case s.head = <-s.call.head:
		return s, nil
	case <-ctx.Done():
		s.end()
		return nil, ctx.Err()
	case <-s.call.ended:
	}
	select {
	case s.head = <-s.call.head: // the end came right behind it
		return s, nil
	default:
	}
	s.end()
	if s.call.err != nil {
		return nil, s.call.err
	}
	return nil, errs.Newf(errs.Corrupt, "rkt-fetch: an answer without a head")
}

func (c *Client) register(call *call) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure != nil {
		return 0, c.failure
	}
	c.last++
	c.calls[c.last] = call
	return c.last, nil
}

// forget says whether the request had not ended yet.
func (c *Client) forget(id uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, open := c.calls[id]
	delete(c.calls, id)
	return open
}

// Read reads the next bytes of the content.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.pipe.Read(p)
	if err == nil {
		return n, nil
	}
	if s.ctx.Err() != nil {
		return n, s.ctx.Err()
	}
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	// The pipe may be closed because the program died, hence the end that
	// counts is the one that is told.
	select {
	case <-s.call.ended:
	case <-s.ctx.Done():
		return n, s.ctx.Err()
	}
	if s.call.err != nil {
		return n, s.call.err
	}
	return n, io.EOF
}

// Close gives the stream up. It does not fail.
func (s *stream) Close() error {
	s.end()
	return nil
}

func (s *stream) end() {
	s.detach()
	s.close()
}

func (s *stream) release() {
	if s.c.forget(s.id) {
		// If this does not arrive, the program is gone.
		_ = s.c.conn.Send(&fetchwire.Message{ID: s.id, Cancel: &fetchwire.Cancel{}})
	}
	s.pipe.Close()
}

// pipe makes a pipe for content.
func pipe() (r, w *os.File, err error) {
	r, w, err = os.Pipe()
	if err != nil {
		return nil, nil, errs.Newf(errs.Unavailable, "make a pipe: %w", err)
	}
	// A smaller one does too, so an unprivileged user's quota is no error. Not by
	// Fd, which makes the pipe blocking: Close would no longer end a Write.
	if raw, err := w.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) })
	}
	return r, w, nil
}
