// Command rkt runs pods on one Linux host without a daemon. Everything here
// turns words into options and errors into text and an exit code; the work is
// done in stage0.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	// A command that changes nothing on the way ends where a signal finds it;
	// one that does is told, and cleans up.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends it wherever it is: in a write to a pipe that nobody
	// reads, for example, which no context reaches.
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the whole program but for the process around it.
func run(ctx context.Context, args []string, stdin, stdout, stderr *os.File) int {
	g := &globals{stdin: stdin, stdout: &checkedFile{f: stdout}, stderr: stderr}
	root := newRoot(g)
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

// newRoot lists the commands.
func newRoot(g *globals) *cobra.Command {
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
	root.AddCommand(
		newFetch(g),
		newImage(g),
		newVolume(g),
		newPrepare(g),
		newRun(g),
		newRunPrepared(g),
		newList(g),
		newNet(g),
		newStatus(g),
		newCatManifest(g),
		newKube(g),
		newEnter(g),
		newLogs(g),
		newStop(g),
		newKill(g),
		newPause(g),
		newUnpause(g),
		newApp(g),
		newUpdate(g),
		newWait(g),
		newEvents(g),

		newRm(g),
		newGC(g),
		newTrust(g),
		newAuth(g),
		newConfig(g),
		newVersion(g),
		newCompletion(g),
		newRmAfter(g),
		help,
	)
	plainUse(root)
	g.complete(root)
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
