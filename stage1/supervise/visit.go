package supervise

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/cgroup"
)

// visitor is a program that another process than the supervisor has sent into an
// app: by its cgroup, the inode of which no other ever has.
type visitor struct {
	App   string `json:"app"`
	Leaf  string `json:"leaf"`
	Inode uint64 `json:"inode"`
}

// visit is a visitor as who sent it has it: the supervisor ends it if this
// process does before leave.
type visit struct{ c *client }

// announce tells the supervisor of the visitor in a cgroup2 folder.
func announce(runDir string, app, folder string) (visit, error) {
	var st unix.Stat_t
	if err := unix.Stat(folder, &st); err != nil {
		return visit{}, &fs.PathError{Op: "stat", Path: folder, Err: err}
	}
	c, err := dial(runDir)
	if err != nil {
		return visit{}, err
	}
	v := visit{c}
	return v, v.tell(&visitor{App: app, Leaf: filepath.Base(folder), Inode: st.Ino})
}

// leave says that this process sees to the visitor's end itself.
func (v visit) leave() error {
	if v.c == nil {
		return nil
	}
	return errors.Join(v.tell(nil), v.c.conn.Close())
}

func (v visit) tell(g *visitor) error {
	if err := v.c.ask(request{Op: opVisit, Visitor: g}); err != nil {
		return err
	}
	_, err := v.c.answer(ioTimeout)
	return err
}

// endVisit ends what nobody waits for any more, with what it has started.
func (p *pod) endVisit(g visitor) {
	p.beside.Go(func() {
		ctx, cancel := context.WithTimeout(p.ctx, emptyDeadline)
		defer cancel()
		if err := p.groups.clearVisit(ctx, g); err != nil {
			p.report(fmt.Errorf("app %s: a program that was sent into it: %w", g.App, err))
		}
	})
}

func (g *podGroups) clearVisit(ctx context.Context, sent visitor) error {
	host, err := cgroup.Detect()
	if err != nil {
		return err
	}
	group, err := host.Group(filepath.Join(g.path(sent.App), filepath.Base(sent.Leaf)))
	if err != nil {
		return err
	}
	paths := group.Paths()
	dir, err := os.Open(paths[""])
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil || st.Ino != sent.Inode {
		return err // the next one of that name
	}
	// By the descriptor: the name may be another's in a moment.
	self := fmt.Sprintf("/proc/self/fd/%d", dir.Fd())
	if err := errors.Join(cgroup.KillPath(self), cgroup.WaitPathEmpty(ctx, self)); err != nil {
		return unlessGone(err)
	}
	for controller, path := range paths {
		if controller != "" {
			err = errors.Join(err, cgroup.RemovePath(path))
		}
	}
	if err != nil {
		return err
	}
	return unlessGone(cgroup.RemovePath(paths[""]))
}

// unlessGone takes it for done that somebody else did it.
func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}
