package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rkt-pods/rkt/pkg/cni"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/stage0/config"
	"github.com/rkt-pods/rkt/stage0/gc"
	"github.com/rkt-pods/rkt/stage0/netctl"
)

func newNet(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "net COMMAND",
		Short: "Look after the networks of pods",
		Long: `Shows the networks that are configured and the pods on them, compares what the
host has with the pods' records, restores rules of the packet filter that
somebody flushed, and removes what no pod holds.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(*cobra.Command, []string) error {
			return errs.WithHint(errs.Newf(errs.Usage, "missing command"), "\"rkt help net\" lists them")
		},
	}
	cmd.AddCommand(newNetList(g), newNetInspect(g), newNetCheck(g), newNetReload(g), newNetGC(g))
	return cmd
}

// netJSON is a network as list and inspect print it.
type netJSON struct {
	Name    string          `json:"name"`
	Plugins []string        `json:"plugins"`
	Source  string          `json:"source"` // the file, or "built in"
	Pods    []netPodJSON    `json:"pods"`
	Config  json.RawMessage `json:"config,omitempty"`
}

type netPodJSON struct {
	UUID   string   `json:"uuid"`
	Name   string   `json:"name"`
	IfName string   `json:"ifName"`
	IPs    []string `json:"ips"`
}

func newNetList(g *globals) *cobra.Command {
	var format string
	var noLegend bool
	cmd := &cobra.Command{
		Use: "list", Short: "List the networks and how many pods are on each", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			list, err := g.netViews(cmd)
			if err != nil {
				return err
			}
			if format != "" {
				return printJSON(g.stdout, format, list)
			}
			t := tabwriter.NewWriter(g.stdout, 0, 8, 1, '\t', 0)
			if !noLegend {
				fmt.Fprintln(t, "NETWORK\tPLUGINS\tPODS\tSOURCE")
			}
			for _, n := range list {
				fmt.Fprintf(t, "%s\t%s\t%d\t%s\n", n.Name, strings.Join(n.Plugins, ","), len(n.Pods), n.Source)
			}
			return t.Flush()
		},
	}
	cmd.Flags().BoolVar(&noLegend, "no-legend", false, "no headings")
	cmd.Flags().StringVar(&format, "format", "", "json or json-pretty")
	return cmd
}

// netViews shows the configured networks, and those that only pods have still.
func (g *globals) netViews(cmd *cobra.Command) ([]netJSON, error) {
	all, err := config.LoadNetworks(g.dirs)
	if err != nil {
		return nil, err
	}
	for _, w := range all.Warnings {
		g.warn(cmd, "%s", w)
	}
	list := []netJSON{}
	for _, n := range all.List {
		l, err := cni.Parse(n.Config)
		if err != nil {
			return nil, err
		}
		v := netJSON{Name: n.Name, Source: n.Source, Pods: []netPodJSON{}, Config: compact(n.Config)}
		if v.Source == "" {
			v.Source = "built in"
		}
		for _, p := range l.Plugins {
			v.Plugins = append(v.Plugins, p.Type)
		}
		list = append(list, v)
	}
	h, err := g.openExisting()
	if errs.Is(err, errs.NotFound) {
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	members, err := netctl.Members(h.pods)
	if err != nil {
		return nil, err
	}
	for _, m := range members {
		for _, a := range m.Record.Attachments {
			p := netPodJSON{UUID: m.Pod.UUID, Name: m.Record.PodName, IfName: a.IfName, IPs: append([]string{}, a.IPs...)}
			list = addMember(list, a.Name, p)
		}
	}
	return list, nil
}

func addMember(list []netJSON, network string, p netPodJSON) []netJSON {
	for i := range list {
		if list[i].Name == network {
			list[i].Pods = append(list[i].Pods, p)
			return list
		}
	}
	return append(list, netJSON{Name: network, Plugins: []string{}, Source: "not configured any more", Pods: []netPodJSON{p}})
}

// compact leaves out what a file had for the eye.
func compact(raw json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}

func newNetInspect(g *globals) *cobra.Command {
	return &cobra.Command{
		Use: "inspect NETWORK…", Short: "Show a network's configuration and its pods, as JSON",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errs.Newf(errs.Usage, "must provide at least one network")
			}
			list, err := g.netViews(cmd)
			if err != nil {
				return err
			}
			out := []netJSON{}
			for _, name := range args {
				i := indexOf(list, name)
				if i < 0 {
					return errs.WithHint(errs.Newf(errs.NotFound, "network %q: not configured", name), "\"rkt net list\" shows those that are")
				}
				out = append(out, list[i])
			}
			return printJSON(g.stdout, "json-pretty", out)
		},
	}
}

func indexOf(list []netJSON, name string) int {
	for i := range list {
		if list[i].Name == name {
			return i
		}
	}
	return -1
}

// onNetworks opens the store for a command that needs root, and the networks.
func (g *globals) onNetworks(f func(h host, networks []poddir.Network) error) error {
	if err := g.needRoot(); err != nil {
		return err
	}
	h, err := g.openExisting()
	if errs.Is(err, errs.NotFound) {
		return nil // no store, no pods
	}
	if err != nil {
		return err
	}
	all, err := config.LoadNetworks(g.dirs)
	if err != nil {
		return err
	}
	return f(h, all.List)
}

func newNetCheck(g *globals) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use: "check", Short: "Compare the host's network with the pods' records", Args: noArgs,
		Long: `Asks the plugins of each running pod's networks whether all is as they made it,
and looks for rules, leases and names that are missing or belong to no pod. The
exit code is 12 if there is any.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			return g.onNetworks(func(h host, networks []poddir.Network) error {
				problems, err := netctl.Check(cmd.Context(), h.pods, networks)
				if err != nil {
					return err
				}
				if format != "" {
					err = printJSON(g.stdout, format, problems)
				}
				for _, p := range problems {
					if format != "" {
						break
					}
					who := ""
					if p.Pod != "" {
						who = "pod " + p.Pod + ": "
					}
					fmt.Fprintln(g.stdout, plain(who+p.Text))
				}
				if len(problems) > 0 && err == nil {
					return withCode(codeDamage, errs.WithHint(errs.Newf(errs.Corrupt, "%d differences", len(problems)),
						"\"rkt net reload\" restores rules, \"rkt gc\" and \"rkt net gc\" remove what is left over"))
				}
				return err
			})
		},
	}
	cmd.Flags().StringVar(&format, "format", "", "json or json-pretty")
	return cmd
}

