package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/rkt-pods/rkt/stage0/config"
)

func newConfig(g *globals) *cobra.Command {
	var pretty bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the configuration",
		Long: `Prints the configuration of all places merged into one, one entry for each
domain and registry. Credentials are shown to whoever may read their files.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := config.Load(g.dirs, os.Geteuid() != 0)
			if err != nil {
				return err
			}
			format := "json"
			if pretty {
				format = "json-pretty"
			}
			return printJSON(g.stdout, format, map[string]any{"stage0": c.Entries()})
		},
	}
	cmd.Flags().BoolVar(&pretty, "pretty-print", true, "indent")
	return cmd
}
