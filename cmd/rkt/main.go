// Command rkt runs pods on one Linux host without a daemon. Everything here
// turns words into options and errors into text and an exit code; the work is
// done in stage0.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	refuseClosed()
	// A command that changes nothing on the way ends where a signal finds it;
	// one that does is told, and cleans up.
	code := run(catchInterrupts(context.Background()), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	os.Exit(code)
}

// run is the whole program but for the process around it.
func run(ctx context.Context, args []string, stdin, stdout, stderr *os.File) int {
	g := &globals{stdin: stdin, stdout: &checkedFile{f: stdout}, stderr: stderr}
	root := newRoot(g, args...)
	root.SetOut(g.stdout)
	root.SetErr(stderr)
	name := "rkt"
	path, args, err := arrange(root, args)
	switch {
	case err != nil:
	case completesArgs(args):
		err = printDirective(g.stdout, cobra.ShellCompDirectiveDefault)
	default:
		root.SetArgs(append(path, args...))
		var cmd *cobra.Command
		cmd, err = root.ExecuteContextC(ctx)
		name = commandName(cmd)
	}
	code := g.report(name, args, err)
	if lost := g.stdout.lost(err); lost != nil {
		return g.report("rkt", args, lost)
	}
	return code
}

// commands makes each command, by name.
var commands = []struct {
	name string
	make func(*globals) *cobra.Command
}{
	{"fetch", newFetch},
	{"image", newImage},
	{"volume", newVolume},
	{"prepare", newPrepare},
	{"run", newRun},
	{"run-prepared", newRunPrepared},
	{"list", newList},
	{"net", newNet},
	{"status", newStatus},
	{"cat-manifest", newCatManifest},
	{"kube", newKube},
	{"enter", newEnter},
	{"logs", newLogs},
	{"stop", newStop},
	{"kill", newKill},
	{"pause", newPause},
	{"unpause", newUnpause},
	{"app", newApp},
	{"update", newUpdate},
	{"wait", newWait},
	{"events", newEvents},
	{"rm", newRm},
	{"gc", newGC},
	{"trust", newTrust},
	{"auth", newAuth},
	{"config", newConfig},
	{"version", newVersion},
	{"completion", newCompletion},
	{"rm-after", newRmAfter},
}

// newRoot makes the tree of commands. If the first of args is the whole name of
// one, the tree has no other: to make all, with their flags, is a fifth of what a
// short command costs.
func newRoot(g *globals, args ...string) *cobra.Command {
	root := &cobra.Command{
		Use:           "rkt",
		Short:         "Run pods on one Linux host, without a daemon",
		Long:          "rkt runs pods, groups of apps that share their fate, on one Linux host and without a daemon.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE:          func(*cobra.Command, []string) error { return errMissingCommand },
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(flagError)
	g.flags(root.PersistentFlags())
	help := newHelp()
	root.SetHelpCommand(help)
	for _, c := range commands {
		if len(args) > 0 && c.name == args[0] {
			root.AddCommand(c.make(g))
		}
	}
	if !root.HasSubCommands() {
		for _, c := range commands {
			root.AddCommand(c.make(g))
		}
		root.AddCommand(help)
		g.complete(root)
	}
	plainUse(root)
	return root
}

// plainUse shows usage lines as they are written, and lets two slips of the
// finger be guessed.
func plainUse(cmd *cobra.Command) {
	cmd.DisableFlagsInUseLine = true
	cmd.SuggestionsMinimumDistance = 2
	for _, sub := range cmd.Commands() {
		plainUse(sub)
	}
}
