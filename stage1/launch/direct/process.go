package direct

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
	"github.com/rkt-pods/rkt/pkg/proc"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/launch/cell"
)

// process implements launch.Process.
type process struct {
	child     *os.Process // nil until there is one
	pid       int
	console   *os.File
	leaf      cell.Leaf
	state     string // its folder, "" for what runs beside a main process
	timeout   time.Duration
	group     *cgroup.Group   // the app's; nil for what runs beside its main process
	results   []limits.Result // what became of the isolators
	unwatch   func()          // nil if nothing is watched
	readiness int             // see cell.Readiness
	delegate  bool            // the app makes cgroups beside its first process's
	released  bool

	mu   sync.Mutex // keeps two Destroys apart
	gone bool
}

// PID implements launch.Process.
func (p *process) PID() int { return p.pid }

// Console implements launch.Process.
func (p *process) Console() *os.File { return p.console }

// Isolators implements launch.Process.
func (p *process) Isolators() []limits.Result { return p.results }

// Wait implements launch.Process. It must not be put off until pod init is
// gone: a dying init waits in the kernel until the last zombie of its
// namespace is reaped, and this is where they are.
func (p *process) Wait() (launch.Exit, error) {
	state, err := p.child.Wait()
	if err != nil {
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
	if err := p.leaf.Remove(p.timeout); err != nil {
		return err
	}
	if p.state != "" {
		if err := os.RemoveAll(p.state); err != nil {
			return err
		}
	}
	p.gone = true
	return nil
}

// abandon leaves nothing of a start that failed.
func (p *process) abandon() error {
	if p.unwatch != nil {
		p.unwatch()
	}
	// Both ways: the process may not be in its cgroup, and its cgroup may hold
	// more than the process.
	p.leaf.Kill()
	if p.child != nil {
		_ = p.child.Kill()
		_, _ = p.child.Wait()
	}
	if p.console != nil {
		p.console.Close()
	}
	return p.Destroy()
}

// release looks whether the process that is going to be the app is where its
// limits are, and writes down how to start others beside it.
func (p *process) release(st state) error {
	if err := p.leaf.Hold(p.group, p.pid, p.delegate); err != nil {
		return err
	}
	var err error
	if p.unwatch, err = cell.Watch(p.group, p.readiness); err != nil {
		return err
	}
	// Only now: the process may have made nodes that the program must not make.
	if err := setDevices(st.Paths, st.Devices); err != nil {
		return err
	}
	if st.Main, err = proc.Of(p.pid); err != nil {
		return err
	}
	if err := st.write(p.state); err != nil {
		return err
	}
	return fault.Step("launch.release")
}
