package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/stage0/pod"
)

func newRm(g *globals) *cobra.Command {
	var uuidFile string
	cmd := &cobra.Command{
		Use:   "rm [FLAGS] UUID…",
		Short: "Remove pods that are not running",
		Long:  "Removes each pod with all that it holds, as gc would when its time has come.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.eachPod(cmd.Context(), args, uuidFile, "failed to remove one or more pods", func(h host, p pod.Pod) error {
				return g.removePod(cmd.Context(), h, p)
			})
		},
	}
	cmd.Flags().StringVar(&uuidFile, "uuid-file", "", "file with the pod's UUID")
	return cmd
}

func (g *globals) removePod(ctx context.Context, h host, p pod.Pod) error {
	switch p.State {
	case pod.Running, pod.Preparing, pod.ExitedDeleting, pod.Deleting:
		err := errs.Newf(errs.Busy, "pod %s: is %s", p.UUID, p.State)
		if p.State == pod.Running {
			return errs.WithHint(err, "\"rkt stop %s\" stops it", p.UUID)
		}
		if p.State == pod.Preparing {
			return errs.WithHint(err, "it can be removed when \"rkt prepare\" is done with it")
		}
		return errs.WithHint(err, "another rkt is removing it at this moment")
	case pod.Embryo, pod.AbortedPrepare, pod.Prepared, pod.Exiting, pod.Exited, pod.ExitedGarbage, pod.Garbage:
	}
	if err := h.pods.Collect(ctx, p.UUID); err != nil {
		return err
	}
	fmt.Fprintf(g.stdout, "%q\n", p.UUID)
	return nil
}

// rmAfter is the command that a supervisor becomes after run --rm.
const rmAfter = "rm-after"

func newRmAfter(g *globals) *cobra.Command {
	var fd int
	cmd := &cobra.Command{
		Use:    rmAfter + " --lock-fd=N UUID CODE",
		Short:  "Remove the pod that this process was the supervisor of",
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runRmAfter(cmd.Context(), g, fd, args)
		},
	}
	cmd.Flags().IntVar(&fd, "lock-fd", -1, "descriptor of the pod's lock")
	return cmd
}

// runRmAfter ends with the pod's code whatever comes of the removal, which gc
// can repeat: the code is what the caller waits for.
func runRmAfter(ctx context.Context, g *globals, fd int, args []string) error {
	if len(args) != 2 {
		return errs.Newf(errs.Usage, "UUID and CODE are needed")
	}
	code, err := strconv.Atoi(args[1])
	if err != nil {
		return errs.Newf(errs.Usage, "%q: not an exit code", args[1])
	}
	uuid, err := parseFullUUID(args[0])
	if err != nil {
		return err
	}
	h, err := g.openExisting()
	if err != nil {
		return withCode(code, err)
	}
	return withCode(code, h.pods.CollectInherited(ctx, uuid, fd))
}

// parseFullUUID is for ids that a program gave, never cut short.
func parseFullUUID(s string) (string, error) {
	uuid, err := poddir.ParseUUID(s)
	if err != nil {
		return "", errs.WithClass(errs.Usage, err)
	}
	return uuid, nil
}
