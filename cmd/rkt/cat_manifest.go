package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/limits"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/stage0/kube"
	"github.com/rkt-pods/rkt/stage0/pod"
)

func newCatManifest(g *globals) *cobra.Command {
	var uuidFile string
	var pretty, asKube, lenient, effective bool
	cmd := &cobra.Command{
		Use:   "cat-manifest [FLAGS] UUID…",
		Short: "Print the manifest of pods",
		Long: `Prints the manifest that each pod was prepared with. It never changes.

With --kube, the pod is printed as a Kubernetes Pod in YAML, which "rkt run
--kube" and a cluster take. What such a Pod can't say is an error that names it.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			print := func(h host, p pod.Pod) error { return g.printManifest(h, p, pretty) }
			switch {
			case asKube:
				print = func(h host, p pod.Pod) error { return g.printKube(cmd, h, p, lenient) }
			case effective:
				print = func(h host, p pod.Pod) error { return g.printEffective(h, p, pretty) }
			case lenient:
				return errs.Newf(errs.Usage, "--lenient: only with --kube")
			}
			return runCatManifest(cmd.Context(), g, args, uuidFile, print)
		},
	}
	cmd.Flags().StringVar(&uuidFile, "uuid-file", "", "file with the pod's UUID")
	cmd.Flags().BoolVar(&pretty, "pretty-print", true, "indent")
	cmd.Flags().BoolVar(&effective, "effective", false, "with the limits as \"rkt update\" has changed them since")
	cmd.Flags().BoolVar(&asKube, "kube", false, "print a Kubernetes Pod")
	cmd.Flags().BoolVar(&lenient, "lenient", false, "leave out what a Kubernetes Pod can't say, with a warning")
	return cmd
}

func runCatManifest(ctx context.Context, g *globals, args []string, uuidFile string, print func(host, pod.Pod) error) error {
	if err := g.needRoot(); err != nil {
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
		if err := print(h, found); err != nil {
			return err
		}
	}
	return nil
}

func (g *globals) printManifest(h host, p pod.Pod, pretty bool) error {
	data, err := h.pods.ManifestBytes(p)
	if err != nil {
		return err
	}
	text, err := formatManifest(data, pretty)
	if err != nil {
		err = errs.Newf(errs.Corrupt, "pod %s: manifest: %w", p.UUID, err)
		return errs.WithHint(err, "nothing can be read out of it any more; \"rkt rm %s\" removes the pod, once it is stopped", p.UUID)
	}
	_, err = g.stdout.Write(text)
	return err
}

// printKube prints the pods as one stream of YAML documents.
func (g *globals) printKube(cmd *cobra.Command, h host, p pod.Pod, lenient bool) error {
	manifest, options, images, err := h.pods.Whole(p)
	if err != nil {
		return err
	}
	text, problems, err := kube.Write(kube.Source{UUID: p.UUID, Manifest: manifest, Options: options, Images: images})
	if err != nil {
		return fmt.Errorf("pod %s: %w", p.UUID, err)
	}
	for _, problem := range problems {
		if !lenient {
			err := errs.Newf(errs.Unsupported, "pod %s: as a Kubernetes Pod: %w", p.UUID, problem)
			return errs.WithHint(err, "--lenient leaves it out")
		}
		g.warn(cmd, "pod %s: as a Kubernetes Pod: %s, leaving it out", p.UUID, problem.Error())
	}
	_, err = fmt.Fprintf(g.stdout, "---\n%s", text)
	return err
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

// printEffective prints the manifest that would make the pod as it is now.
func (g *globals) printEffective(h host, p pod.Pod, pretty bool) error {
	var updates []poddir.Update
	f, err := h.pods.Facts(p)
	if err == nil && f.Manifest == nil {
		err = errs.Newf(errs.NotFound, "pod %s: has no manifest, it is %s", p.UUID, f.State)
	}
	if err == nil {
		err = h.pods.Read(f.Pod, func(now pod.Pod) error {
			updates, err = now.Dir.ReadUpdates()
			return err
		})
	}
	if err != nil {
		return err
	}
	for app, set := range poddir.Effective(updates) {
		if app == "" {
			f.Manifest.Isolators = limits.Overlay(f.Manifest.Isolators, set)
		} else if a := f.Manifest.Find(app); a != nil && a.App != nil {
			a.App.Isolators = limits.Overlay(a.App.Isolators, set)
		}
	}
	data, err := f.Manifest.Marshal()
	if err != nil {
		return err
	}
	text, err := formatManifest(data, pretty)
	if err != nil {
		return err
	}
	_, err = g.stdout.Write(text)
	return err
}
