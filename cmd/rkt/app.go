package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/rkt-pods/rkt/pkg/abi"
	"github.com/rkt-pods/rkt/stage0/handoff"
	"github.com/rkt-pods/rkt/stage0/pod"
)

func newApp(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "app",
		Short: "Steer single apps of running pods",
		RunE:  func(*cobra.Command, []string) error { return errMissingCommand },
	}
	cmd.AddCommand(newAppRestart(g))
	return cmd
}

func newAppRestart(g *globals) *cobra.Command {
	var uuidFile string
	var call abi.Restart
	var how stopFlags
	cmd := &cobra.Command{
		Use:   "restart [FLAGS] UUID --app=NAME",
		Short: "Start an app of a running pod anew",
		Long: `Stops the app, if it runs, and starts it again with a clean root file system,
whatever its restart policy says. Returns once its program runs. An app that has
finished comes back, and does not count as failed any more.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := g.needRoot(); err != nil {
				return err
			}
			h, found, err := g.onePod(cmd.Context(), args, uuidFile)
			if err != nil {
				return err
			}
			f, err := h.pods.Facts(found)
			if err != nil {
				return err
			}
			if call.App, err = pickApp(f, call.App); err != nil {
				return err
			}
			call.Stopping = how.Stopping
			return g.steer(cmd.Context(), h, pod.Pod{UUID: f.UUID, State: f.State}, func(ctx context.Context, r *handoff.Running) error {
				return r.Restart(ctx, call)
			})
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&uuidFile, "uuid-file", "", "file with the pod's UUID")
	fs.StringVar(&call.App, "app", "", "the app, needed if there are several")
	how.declare(fs)
	return cmd
}
