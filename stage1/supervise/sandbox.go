package supervise

import (
	"context"
	"net"

	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/proc"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/plan"
	"github.com/rkt-pods/rkt/stage1/sandbox"
)

// sandboxed is the box of a real pod.
type sandboxed struct{ pod *sandbox.Pod }

func openSandbox(planned plan.Pod, r *records) (box, error) {
	p, err := sandbox.Open(sandbox.Config{Plan: planned, Dir: r.dir, RunDir: r.runDir})
	if err != nil {
		return nil, err
	}
	return sandboxed{p}, nil
}

func (s sandboxed) startInit(ctx context.Context) (proc.ID, error) {
	if err := s.pod.StartInit(ctx); err != nil {
		return proc.ID{}, err
	}
	return s.pod.Init(), nil
}

func (s sandboxed) prepare(app plan.App, attempt poddir.AttemptDir) (string, error) {
	return s.pod.MountRootFS(app, attempt)
}

func (s sandboxed) release(rootfs string) error { return s.pod.UnmountRootFS(rootfs) }

func (s sandboxed) hear(app string) (*net.UnixConn, error) { return s.pod.NotifySocket(app) }

func (s sandboxed) resolve(app plan.App, rootfs string) (launch.App, error) {
	return s.pod.Prepare(app, rootfs)
}

func (s sandboxed) lookup(app launch.App) error {
	_, err := s.pod.LookupProgram(app)
	return err
}

func (s sandboxed) netns() int { return s.pod.Namespaces().Net }

func (s sandboxed) replaceFile(f plan.File) error { return s.pod.ReplaceFile(f) }

func (s sandboxed) killInit(ctx context.Context) error {
	if err := s.pod.KillInit(); err != nil {
		return err // it ends with this process
	}
	return s.pod.WaitInit(ctx)
}

func (s sandboxed) close() error { return s.pod.Close() }
