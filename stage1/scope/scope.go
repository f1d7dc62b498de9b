// Package scope gets a pod a cgroup of its own from systemd, where systemd has
// delegated none: then the tree is systemd's alone to change (its single-writer
// rule), and what others write in it can be undone at any time.
package scope

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"

	"github.com/rkt-pods/rkt/pkg/cgroup"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

// timeout is how long systemd may take for it. It answers within milliseconds.
const timeout = 30 * time.Second

// Scope is a started scope. systemd takes it down once no process is in it, so
// one holds the place until pod init does.
type Scope struct {
	hold *exec.Cmd
	end  *os.File
}

// Start has systemd make the scope that the record names, and makes sure that
// it is where the record says. podInit is pod init's program.
func Start(ctx context.Context, rec poddir.Cgroup, podInit string) (*Scope, error) {
	if err := fault.Step("scope.start"); err != nil {
		return nil, err
	}
	s, err := hold(podInit)
	if err != nil {
		return nil, fmt.Errorf("scope %s: %w", rec.Scope, err)
	}
	if err := s.start(ctx, rec); err != nil {
		s.Close()
		return nil, errs.WithHint(errs.Newf(errs.Unavailable, "scope %s: %w", rec.Scope, err),
			"with Delegate=yes in its unit rkt needs no scope")
	}
	return s, nil
}

// hold starts a process that does nothing. Without arguments pod init's
// program only waits for the end of its descriptor 3.
func hold(podInit string) (*Scope, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd := exec.Command(podInit)
	cmd.Env, cmd.ExtraFiles = []string{}, []*os.File{r}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what is typed at the terminal is not for it
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, err
	}
	return &Scope{hold: cmd, end: w}, nil
}

func (s *Scope) start(ctx context.Context, rec poddir.Cgroup) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := dbus.NewSystemdConnectionContext(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	property := func(name string, value any) dbus.Property {
		return dbus.Property{Name: name, Value: godbus.MakeVariant(value)}
	}
	// Limits are the pod's own, below: systemd's defaults must not add to them.
	done := make(chan string, 1)
	_, err = conn.StartTransientUnitContext(ctx, rec.Scope, "fail", []dbus.Property{
		dbus.PropDescription("rkt pod " + strings.TrimSuffix(strings.TrimPrefix(rec.Scope, "rkt-"), ".scope")),
		dbus.PropSlice(cgroup.Slice),
		property("Delegate", true),
		property("TasksMax", ^uint64(0)),
		property("CollectMode", "inactive-or-failed"),
		dbus.PropPids(uint32(s.hold.Process.Pid)),
	}, done)
	if err != nil {
		return err
	}
	select {
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("systemd says %s", result)
		}
	case <-ctx.Done():
		return fmt.Errorf("no answer of systemd: %w", ctx.Err())
	}
	return s.check(rec)
}

// check reads back where systemd put the process.
func (s *Scope) check(rec poddir.Cgroup) error {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(s.hold.Process.Pid) + "/cgroup")
	if err != nil {
		return err
	}
	want := cgroup.ScopePath(rec.Scope)
	for line := range strings.Lines(string(data)) {
		if got, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok && got != want {
			return fmt.Errorf("it is cgroup %s, not %s", got, want)
		}
	}
	return nil
}

// Settle moves the process that holds the place into the pod's own folder:
// where processes are, the folders below get no controllers.
func (s *Scope) Settle(rec poddir.Cgroup) error {
	return cgroup.Attach(rec, cgroup.Supervisor, s.hold.Process.Pid)
}

// Close ends the process that holds the place. It may be called twice, and on
// nil.
func (s *Scope) Close() {
	if s == nil || s.hold == nil {
		return
	}
	s.end.Close()
	_ = s.hold.Wait() // it ends with 1 whatever comes
	s.hold = nil
}
