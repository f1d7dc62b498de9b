package libcontainer

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	rlc "github.com/opencontainers/runc/libcontainer"

	"github.com/rkt-pods/rkt/pkg/cgroup"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/limits"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/launch/cell"
)

// process implements launch.Process.
type process struct {
	child   *rlc.Process // nil until there is one
	pid     int
	console *os.File
	leaf    cell.Leaf
	state   string // the library's folder for it
	timeout time.Duration
	group   *cgroup.Group   // the app's; nil for what runs beside its main process
	results []limits.Result // what became of the isolators
	unwatch func()          // nil if nothing is watched
	// readiness is the app's, see there.
	readiness int
	// delegate: the app makes cgroups beside its first process's.
	delegate bool

	mu   sync.Mutex // keeps two Destroys apart
	gone bool
}

// PID implements launch.Process.
func (p *process) PID() int { return p.pid }

// Console implements launch.Process.
func (p *process) Console() *os.File { return p.console }

// Wait implements launch.Process. It must not be put off until pod init is
// gone: a dying init waits in the kernel until the last zombie of its
// namespace is reaped, and this is where they are.
func (p *process) Wait() (launch.Exit, error) {
	// The error of a program that ended with other than 0 is no error here.
	state, err := p.child.Wait()
	if state == nil {
		return launch.Exit{}, fmt.Errorf("wait for process %d: %w", p.pid, err)
	}
	status, ok := state.Sys().(syscall.WaitStatus)
	if !ok {
		return launch.Exit{}, errs.Newf(errs.Internal, "wait for process %d: no status", p.pid)
	}
	if p.unwatch != nil {
		p.unwatch()
	}
	return p.leaf.Exit(status, p.group), nil
}

// Isolators implements launch.Process.
func (p *process) Isolators() []limits.Result { return p.results }

// Signal implements launch.Process.
func (p *process) Signal(s syscall.Signal) error {
	err := p.child.Signal(s)
	if errors.Is(err, os.ErrProcessDone) || errors.Is(err, syscall.ESRCH) {
		return errs.Newf(errs.NotFound, "signal process %d: it has ended", p.pid)
	}
	if err != nil {
		return fmt.Errorf("signal process %d: %w", p.pid, err)
	}
	return nil
}

// Destroy implements launch.Process.
func (p *process) Destroy() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return nil
	}
	// Not the library's Destroy: it retries a rmdir that is too early, where
	// this waits for the kernel to say that the cgroup is empty.
	if err := p.leaf.Remove(p.timeout); err != nil {
		return err
	}
	if err := os.RemoveAll(p.state); err != nil {
		return err
	}
	p.gone = true
	return nil
}

// abandon leaves nothing of a start that failed.
func (p *process) abandon() error {
	if p.unwatch != nil {
		p.unwatch()
	}
	p.kill()
	if p.child != nil {
		// Reaped by the library already if it was the one that failed.
		_, _ = p.child.Wait()
	}
	if p.console != nil {
		p.console.Close()
	}
	reap(p.leaf)
	return p.Destroy()
}

// kill ends what a failed start has got to. Both ways: the process may not be
// in its cgroup yet, and its cgroup may hold more than the process.
func (p *process) kill() {
	p.leaf.Kill()
	if p.child != nil {
		_ = p.child.Signal(syscall.SIGKILL)
	}
}
