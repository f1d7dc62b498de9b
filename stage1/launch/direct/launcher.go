// Package direct starts apps without a library: it compiles a list of system
// calls, all policy being here, which the small program applaunch makes one
// after the other until it has become the app. The list can be read: see
// program.String and testdata.
//
// The order of the calls is what keeps an image from reaching out. The rootfs
// becomes the root first; mounts are made after that, at descriptors of their
// targets, so that no symbolic link of the image leads out of it. What comes
// from the host is taken hold of before. Descriptors of the host are closed
// before the program runs, whatever happens to be open (CVE-2024-21626), and
// applaunch is executed from a sealed memory file (CVE-2019-5736).
package direct

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/moby/sys/capability"
	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/idrange"
	"github.com/rkt-pods/rkt/pkg/proc"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/launch/cell"
	"github.com/rkt-pods/rkt/stage1/launch/filter"
	"github.com/rkt-pods/rkt/stage1/sealed"
)

// Options are a launcher's settings.
type Options struct {
	// KillTimeout is how long Destroy waits for killed processes to be gone;
	// 0 means 10 s. A process in uninterruptible sleep can take any time.
	KillTimeout time.Duration
	// Program is applaunch; "" means beside this executable.
	Program string
}

type launcher struct {
	options Options
	setAttr bool // there is mount_setattr(2)

	mu      sync.Mutex
	program int // a sealed copy of applaunch once one was made, or -1
}

// New returns a launcher.
func New(o Options) launch.Launcher { return newLauncher(o) }

func newLauncher(o Options) *launcher {
	if o.KillTimeout <= 0 {
		o.KillTimeout = 10 * time.Second
	}
	return &launcher{options: o, setAttr: canSetAttr(), program: -1}
}

// applaunch returns a descriptor of the copy of applaunch. One is made for all
// starts; where that fails the next start tries again, since what was short, of
// memory or descriptors, may be there by then.
func (l *launcher) applaunch() (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.program >= 0 {
		return l.program, nil
	}
	path := l.options.Program
	if path == "" {
		self, err := os.Executable()
		if err != nil {
			return -1, err
		}
		path = filepath.Join(filepath.Dir(self), "applaunch")
	}
	fd, err := sealed.Copy("applaunch", path)
	if err != nil {
		return -1, err
	}
	l.program = fd
	return fd, nil
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
	id, mounts, err := l.prepare(app)
	if err != nil {
		return nil, err
	}
	main, err := cell.Main(app, l.options.KillTimeout)
	if err != nil {
		return nil, err
	}
	p := &process{Process: main}
	if err := makeState(filepath.Join(app.StateDir, app.ID)); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil, cell.Busy(app.ID)
		}
		return nil, err
	}
	p.State = filepath.Join(app.StateDir, app.ID)
	if err := l.startIn(ctx, p, app, id, mounts); err != nil {
		return nil, errors.Join(err, p.abandon())
	}
	p.Started(app)
	return p, nil
}

// prepare refuses by name what can't be had on this host.
func (l *launcher) prepare(app launch.App) (id identity, mounts []mount, err error) {
	if err = cell.Check(app); err != nil {
		return id, nil, err
	}
	id = identity{
		Command: cell.CommandOf(app), NoNewPrivs: app.NoNewPrivs, Umask: app.Umask, Nice: app.Nice,
		Label: app.ProcessLabel, AppArmor: app.AppArmor, Argv: app.Argv, Stdio: app.Stdio,
	}
	for _, d := range app.Devices {
		if node := !d.RuleOnly && d.Path != ""; node && (d.Major < 0 || d.Minor < 0 || d.Type != 'b' && d.Type != 'c' && d.Type != 'p') {
			return id, nil, errs.Newf(errs.Usage, "device %s: type %q %d:%d is no device node", d.Path, d.Type, d.Major, d.Minor)
		}
	}
	if mounts, err = parseMounts(app.Mounts, l.setAttr); err != nil {
		return id, nil, err
	}
	if id.Caps, err = cell.Capabilities(app.Capabilities); err != nil {
		return id, nil, err
	}
	if id.Rlimits, err = cell.Rlimits(app.Rlimits); err != nil {
		return id, nil, err
	}
	if id.OOMAdj, err = cell.OOMScoreAdj(app.OOMScoreAdj); err != nil {
		return id, nil, err
	}
	if app.Seccomp != nil {
		code, flags, err := filter.Compile(app.Seccomp)
		if err != nil {
			return id, nil, fmt.Errorf("seccomp filter: %w", err)
		}
		for _, i := range code {
			id.Filter = binary.LittleEndian.AppendUint16(id.Filter, i.Code)
			id.Filter = append(id.Filter, i.Jt, i.Jf)
			id.Filter = binary.LittleEndian.AppendUint32(id.Filter, i.K)
		}
		id.FilterFlag = flags
	}
	return id, mounts, nil
}

