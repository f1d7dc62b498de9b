package main

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/stage0/fetch"
)

// told runs events through progress and returns what was written.
func told(t *testing.T, bars bool, width int, feed func(p *progress, clock *time.Time)) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	clock := time.Unix(1000, 0)
	p := (&globals{stderr: w}).progress(nil, false)
	p.bars, p.now, p.width = bars, func() time.Time { return clock }, func() int { return width }
	feed(p, &clock)
	p.flush()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

const someLayer = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// download is a layer of 100 MiB that takes four seconds.
func download(p *progress, clock *time.Time) {
	for i := range int64(5) {
		p.tell(fetch.Event{Stage: fetch.StageLayer, Object: someLayer, State: fetch.Fetching, Done: i * 25 << 20, Total: 100 << 20})
		*clock = clock.Add(time.Second)
	}
	p.tell(fetch.Event{Stage: fetch.StageLayer, Object: someLayer, State: fetch.Done, Done: 100 << 20, Total: 100 << 20})
}

func TestProgressInLines(t *testing.T) {
	got := told(t, false, 0, func(p *progress, clock *time.Time) {
		download(p, clock)
		p.tell(fetch.Event{Stage: fetch.StageLayer, Object: "sha256:" + strings.Repeat("f", 64), State: fetch.Present})
	})
	want := "rkt: layer 0123456789ab: 100 MiB in 5s, 20 MiB/s\n"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestProgressInBars(t *testing.T) {
	got := told(t, true, 200, download)
	for _, want := range []string{
		"layer 0123456789ab: [          ", "[==========          ] 50 MiB of 100 MiB, 25 MiB/s, 2s left", "\x1b[1A", "\x1b[1A\x1b[Jrkt: layer 0123456789ab: 100 MiB in 5s, 20 MiB/s\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	for _, line := range strings.Split(told(t, true, 40, download), "\n") {
		if text := strings.TrimSuffix(strings.TrimPrefix(line, "\x1b[1A"), "\x1b[K"); len(text) > 39 && strings.Contains(text, "[=") {
			t.Errorf("line of %d characters: %q", len(text), text)
		}
	}
}

func TestNoProgressIfQuiet(t *testing.T) {
	got := told(t, true, 80, func(p *progress, clock *time.Time) {
		p.quiet = true
		download(p, clock)
	})
	if got != "" {
		t.Errorf("%q", got)
	}
}
