package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/crilog"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

// TestLogSink: the same entries in each way that they can be printed.
func TestLogSink(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	type entry struct {
		app     string
		attempt int
		crilog.Entry
	}
	entries := []entry{
		{"a", 0, crilog.Entry{Time: at, Stream: crilog.Stdout, Content: []byte("one ")}},
		{"a", 0, crilog.Entry{Time: at.Add(1), Stream: crilog.Stdout, Partial: true, Content: []byte("tw")}},
		{"b", 0, crilog.Entry{Time: at.Add(2), Stream: crilog.Stderr, Content: []byte("err")}},
		{"a", 0, crilog.Entry{Time: at.Add(3), Stream: crilog.Stdout, Content: []byte("o")}},
		{"a", 0, crilog.Entry{Time: at.Add(4), Stream: crilog.Stdout, Partial: true, Content: []byte{'c', 0xff}}},
		{"a", 1, crilog.Entry{Time: at.Add(5), Stream: crilog.Stdout, Content: []byte("new")}},
	}
	for _, c := range []struct {
		name        string
		o           logsOptions
		prefix      bool
		out, errout string
	}{
		{"as they were", logsOptions{tail: -1}, false, "one \ntwo\nc\xffnew\n", "err\n"},
		{"prefix", logsOptions{tail: -1}, true, "a: one \na: two\na: c\xff\na: new\n", "b: err\n"},
		{"last two", logsOptions{tail: 2}, true, "a: c\xff\na: new\n", ""},
		{"last three", logsOptions{tail: 3}, false, "c\xffnew\n", "err\n"},
		{"none", logsOptions{tail: 0}, false, "", ""},
		{"stream", logsOptions{tail: -1, stream: crilog.Stderr}, false, "", "err\n"},
		{"since", logsOptions{tail: -1, since: at.Add(3)}, true, "a: o\na: c\xff\na: new\n", ""},
		{"json", logsOptions{tail: 2, format: "json"}, true,
			`{"time":"2026-01-02T03:04:05.000000005Z","app":"a","attempt":1,"stream":"stdout","line":"new"}`, ""},
		{"json data", logsOptions{tail: 2, format: "json"}, true, `"stream":"stdout","data":"Y/8=","partial":true}`, ""},
		{"times", logsOptions{tail: 1, timestamps: true}, true, "2026-01-02T03:04:05.000000005Z a: new\n", ""},
	} {
		var out, errout bytes.Buffer
		s := newLogSink(&globals{}, c.o, c.prefix)
		s.out[crilog.Stdout].w, s.out[crilog.Stderr].w = &out, &errout
		for _, e := range entries {
			if err := s.take(e.app, e.attempt, e.Entry); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.endTail(); err != nil {
			t.Fatal(err)
		}
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
		got := out.String()
		if c.o.format != "" && strings.Contains(got, c.out) {
			got = c.out
		}
		if got != c.out || errout.String() != c.errout {
			t.Errorf("%s: %q and %q, want %q and %q", c.name, got, errout.String(), c.out, c.errout)
		}
	}
}

// TestLogSinkOfOneFile: where both streams lead to the same file they come out
// in their order, and a line without an end keeps its time.
func TestLogSinkOfOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	file := func() *os.File {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for format, want := range map[string]string{
		"": "one\ntwo\nthree\n",
		"json": `{"time":"2026-01-02T03:04:05Z","app":"a","attempt":0,"stream":"stdout","line":"one"}` + "\n" +
			`{"time":"2026-01-02T03:04:06Z","app":"a","attempt":0,"stream":"stderr","line":"two"}` + "\n" +
			`{"time":"2026-01-02T03:04:07Z","app":"a","attempt":0,"stream":"stdout","line":"three"}` + "\n" +
			`{"time":"2026-01-02T03:04:08Z","app":"a","attempt":0,"stream":"stdout","line":"end","partial":true}` + "\n",
	} {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		g := &globals{stdout: &checkedFile{f: file()}, stderr: file()}
		if format == "" {
			want += "end"
		}
		s := newLogSink(g, logsOptions{tail: -1, format: format}, false)
		for i, e := range []crilog.Entry{
			{Stream: crilog.Stdout, Content: []byte("one")}, {Stream: crilog.Stderr, Content: []byte("two")},
			{Stream: crilog.Stdout, Content: []byte("three")}, {Stream: crilog.Stdout, Content: []byte("end"), Partial: true},
		} {
			e.Time = at.Add(time.Duration(i) * time.Second)
			if err := s.take("a", 0, e); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("--format=%s:\n%q, %v, want\n%q", format, got, err, want)
		}
	}
}

func TestParseSince(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"10m": now.Add(-10 * time.Minute), "0s": now, "2026-01-01T00:00:00Z": time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		"2026-01-01T00:00:00.5+01:00": time.Date(2025, 12, 31, 23, 0, 0, 5e8, time.UTC), "-1s": {}, "yesterday": {}, "": {},
	} {
		got, err := parseSince(text, now)
		if !got.Equal(want) || (err == nil) == want.IsZero() {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// TestSourceFollows: what is written later is read on, over rotations and new
// executions, also once the folder has moved.
func TestSourceFollows(t *testing.T) {
	top := t.TempDir()
	app := poddir.AppDir(filepath.Join(top, "run"))
	write := func(n int, w *crilog.Writer, lines ...string) *crilog.Writer {
		t.Helper()
		var err error
		if w == nil {
			if err := os.MkdirAll(string(app.Attempt(n)), 0o700); err != nil {
				t.Fatal(err)
			}
			if w, err = crilog.Create(app.Attempt(n).Log(), crilog.Options{MaxSize: 100, MaxFiles: 20}); err != nil {
				t.Fatal(err)
			}
		}
		for _, line := range lines {
			if err := w.Append(crilog.Stdout, time.Now(), []byte(line+"\n")); err != nil {
				t.Fatal(err)
			}
		}
		return w
	}
	s := &source{app: "a"}
	defer s.close()
	var got []string
	read := func(want string) {
		t.Helper()
		if err := s.refresh(app); err != nil {
			t.Fatal(err)
		}
		got = nil
		for {
			more, err := s.advance()
			if err != nil {
				t.Fatal(err)
			}
			if !more {
				break
			}
			got = append(got, string(s.next.Content))
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("read %q, want %q", text, want)
		}
	}
	w := write(0, nil, "1", "2", "3")
	read("1 2 3")
	read("")
	write(0, w, "4", "5", "6", "7", "8", "9") // two to a file
	read("4 5 6 7 8 9")
	write(0, w, "10")
	write(1, nil, "11")
	read("10 11")
	moved := filepath.Join(top, "exited")
	if err := os.Rename(filepath.Join(top, "run"), moved); err != nil {
		t.Fatal(err)
	}
	if err := s.refresh(app); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that moved: %v", err)
	}
	app = poddir.AppDir(moved)
	write(2, nil, "12")
	read("12")
	// The supervisor drops executions, also the one that was read last.
	write(3, nil, "13")
	for n := range 3 {
		if err := os.Rename(string(app.Attempt(n)), app.Dropped(n)); err != nil {
			t.Fatal(err)
		}
	}
	read("13")
}

// TestClockJumps: what an app wrote stays in its order though the clock was set
// an hour back and forth meanwhile.
func TestClockJumps(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	l := &logs{}
	for name, hours := range map[string][]int{"a": {0, 1, -1, 0}, "b": {0, 0, 0, 0}} {
		dir := poddir.AppDir(t.TempDir())
		if err := os.MkdirAll(string(dir.Attempt(0)), 0o700); err != nil {
			t.Fatal(err)
		}
		w, err := crilog.Create(dir.Attempt(0).Log(), crilog.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i, h := range hours {
			at := now.Add(time.Duration(h)*time.Hour + time.Duration(i)*time.Second)
			if err := w.Append(crilog.Stdout, at, []byte(strconv.Itoa(i)+"\n")); err != nil {
				t.Fatal(err)
			}
		}
		s := &source{app: name}
		l.sources = append(l.sources, s)
		if err := s.refresh(dir); err != nil {
			t.Fatal(err)
		}
	}
	defer l.close()
	var out bytes.Buffer
	sink := newLogSink(&globals{}, logsOptions{tail: -1}, true)
	sink.out[crilog.Stdout].w, sink.out[crilog.Stderr].w = &out, &out
	if err := l.drain(sink); err != nil {
		t.Fatal(err)
	}
	for _, app := range []string{"a", "b"} {
		var got string
		for line := range strings.Lines(out.String()) {
			if rest, ok := strings.CutPrefix(line, app+": "); ok {
				got += strings.TrimSpace(rest)
			}
		}
		if got != "0123" {
			t.Errorf("%s: %q of\n%s", app, got, out.String())
		}
	}
}
