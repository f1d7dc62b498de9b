package cell

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/rkt-pods/rkt/pkg/cgroup"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/limits"
	"github.com/rkt-pods/rkt/stage1/launch"
)

// Child is a child of this process.
type Child interface {
	Wait() (*os.ProcessState, error)
	Signal(os.Signal) error
}

// Process is what is the same in every launcher's launch.Process.
type Process struct {
	Child    Child // nil until there is one
	Pid      int
	Terminal *os.File // the pty's master
	Leaf     Leaf
	State    string        // the folder of the launcher's state, "" for none
	Timeout  time.Duration // of Destroy
	Group    *cgroup.Group // the app's; nil for what runs beside its main process

	limits    []limits.Result // what became of the cgroup's
	results   []limits.Result // what became of all isolators
	readiness int             // see there
	delegate  bool            // the app makes cgroups beside its first process's
	root      int             // its root on the host
	unwatch   func()          // nil if nothing is watched

	mu   sync.Mutex // keeps two Destroys apart
	gone bool
}

// Main is the main process of an app to be, whose cgroup is bounded now.
func Main(app launch.App, timeout time.Duration) (*Process, error) {
	group, results, err := limit(app)
	if err != nil {
		return nil, err
	}
	ready, err := readiness(app)
	if err != nil {
		return nil, err
	}
	if err := fault.Step("launch.create"); err != nil {
		return nil, err
	}
	return &Process{Timeout: timeout, Group: &group, limits: results, readiness: ready, delegate: app.Delegate, root: app.IDs.Host(0)}, nil
}

// PID implements launch.Process.
func (p *Process) PID() int { return p.Pid }

// Cgroup implements launch.Process.
func (p *Process) Cgroup() string { return p.Leaf.Unified() }

// Console implements launch.Process.
func (p *Process) Console() *os.File { return p.Terminal }

// Isolators implements launch.Process.
func (p *Process) Isolators() []limits.Result { return p.results }

// Started reads back what the process has of its isolators.
func (p *Process) Started(app launch.App) {
	p.results = append(readBack(p.Pid, app.Results), p.limits...)
}

// Hold looks whether the process, which waits to be let go, is where its
// limits are, and begins to watch it.
func (p *Process) Hold() (err error) {
	if err = p.Leaf.hold(p.Group, p.Pid, p.delegate); err != nil {
		return err
	}
	if p.delegate && p.root != 0 {
		own := p.Group.Below(MainLeaf)
		if err = errors.Join(own.Give(p.root), own.Below(delegated).Give(p.root)); err != nil {
			return err
		}
	}
	p.unwatch, err = watch(p.Group, p.readiness)
	return err
}

// Wait implements launch.Process. It must not be put off until pod init is
// gone: a dying init waits in the kernel until the last zombie of its
// namespace is reaped, and this is where they are.
func (p *Process) Wait() (launch.Exit, error) {
	// libcontainer has an error for a program that ended with other than 0.
	state, err := p.Child.Wait()
	if state == nil {
		return launch.Exit{}, fmt.Errorf("wait for process %d: %w", p.Pid, err)
	}
	status, ok := state.Sys().(syscall.WaitStatus)
	if !ok {
		return launch.Exit{}, errs.Newf(errs.Internal, "wait for process %d: no status", p.Pid)
	}
	if p.unwatch != nil {
		p.unwatch()
	}
	return p.Leaf.exit(status, p.Group), nil
}

// Signal implements launch.Process.
func (p *Process) Signal(s syscall.Signal) error {
	err := p.Child.Signal(s)
	if errors.Is(err, os.ErrProcessDone) || errors.Is(err, syscall.ESRCH) {
		return errs.Newf(errs.NotFound, "signal process %d: it has ended", p.Pid)
	}
	if err != nil {
		return fmt.Errorf("signal process %d: %w", p.Pid, err)
	}
	return nil
}

// Destroy implements launch.Process.
func (p *Process) Destroy() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return nil
	}
	// Not libcontainer's Destroy: it retries a rmdir that is too early, where
	// this waits for the kernel to say that the cgroup is empty.
	if err := p.Leaf.remove(p.Timeout); err != nil {
		return err
	}
	if p.State != "" {
		if err := os.RemoveAll(p.State); err != nil {
			return err
		}
	}
	p.gone = true
	return nil
}

// Kill ends what a failed start has got to. Both ways: the process may not be
// in its cgroup yet, and its cgroup may hold more than the process.
func (p *Process) Kill() {
	p.Leaf.Kill()
	if p.Child != nil {
		_ = p.Child.Signal(syscall.SIGKILL)
	}
}

// Abandon leaves of a failed start no more than Destroy takes away.
func (p *Process) Abandon() {
	if p.unwatch != nil {
		p.unwatch()
	}
	p.Kill()
	if p.Child != nil {
		// Reaped already if its end was the failure.
		_, _ = p.Child.Wait()
	}
	if p.Terminal != nil {
		p.Terminal.Close()
	}
}
