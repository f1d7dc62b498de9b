package remote

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
	"github.com/rkt-pods/rkt/stage0/libexec"
)

// programName is the name of the program that talks to strangers.
const programName = "rkt-fetch"

// process is a running rkt-fetch.
type process struct {
	*libexec.Process
	stderr lastWords
}

// launch starts rkt-fetch with the other end of a conversation. It ends with
// ctx, with this process, and when the conversation is closed.
func launch(ctx context.Context, path string, mode fetchwire.Mode) (*process, *fetchwire.Conn, error) {
	if err := fault.Step("remote.start"); err != nil {
		return nil, nil, err
	}
	conn, theirs, err := fetchwire.Pair()
	if err != nil {
		return nil, nil, err
	}
	defer theirs.Close()
	p := &process{}
	p.Process, err = libexec.Start(ctx, programName, path, []string{string(mode)}, func(cmd *exec.Cmd) {
		cmd.Stderr = &p.stderr
		cmd.ExtraFiles = []*os.File{theirs} // becomes fetchwire.Socket
	})
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return p, conn, nil
}

// ended says how the process ended, which it has or is about to: one that has
// hung up and stays is killed.
func (p *process) ended() error {
	select {
	case <-p.Done():
	case <-time.After(libexec.EndDeadline):
		p.Kill()
	}
	if words := p.stderr.String(); words != "" {
		return (&fetchwire.Failure{Class: errs.Unavailable, Message: "rkt-fetch ended: " + words}).Err()
	}
	if err := p.Err(); err != nil {
		return errs.Newf(errs.Unavailable, "rkt-fetch ended: %w", err)
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
