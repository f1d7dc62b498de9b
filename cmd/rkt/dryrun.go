package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/rkt-pods/rkt/pkg/lifecycle"
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/stage0/prepare"
)

// lifePlan is what `run --dry-run` prints: in which order a pod's apps start
// and stop, and what is done with each.
type lifePlan struct {
	Name       string            `json:"name,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	ExitPolicy lifecycle.Policy  `json:"exitPolicy"`
	Start      []lifecycle.Stage `json:"start"` // what can start together
	Stop       []lifecycle.Stage `json:"stop"`
	Apps       []plannedApp      `json:"apps"`
	Manifest   *podspec.Pod      `json:"manifest"`
}

type plannedApp struct {
	Name        string         `json:"name"`
	ImageID     string         `json:"imageID"`
	Role        lifecycle.Role `json:"role"`
	Exec        []string       `json:"exec"`
	After       []string       `json:"after"` // app:condition, by its own word or by its role
	Restart     string         `json:"restart"`
	KeepRootFS  bool           `json:"restartKeepRootfs,omitempty"`
	Ready       string         `json:"ready,omitempty"`
	Live        string         `json:"live,omitempty"`
	Startup     string         `json:"startup,omitempty"`
	PostStart   string         `json:"postStart,omitempty"`
	PreStop     string         `json:"preStop,omitempty"`
	StopSignal  string         `json:"stopSignal"`
	StopTimeout string         `json:"stopTimeout"`
}

// planLife reads the plan out of a manifest.
func planLife(pod *podspec.Pod, images map[string]prepare.Image) (lifePlan, error) {
	policy, apps, err := lifecycle.Of(pod)
	if err != nil {
		return lifePlan{}, err
	}
	m, err := lifecycle.New(policy, apps)
	if err != nil {
		return lifePlan{}, err
	}
	p := lifePlan{ExitPolicy: policy, Labels: pod.UserLabels, Start: m.Stages(), Manifest: pod}
	p.Name, _ = pod.Annotations.Get(podspec.AnnPodName)
	for _, s := range slices.Backward(p.Start) {
		last := slices.Clone(s)
		slices.Reverse(last)
		p.Stop = append(p.Stop, last)
	}
	for i, a := range apps {
		p.Apps = append(p.Apps, planApp(&pod.Apps[i], a, m.Needs(a.Name), images[a.Name]))
	}
	return p, nil
}

func planApp(m *podspec.App, a lifecycle.App, needs []lifecycle.Wait, img prepare.Image) plannedApp {
	get := func(name, otherwise string) string {
		if v, ok := m.Annotations.Get(name); ok {
			return v
		}
		if img.Manifest != nil {
			if v, ok := img.Manifest.Annotations.Get(name); ok {
				return v
			}
		}
		return otherwise
	}
	p := plannedApp{
		Name: a.Name, ImageID: m.Image.ID, Role: a.Role, Restart: a.Restart.String(), After: []string{},
		Ready: get(podspec.AnnReady, ""), Live: get(podspec.AnnLive, ""), Startup: get(podspec.AnnStartup, ""),
		PostStart: get(podspec.AnnPostStart, ""), PreStop: get(podspec.AnnPreStop, ""),
		KeepRootFS: get(podspec.AnnKeepRootFS, "") == "true",
		StopSignal: get(podspec.AnnStopSignal, "SIGTERM"), StopTimeout: get(podspec.AnnStopTimeout, podspec.DefaultStopTimeout.String()),
	}
	if m.App != nil {
		p.Exec = m.App.Exec
	}
	for _, n := range needs {
		if w := n.For + ":" + string(n.Condition); !slices.Contains(p.After, w) {
			p.After = append(p.After, w)
		}
	}
	return p
}

// print writes the plan as text: a line an app in the order of their starts.
func (p lifePlan) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	if p.Name != "" {
		fmt.Fprintf(t, "name:\t%s\n", p.Name)
	}
	for _, k := range slices.Sorted(maps.Keys(p.Labels)) {
		fmt.Fprintf(t, "label:\t%s=%s\n", k, p.Labels[k])
	}
	fmt.Fprintf(t, "exit policy:\t%s\n", p.ExitPolicy)
	fmt.Fprintf(t, "stop:\t%s\n", stagesText(p.Stop))
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(t, "START\tAPP\tROLE\tAFTER\tRESTART\tSTOP\tCHECKS")
	for i, stage := range p.Start {
		for _, name := range stage {
			a := p.Apps[slices.IndexFunc(p.Apps, func(a plannedApp) bool { return a.Name == name })]
			fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s, %s\t%s\n", i+1, a.Name, a.Role, dash(strings.Join(a.After, ",")),
				a.Restart, a.StopSignal, a.StopTimeout, dash(a.checks()))
		}
	}
	return t.Flush()
}

func (a plannedApp) checks() string {
	var list []string
	for _, c := range []struct{ what, value string }{
		{"ready", a.Ready}, {"live", a.Live}, {"startup", a.Startup}, {"post-start", a.PostStart}, {"pre-stop", a.PreStop},
	} {
		if c.value != "" {
			list = append(list, c.what+"="+c.value)
		}
	}
	if a.KeepRootFS {
		list = append(list, "restart-keep-rootfs")
	}
	return strings.Join(list, " ")
}

func stagesText(stages []lifecycle.Stage) string {
	var list []string
	for _, s := range stages {
		list = append(list, strings.Join(s, " + "))
	}
	return strings.Join(list, ", then ")
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// dryRun is podFlags.dryRun: it shows the plan and makes nothing.
func (g *globals) dryRun(format string) func(*podspec.Pod, map[string]prepare.Image) error {
	return func(pod *podspec.Pod, images map[string]prepare.Image) error {
		p, err := planLife(pod, images)
		if err != nil {
			return err
		}
		if format != "" {
			return printJSON(g.stdout, format, p)
		}
		return p.print(g.stdout)
	}
}
