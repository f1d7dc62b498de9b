package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/rkt-pods/rkt/stage0/gc"
	"github.com/rkt-pods/rkt/stage0/pod"
)

// explanation is what status --explain prints.
type explanation struct {
	pod.Explanation
	GC string `json:"gc"` // what the next gc with its defaults does with the pod, and why
}

func (g *globals) explain(h host, found pod.Pod, format string) error {
	e, err := h.pods.Explain(found)
	if err != nil {
		return err
	}
	out := explanation{e, verdict(h, found.UUID)}
	if format != "" {
		return printJSON(g.stdout, format, out)
	}
	return out.print(g.stdout)
}

// verdict asks gc's plan.
func verdict(h host, uuid string) string {
	plan, err := gc.Make(h.store, h.pods, gc.Options{GracePeriod: defaultGrace, ExpirePrepared: defaultExpire, Now: time.Now()})
	if err != nil {
		return err.Error()
	}
	for _, f := range plan.Failures {
		if f.What == uuid {
			return "can't collect it: " + f.Text
		}
	}
	for _, k := range plan.Kept {
		if k.UUID == uuid {
			return "keeps it: " + k.Reason
		}
	}
	for _, s := range plan.Steps {
		if s.UUID == uuid {
			return "removes it (" + string(s.Action) + ")"
		}
	}
	return "has nothing to do with it"
}

func (e explanation) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 1, '\t', 0)
	line := func(key, format string, args ...any) {
		fmt.Fprintf(t, "%s\t%s\n", key, plain(fmt.Sprintf(format, args...)))
	}
	line("pod", "%s", e.UUID)
	line("state", "%s: %s", e.State, e.Because)
	line("folder", "%s", e.Folder)
	if h := e.Holder; h != nil {
		who := "was last held"
		if e.Locked {
			who = "is held"
		}
		line("lock", "%s by %q, pid %d%s, since %s", who, h.Command, h.PID, gone(e.Alive), fullTime(h.Since))
	}
	for _, p := range e.Processes {
		line(p.Role, "pid %d, started %d ticks after boot%s", p.PID, p.Start, gone(p.Alive))
	}
	if c := e.Cgroup; c != nil {
		text := "empty"
		switch {
		case !c.ThisBoot:
			text = "of an earlier boot"
		case c.Populated:
			text = fmt.Sprintf("%d processes: %s", len(c.PIDs), strings.Trim(fmt.Sprint(c.PIDs), "[]"))
		}
		line("cgroup", "%s: %s", c.Path, text)
	}
	for _, m := range e.Mounts {
		line("mount", "%s", m)
	}
	for _, n := range e.Networks {
		line("network", "%s: %s %s", n.Name, n.IfName, strings.Join(n.IPs, " "))
	}
	if e.Refs.Name != "" {
		line("name", "%s", e.Refs.Name)
	}
	for _, id := range e.Refs.Images {
		line("image", "%s", id)
	}
	for _, name := range e.Refs.Volumes {
		line("volume", "%s", name)
	}
	line("layers", "%d", len(e.Refs.Layers))
	line("gc", "%s", e.GC)
	for _, u := range e.Unknown {
		line("unknown", "%s", u)
	}
	return t.Flush()
}

func gone(alive bool) string {
	if alive {
		return ""
	}
	return " (gone)"
}
