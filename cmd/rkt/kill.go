package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/rkt-pods/rkt/pkg/abi"
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/stage0/handoff"
	"github.com/rkt-pods/rkt/stage0/pod"
)

func newKill(g *globals) *cobra.Command {
	var uuidFile string
	call := abi.Signal{Signal: 9}
	cmd := &cobra.Command{
		Use:   "kill [FLAGS] UUID…",
		Short: "Send a signal to the apps of running pods",
		Long: `Sends a signal, SIGKILL unless another one is named, to the main process of each
app that runs, or of the one app. What follows is as if the app had got it from
anywhere: its restart policy and the pod's exit policy decide. "rkt stop" ends a
pod in good order.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.eachPod(cmd.Context(), args, uuidFile, "failed to send the signal to one or more pods", func(h host, p pod.Pod) error {
				return g.steer(cmd.Context(), h, p, func(ctx context.Context, r *handoff.Running) error { return r.Signal(ctx, call) })
			})
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&uuidFile, "uuid-file", "", "file with the pod's UUID")
	fs.StringVar(&call.App, "app", "", "only to this app")
	value(fs, "signal", "SIGNAL", "name or number of the signal (default SIGKILL)", func(v string) (err error) {
		call.Signal, err = podspec.ParseSignal(v)
		return err
	})
	return cmd
}
