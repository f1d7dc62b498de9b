package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rkt-pods/rkt/pkg/errs"
)

type listOptions struct {
	full, noLegend bool
	format         string
	filter         listFilter
	watch          bool
}

func newList(g *globals) *cobra.Command {
	var o listOptions
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List pods",
		Long: `Lists the pods of the data folder, one line for each app. Ordinary users see
those that have run since the last boot.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFormat(o.format); err != nil {
				return err
			}
			if o.watch {
				return watchList(cmd.Context(), g, o)
			}
			return runList(g, o)
		},
	}
	cmd.Flags().BoolVar(&o.full, "full", false, "whole UUIDs, image IDs and times")
	cmd.Flags().BoolVar(&o.noLegend, "no-legend", false, "no headings")
	cmd.Flags().StringVar(&o.format, "format", "", "json or json-pretty")
	value(cmd.Flags(), "filter", "KEY=VALUE", "only pods of this state, name, app or label (label=NAME or label=NAME=VALUE); given again, both have to hold", o.filter.add)
	cmd.Flags().BoolVar(&o.watch, "watch", false, "list again whenever something changes, until interrupted")
	return cmd
}

func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return errs.Newf(errs.Usage, "unexpected argument %q", args[0])
	}
	return nil
}

func runList(g *globals, o listOptions) error {
	views, bad, err := g.views()
	if err != nil {
		return err
	}
	views = o.filter.apply(views)
	if o.format != "" {
		out := []podJSON{}
		for _, v := range views {
			out = append(out, v.json())
		}
		err = printJSON(g.stdout, o.format, out)
	} else {
		err = printList(g.stdout, views, o, time.Now())
	}
	if len(bad) > 0 {
		fmt.Fprintln(g.stderr, strings.Repeat("-", 4))
		for _, b := range bad {
			fmt.Fprintf(g.stderr, "list: %s\n", plain(b.Error()))
		}
	}
	return err
}

// views reads all pods that the caller may see. One that can't be read is no
// reason not to show the others.
func (g *globals) views() (views []view, bad []error, err error) {
	anyone, err := g.anyone()
	if err != nil {
		return nil, nil, err
	}
	h, err := g.openExisting()
	if errs.Is(err, errs.NotFound) {
		return nil, nil, nil // never created: no pods
	}
	if err != nil {
		return nil, nil, err
	}
	if anyone {
		views, err = summaries(h.store.ID())
		return views, nil, err
	}
	pods, err := h.pods.List()
	if err != nil {
		return nil, nil, err
	}
	for _, p := range pods {
		f, err := h.pods.Facts(p)
		if errs.Is(err, errs.NotFound) {
			continue
		}
		if err != nil {
			bad = append(bad, err)
			f.Pod = p
		}
		views = append(views, viewOf(f))
	}
	return views, bad, nil
}

func printList(w io.Writer, views []view, o listOptions, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 8, 1, '\t', 0)
	row := func(cells ...string) { fmt.Fprintln(t, strings.Join(cells, "\t")) }
	if !o.noLegend {
		cells := []string{"UUID", "APP", "IMAGE NAME"}
		if o.full {
			cells = append(cells, "IMAGE ID")
		}
		row(append(cells, "STATE", "CREATED", "STARTED", "NETWORKS", "NAME")...)
	}
	for _, v := range views {
		uuid := v.uuid
		if !o.full {
			uuid = uuid[:8]
		}
		tail := []string{string(v.state), o.time(v.created, now), o.time(v.started, now), v.networkText(), v.name}
		apps := v.apps
		if len(apps) == 0 {
			apps = []appView{{name: "-", imageName: "-", imageID: "-"}}
		}
		for _, a := range apps {
			cells := []string{uuid, a.name, a.imageName}
			if o.full {
				cells = append(cells, shortID(a.imageID))
			}
			row(append(cells, tail...)...)
			uuid, tail = "", []string{"", "", "", "", ""}
		}
	}
	return t.Flush()
}

func (o listOptions) time(t, now time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case o.full:
		return fullTime(t)
	}
	return ago(t, now)
}

// shortID is sha512- and 12 digits, as lists show it.
func shortID(id string) string { return id[:min(len(id), len("sha512-")+12)] }