func (l *launcher) startIn(ctx context.Context, p *process, app launch.App, id identity, mounts []mount) error {
	leaf := p.Group.Below(cell.MainLeaf)
	files := &files{}
	defer files.close()
	paths, err := files.makeLeaf(p, leaf)
	if err != nil {
		return err
	}
	ns := app.Namespaces
	if app.IDs == nil {
		ns.User = -1
	}
	f, err := l.facts(files.inherit(ns, -1), app.IDs, id.Stdio)
	if err != nil {
		return err
	}
	f.hierarchies = leaf.Hierarchies()
	for _, s := range app.Sockets {
		files.open = append(files.open, borrowed(s.FD))
		id.Sockets = append(id.Sockets, s.Name)
	}
	exe, err := l.applaunch()
	if err != nil {
		return err
	}
	self, err := proc.Self()
	if err != nil {
		return err
	}
	st := state{
		Supervisor: self, Program: exe,
		IDs: app.IDs, UserNS: ns.User, Identity: id, Leaf: filepath.Join(app.CgroupPath, cell.MainLeaf), Paths: paths, Devices: deviceRules(app.App),
	}
	return p.run(ctx, &job{
		exe: exe, program: compileStart(app, id, mounts, f), files: files, stdio: id.Stdio, uid: app.IDs.Host(id.Command.UID),
		release: func() error { return p.release(st) },
	})
}

func (l *launcher) facts(files inherited, ids *idrange.Range, stdio launch.Stdio) (facts, error) {
	last, err := capability.LastCap()
	if err != nil {
		return facts{}, fmt.Errorf("capabilities: %w", err)
	}
	f := facts{setAttr: l.setAttr, lastCap: int(last), files: files, ids: ids, inside: !proc.HostUsers()}
	if ids != nil {
		if f.caps, err = cell.Permitted(); err != nil {
			return f, err
		}
	}
	for i, file := range []*os.File{stdio.Stdin, stdio.Stdout, stdio.Stderr} {
		if f.null[i], err = isNull(file); err != nil {
			return f, err
		}
	}
	return f, nil
}

// isNull says whether a stream is the host's null device, which nil becomes.
func isNull(f *os.File) (bool, error) {
	if f == nil {
		return true, nil
	}
	conn, err := f.SyscallConn() // not f.Fd, which would change the file's mode
	if err != nil {
		return false, fmt.Errorf("standard streams: %w", err)
	}
	var st unix.Stat_t
	var serr error
	if err := conn.Control(func(fd uintptr) { serr = unix.Fstat(int(fd), &st) }); err != nil {
		return false, fmt.Errorf("standard streams: %w", err)
	}
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3), serr
}

// named says what was done to which app when the error came.
func named(what, app string, argv []string, err error) error {
	if f, ok := errors.AsType[*failure](err); ok && f.op == whatExec {
		return cell.ProgramError(app, argv[0], f.cause())
	}
	return &cell.SetupError{Text: fmt.Sprintf("%s app %s: %s", what, app, cell.OneLine(err.Error())), Err: err}
}
