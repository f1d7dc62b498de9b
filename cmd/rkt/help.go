package main

import (
	"github.com/spf13/cobra"

	"github.com/rkt-pods/rkt/pkg/errs"
)

func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show what a command does",
		RunE: func(cmd *cobra.Command, args []string) error {
			about := cmd.Root()
			for _, word := range args {
				next, err := subcommand(about, word)
				if err != nil {
					return err
				}
				about = next
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

func newCompletion(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:       "completion bash|zsh|fish",
		Short:     "Print a script that completes command lines",
		Long:      completionHelp,
		Example:   completionExample,
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				switch args[0] {
				case "bash":
					return cmd.Root().GenBashCompletionV2(g.stdout, true)
				case "zsh":
					return cmd.Root().GenZshCompletion(g.stdout)
				case "fish":
					return cmd.Root().GenFishCompletion(g.stdout, true)
				}
			}
			return errs.Newf(errs.Usage, "the shell is needed: bash, zsh or fish")
		},
	}
}
