package main

import (
	"bytes"
	"context"
	"encoding/json"

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
		RunE: func(cmd *cobra.Command, args []string) error {
			return runCatManifest(cmd.Context(), g, args, uuidFile, pretty)
		},
	}
	cmd.Flags().StringVar(&uuidFile, "uuid-file", "", "file with the pod's UUID")
	cmd.Flags().BoolVar(&pretty, "pretty-print", true, "indent")
	return cmd
}

func runCatManifest(ctx context.Context, g *globals, args []string, uuidFile string, pretty bool) error {
	if err := needRoot(); err != nil {
		return err
	}
	words, err := manyArgs(ctx, args, uuidFile)
	if err != nil {
		return err
	}
	for _, word := range words {
		h, found, err := g.onePod(ctx, []string{word}, "")
		if err != nil {
			return err
		}
		data, err := h.pods.ManifestBytes(found)
		if err != nil {
			return err
		}
		text, err := formatManifest(data, pretty)
		if err != nil {
			err = errs.Newf(errs.Corrupt, "pod %s: manifest: %w", found.UUID, err)
			return errs.WithHint(err, "nothing can be read out of it any more; \"rkt rm %s\" removes the pod, once it is stopped", found.UUID)
		}
		if _, err := g.stdout.Write(text); err != nil {
			return err
		}
	}
	return nil
}

func formatManifest(data []byte, pretty bool) ([]byte, error) {
	var out bytes.Buffer
	var err error
	if pretty {
		err = json.Indent(&out, data, "", "\t")
	} else {
		err = json.Compact(&out, data)
	}
	out.WriteByte('\n')
	return out.Bytes(), err
}
