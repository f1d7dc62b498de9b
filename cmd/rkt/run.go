package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/rkt-pods/rkt/pkg/abi"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage0/handoff"
	"github.com/rkt-pods/rkt/stage0/pod"
	"github.com/rkt-pods/rkt/stage0/prepare"
	"github.com/rkt-pods/rkt/stage0/store"
)

func newRun(g *globals) *cobra.Command {
	var o podFlags
	var run runFlags
	var remove, dryRun bool
	var format string
	cmd := &cobra.Command{
		Use:   "run [FLAGS] " + appsUse,
		Short: "Run a pod of one or more images in the foreground",
		Long: `Prepares a pod and runs it. This process becomes the pod's supervisor: signals
go to it, and its exit code is the pod's. A closed stdout does not end the pod:
"rkt logs" has what nobody read.

Flags after an image are for its app; arguments for the app follow "--", up to
"---" or the end.`,
		Example: `  rkt run --insecure-options=image ./busybox.aci --exec=/bin/sh -- -c 'echo hello'
  rkt run db.aci --- web.aci --name=www --mount volume=data,target=/srv`,
	}
	fs := cmd.Flags()
	fs.BoolVar(&remove, "rm", false, "remove the pod when it has ended")
	fs.BoolVar(&dryRun, "dry-run", false, "only show in which order the apps would start and stop, and make no pod; images are taken into the store")
	fs.StringVar(&format, "format", "", "of --dry-run: json or json-pretty")
	fs.StringVar(&o.uuidFile, uuidFileSave, "", uuidFileSaveUsage)
	o.declare(fs, &g.refused)
	run.declare(fs, &g.refused)
	return withApps(cmd, &o.apps, false, func(ctx context.Context) error {
		if err := g.needRootFor(true); err != nil {
			return err
		}
		if err := checkFormat(format); err != nil {
			return err
		}
		stage1, err := handoff.Find(ctx, o.stage1)
		if err != nil {
			return err
		}
		if dryRun {
			o.dryRun = g.dryRun(format)
		}
		p, err := g.preparePod(ctx, cmd, &o, &run, false)
		if err != nil || dryRun {
			return err
		}
		if err := lastChance(ctx); err != nil {
			return joinDiscard(ctx, p, err)
		}
		started, err := p.Start()
		if err != nil {
			return joinDiscard(ctx, p, err)
		}
		return g.handOff(started, stage1, remove)
	})
}

func newRunPrepared(g *globals) *cobra.Command {
	var run runFlags
	var stage1 string
	var remove bool
	cmd := &cobra.Command{
		Use:   "run-prepared [FLAGS] UUID",
		Short: "Run a prepared pod in the foreground",
		Long:  "Runs a pod that was made by prepare. This process becomes the pod's supervisor.",
	}
	cmd.Flags().BoolVar(&remove, "rm", false, "remove the pod when it has ended")
	cmd.Flags().StringVar(&stage1, "stage1-path", "", "stage1 program (default: beside rkt, or in libexec)")
	run.declare(cmd.Flags(), &g.refused)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := g.needRootFor(true); err != nil {
			return err
		}
		path, err := handoff.Find(cmd.Context(), stage1)
		if err != nil {
			return err
		}
		started, err := g.startPrepared(cmd.Context(), &run, args)
		if err != nil {
			return err
		}
		return g.handOff(started, path, remove)
	}
	return cmd
}

// startPrepared writes the options of this run and moves the pod on.
func (g *globals) startPrepared(ctx context.Context, run *runFlags, args []string) (*pod.RunningPod, error) {
	h, found, err := g.onePod(ctx, args, "")
	if err != nil {
		return nil, err
	}
	prepared, err := h.pods.OpenPrepared(found.UUID)
	if err != nil {
		return nil, err
	}
	f, err := h.pods.Facts(pod.Pod{UUID: found.UUID, Folder: found.Folder, Dir: prepared.Dir(), State: pod.Prepared})
	if err != nil {
		return nil, closeWith(prepared, err)
	}
	for id, dir := range f.Stores {
		if err := store.CheckFrozen(dir, id); err != nil {
			err = fmt.Errorf("pod %s: %w", found.UUID, err)
			return nil, closeWith(prepared, err)
		}
	}
	run.inherit(f.Options)
	options, err := run.finish(g, len(f.Apps))
	if err != nil {
		return nil, closeWith(prepared, err)
	}
	if err := writeOptions(prepared, options); err != nil {
		return nil, closeWith(prepared, err)
	}
	// That of the preparation is gone if the host was booted since.
	if err := prepare.MakeRunDir(h.pods, prepared.UUID()); err != nil {
		return nil, closeWith(prepared, err)
	}
	if err := lastChance(ctx); err != nil {
		return nil, closeWith(prepared, err)
	}
	started, err := prepared.Start()
	if err != nil {
		return nil, closeWith(prepared, err)
	}
	return started, nil
}

// lastChance returns an error if a signal has asked to stop. From then on a
// signal ends this process, until stage1 is there to handle it: one that was
// only noted here would be lost with the exec.
func lastChance(ctx context.Context) error {
	if released(ctx) {
		return errs.Newf(errs.Unavailable, "interrupted before the pod was started")
	}
	return nil
}

// handOff becomes stage1. With remove, stage1 becomes rkt again at the end, to
// collect the pod while its lock is still held.
func (g *globals) handOff(p *pod.RunningPod, stage1 string, remove bool) error {
	call := abi.Run{Pod: abi.Pod{
		UUID: p.UUID(), Data: p.Pods().Data, PodDir: string(p.Dir()), StoreID: p.Pods().StoreID, Debug: g.debug,
	}}
	if remove {
		self, err := os.Executable()
		if err != nil {
			return closeWith(p, fmt.Errorf("--rm: %w", err))
		}
		call.Then = []string{self, "--dir=" + p.Pods().Data, rmAfter, "--lock-fd=" + strconv.Itoa(p.Lock().FD()), p.UUID()}
	}
	return handoff.Exec(p, stage1, call)
}
