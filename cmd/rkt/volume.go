package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/stage0/gc"
	"github.com/rkt-pods/rkt/stage0/volume"
)

func newVolume(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "volume COMMAND",
		Short: "Work with named volumes",
		Long: `A named volume is a folder of the data folder that outlives the pods that mount
it. A pod gets one with --volume=NAME,kind=named, which makes it if it is not there.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(*cobra.Command, []string) error {
			return errs.WithHint(errs.Newf(errs.Usage, "missing command"), "\"rkt help volume\" lists them")
		},
	}
	inspect, rm := newVolumeInspect(g), newVolumeRm(g)
	inspect.ValidArgsFunction, rm.ValidArgsFunction = g.completeVolumes, g.completeVolumes
	cmd.AddCommand(newVolumeCreate(g), newVolumeList(g), inspect, rm, newVolumeGC(g))
	return cmd
}

// completeVolumes offers the names of the volumes that are not among the words
// yet.
func (g *globals) completeVolumes(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	list, err := g.volumes("")
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, v := range list {
		if !slices.Contains(args, v.Name) {
			names = append(names, v.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// labelsFlag declares --label, each of which may be given once.
func labelsFlag(fs *pflag.FlagSet, to *map[string]string, usage string) {
	value(fs, "label", "NAME=VALUE", usage, func(s string) error {
		key, val, err := pair(s)
		if err != nil {
			return err
		}
		if _, twice := (*to)[key]; twice {
			return errs.Newf(errs.Usage, "label %q is set twice", key)
		}
		if *to == nil {
			*to = map[string]string{}
		}
		(*to)[key] = val
		return nil
	})
}

func newVolumeCreate(g *globals) *cobra.Command {
	v := podspec.Volume{Kind: podspec.VolumeNamed}
	var labels map[string]string
	cmd := &cobra.Command{
		Use:   "create [FLAGS] NAME",
		Short: "Make a named volume",
		Long: `Makes a named volume, and prints its name. As long as it is new and empty, the first
pod that mounts it fills it with what the image has there.`,
		Example: "  rkt volume create --label=app=shop --mode=0750 --uid=999 shop-db",
		RunE: func(cmd *cobra.Command, args []string) error {
			return runVolumeCreate(cmd.Context(), g, v, labels, args)
		},
	}
	fs := cmd.Flags()
	labelsFlag(fs, &labels, "label of the volume")
	for _, f := range []struct{ key, typ, usage string }{
		{"mode", "MODE", "permissions of its folder, octal (default 0755)"},
		{"uid", "UID", "owner of its folder (default 0)"},
		{"gid", "GID", "group of its folder (default 0)"},
		{"seed", "BOOL", "false: it stays empty until somebody writes to it"},
	} {
		value(fs, f.key, f.typ, f.usage, func(s string) error { return setVolume(&v, f.key, s) })
	}
	return cmd
}

func runVolumeCreate(ctx context.Context, g *globals, v podspec.Volume, labels map[string]string, args []string) error {
	if err := g.needRoot(); err != nil {
		return err
	}
	if len(args) != 1 {
		return errs.Newf(errs.Usage, "one name is needed, not %d", len(args))
	}
	if v.Name = args[0]; podspec.CheckVolumeName(v.Name) == nil {
		if err := v.Validate(); err != nil {
			return err
		}
	}
	s, err := volume.SpecOf(&v)
	if err != nil {
		return err
	}
	s.Labels = labels
	h, err := g.open()
	if err != nil {
		return err
	}
	if err := volume.Of(h.store).Create(ctx, s); err != nil {
		return err
	}
	_, err = fmt.Fprintln(g.stdout, s.Name)
	return err
}

func newVolumeList(g *globals) *cobra.Command {
	var full, noLegend bool
	var format string
	var labels map[string]string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the named volumes",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			list, err := g.volumes(format)
			if err != nil {
				return err
			}
			list = slices.DeleteFunc(list, func(v volume.Volume) bool { return !v.HasLabels(labels) })
			if format != "" {
				return printJSON(g.stdout, format, list)
			}
			return g.printVolumes(list, listOptions{full: full}, noLegend)
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&full, "full", false, "whole UUIDs and times")
	fs.BoolVar(&noLegend, "no-legend", false, "no headings")
	labelsFlag(fs, &labels, "only volumes with this label")
	fs.StringVar(&format, "format", "", "json or json-pretty")
	return cmd
}

// volumes lists the named volumes for root; a data folder that was never made
// has none.
func (g *globals) volumes(format string) ([]volume.Volume, error) {
	if err := g.needRoot(); err != nil {
		return nil, err
	}
	if err := checkFormat(format); err != nil {
		return nil, err
	}
	h, err := g.openExisting()
	if errs.Is(err, errs.NotFound) {
		return []volume.Volume{}, nil
	}
	if err != nil {
		return nil, err
	}
	return volume.Of(h.store).List(gc.VolumesHeld(h.pods))
}

func (g *globals) printVolumes(list []volume.Volume, o listOptions, noLegend bool) error {
	t := tabwriter.NewWriter(g.stdout, 0, 8, 1, '\t', 0)
	if !noLegend {
		fmt.Fprintln(t, "NAME\tCREATED\tLAST USED\tLABELS\tPODS")
	}
	now := time.Now()
	for _, v := range list {
		pods := slices.Clone(v.Pods)
		for i := range pods {
			if !o.full {
				pods[i] = pods[i][:8]
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", v.Name, o.time(v.CreatedAt, now), o.time(v.LastUsed, now), plain(volume.FormatLabels(v.Labels)), strings.Join(pods, ","))
	}
	return t.Flush()
}

func newVolumeInspect(g *globals) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "inspect NAME",
		Short: "Show a named volume",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errs.Newf(errs.Usage, "one name is needed, not %d", len(args))
			}
			return runVolumeInspect(g, args[0], format)
		},
	}
	cmd.Flags().StringVar(&format, "format", "", "json or json-pretty")
	return cmd
}

func runVolumeInspect(g *globals, name, format string) error {
	if err := g.needRoot(); err != nil {
		return err
	}
	if err := checkFormat(format); err != nil {
		return err
	}
	h, err := g.openExisting()
	if err != nil {
		return err
	}
	v, err := volume.Of(h.store).Get(name, gc.VolumesHeld(h.pods))
	if err != nil {
		return err
	}
	if format != "" {
		return printJSON(g.stdout, format, v)
	}
	fmt.Fprintf(g.stdout, "name=%s\npath=%s\ncreated=%s\nlast-used=%s\nfresh=%t\n", v.Name, v.Path, fullTime(v.CreatedAt), fullTime(v.LastUsed), v.Fresh)
	for _, label := range volume.LabelList(v.Labels) {
		fmt.Fprintf(g.stdout, "label-%s\n", plain(label))
	}
	for _, uuid := range v.Pods {
		fmt.Fprintf(g.stdout, "pod=%s\n", uuid)
	}
	return nil
}

func newVolumeRm(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME…",
		Short: "Remove named volumes with all their files",
		Long:  "Removes named volumes with all their files. One that a pod holds, running or not, stays.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return runVolumeRm(cmd.Context(), g, args)
		},
	}
}

func runVolumeRm(ctx context.Context, g *globals, args []string) error {
	if err := g.needRoot(); err != nil {
		return err
	}
	if len(args) == 0 {
		return errs.Newf(errs.Usage, "at least one name is needed")
	}
	h, err := g.openExisting()
	if err != nil {
		return err
	}
	var all []error
	for _, name := range args {
		if err := volume.Of(h.store).Remove(ctx, name, gc.VolumesHeld(h.pods)); err != nil {
			all = append(all, err)
			continue
		}
		fmt.Fprintf(g.stdout, "%q\n", name)
	}
	if len(all) > 0 {
		return joined(all)
	}
	return nil
}

type volumeGCOptions struct {
	rule   volume.Rule
	dryRun bool
	format string
}

func newVolumeGC(g *globals) *cobra.Command {
	var o volumeGCOptions
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove named volumes that no pod holds",
		Long: `Removes each named volume, with all its files, that no pod holds and that was not
used within the grace period, and prints their names. A volume is used from when its
first pod is prepared until its last one is removed.`,
		Example: "  rkt volume gc --label=app=shop --grace-period=0s --dry-run",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runVolumeGC(cmd.Context(), g, o) },
	}
	fs := cmd.Flags()
	duration(fs, &o.rule.Grace, "grace-period", 24*time.Hour, "how long a volume stays after its last use")
	labelsFlag(fs, &o.rule.Labels, "only volumes with this label")
	fs.BoolVar(&o.dryRun, "dry-run", false, "show what would be done and do nothing")
	fs.StringVar(&o.format, "format", "", "json or json-pretty")
	return cmd
}

func runVolumeGC(ctx context.Context, g *globals, o volumeGCOptions) error {
	if err := g.needRoot(); err != nil {
		return err
	}
	if err := checkFormat(o.format); err != nil {
		return err
	}
	out := struct {
		Volumes []string `json:"volumes"`
		DryRun  bool     `json:"dryRun"`
	}{[]string{}, o.dryRun}
	h, err := g.openExisting()
	if err != nil && !errs.Is(err, errs.NotFound) {
		return err
	}
	o.rule.Now = time.Now()
	if err == nil {
		vols, held := volume.Of(h.store), gc.VolumesHeld(h.pods)
		if o.dryRun {
			out.Volumes, err = vols.Due(o.rule, held)
		} else {
			out.Volumes, err = vols.Collect(ctx, o.rule, held)
		}
		if err != nil {
			return withCode(codeIncomplete, err)
		}
	}
	if o.format != "" {
		return printJSON(g.stdout, o.format, out)
	}
	for _, name := range out.Volumes {
		fmt.Fprintf(g.stdout, "%q\n", name)
	}
	return nil
}
