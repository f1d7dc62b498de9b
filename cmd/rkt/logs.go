package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	"github.com/rkt-pods/rkt/pkg/crilog"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/stage0/pod"
)

type logsOptions struct {
	app        string
	timestamps bool
	uuidFile   string
}

func newLogs(g *globals) *cobra.Command {
	var o logsOptions
	cmd := &cobra.Command{
		Use:   "logs [FLAGS] UUID",
		Short: "Print what a pod's apps have written",
		Long: `Prints what the apps have written so far, each stream to the same one of this
command. With several apps each line begins with the app's name.`,
		RunE: func(cmd *cobra.Command, args []string) error { return runLogs(cmd.Context(), g, o, args) },
	}
	cmd.Flags().StringVar(&o.app, "app", "", "only this app")
	cmd.Flags().BoolVar(&o.timestamps, "timestamps", false, "the time in front of each line")
	cmd.Flags().StringVar(&o.uuidFile, "uuid-file", "", "file with the pod's UUID")
	return cmd
}

func runLogs(ctx context.Context, g *globals, o logsOptions, args []string) error {
	if err := needRoot(); err != nil {
		return err
	}
	h, found, err := g.onePod(ctx, args, o.uuidFile)
	if err != nil {
		return err
	}
	var f pod.Facts
	var sources []*source
	defer func() { closeAll(sources) }()
	// All files are opened before a word is printed: the pod may be set aside
	// or removed at any time, and descriptors stay good then.
	err = h.pods.ReadKept(found, func(now pod.Pod) error {
		closeAll(sources)
		f, sources, err = openLogs(h.pods, now, o.app)
		return err
	})
	if err != nil {
		return err
	}
	if len(sources) == 0 {
		_, err := pickApp(f, o.app)
		return err
	}
	return merge(sources, newLogPrinter(g, o, len(f.Apps) > 1 && o.app == ""))
}

// openLogs opens the logs of all executions of the apps, or of the one named.
func openLogs(pods pod.Pods, p pod.Pod, only string) (f pod.Facts, sources []*source, err error) {
	if f, err = pods.Facts(p); err != nil {
		return f, nil, err
	}
	for _, a := range f.Apps {
		if only != "" && only != a.Name {
			continue
		}
		s := &source{app: a.Name}
		sources = append(sources, s)
		if err := s.open(f.Dir.App(a.Name)); err != nil {
			return f, sources, fmt.Errorf("app %s: log: %w", a.Name, err)
		}
	}
	return f, sources, nil
}

func closeAll(sources []*source) {
	for _, s := range sources {
		s.close()
	}
}

// source gives the log entries of one app over all its executions, with the
// next one at hand.
type source struct {
	app     string
	readers []*crilog.Reader // those with entries left, the next one first
	next    crilog.Entry
	content []byte // of next; the reader reuses its own
}

// open opens the log of each execution that has one.
func (s *source) open(dir poddir.AppDir) error {
	attempts, err := dir.Attempts()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, n := range attempts {
		r, err := crilog.Open(dir.Attempt(n).Log())
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		s.readers = append(s.readers, r)
	}
	return nil
}

// advance reads the next entry, and returns io.EOF behind the last one.
func (s *source) advance() error {
	for len(s.readers) > 0 {
		e, err := s.readers[0].Next()
		if errors.Is(err, io.EOF) {
			_ = s.readers[0].Close() // it was only read
			s.readers = s.readers[1:]
			continue
		}
		if err != nil {
			return fmt.Errorf("app %s: log: %w", s.app, err)
		}
		s.content = append(s.content[:0], e.Content...)
		s.next, s.next.Content = e, s.content
		return nil
	}
	return io.EOF
}

func (s *source) close() {
	for _, r := range s.readers {
		_ = r.Close() // it was only read
	}
	s.readers = nil
}

// merge prints the entries of all apps in the order of their times.
func merge(sources []*source, p *logPrinter) error {
	var live []*source
	for _, s := range sources {
		if err := s.advance(); err == nil {
			live = append(live, s)
		} else if !errors.Is(err, io.EOF) {
			return err
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
		if err := p.print(s.app, s.next); err != nil {
			return err
		}
		err := s.advance()
		if errors.Is(err, io.EOF) {
			live = append(live[:first], live[first+1:]...)
		} else if err != nil {
			return err
		}
	}
	return p.flush()
}

// logPrinter writes entries to the stream they came from. With a prefix lines
// must be whole, so parts of one are kept until its end.
type logPrinter struct {
	out     map[crilog.Stream]*output
	prefix  bool
	stamps  bool
	partial map[string][]byte
}

type output struct {
	w   io.Writer
	buf []byte
}

func newLogPrinter(g *globals, o logsOptions, prefix bool) *logPrinter {
	return &logPrinter{
		out:    map[crilog.Stream]*output{crilog.Stdout: {w: g.stdout}, crilog.Stderr: {w: g.stderr}},
		prefix: prefix, stamps: o.timestamps, partial: map[string][]byte{},
	}
}

func (p *logPrinter) print(app string, e crilog.Entry) error {
	out := p.out[e.Stream]
	if !p.prefix && !p.stamps {
		return out.write(e.Bytes(nil))
	}
	key := app + "\x00" + string(e.Stream)
	line, begun := p.partial[key]
	if !begun {
		if p.stamps {
			line = append(line, e.Time.Format(time.RFC3339Nano)+" "...)
		}
		if p.prefix {
			line = append(line, app+": "...)
		}
	}
	line = append(line, e.Content...)
	if e.Partial {
		p.partial[key] = line
		return nil
	}
	delete(p.partial, key)
	return out.write(append(line, '\n'))
}

// flush writes last lines that had no end.
func (p *logPrinter) flush() error {
	for key, line := range p.partial {
		stream := crilog.Stdout
		if key[len(key)-len(crilog.Stderr):] == string(crilog.Stderr) {
			stream = crilog.Stderr
		}
		if err := p.out[stream].write(append(line, '\n')); err != nil {
			return err
		}
	}
	for _, o := range p.out {
		if err := o.flush(); err != nil {
			return err
		}
	}
	return nil
}

func (o *output) write(b []byte) error {
	o.buf = append(o.buf, b...)
	if len(o.buf) < 64<<10 {
		return nil
	}
	return o.flush()
}

func (o *output) flush() error {
	_, err := o.w.Write(o.buf)
	o.buf = o.buf[:0]
	return err
}

// parseFullUUID is for ids that a program gave, never cut short.
func parseFullUUID(s string) (string, error) {
	uuid, err := poddir.ParseUUID(s)
	if err != nil {
		return "", errs.WithClass(errs.Usage, err)
	}
	return uuid, nil
}
