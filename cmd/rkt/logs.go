package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/rkt-pods/rkt/pkg/crilog"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/stage0/pod"
)

type logsOptions struct {
	app        string
	stream     crilog.Stream // "" means both
	since      time.Time
	tail       int // -1: all
	follow     bool
	timestamps bool
	format     string
	uuidFile   string
}

func newLogs(g *globals) *cobra.Command {
	o := logsOptions{tail: -1}
	cmd := &cobra.Command{
		Use:   "logs [FLAGS] UUID",
		Short: "Print what a pod's apps have written",
		Long: `Prints what the apps have written so far, each stream to the same one of this
command, and in its order where both are one terminal or file. With several apps each line begins with the app's name. What was written
by the executions of an app is there until the pod is removed, but for what
rotation has dropped, and for old executions of an app that was often restarted:
the last 50 that have ended stay, or fewer if their logs together are larger than
one may be (--log-max-size times --log-max-files). "rkt status" counts both.

With --format=json each line is an object on stdout: time, app, attempt, stream,
line (or data, in base64, if it is no text), and partial if it has no end.`,
		RunE: func(cmd *cobra.Command, args []string) error { return runLogs(cmd.Context(), g, o, args) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.app, "app", "", "only this app")
	fs.BoolVarP(&o.follow, "follow", "f", false, "go on with what is written, until the pod has ended")
	value(fs, "since", "DURATION|TIME", "only what was written in the last 10m, say, or since a time such as 2026-01-02T15:04:05Z", func(v string) (err error) {
		o.since, err = parseSince(v, time.Now())
		return err
	})
	value(fs, "tail", "N", "only the last lines, so many", func(v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			return errs.Newf(errs.Usage, "%q: not a number from 0 on", v)
		}
		o.tail = n
		return nil
	})
	value(fs, "stream", "stdout|stderr", "only this stream", func(v string) error {
		o.stream = crilog.Stream(v)
		if o.stream != crilog.Stdout && o.stream != crilog.Stderr {
			return errs.Newf(errs.Usage, "%q: neither stdout nor stderr", v)
		}
		return nil
	})
	fs.BoolVar(&o.timestamps, "timestamps", false, "the time in front of each line")
	fs.StringVar(&o.format, "format", "", "json")
	fs.StringVar(&o.uuidFile, "uuid-file", "", "file with the pod's UUID")
	return cmd
}

// parseSince understands a duration until now, and a time.
func parseSince(v string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(v); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, v, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errs.Newf(errs.Usage, "%q: neither a duration such as 10m nor a time such as 2026-01-02T15:04:05Z", v)
}

func runLogs(ctx context.Context, g *globals, o logsOptions, args []string) error {
	if o.format != "" && o.format != "json" {
		return errs.WithHint(errs.Newf(errs.Usage, "--format=%s: not json", o.format), "leave --format out for text")
	}
	if err := g.needRoot(); err != nil {
		return err
	}
	h, found, err := g.onePod(ctx, args, o.uuidFile)
	if err != nil {
		return err
	}
	var f pod.Facts
	l := &logs{pods: h.pods, only: o.app}
	defer l.close()
	// All files are opened before a word is printed: the pod may be set aside
	// or removed at any time, and descriptors stay good then.
	err = h.pods.ReadKept(found, func(now pod.Pod) error {
		l.close()
		f, err = l.open(now)
		return err
	})
	if err != nil {
		return err
	}
	if len(l.sources) == 0 {
		if _, err := pickApp(f, o.app); err != nil || !o.follow {
			return err
		}
	}
	sink := newLogSink(g, o, len(f.Apps) > 1 && o.app == "")
	if err := l.drain(sink); err != nil {
		return err
	}
	if err := sink.endTail(); err != nil {
		return err
	}
	if o.follow {
		if err := l.follow(ctx, f.UUID, sink); err != nil {
			return err
		}
	}
	return sink.end()
}

// logs are the logs of a pod's apps.
type logs struct {
	pods    pod.Pods
	only    string // the app that is wanted, "" means all
	sources []*source
}

// open opens the logs of all executions of the apps, or of the one named.
func (l *logs) open(p pod.Pod) (f pod.Facts, err error) {
	if f, err = l.pods.Facts(p); err != nil {
		return f, err
	}
	l.sources = nil
	for _, a := range f.Apps {
		if l.only != "" && l.only != a.Name {
			continue
		}
		s := &source{app: a.Name}
		l.sources = append(l.sources, s)
		if err := s.refresh(f.Dir.App(a.Name)); err != nil {
			return f, err
		}
	}
	return f, nil
}

