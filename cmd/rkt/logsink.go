package main

import (
	"encoding/json"
	"io"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/rkt-pods/rkt/pkg/crilog"
)

// logSink prints the entries that are wanted: as the app wrote them, or as
// whole lines with something in front, or as JSON.
type logSink struct {
	o       logsOptions
	out     map[crilog.Stream]*output
	prefix  bool
	partial map[lineKey]unended // where whole lines are needed
	tail    *tail               // nil once it has been printed
}

// lineKey names a stream that lines come from.
type lineKey struct {
	app     string
	attempt int
	stream  crilog.Stream
}

// unended is a line so far.
type unended struct {
	text []byte
	at   time.Time // of what came last
}

type output struct {
	w   io.Writer
	buf []byte
}

func newLogSink(g *globals, o logsOptions, prefix bool) *logSink {
	s := &logSink{
		o: o, prefix: prefix, partial: map[lineKey]unended{},
		out: map[crilog.Stream]*output{crilog.Stdout: {w: g.stdout}, crilog.Stderr: {w: g.stderr}},
	}
	if g.oneOutput() {
		// What was written first is printed first.
		s.out[crilog.Stderr] = s.out[crilog.Stdout]
	}
	if o.tail >= 0 {
		s.tail = &tail{most: o.tail, open: map[lineKey]*tailLine{}}
	}
	return s
}

// take prints an entry, or keeps it if it may be one of the last.
func (s *logSink) take(app string, attempt int, e crilog.Entry) error {
	if s.o.stream != "" && e.Stream != s.o.stream || e.Time.Before(s.o.since) {
		return nil
	}
	if s.tail != nil {
		s.tail.add(app, attempt, e)
		return nil
	}
	return s.print(app, attempt, e)
}

// endTail prints the last lines; what comes after them is printed as it comes.
func (s *logSink) endTail() error {
	if s.tail == nil {
		return nil
	}
	kept := s.tail.lines
	s.tail = nil
	for _, line := range kept {
		for _, e := range line.entries {
			if err := s.print(line.app, line.attempt, e); err != nil {
				return err
			}
		}
	}
	return s.flush()
}

func (s *logSink) print(app string, attempt int, e crilog.Entry) error {
	asIs := !s.prefix && !s.o.timestamps && s.o.format == ""
	if asIs {
		return s.out[e.Stream].write(e.Bytes(nil))
	}
	key := lineKey{app, attempt, e.Stream}
	if err := s.endLines(func(k lineKey) bool { return k.app == app && k.stream == e.Stream && k.attempt < attempt }); err != nil {
		return err
	}
	so, begun := s.partial[key]
	line := so.text
	if !begun && s.o.format == "" {
		if s.o.timestamps {
			line = append(line, e.Time.Format(time.RFC3339Nano)+" "...)
		}
		if s.prefix {
			line = append(line, app+": "...)
		}
	}
	line = append(line, e.Content...)
	if e.Partial {
		s.partial[key] = unended{line, e.Time}
		return nil
	}
	delete(s.partial, key)
	if s.o.format != "" {
		return s.json(key, e, line)
	}
	return s.out[e.Stream].write(append(line, '\n'))
}

// logLine is a line as JSON. Its time is that of its end.
type logLine struct {
	Time    time.Time     `json:"time"`
	App     string        `json:"app"`
	Attempt int           `json:"attempt"`
	Stream  crilog.Stream `json:"stream"`
	Line    *string       `json:"line,omitempty"`
	Data    []byte        `json:"data,omitempty"`
	Partial bool          `json:"partial,omitempty"`
}

func (s *logSink) json(key lineKey, e crilog.Entry, content []byte) error {
	l := logLine{Time: e.Time, App: key.app, Attempt: key.attempt, Stream: key.stream, Partial: e.Partial}
	if utf8.Valid(content) {
		l.Line = new(string(content))
	} else {
		l.Data = content
	}
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return s.out[crilog.Stdout].write(append(data, '\n'))
}

// flush passes on what is whole.
func (s *logSink) flush() error {
	for _, o := range s.out {
		if err := o.flush(); err != nil {
			return err
		}
	}
	return nil
}

// end prints last lines that had no end.
func (s *logSink) end() error {
	if err := s.endLines(func(lineKey) bool { return true }); err != nil {
		return err
	}
	return s.flush()
}

// endLines prints lines to which nothing is added any more.
func (s *logSink) endLines(which func(lineKey) bool) error {
	keys := slices.SortedFunc(maps.Keys(s.partial), func(a, b lineKey) int { return s.partial[a].at.Compare(s.partial[b].at) })
	for _, key := range keys {
		if !which(key) {
			continue
		}
		line := s.partial[key]
		delete(s.partial, key)
		var err error
		if s.o.format != "" {
			err = s.json(key, crilog.Entry{Partial: true, Time: line.at}, line.text)
		} else {
			err = s.out[key.stream].write(append(line.text, '\n'))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bufferSize is how much is written at once.
const bufferSize = 64 << 10

func (o *output) write(b []byte) error {
	o.buf = append(o.buf, b...)
	if len(o.buf) < bufferSize {
		return nil
	}
	return o.flush()
}

func (o *output) flush() error {
	_, err := o.w.Write(o.buf)
	o.buf = o.buf[:0]
	return err
}

// tail keeps the last lines.
type tail struct {
	most  int
	lines []*tailLine
	open  map[lineKey]*tailLine // lines that have not ended
}

type tailLine struct {
	app     string
	attempt int
	entries []crilog.Entry
}

func (t *tail) add(app string, attempt int, e crilog.Entry) {
	key := lineKey{app, attempt, e.Stream}
	line := t.open[key]
	if line == nil {
		line = &tailLine{app: app, attempt: attempt}
		t.lines = append(t.lines, line)
		if len(t.lines) > t.most {
			t.lines = t.lines[1:]
		}
	}
	e.Content = slices.Clone(e.Content)
	line.entries = append(line.entries, e)
	if e.Partial {
		t.open[key] = line
	} else {
		delete(t.open, key)
	}
}
