// Package transport is what rkt-fetch does: it answers rkt's requests with what
// strangers send. It is confined and trusts neither side's bytes.
package transport

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
	"github.com/rkt-pods/rkt/stage0/transport/discovery"
	"github.com/rkt-pods/rkt/stage0/transport/registry"
	"github.com/rkt-pods/rkt/stage0/transport/web"
)

// Server is one conversation with rkt.
type Server struct {
	conn     *fetchwire.Conn
	mode     fetchwire.Mode
	limits   fetchwire.Limits
	web      *web.Client
	registry *registry.Client
	discover *discovery.Client

	mu      sync.Mutex
	running map[uint64]context.CancelFunc
	asked   map[uint64]chan fetchwire.Credential
	lastAsk uint64
}

// Serve answers requests until rkt is gone. All that goes on ends with the
// process then.
func Serve(ctx context.Context, conn *fetchwire.Conn, mode fetchwire.Mode, sandbox fetchwire.Sandbox) error {
	first, files, err := conn.Receive()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	closeAll(files)
	if first.Setup == nil {
		return errs.Newf(errs.Corrupt, "the first message is no set-up")
	}
	s := &Server{
		conn: conn, mode: mode, limits: first.Setup.Limits.Fill(), web: web.New(*first.Setup),
		running: map[uint64]context.CancelFunc{}, asked: map[uint64]chan fetchwire.Credential{},
	}
	s.registry = registry.New(s.web, *first.Setup, s.ask)
	s.discover = discovery.New(s.web, first.Setup.InsecureHTTP, s.ask)
	if err := conn.Send(&fetchwire.Message{Sandbox: &sandbox}); err != nil {
		return err
	}
	for {
		m, files, err := conn.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		s.take(ctx, m, files)
	}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

func (s *Server) take(ctx context.Context, m *fetchwire.Message, files []*os.File) {
	switch {
	case m.Request != nil:
		ctx, cancel := context.WithCancel(ctx)
		s.mu.Lock()
		s.running[m.ID] = cancel
		s.mu.Unlock()
		go s.answer(ctx, m.ID, m.Request, files)
		return
	case m.Cancel != nil:
		s.mu.Lock()
		cancel := s.running[m.ID]
		s.mu.Unlock()
		if cancel != nil {
			cancel()
		}
	case m.Answer != nil:
		s.mu.Lock()
		waiting := s.asked[m.ID]
		delete(s.asked, m.ID)
		s.mu.Unlock()
		if waiting != nil {
			waiting <- *m.Answer // has room for it
		}
	}
	closeAll(files)
}

// answer does what a request asks for and says how it ended.
func (s *Server) answer(ctx context.Context, id uint64, r *fetchwire.Request, files []*os.File) {
	// Closing is what ends a write to a pipe that nobody reads.
	unwatch := context.AfterFunc(ctx, func() { closeAll(files) })
	err := s.do(ctx, &exchange{s: s, id: id, files: files}, r)
	unwatch()
	closeAll(files)
	s.mu.Lock()
	s.running[id]()
	delete(s.running, id)
	s.mu.Unlock()
	// If rkt is gone, Receive notices.
	_ = s.conn.Send(&fetchwire.Message{ID: id, End: &fetchwire.End{Failure: fetchwire.Fail(err)}})
}

func (s *Server) do(ctx context.Context, x *exchange, r *fetchwire.Request) error {
	need := 1
	if r.Decompress != nil {
		need = 2
	}
	switch {
	case len(x.files) < need:
		return errs.Newf(errs.Usage, "request with %d pipes in place of %d", len(x.files), need)
	case r.Decompress != nil:
		return x.decompress(ctx, x.files[0], x.files[1], nil)
	case s.mode != fetchwire.Network:
		return errs.Newf(errs.Usage, "a request for the network")
	case r.Manifest != nil:
		head, data, err := s.registry.Manifest(ctx, *r.Manifest)
		return x.small(head, data, err)
	case r.Referrers != nil:
		head, data, err := s.registry.Referrers(ctx, *r.Referrers)
		return x.small(head, data, err)
	case r.Discover != nil:
		return x.discovery(s.discover.Discover(ctx, *r.Discover))
	case r.Blob != nil:
		return x.blob(ctx, *r.Blob)
	case r.HTTP != nil:
		return x.http(ctx, *r.HTTP)
	}
	return errs.Newf(errs.Usage, "an empty request")
}

// ask asks rkt for a credential.
func (s *Server) ask(ctx context.Context, r fetchwire.CredentialRequest) (fetchwire.Credential, error) {
	answer := make(chan fetchwire.Credential, 1)
	s.mu.Lock()
	s.lastAsk++
	id := s.lastAsk
	s.asked[id] = answer
	s.mu.Unlock()
	if err := s.conn.Send(&fetchwire.Message{ID: id, Ask: &r}); err != nil {
		return fetchwire.Credential{}, err
	}
	select {
	case found := <-answer:
		return found, found.Failure.Err()
	case <-ctx.Done():
		return fetchwire.Credential{}, ctx.Err()
	}
}
