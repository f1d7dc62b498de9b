package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/stage0/pod"
)

type eventsOptions struct {
	follow bool
	format string
	since  time.Time
}

func newEvents(g *globals) *cobra.Command {
	var o eventsOptions
	cmd := &cobra.Command{
		Use:   "events [FLAGS] [UUID…]",
		Short: "Show what has happened to pods and their apps",
		Long: `Shows what the records of all pods, or of those named, say: when each was
created, started and ended, and the begin, readiness and end of each execution of
its apps. With --follow it goes on with what happens, until interrupted; a pod that
is removed is told then too.

Nothing is written down for it: an app that was ready and is so no longer, say,
leaves no event behind, nor do old executions that are not kept (see "rkt logs").`,
		RunE: func(cmd *cobra.Command, args []string) error { return runEvents(cmd.Context(), g, o, args) },
	}
	fs := cmd.Flags()
	fs.BoolVarP(&o.follow, "follow", "f", false, "go on with what happens")
	fs.StringVar(&o.format, "format", "", "json: an object a line")
	value(fs, "since", "DURATION|TIME", "only what happened in the last 10m, say, or since a time", func(v string) (err error) {
		o.since, err = parseSince(v, time.Now())
		return err
	})
	return cmd
}

// event is something that has happened to a pod, or to one execution of an app.
type event struct {
	Time     time.Time     `json:"time"`
	Event    string        `json:"event"`
	UUID     string        `json:"uuid"`
	Name     string        `json:"name,omitempty"`
	App      string        `json:"app,omitempty"`
	Attempt  int           `json:"attempt,omitempty"`
	ExitCode *int          `json:"exitCode,omitempty"`
	Reason   poddir.Reason `json:"reason,omitempty"`
	Cause    poddir.Cause  `json:"cause,omitempty"`
}

// The events, in the order in which they come about at one moment.
const (
	podCreated = "created"
	podStarted = "started"
	appStarted = "app-started"
	appReady   = "app-ready"
	appExited  = "app-exited"
	podEnded   = "ended"
	podRemoved = "removed"
)

var eventOrder = []string{podCreated, podStarted, appStarted, appReady, appExited, podEnded, podRemoved}

// key says which event it is, however often it is read.
func (e event) key() string {
	return fmt.Sprintf("%s %s %s %d %d", e.UUID, e.Event, e.App, e.Attempt, e.Time.UnixNano())
}

func runEvents(ctx context.Context, g *globals, o eventsOptions, args []string) error {
	if o.format != "" && o.format != "json" {
		return errs.WithHint(errs.Newf(errs.Usage, "--format=%s: not json", o.format), "leave --format out for text")
	}
	if err := g.needRoot(); err != nil {
		return err
	}
	h, err := g.openExisting()
	if errs.Is(err, errs.NotFound) && !o.follow && len(args) == 0 {
		return nil // no pod was ever made
	}
	if err != nil {
		return err
	}
	only := map[string]bool{}
	for _, word := range args {
		p, err := h.pods.Find(word)
		if err != nil {
			return err
		}
		only[p.UUID] = true
	}
	t := &teller{pods: h.pods, only: only, o: o, w: g.stdout, told: map[string]map[string]bool{}, names: map[string]string{}}
	if !o.follow {
		return t.tell()
	}
	return follow(ctx, h.pods, func() (bool, error) { return false, t.tell() })
}

// teller prints each event once.
type teller struct {
	pods  pod.Pods
	only  map[string]bool // empty: all
	o     eventsOptions
	w     io.Writer
	told  map[string]map[string]bool // by pod
	names map[string]string          // of the pods that were there
}

