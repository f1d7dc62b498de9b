// Package libcontainer starts apps through runc's library, and is the only
// place that knows of it. An app is a libcontainer container whose pid, ipc,
// uts and network namespaces are the pod's and whose mount and cgroup
// namespaces are its own; something that runs beside it is a further process
// of that container in a cgroup leaf of its own.
//
// The library was written for a program that ends after each start. What
// follows from that is handled here: see init.go for what the app would
// inherit, reap.go for children that are left behind, and errors.go for its
// chains of messages. What it does well by itself is left to it: it starts each
// child from a read-only copy of this program (CVE-2019-5736) and closes all
// other descriptors before the app's program runs (CVE-2024-21626).
package libcontainer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	rlc "github.com/opencontainers/runc/libcontainer"
	"github.com/sirupsen/logrus"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/launch/cell"
)

// Options are a launcher's settings.
type Options struct {
	// KillTimeout is how long Destroy waits for killed processes to be gone;
	// 0 means 10 s. A process in uninterruptible sleep can take any time.
	KillTimeout time.Duration
}

type launcher struct {
	killTimeout time.Duration
}

// The library logs through logrus's global logger, to stderr unless told
// otherwise. What matters of it comes back as errors too.
var silence = sync.OnceFunc(func() { logrus.SetOutput(io.Discard) })

// New returns a launcher. The program that uses it must call InitMain.
func New(o Options) launch.Launcher {
	silence()
	if o.KillTimeout <= 0 {
		o.KillTimeout = 10 * time.Second
	}
	return &launcher{killTimeout: o.KillTimeout}
}

// Start implements launch.Launcher.
func (l *launcher) Start(ctx context.Context, app launch.App) (launch.Process, error) {
	p, err := l.start(ctx, app)
	if err != nil {
		return nil, named("set up", app.Name, app.Argv, err)
	}
	return p, nil
}

func (l *launcher) start(ctx context.Context, app launch.App) (*process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if app.IDs != nil {
		return nil, errs.Newf(errs.Unsupported, "user namespace: not with the launcher that this stage1 is built with")
	}
	config, err := configure(app)
	if err != nil {
		return nil, err
	}
	main, err := cell.Main(app, l.killTimeout)
	if err != nil {
		return nil, err
	}
	c, err := rlc.Create(app.StateDir, app.ID, config)
	if errors.Is(err, rlc.ErrExist) {
		return nil, cell.Busy(app.ID)
	}
	if err != nil {
		return nil, err
	}
	p := &process{main}
	p.State = filepath.Join(app.StateDir, app.ID)
	st, err := c.State()
	if err == nil {
		p.Leaf, err = cell.NewLeaf(st.CgroupPaths)
	}
	if err == nil {
		err = p.run(ctx, app.Stdio, app.UID, &job{
			container: c,
			process: &rlc.Process{
				Init:             true,
				Args:             app.Argv,
				Env:              app.Env,
				Cwd:              app.Cwd,
				UID:              app.UID,
				GID:              app.GID,
				AdditionalGroups: app.Gids,
				Capabilities:     capabilities(app.UID, app.Capabilities),
			},
			// The order matters: between the two the child waits at a fifo
			// with its cgroup made and nothing of the app run.
			release: c.Exec,
		})
	}
	if err != nil {
		return nil, errors.Join(err, p.abandon())
	}
	p.Started(app)
	return p, nil
}

// job is one start of a process by the library.
type job struct {
	container *rlc.Container
	process   *rlc.Process
	release   func() error // lets a process go that waits at the fifo; nil for Exec
}

// run starts the job's process and returns once its program has been executed.
func (p *process) run(ctx context.Context, stdio launch.Stdio, uid int, j *job) error {
	if err := fault.Step("launch.start"); err != nil {
		return err
	}
	status, statusW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer status.Close()
	// First of the extra files, that is number 3: see InitMain.
	j.process.ExtraFiles = []*os.File{statusW}
	console, err := attach(j.process, stdio, uid)
	if err != nil {
		statusW.Close()
		return err
	}
	defer console.close()

	// The library can't be interrupted, but its child can.
	stop := context.AfterFunc(ctx, func() { p.Leaf.Kill() })
	err = j.container.Start(j.process)
	statusW.Close()
	if pid, perr := j.process.Pid(); perr == nil {
		p.Child, p.Pid = j.process, pid
	}
	if err == nil {
		err = p.release(j)
	}
	if err != nil {
		// It may be alive, at the fifo, and would not close the pipe.
		p.Kill()
	}
	// Reads to the end, which comes when the program's exec closes the other
	// end, or when the child has died. Only the latter leaves a message.
	text, rerr := io.ReadAll(io.LimitReader(status, 1<<16))
	if !stop() && ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		err = rerr
	}
	if len(text) > 0 {
		err = join(err, string(text))
	}
	if err == nil {
		p.Terminal, err = console.receive()
	}
	return err
}

func (p *process) release(j *job) error {
	// What the set-up itself ran into is not the app's doing.
	p.Leaf.Baseline()
	if j.release == nil {
		return nil
	}
	if err := p.Hold(); err != nil {
		return err
	}
	if err := fault.Step("launch.release"); err != nil {
		return err
	}
	err := j.release()
	if err != nil {
		unblock(p.State)
	}
	return err
}

// Name of the library's fifo in its state folder.
const execFifo = "exec.fifo"

// unblock ends the library's wait for the fifo of a child that died: without
// it a goroutine and its thread stay in open(2) for good.
func unblock(stateDir string) {
	f, err := os.OpenFile(filepath.Join(stateDir, execFifo), os.O_RDWR, 0)
	if err == nil {
		f.Close()
	}
}

// join makes one error of the library's and the message its child left behind.
func join(err error, text string) error {
	if err == nil {
		return errors.New(text)
	}
	return fmt.Errorf("%w: %s", err, text)
}