func newNetReload(g *globals) *cobra.Command {
	return &cobra.Command{
		Use: "reload", Short: "Restore the rules of all running pods", Args: noArgs,
		Long: `Makes the packet filter's table of rkt whole again and puts into it what the
running pods need. It is for after somebody flushed the ruleset, and does no
harm at any time.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.onNetworks(func(h host, _ []poddir.Network) error {
				n, err := netctl.Reload(cmd.Context(), h.pods)
				if err == nil {
					fmt.Fprintf(g.stdout, "rules of %d pods are in place\n", n)
				}
				return err
			})
		},
	}
}

func newNetGC(g *globals) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "gc", Short: "Remove addresses, rules and names that no pod holds", Args: noArgs,
		Long: `Releases what ended pods of this data folder still hold of networks, removes
leases of addresses, rules and names that belong to pods which are gone, and
lets plugins that can do the same. "rkt gc" does all of this too.

A plugin that fails to release what it made is asked again each time, and its
pod stays. With --force it is not asked any more: rkt gives back its own part,
and what the plugin has made elsewhere stays there. The exit code is 10 if
something could not be released.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.onNetworks(func(h host, networks []poddir.Network) error {
				ended, err := netctl.ReleaseEnded(cmd.Context(), h.pods, force)
				var failures []gc.Failure
				for _, e := range ended {
					if e.Err != nil {
						failures = append(failures, gc.Failure{What: "a network", Err: e.Err})
						continue
					}
					fmt.Fprintf(g.stdout, "network of pod %s\n", e.UUID)
				}
				if err = errors.Join(err, g.sweepNetworks(cmd.Context(), h, networks)); err != nil {
					return err
				}
				return incomplete(failures)
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "give up what a plugin does not release")
	return cmd
}

func (g *globals) sweepNetworks(ctx context.Context, h host, networks []poddir.Network) error {
	dirs, err := g.pluginDirs()
	if err != nil {
		return err
	}
	found, err := netctl.Sweep(ctx, h.pods, networks, dirs)
	for _, e := range found.Elements {
		fmt.Fprintf(g.stdout, "rule %s: %s (%s)\n", e.Set, e.Key, e.Owner)
	}
	for _, l := range found.Leases {
		fmt.Fprintf(g.stdout, "lease %s (%s)\n", l.File, l.Owner)
	}
	for _, n := range found.Names {
		fmt.Fprintf(g.stdout, "name %s: %s (%s)\n", plain(n.Name), n.Addr, n.Owner)
	}
	return err
}