// tell prints what is new in the records.
func (t *teller) tell() error {
	list, err := t.pods.List()
	if err != nil {
		return err
	}
	var fresh []event
	there := map[string]bool{}
	for _, p := range list {
		if len(t.only) > 0 && !t.only[p.UUID] {
			continue
		}
		there[p.UUID] = true
		f, err := t.pods.Facts(p)
		if err != nil {
			continue // damaged or just removed: "rkt list" tells
		}
		fresh = append(fresh, t.unseen(history(f))...)
	}
	for uuid, name := range t.names {
		if !there[uuid] {
			fresh = append(fresh, t.unseen([]event{{Time: time.Now().UTC(), Event: podRemoved, UUID: uuid, Name: name}})...)
			delete(t.told, uuid)
			delete(t.names, uuid)
		}
	}
	slices.SortStableFunc(fresh, func(a, b event) int {
		if c := a.Time.Compare(b.Time); c != 0 {
			return c
		}
		return slices.Index(eventOrder, a.Event) - slices.Index(eventOrder, b.Event)
	})
	for _, e := range fresh {
		if e.Time.Before(t.o.since) {
			continue
		}
		if err := t.print(e); err != nil {
			return err
		}
	}
	return nil
}

// unseen leaves out what was told before.
func (t *teller) unseen(list []event) []event {
	return slices.DeleteFunc(list, func(e event) bool {
		seen := t.told[e.UUID]
		if seen == nil {
			seen = map[string]bool{}
			t.told[e.UUID], t.names[e.UUID] = seen, e.Name
		}
		known := seen[e.key()]
		seen[e.key()] = true
		return known
	})
}

func (t *teller) print(e event) error {
	if t.o.format != "" {
		return printJSON(t.w, t.o.format, e)
	}
	line := e.Time.Local().Format("2006-01-02 15:04:05.000") + " " + e.UUID + " " + e.Event
	if e.App != "" {
		line += fmt.Sprintf(" %s/%d", e.App, e.Attempt)
	}
	if e.ExitCode != nil {
		line += fmt.Sprintf(" exit=%d", *e.ExitCode)
	}
	if e.Reason != "" {
		line += " reason=" + string(e.Reason)
	}
	if e.Cause != "" {
		line += " cause=" + string(e.Cause)
	}
	if e.Name != "" {
		line += " name=" + e.Name
	}
	_, err := fmt.Fprintln(t.w, line)
	return err
}

// history is what the records of a pod say of its past.
func history(f pod.Facts) []event {
	v := viewOf(f)
	at := func(t time.Time, what string) event {
		return event{Time: t.UTC(), Event: what, UUID: f.UUID, Name: v.name}
	}
	var list []event
	if !f.CreatedAt.IsZero() {
		list = append(list, at(f.CreatedAt, podCreated))
	}
	if f.Supervisor != nil {
		list = append(list, at(f.Supervisor.StartedAt, podStarted))
	}
	for _, a := range f.Apps {
		for _, s := range executions(f, a) {
			list = append(list, life(s, at)...)
		}
	}
	// What nobody saw has no time.
	if f.Exit != nil && !f.Exit.Derived {
		e := at(f.Exit.FinishedAt, podEnded)
		e.ExitCode, e.Cause = &f.Exit.Code, f.Exit.Cause
		list = append(list, e)
	}
	return list
}

// executions are the statuses of all executions of an app.
func executions(f pod.Facts, a pod.AppFacts) []poddir.Status {
	dir := f.Dir.App(a.Name)
	attempts, err := dir.Attempts()
	if err != nil {
		return nil // moved meanwhile: the next look finds it
	}
	var list []poddir.Status
	for _, n := range attempts {
		var s poddir.Status
		if err := atomicfile.ReadJSON(dir.Attempt(n).Status(), &s); err == nil {
			list = append(list, s)
		}
	}
	return list
}

func life(s poddir.Status, at func(time.Time, string) event) []event {
	var list []event
	add := func(t *time.Time, what string) *event {
		if t == nil {
			return nil
		}
		e := at(*t, what)
		e.App, e.Attempt = s.App, s.Attempt
		list = append(list, e)
		return &list[len(list)-1]
	}
	add(s.StartedAt, appStarted)
	add(s.ReadyAt, appReady)
	if e := add(s.FinishedAt, appExited); e != nil {
		e.ExitCode, e.Reason = s.ExitCode, s.Reason
	}
	return list
}
