package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/spf13/cobra"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/stage0/pod"
)

type waitOptions struct {
	uuidFile string
	format   string
	timeout  waitFlag
}

func newWait(g *globals) *cobra.Command {
	var o waitOptions
	cmd := &cobra.Command{
		Use:   "wait [FLAGS] UUID…",
		Short: "Wait for pods to end, and give their exit code",
		Long: `Waits until each pod has ended and prints a line for each, its UUID and its exit
code. The exit code is the pod's; of several, that of the first that is not 0.
With --timeout those that have ended by then are printed too.

A pod that was removed is still known until the grace period since its end is
over, when gc forgets it.`,
		RunE: func(cmd *cobra.Command, args []string) error { return runWait(cmd.Context(), g, o, args) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.uuidFile, "uuid-file", "", "file with the pod's UUID")
	fs.StringVar(&o.format, "format", "", "json or json-pretty")
	fs.Var(&o.timeout, "timeout", "end with code 124 if a pod has not ended after that long")
	return cmd
}

// ended is how a pod ended, as wait prints it.
type ended struct {
	UUID string      `json:"uuid"`
	Exit poddir.Exit `json:"exit"`
}

func runWait(ctx context.Context, g *globals, o waitOptions, args []string) error {
	if err := checkFormat(o.format); err != nil {
		return err
	}
	if err := g.needRoot(); err != nil {
		return err
	}
	words, err := manyArgs(ctx, args, o.uuidFile)
	if err != nil {
		return err
	}
	h, err := g.openFor(words[0])
	if err != nil {
		return err
	}
	all, err := waitForAll(ctx, h.pods, words, o.timeout)
	if perr := printEnded(g, o.format, all); perr != nil || err != nil {
		return errors.Join(err, perr)
	}
	for _, e := range all {
		if e.Exit.Code != 0 {
			return withCode(e.Exit.Code, nil)
		}
	}
	return nil
}

// waitForAll waits for all pods at once and returns those that have ended, in
// the order of the words. A word that means no pod is told before anything is
// waited for.
func waitForAll(ctx context.Context, pods pod.Pods, words []string, timeout waitFlag) ([]ended, error) {
	known := make([]*ended, len(words)) // nil as long as the pod has not ended
	uuids := make([]string, len(words))
	for i, word := range words {
		found, err := pods.Find(word)
		if errs.Is(err, errs.NotFound) {
			var e ended
			e, err = buried(pods, word, err)
			known[i] = &e
		}
		if err != nil {
			return []ended{}, err
		}
		uuids[i] = found.UUID
	}
	failed := make([]error, len(words))
	var wg sync.WaitGroup
	for i, uuid := range uuids {
		if known[i] != nil {
			continue
		}
		wg.Go(func() {
			failed[i] = timeout.do(ctx, words[i], func(ctx context.Context) error {
				e, err := waitFor(ctx, pods, uuid)
				if err == nil {
					known[i] = &e
				}
				return err
			})
		})
	}
	wg.Wait()
	all := []ended{}
	for _, e := range known {
		if e != nil {
			all = append(all, *e)
		}
	}
	return all, errors.Join(failed...)
}

func printEnded(g *globals, format string, all []ended) error {
	if format != "" {
		return printJSON(g.stdout, format, all)
	}
	for _, e := range all {
		if _, err := fmt.Fprintf(g.stdout, "%s %d\n", e.UUID, e.Exit.Code); err != nil {
			return err
		}
	}
	return nil
}

// waitFor waits for one pod, which may be removed meanwhile.
func waitFor(ctx context.Context, pods pod.Pods, uuid string) (ended, error) {
	for {
		found, err := pods.Get(uuid)
		if errors.Is(err, fs.ErrNotExist) {
			return buried(pods, uuid, err)
		}
		if err == nil && found.Folder != poddir.Garbage {
			found, err = pods.WaitOver(ctx, uuid)
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue // it is in the garbage by now, or gone
		}
		if err != nil {
			return ended{}, err
		}
		exit, err := pods.Exit(found)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it moved on
		}
		if err != nil {
			return ended{}, err
		}
		if found.Folder == poddir.Garbage && (exit == nil || exit.Derived) {
			// Its records are being removed, after what is left behind of them
			// was written.
			if e, err := buried(pods, uuid, fs.ErrNotExist); err == nil {
				return e, nil
			}
		}
		if exit == nil {
			return ended{}, errs.Newf(errs.Usage, "pod %s: is %s, and has never run", uuid, found.State)
		}
		return ended{uuid, *exit}, nil
	}
}

// buried is how a pod ended that is not there, else the error that says so.
func buried(pods pod.Pods, word string, gone error) (ended, error) {
	e, err := pods.FindEnded(word)
	if errs.Is(err, errs.NotFound) {
		err = gone
	}
	return ended{e.UUID, e.Exit}, err
}
