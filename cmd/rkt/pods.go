package main

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage0/pod"
)

// onePod finds the one pod that a command is for, by argument or by file.
func (g *globals) onePod(ctx context.Context, args []string, uuidFile string) (host, pod.Pod, error) {
	arg, err := oneArg(ctx, args, uuidFile)
	if err != nil {
		return host{}, pod.Pod{}, err
	}
	h, err := g.openFor(arg)
	if err != nil {
		return h, pod.Pod{}, err
	}
	found, err := h.pods.Find(arg)
	return h, found, err
}

// openFor opens the data folder for a command that names a pod in it.
func (g *globals) openFor(arg string) (host, error) {
	h, err := g.openExisting()
	if errs.Is(err, errs.NotFound) {
		err = pod.NoMatch(arg) // a data folder that was never made has no pods
	}
	return h, err
}

func oneArg(ctx context.Context, args []string, uuidFile string) (string, error) {
	switch {
	case uuidFile != "" && len(args) > 0:
		return "", errs.WithHint(errs.Newf(errs.Usage, "a UUID and --uuid-file exclude each other"), "give one of them")
	case uuidFile != "":
		return readUUIDFile(ctx, uuidFile)
	case len(args) == 1:
		return args[0], nil
	case len(args) == 0:
		return "", errs.WithHint(errs.Newf(errs.Usage, "a pod's UUID is needed"), "\"rkt list\" shows them; a few digits are enough")
	}
	return "", errs.Newf(errs.Usage, "one UUID is needed, not %d", len(args))
}

// manyArgs is oneArg for commands that take several pods.
func manyArgs(ctx context.Context, args []string, uuidFile string) ([]string, error) {
	if len(args) > 1 && uuidFile == "" {
		return args, nil
	}
	arg, err := oneArg(ctx, args, uuidFile)
	return []string{arg}, err
}

// eachPod runs one step for each pod that is named. One that fails is told,
// and the others go on.
func (g *globals) eachPod(ctx context.Context, args []string, uuidFile, failed string, step func(host, pod.Pod) error) error {
	if err := g.needRoot(); err != nil {
		return err
	}
	words, err := manyArgs(ctx, args, uuidFile)
	if err != nil {
		return err
	}
	h, err := g.openFor(words[0])
	if err != nil {
		return err
	}
	var all []error
	for _, word := range slices.Compact(words) {
		found, err := h.pods.Find(word)
		if err == nil {
			err = step(h, found)
		}
		if err != nil {
			all = append(all, err)
		}
	}
	if len(all) == 0 {
		return nil
	}
	if len(words) > 1 {
		all = append(all, errs.Newf(errs.ClassOf(all[0]), "%s", failed))
	}
	return joined(all)
}

// joined is errors.Join with the class of the first error.
func joined(all []error) error {
	if len(all) == 1 {
		return all[0]
	}
	return errs.WithClass(errs.ClassOf(all[0]), errors.Join(all...))
}

func closeWith(c io.Closer, err error) error { return errors.Join(err, c.Close()) }
