package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rkt-pods/rkt/pkg/abi"
	"github.com/rkt-pods/rkt/pkg/cgroup"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/stage0/handoff"
	"github.com/rkt-pods/rkt/stage0/pod"
)

// forceDeadline is how long the supervisor may take to kill its pod before it
// is killed itself.
const forceDeadline = 10 * time.Second

// stopFlags say how to stop, where it is not as the apps say.
type stopFlags struct{ abi.Stopping }

func (s *stopFlags) declare(fs *pflag.FlagSet) {
	value(fs, "time", "DURATION", "time until what has not ended is killed (default: the stop timeout of each app)", setDuration(&s.Timeout))
	value(fs, "signal", "SIGNAL", "signal to stop with (default: the stop signal of each app)", func(v string) (err error) {
		s.Signal, err = podspec.ParseSignal(v)
		return err
	})
}

func newStop(g *globals) *cobra.Command {
	var uuidFile string
	var call abi.Stop
	var how stopFlags
	cmd := &cobra.Command{
		Use:   "stop [FLAGS] UUID…",
		Short: "Stop running pods",
		Long: `Asks each pod to stop and returns when it is down: its apps get their stop
signals, those that were started last at first, and are killed when their stop
timeouts are over. --force kills them at once, also when the pod's supervisor
doesn't answer.

A further stop with --time may shorten the time of one that is under way.

With --app it stops that app only, which is then finished and not failed.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if call.App != "" && call.Force {
				return errs.WithHint(errs.Newf(errs.Usage, "--app and --force exclude each other"), "\"rkt kill --app=%s\" kills the app", call.App)
			}
			call.Stopping = how.Stopping
			return g.eachPod(cmd.Context(), args, uuidFile, "failed to stop one or more pods", func(h host, p pod.Pod) error {
				if call.App != "" {
					return g.steer(cmd.Context(), h, p, func(ctx context.Context, r *handoff.Running) error { return r.Stop(ctx, call) })
				}
				return g.stopPod(cmd.Context(), h, p, call)
			})
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&uuidFile, "uuid-file", "", "file with the pod's UUID")
	fs.BoolVar(&call.Force, "force", false, "kill instead of asking")
	fs.StringVar(&call.App, "app", "", "stop this app only")
	how.declare(fs)
	return cmd
}

func (g *globals) stopPod(ctx context.Context, h host, p pod.Pod, call abi.Stop) error {
	switch {
	case p.State.Over() && p.State.HasRun():
		fmt.Fprintf(g.stdout, "pod %q is already stopped\n", p.UUID)
		return nil
	case p.State != pod.Running && p.State != pod.Exiting:
		return errs.Newf(errs.Usage, "pod %s: is %s, not running", p.UUID, p.State)
	}
	err := g.askToStop(ctx, h, p, call)
	if err != nil && call.Force {
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
func (g *globals) askToStop(ctx context.Context, h host, p pod.Pod, call abi.Stop) error {
	if p.State == pod.Exiting {
		return nil
	}
	r, err := g.running(ctx, h, p)
	if err != nil {
		return stoppedMeanwhile(h.pods, p, err)
	}
	if call.Force {
		var cancelForce context.CancelFunc
		ctx, cancelForce = pod.For(ctx, forceDeadline)
		defer cancelForce()
	}
	return stoppedMeanwhile(h.pods, p, closeWith(r, r.Stop(ctx, call)))
}

// running is the stage1 of a pod that runs, once that has introduced itself.
func (g *globals) running(ctx context.Context, h host, p pod.Pod) (*handoff.Running, error) {
	ctx, cancel := pod.For(ctx, forceDeadline)
	defer cancel()
	f, err := h.pods.WaitSupervised(ctx, p.UUID)
	if err != nil {
		return nil, err
	}
	if f.State != pod.Running {
		return nil, errs.Newf(errs.Usage, "pod %s: is %s, not running", p.UUID, f.State)
	}
	return handoff.Open(h.pods, f, g.debug)
}

// steer has the stage1 of a running pod do something.
func (g *globals) steer(ctx context.Context, h host, p pod.Pod, do func(context.Context, *handoff.Running) error) error {
	if p.State != pod.Running {
		return errs.Newf(errs.Usage, "pod %s: is %s, not running", p.UUID, p.State)
	}
	r, err := g.running(ctx, h, p)
	if err != nil {
		return err
	}
	if err := closeWith(r, do(ctx, r)); err != nil {
		return err
	}
	fmt.Fprintf(g.stdout, "%q\n", p.UUID)
	return nil
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
