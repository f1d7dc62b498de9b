package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/rkt-pods/rkt/stage0/handoff"
	"github.com/rkt-pods/rkt/stage0/pod"
)

func newPause(g *globals) *cobra.Command {
	cmd := g.pauseCommand(false)
	cmd.Use = "pause [FLAGS] UUID…"
	cmd.Short = "Freeze the apps of running pods"
	cmd.Long = `Freezes all processes of each pod's apps where they are, until "rkt unpause".
Probes wait meanwhile; times that run, such as a back-off, go on. A pod that is
stopped is let go on for it.`
	return cmd
}

func newUnpause(g *globals) *cobra.Command {
	cmd := g.pauseCommand(true)
	cmd.Use = "unpause [FLAGS] UUID…"
	cmd.Short = "Let the apps of paused pods go on"
	return cmd
}

func (g *globals) pauseCommand(off bool) *cobra.Command {
	var uuidFile string
	cmd := &cobra.Command{
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.eachPod(cmd.Context(), args, uuidFile, "failed for one or more pods", func(h host, p pod.Pod) error {
				return g.steer(cmd.Context(), h, p, func(ctx context.Context, r *handoff.Running) error { return r.Pause(ctx, off) })
			})
		},
	}
	cmd.Flags().StringVar(&uuidFile, "uuid-file", "", "file with the pod's UUID")
	return cmd
}
