// Package remote is rkt's side of fetching: it starts rkt-fetch, the program
// that talks to strangers without any right to do harm, asks it for manifests,
// blobs and files, and hands out what comes as streams. Nothing that comes is
// verified here but by the caller, who has the digests and the keys.
package remote

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
)

// maxAsks bounds the questions for credentials that are open at once.
const maxAsks = 32

// Options are what Start needs.
type Options struct {
	Program string // rkt-fetch; empty: the one beside rkt
	Setup   fetchwire.Setup
	// Credentials answers which credential a host gets. It is asked only about
	// hosts that a request, or a mirror configured for it, names; nil: none.
	Credentials func(ctx context.Context, r fetchwire.CredentialRequest) (fetchwire.Credential, error)
}

// Client is a running rkt-fetch. Its methods may be called by many goroutines
// at once.
type Client struct {
	opts Options
	ctx  context.Context
	stop context.CancelFunc
	proc *process
	conn *fetchwire.Conn
	asks chan struct{} // a place for each open question

	mu      sync.Mutex
	last    uint64
	calls   map[uint64]*call
	hosts   map[string]bool // credentials may be asked for
	failure error           // once the conversation is over
	over    chan struct{}
	sandbox chan fetchwire.Sandbox
}

// call is a request that has not ended.
type call struct {
	head     chan fetchwire.Head // gets at most one
	headed   bool                // it has; only the receiver looks at it
	ended    chan struct{}
	err      error // once ended is closed
	progress func(int64)
}

// Start starts rkt-fetch for requests to the network. It is killed when ctx is
// done; the caller closes the client in any case.
func Start(ctx context.Context, opts Options) (*Client, error) {
	return start(ctx, fetchwire.Network, opts)
}

func start(ctx context.Context, mode fetchwire.Mode, opts Options) (*Client, error) {
	ctx, stop := context.WithCancel(ctx)
	proc, conn, err := launch(ctx, opts.Program, mode)
	if err != nil {
		stop()
		return nil, err
	}
	c := &Client{
		opts: opts, ctx: ctx, stop: stop, proc: proc, conn: conn,
		asks:  make(chan struct{}, maxAsks),
		calls: map[uint64]*call{}, hosts: map[string]bool{},
		over: make(chan struct{}), sandbox: make(chan fetchwire.Sandbox, 1),
	}
	go c.receive()
	if err := c.send(&fetchwire.Message{Setup: &opts.Setup}); err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

// Close ends rkt-fetch and every request with it. It does not fail.
func (c *Client) Close() error {
	c.end()
	return nil
}

func (c *Client) end() {
	c.stop()
	c.conn.Close()
	c.proc.Kill()
	<-c.over
}

// Sandbox says how rkt-fetch is confined.
func (c *Client) Sandbox(ctx context.Context) (fetchwire.Sandbox, error) {
	select {
	case s := <-c.sandbox:
		c.sandbox <- s // for the next who asks
		return s, nil
	case <-c.over:
		return fetchwire.Sandbox{}, c.failed()
	case <-ctx.Done():
		return fetchwire.Sandbox{}, ctx.Err()
	}
}

// send sends a message. If the conversation is over, the error says why: what
// receive has found out.
func (c *Client) send(m *fetchwire.Message, files ...*os.File) error {
	err := c.conn.Send(m, files...)
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, os.ErrClosed) {
		<-c.over
		return c.failed()
	}
	return err
}

// receive takes what rkt-fetch says until it is gone or says what it must not.
func (c *Client) receive() {
	var err error
	for err == nil {
		var m *fetchwire.Message
		m, _, err = c.conn.Receive()
		if err == nil {
			err = c.take(m)
		}
	}
	err = c.blame(err)
	c.stop()
	c.finish(err)
}

// blame finds out why the conversation failed: because the caller gave up,
// because the program ended, or because of err.
func (c *Client) blame(err error) error {
	switch {
	case errors.Is(err, os.ErrClosed):
		return errs.WithClass(errs.Unavailable, context.Canceled)
	case errs.ClassOf(err) != errs.Internal:
		return err
	case c.ctx.Err() != nil:
		return c.ctx.Err()
	case errors.Is(err, io.EOF):
		return c.proc.ended()
	default: // it may have ended while it was being written to
		c.stop()
		return c.proc.ended()
	}
}

func (c *Client) finish(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failure = err
	for id, call := range c.calls {
		delete(c.calls, id)
		call.err = err
		close(call.ended)
	}
	close(c.over)
}

func (c *Client) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure
}

func (c *Client) take(m *fetchwire.Message) error {
	switch {
	case m.Ask != nil:
		return c.ask(m.ID, *m.Ask)
	case m.Sandbox != nil:
		select {
		case c.sandbox <- *m.Sandbox:
		default:
		}
		return nil
	case m.Head == nil && m.Progress == nil && m.End == nil:
		return errs.Newf(errs.Corrupt, "rkt-fetch: a message that only rkt sends")
	}
	c.mu.Lock()
	call := c.calls[m.ID]
	if m.End != nil {
		delete(c.calls, m.ID)
	}
	c.mu.Unlock()
	switch {
	case call == nil: // was given up meanwhile
	case m.End != nil:
		call.err = m.End.Failure.Err()
		close(call.ended)
	case m.Progress != nil:
		if call.progress != nil {
			call.progress(m.Progress.Bytes)
		}
	case call.headed:
		return errs.Newf(errs.Corrupt, "rkt-fetch: two heads for one request")
	default:
		call.headed = true
		call.head <- *m.Head
	}
	return nil
}

// ask answers a question for a credential, beside whatever else goes on: a
// helper program may take its time.
func (c *Client) ask(id uint64, r fetchwire.CredentialRequest) error {
	c.mu.Lock()
	known := c.hosts[hostKey(r.Kind, r.Host)]
	c.mu.Unlock()
	select {
	case c.asks <- struct{}{}:
	default:
		return errs.Newf(errs.Corrupt, "rkt-fetch: too many questions at once")
	}
	go func() {
		defer func() { <-c.asks }()
		var answer fetchwire.Credential
		if known && c.opts.Credentials != nil {
			found, err := c.opts.Credentials(c.ctx, r)
			if err != nil {
				found = fetchwire.Credential{Failure: fetchwire.Fail(err)}
			}
			answer = found
		}
		// If it can't be told, rkt-fetch is gone and all requests fail anyway.
		_ = c.conn.Send(&fetchwire.Message{ID: id, Answer: &answer})
	}()
	return nil
}

func hostKey(kind fetchwire.CredentialKind, host string) string {
	return string(kind) + " " + strings.ToLower(host)
}

// allowRegistry lets rkt-fetch ask for the credentials of the registry that a
// request names and of its mirrors.
func (c *Client) allowRegistry(name string) {
	c.allow(fetchwire.ForRegistry, name)
	for _, r := range c.opts.Setup.Registries {
		if !strings.EqualFold(r.Name, name) {
			continue
		}
		for _, m := range r.Mirrors {
			c.allow(fetchwire.ForRegistry, m.Host)
		}
	}
}

func (c *Client) allow(kind fetchwire.CredentialKind, host string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hosts[hostKey(kind, host)] = true
}
