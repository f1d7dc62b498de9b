package supervise

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"path/filepath"
	"time"

	"github.com/rkt-pods/rkt/pkg/cgroup"
	"github.com/rkt-pods/rkt/pkg/limits"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/proc"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/plan"
	"github.com/rkt-pods/rkt/stage1/scope"
)

// emptyDeadline is how long killed processes may take to be gone.
const emptyDeadline = 10 * time.Second

// box is what of the pod exists in the kernel, apart from its cgroups.
type box interface {
	// startInit starts pod init; on the process's main thread, whose end
	// would otherwise be taken for the supervisor's.
	startInit(ctx context.Context) (proc.ID, error)
	// prepare mounts the app's rootfs. It may run beside startInit.
	prepare(app plan.App, attempt poddir.AttemptDir) (rootfs string, err error)
	// release takes down what prepare and resolve have mounted.
	release(rootfs string) error
	// hear makes the socket on which the app says that it is ready; it comes
	// before prepare. What is heard ends with Close.
	hear(app string) (*net.UnixConn, error)
	// resolve completes the app with what its rootfs says, user and groups
	// above all. It comes after prepare and startInit.
	resolve(app plan.App, rootfs string) (launch.App, error)
	// lookup says, by a *launch.StartError, why the app's program can't be
	// executed.
	lookup(app launch.App) error
	// netns is the descriptor of the pod's network namespace, after startInit.
	netns() int
	// replaceFile makes another file of a generated one, while apps have it.
	replaceFile(f plan.File) error
	// killInit ends pod init, and with it whatever is left of the pod. The
	// apps have been reaped before: the kernel waits for them.
	killInit(ctx context.Context) error
	// close unmounts everything and closes all descriptors.
	close() error
}

// groups are the pod's cgroups.
type groups interface {
	create() error
	enter() error           // moves the supervisor in, and what it forks from then on
	path(app string) string // relative to each hierarchy's root
	limit(plan.Pod) ([]limits.Result, error)
	adopt(podInit int) error // has pod init in the pod's cgroup, where the supervisor isn't
	kill(app string) error
	clear(ctx context.Context, app string) error // kill, and wait for the end
	clearVisit(ctx context.Context, v visitor) error
	freeze(ctx context.Context, on bool) error // all apps
	use(app string) (cgroup.Use, error)        // of all apps with ""
	rebound(app string, want limits.Set) ([]limits.Result, error)
	killAll() error // but the supervisor
	waitEmpty(ctx context.Context) error
	leave() error  // puts the supervisor back where it came from
	remove() error // after leave
}

// podGroups are the pod's cgroups, with their record.
type podGroups struct {
	records *records
	storeID string
	rec     poddir.Cgroup
	origin  string       // where this process was before
	scope   *scope.Scope // until pod init is in it; nil if there is none
}

func (g *podGroups) create() error {
	rec, err := cgroup.Plan(g.storeID, g.records.dir.UUID())
	if err != nil {
		return err
	}
	if g.origin, err = cgroup.Own(); err != nil {
		return err
	}
	// Intent first: a kill between the two leaves a record of nothing rather
	// than a cgroup that nobody knows.
	if err := g.records.cgroup(rec); err != nil {
		return err
	}
	g.rec = rec
	if err := g.startScope(); err != nil {
		return err
	}
	if err := cgroup.Create(&g.rec); err != nil {
		return err
	}
	if g.scope != nil {
		if err := g.scope.Settle(g.rec); err != nil {
			return err
		}
	}
	if err := g.records.cgroup(g.rec); err != nil {
		return err
	}
	g.records.summary.Cgroup = cgroup.Folder(g.rec)
	return nil
}

func (g *podGroups) enter() error { return cgroup.EnterSupervisor(g.rec) }

func (g *podGroups) path(app string) string { return cgroup.AppPath(g.rec, app) }

func (g *podGroups) kill(app string) error {
	return g.killPath(filepath.Join(cgroup.Apps, app))
}

func (g *podGroups) clear(ctx context.Context, app string) error {
	if err := g.kill(app); err != nil {
		return err
	}
	err := cgroup.WaitPathEmpty(ctx, filepath.Join(cgroup.Folder(g.rec), cgroup.Apps, app))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (g *podGroups) freeze(ctx context.Context, on bool) error {
	ctx, cancel := context.WithTimeout(ctx, emptyDeadline)
	defer cancel()
	return cgroup.FreezePath(ctx, filepath.Join(cgroup.Folder(g.rec), cgroup.Apps), on)
}

func (g *podGroups) killPath(rel string) error {
	err := cgroup.KillPath(filepath.Join(cgroup.Folder(g.rec), rel))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // nothing was ever started in it
	}
	return err
}

func (g *podGroups) killAll() error {
	if g.rec.Paths == nil {
		return nil
	}
	return errors.Join(g.killPath(cgroup.Apps), g.killPath(cgroup.Helpers))
}

func (g *podGroups) waitEmpty(ctx context.Context) error {
	if g.rec.Paths == nil {
		return nil
	}
	for _, leaf := range []string{cgroup.Apps, cgroup.Helpers} {
		err := cgroup.WaitPathEmpty(ctx, filepath.Join(cgroup.Folder(g.rec), leaf))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (g *podGroups) leave() error {
	g.scope.Close()
	if g.rec.Paths == nil {
		return nil
	}
	return cgroup.Return(g.rec, g.origin)
}

func (g *podGroups) remove() error {
	if g.rec.Paths == nil {
		return nil
	}
	return cgroup.Remove(g.rec)
}
