package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/userfile"
	"github.com/rkt-pods/rkt/stage0/handoff"
)

const appsUse = "IMAGE [APP FLAGS] [-- ARGS… ---] [IMAGE …]"

func newPrepare(g *globals) *cobra.Command {
	var o podFlags
	var quiet bool
	cmd := &cobra.Command{
		Use:   "prepare [FLAGS] " + appsUse,
		Short: "Prepare a pod, to be run later",
		Long: `Fetches the images and makes everything ready to run the pod with run-prepared.
Prints the pod's UUID as the last line.

A prepared pod that is not run within a day is removed by gc.`,
	}
	cmd.Flags().BoolVar(&quiet, "quiet", false, "print nothing but the UUID")
	cmd.Flags().StringVar(&o.uuidFile, uuidFileSave, "", uuidFileSaveUsage)
	o.declare(cmd.Flags(), &g.refused)
	return withApps(cmd, &o.apps, false, func(ctx context.Context) error {
		return runPrepare(ctx, g, cmd, &o, quiet)
	})
}

func runPrepare(ctx context.Context, g *globals, cmd *cobra.Command, o *podFlags, quiet bool) error {
	if err := g.needRoot(); err != nil {
		return err
	}
	if o.stage1 != "" {
		// It is looked for again when the pod runs; a mistake is told now.
		if _, err := handoff.Find(ctx, o.stage1); err != nil {
			return err
		}
	}
	run := runFlags{}
	p, err := g.preparePod(ctx, cmd, o, &run, quiet)
	if err != nil {
		return err
	}
	ready, err := p.Ready()
	if err != nil {
		return joinDiscard(ctx, p, err)
	}
	if err := ready.Close(); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(g.stdout, ready.UUID()); err != nil {
		return errs.WithHint(fmt.Errorf("pod %s is prepared, but: %w", ready.UUID(), err), "\"rkt run-prepared %s\" runs it, \"rkt rm\" removes it", ready.UUID())
	}
	return nil
}

// withApps makes a command whose words are images, their flags and their
// arguments.
func withApps(cmd *cobra.Command, apps *appArgs, noArgs bool, run func(context.Context) error) *cobra.Command {
	cmd.DisableFlagParsing = true
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		fs := allFlags(cmd)
		if err := apps.parse(fs, words, noArgs); err != nil {
			return flagError(cmd, err)
		}
		if help, err := fs.GetBool("help"); err == nil && help {
			return cmd.Help()
		}
		return run(cmd.Context())
	}
	return cmd
}

// allFlags are the command's flags with those of every command.
func allFlags(cmd *cobra.Command) *pflag.FlagSet {
	cmd.InheritedFlags() // merges them
	return cmd.Flags()
}

// The flag of run and prepare for those who wait for the id.
const (
	uuidFileSave      = "uuid-file-save"
	uuidFileSaveUsage = "file to write the pod's UUID to as soon as it has one"
)

// saveUUID writes the id for those who wait for it, and nobody sees half of it.
func saveUUID(ctx context.Context, path string) func(string) error {
	if path == "" {
		return nil
	}
	return func(uuid string) error {
		if err := userfile.Write(ctx, path, []byte(uuid), 0o644); err != nil {
			if !strings.Contains(err.Error(), path) {
				err = fmt.Errorf("%s: %w", path, err)
			}
			err = errs.Newf(errs.Usage, "--%s: %w", uuidFileSave, err)
			return errs.WithHint(err, "its folder must be there, and no folder may have its name")
		}
		return nil
	}
}

// readUUIDFile is the inverse. What is in a file that was named by mistake is
// nobody's business.
func readUUIDFile(ctx context.Context, path string) (string, error) {
	data, err := userfile.Read(ctx, path, userfile.MaxID)
	if err != nil {
		return "", uuidFileError(errs.ClassOf(err), err)
	}
	text := trimmed(data)
	switch {
	case text == "":
		return "", uuidFileError(errs.NotFound, fmt.Errorf("%s: is empty", path))
	case strings.Trim(strings.ToLower(text), "0123456789abcdef-") != "" || len(text) > uuidLen:
		return "", uuidFileError(errs.Usage, errs.Newf(errs.Usage, "%s: %q: not a UUID", path, text))
	}
	return text, nil
}

// uuidLen is the length of a UUID as text.
const uuidLen = 36

func uuidFileError(class errs.Class, err error) error {
	return errs.WithHint(errs.Newf(class, "--uuid-file: %w", err), "\"rkt run --uuid-file-save=FILE\" writes such a file")
}
