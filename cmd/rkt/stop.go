package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	"github.com/rkt-pods/rkt/pkg/cgroup"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage0/handoff"
	"github.com/rkt-pods/rkt/stage0/pod"
)

// forceDeadline is how long the supervisor may take to kill its pod before it
// is killed itself.
const forceDeadline = 10 * time.Second

func newStop(g *globals) *cobra.Command {
	var uuidFile string
	var force bool
	cmd := &cobra.Command{
		Use:   "stop [FLAGS] UUID…",
		Short: "Stop running pods",
		Long: `Asks each pod to stop and returns when it is down: its apps get their stop
signals, and are killed when their stop timeouts are over. --force kills them
at once, also when the pod's supervisor doesn't answer.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.eachPod(cmd.Context(), args, uuidFile, "failed to stop one or more pods", func(h host, p pod.Pod) error {
				return g.stopPod(cmd.Context(), h, p, force)
			})
		},
	}
	cmd.Flags().StringVar(&uuidFile, "uuid-file", "", "file with the pod's UUID")
	cmd.Flags().BoolVar(&force, "force", false, "kill instead of asking")
	return cmd
}

func (g *globals) stopPod(ctx context.Context, h host, p pod.Pod, force bool) error {
	switch {
	case p.State.Over() && p.State.HasRun():
		fmt.Fprintf(g.stdout, "pod %q is already stopped\n", p.UUID)
		return nil
	case p.State != pod.Running && p.State != pod.Exiting:
		return errs.Newf(errs.Usage, "pod %s: is %s, not running", p.UUID, p.State)
	}
	err := g.askToStop(ctx, h, p, force)
	if err != nil && force {
		err = kill(ctx, h.pods, p)
	}
	if err != nil {
		return err
	}
	if _, err := h.pods.WaitOver(ctx, p.UUID); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	fmt.Fprintf(g.stdout, "%q\n", p.UUID)
	return nil
}

// askToStop goes through the pod's stage1. A pod that ended meanwhile has been
// stopped.
func (g *globals) askToStop(ctx context.Context, h host, p pod.Pod, force bool) error {
	if p.State == pod.Exiting {
		return nil
	}
	startCtx, cancel := pod.For(ctx, forceDeadline)
	defer cancel()
	f, err := h.pods.WaitSupervised(startCtx, p.UUID)
	if err != nil {
		return stoppedMeanwhile(h.pods, p, err)
	}
	r, err := handoff.Open(h.pods, f, g.debug)
	if err != nil {
		return stoppedMeanwhile(h.pods, p, err)
	}
	if force {
		var cancelForce context.CancelFunc
		ctx, cancelForce = pod.For(ctx, forceDeadline)
		defer cancelForce()
	}
	return stoppedMeanwhile(h.pods, p, closeWith(r, r.Stop(ctx, force)))
}

func stoppedMeanwhile(pods pod.Pods, p pod.Pod, err error) error {
	if err == nil {
		return nil
	}
	if now, gerr := pods.Get(p.UUID); errors.Is(gerr, fs.ErrNotExist) || gerr == nil && now.State != pod.Running {
		return nil
	}
	return err
}

// kill ends the pod without its stage1: its processes by the cgroup, then the
// supervisor, which the pod's init does not survive either.
func kill(ctx context.Context, pods pod.Pods, p pod.Pod) error {
	f, err := pods.Facts(p)
	if err != nil {
		return err
	}
	rec, err := pods.Cgroup(f.Dir)
	if err == nil {
		err = cgroup.Kill(rec)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	id, err := f.SupervisorID()
	if err != nil {
		return stoppedMeanwhile(pods, p, err) // its folder may have moved
	}
	if err := id.Kill(); err != nil {
		return err
	}
	ctx, cancel := pod.For(ctx, forceDeadline)
	defer cancel()
	_, err = pods.WaitOver(ctx, p.UUID)
	return err
}
