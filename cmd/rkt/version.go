package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/version"
)

func newVersion(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(g.stdout, "rkt Version: %s\nappc Version: %s\nGo Version: %s\nGo OS/Arch: %s/%s\nFeatures: -TPM -SDJOURNAL\n",
				version.Version, appc.SpecVersion, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
