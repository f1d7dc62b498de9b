package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/rkt-pods/rkt/pkg/errs"
)

func newCatManifest(g *globals) *cobra.Command {
	var uuidFile string
	var pretty bool
	cmd := &cobra.Command{
		Use:   "cat-manifest [FLAGS] UUID…",
		Short: "Print the manifest of pods",
		Long:  "Prints the manifest that each pod was prepared with. It never changes.",
		RunE:  func(_ *cobra.Command, args []string) error { return runCatManifest(g, args, uuidFile, pretty) },
	}
	cmd.Flags().StringVar(&uuidFile, "uuid-file", "", "file with the pod's UUID")
	cmd.Flags().BoolVar(&pretty, "pretty-print", true, "indent")
	return cmd
}

func runCatManifest(g *globals, args []string, uuidFile string, pretty bool) error {
	if err := needRoot(); err != nil {
		return err
	}
	words, err := manyArgs(args, uuidFile)
	if err != nil {
		return err
	}
	for _, word := range words {
		_, found, err := g.onePod([]string{word}, "")
		if err != nil {
			return err
		}
		data, err := os.ReadFile(found.Dir.Manifest())
		if err != nil {
			return errs.Newf(errs.NotFound, "pod %s: manifest: %w", found.UUID, err)
		}
		if err := printManifest(g, data, pretty); err != nil {
			return errs.Newf(errs.Corrupt, "pod %s: manifest: %w", found.UUID, err)
		}
	}
	return nil
}

func printManifest(g *globals, data []byte, pretty bool) error {
	var out bytes.Buffer
	var err error
	if pretty {
		err = json.Indent(&out, data, "", "\t")
	} else {
		err = json.Compact(&out, data)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(g.stdout, out.String())
	return err
}