func (l *logs) close() {
	for _, s := range l.sources {
		s.close()
	}
}

// drain gives the sink all that is there, in the order of the times. Of one app
// the order is that of its log, whatever its clock said.
func (l *logs) drain(sink *logSink) error {
	var live []*source
	for _, s := range l.sources {
		switch more, err := s.advance(); {
		case err != nil:
			return err
		case more:
			live = append(live, s)
		}
	}
	for len(live) > 0 {
		first := 0
		for i, s := range live {
			if s.next.Time.Before(live[first].next.Time) {
				first = i
			}
		}
		s := live[first]
		if err := sink.take(s.app, s.attempt(), s.next); err != nil {
			return err
		}
		more, err := s.advance()
		if err != nil {
			return err
		}
		if !more {
			live = append(live[:first], live[first+1:]...)
		}
	}
	return sink.flush()
}

// follow goes on until the pod has ended, and gives all that is left then.
func (l *logs) follow(ctx context.Context, uuid string, sink *logSink) error {
	w, err := l.pods.WatchLogs(uuid)
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }() // it was only read
	for {
		if err := w.Refresh(); err != nil {
			return err
		}
		// Asked before the files are: what is written before the end is read
		// after it.
		now, err := l.pods.Get(uuid)
		gone := errors.Is(err, fs.ErrNotExist)
		if err != nil && !gone {
			return err
		}
		if !gone {
			switch err := l.refresh(now); {
			case errors.Is(err, fs.ErrNotExist):
				continue // it was moved, or removed, just now
			case err != nil:
				return err
			}
		}
		if err := l.drain(sink); err != nil {
			return err
		}
		if gone || now.State.Over() {
			return nil
		}
		if err := w.Next(ctx); err != nil {
			if errors.Is(ctx.Err(), context.Canceled) {
				return nil // by a signal, which is the usual end
			}
			return err
		}
	}
}

// refresh takes in new executions and rotated files. The error wraps
// fs.ErrNotExist if the pod does not lie there any more.
func (l *logs) refresh(p pod.Pod) error {
	for _, s := range l.sources {
		if err := s.refresh(p.Dir.App(s.app)); err != nil {
			return err
		}
	}
	if len(l.sources) > 0 {
		return nil
	}
	_, err := l.open(p)
	return err
}

// source gives the log entries of one app over all its executions, with the
// next one at hand.
type source struct {
	app     string
	known   int          // executions that were looked for
	readers []*readerOf  // those with entries left, the next one first
	next    crilog.Entry // valid after advance
	content []byte       // of next; the reader reuses its own
}

// readerOf is the log of one execution.
type readerOf struct {
	*crilog.Reader
	attempt int
}

// refresh opens the logs of executions that have come since, and what rotation
// has made of the last one's.
func (s *source) refresh(dir poddir.AppDir) error {
	attempts, err := dir.Attempts()
	if err != nil {
		return s.named(err)
	}
	if n := len(s.readers); n > 0 {
		last := s.readers[n-1]
		err := last.Refresh(dir.Attempt(last.attempt).Log())
		// The supervisor may have dropped it, which was its last change; else
		// the pod has been moved.
		if err != nil && (!errors.Is(err, fs.ErrNotExist) || slices.Contains(attempts, last.attempt)) {
			return s.named(err)
		}
	}
	for _, n := range attempts {
		if n < s.known {
			continue
		}
		r, err := crilog.Open(dir.Attempt(n).Log())
		if errors.Is(err, fs.ErrNotExist) {
			continue // not yet, or it never got so far
		}
		if err != nil {
			return s.named(err)
		}
		s.readers, s.known = append(s.readers, &readerOf{r, n}), n+1
	}
	return nil
}

func (s *source) named(err error) error { return fmt.Errorf("app %s: log: %w", s.app, err) }

// advance reads the next entry and says whether there is one.
func (s *source) advance() (bool, error) {
	for len(s.readers) > 0 {
		e, err := s.readers[0].Next()
		if errors.Is(err, io.EOF) {
			if len(s.readers) == 1 {
				return false, nil // it may grow
			}
			_ = s.readers[0].Close() // it was only read
			s.readers = s.readers[1:]
			continue
		}
		if err != nil {
			return false, s.named(err)
		}
		s.content = append(s.content[:0], e.Content...)
		s.next, s.next.Content = e, s.content
		return true, nil
	}
	return false, nil
}

func (s *source) attempt() int { return s.readers[0].attempt }

func (s *source) close() {
	for _, r := range s.readers {
		_ = r.Close() // it was only read
	}
	s.readers, s.known = nil, 0
}
