package direct

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/idrange"
	"github.com/rkt-pods/rkt/pkg/proc"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/launch/cell"
)

const stateFile = "state.json"

// state is what is kept of a running app, for programs that run beside it.
type state struct {
	Main     proc.ID           `json:"main"`
	Identity identity          `json:"identity"`
	Leaf     string            `json:"leaf"`  // of the main process, relative to each hierarchy's root
	Paths    map[string]string `json:"paths"` // its folders, by controller
	Devices  []rule            `json:"devices"`
	// The supervisor and its descriptor of applaunch: what lies beside the
	// executable may have been replaced by a later version since.
	Supervisor proc.ID `json:"supervisor"`
	Program    int     `json:"program"`
	// The pod's ids and the supervisor's descriptor of its user namespace; what
	// the main process is in now is the app's affair.
	IDs    *idrange.Range `json:"ids,omitempty"`
	UserNS int            `json:"userNS"`
}

// open opens what a descriptor of the supervisor is open on.
func (s state) open(fd int) (int, error) {
	return unix.Open(fmt.Sprintf("/proc/%d/fd/%d", s.Supervisor.PID, fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
}

// openUserNS opens the pod's user namespace, -1 if it has the host's.
func (s state) openUserNS() (int, error) {
	if s.IDs == nil {
		return -1, nil
	}
	fd, err := s.open(s.UserNS)
	if err != nil {
		return -1, fmt.Errorf("user namespace: %w", err)
	}
	kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE)
	if err != nil || kind != unix.CLONE_NEWUSER || !s.Supervisor.Alive() {
		_ = unix.Close(fd)
		return -1, errs.Newf(errs.Unavailable, "user namespace: the supervisor has ended, or has it no more")
	}
	return fd, nil
}

// openProgram opens the supervisor's copy of applaunch.
func (s state) openProgram() (int, error) {
	fd, err := s.open(s.Program)
	if err != nil {
		return -1, fmt.Errorf("applaunch: %w", err)
	}
	// The pid and the number are the supervisor's, and nobody can have changed
	// what is in the file.
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&unix.F_SEAL_WRITE == 0 || !s.Supervisor.Alive() {
		_ = unix.Close(fd)
		return -1, errs.Newf(errs.Unavailable, "applaunch: the supervisor has ended, or has it no more")
	}
	return fd, nil
}

func makeState(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	return os.Mkdir(dir, 0o700)
}

func (s state) write(dir string) error {
	if err := fault.Step("launch.state"); err != nil {
		return err
	}
	return atomicfile.WriteJSON(filepath.Join(dir, stateFile), s, 0o600, atomicfile.Renamed)
}

// readState reads the state of a running app, and opens its main process.
func readState(stateDir, id string) (s state, pidfd int, err error) {
	err = atomicfile.ReadJSON(filepath.Join(stateDir, id, stateFile), &s)
	if errors.Is(err, fs.ErrNotExist) {
		return s, -1, cell.NotRunning(id, nil)
	}
	if err != nil {
		return s, -1, fmt.Errorf("execution %s: %w", id, err)
	}
	pidfd, err = s.Main.Open()
	if errors.Is(err, fs.ErrNotExist) {
		return s, -1, cell.NotRunning(id, nil)
	}
	if err != nil {
		return s, -1, fmt.Errorf("execution %s: %w", id, err)
	}
	return s, pidfd, nil
}

// release looks whether the process that is going to be the app is where its
// limits are, and writes down how to start others beside it.
func (p *process) release(st state) error {
	if err := p.Hold(); err != nil {
		return err
	}
	// Only now: the process may have made nodes that the program must not make.
	if err := setDevices(st.Paths, st.Devices); err != nil {
		return err
	}
	var err error
	if st.Main, err = proc.Of(p.Pid); err != nil {
		return err
	}
	if err := st.write(p.State); err != nil {
		return err
	}
	return fault.Step("launch.release")
}

// Exec implements launch.Launcher.
func (l *launcher) Exec(ctx context.Context, stateDir, id string, e launch.Exec) (launch.Process, error) {
	st, pidfd, err := readState(stateDir, id)
	if err != nil {
		return nil, err
	}
	defer unix.Close(pidfd)
	p := &process{Process: &cell.Process{Timeout: l.options.KillTimeout}}
	if err := l.exec(ctx, p, st, pidfd, e); err != nil {
		if errors.Is(err, unix.ESRCH) || !st.Main.Alive() && ctx.Err() == nil {
			err = cell.NotRunning(id, err)
		}
		return nil, named("run in", st.Identity.Command.Name, e.Argv, errors.Join(err, p.abandon()))
	}
	return p, nil
}

func (l *launcher) exec(ctx context.Context, p *process, st state, pidfd int, e launch.Exec) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	id := st.Identity
	cmd, err := id.Command.Beside(e, id.NoNewPrivs)
	if err != nil {
		return err
	}
	id.Command, id.Argv, id.Stdio = cmd, e.Argv, e.Stdio
	// What a process takes from whoever starts it: the caller can be a root
	// shell with no limits, and protected from the OOM killer.
	if id.Rlimits, err = cell.RlimitsOf(st.Main.PID); err != nil {
		return err
	}
	if id.OOMAdj, err = cell.BesideScore(st.Main.PID); err != nil {
		return err
	}
	app, err := cell.GroupAt(filepath.Dir(st.Leaf))
	if err != nil {
		return err
	}
	_, name, err := cell.FreeLeaf(filepath.Dir(st.Paths[""]))
	if err != nil {
		return err
	}
	group := app.Below(name)
	files := &files{}
	defer files.close()
	paths, err := files.makeLeaf(p, group)
	if err != nil {
		return err
	}
	if err := setDevices(paths, st.Devices); err != nil {
		return err
	}
	exe, err := st.openProgram()
	if err != nil {
		return err
	}
	defer unix.Close(exe)
	users, err := st.openUserNS()
	if err != nil {
		return err
	}
	if users >= 0 {
		defer unix.Close(users)
	}
	ns := launch.Namespaces{PID: -1, Net: -1, IPC: -1, UTS: -1, User: users}
	f, err := l.facts(files.inherit(ns, pidfd), st.IDs, id.Stdio)
	if err != nil {
		return err
	}
	return p.run(ctx, &job{
		exe: exe, program: compileBeside(id, f), files: files, stdio: id.Stdio, uid: st.IDs.Host(id.Command.UID),
		release: group.InheritThrottle,
	})
}
