package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/stage0/fetch"
)

// redraw is how often bars are drawn at most.
const redraw = 100 * time.Millisecond

// progress shows on stderr how fetching goes on: bars where that is a terminal,
// a line for each layer that came elsewhere, nothing if it is to be quiet.
type progress struct {
	g     *globals
	cmd   *cobra.Command
	quiet bool
	now   func() time.Time
	bars  bool // a terminal
	width func() int
	// local is on until something comes over the network: what a command reads
	// of this host on its way is nobody's wait, unless it takes a while.
	local bool

	mu    sync.Mutex
	list  []*bar // that have not ended
	ended map[string]bool
	drawn int // lines on the screen that are drawn anew
	last  time.Time
}

// bar is one thing that is being read.
type bar struct {
	object      string
	state       fetch.State
	done, total int64
	began       time.Time
	took        time.Duration
}

func (g *globals) progress(cmd *cobra.Command, quiet bool) *progress {
	p := &progress{g: g, cmd: cmd, quiet: quiet, now: time.Now, ended: map[string]bool{}}
	fd := int(g.stderr.Fd())
	p.bars = term.IsTerminal(fd) && os.Getenv("TERM") != "dumb"
	p.width = func() int {
		width, _, err := term.GetSize(fd)
		if err != nil || width <= 0 {
			return 80
		}
		return width
	}
	return p
}

// tell takes an event.
func (p *progress) tell(e fetch.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.quiet:
	case e.Stage == fetch.StageLayer || e.Stage == fetch.StageRead:
		p.update(e)
	case p.g.debug:
		p.note(string(e.Stage) + " " + e.Object + ": " + string(e.State))
	}
}

func (p *progress) update(e fetch.Event) {
	if p.ended[e.Object] {
		return
	}
	b := p.bar(e.Object)
	if b.state != e.State && e.State == fetch.Fetching {
		b.began = p.now()
	}
	b.state = e.State
	b.done, b.total = max(b.done, e.Done), max(b.total, e.Total)
	ended := e.State == fetch.Done || e.State == fetch.Present || e.Stage == fetch.StageRead && b.total > 0 && b.done >= b.total
	switch {
	case ended:
		// Its line scrolls away: so many layers as an image may have are more
		// than a screen has lines.
		b.took = max(p.now().Sub(b.began), 1)
		p.ended[e.Object] = true
		p.list = slices.DeleteFunc(p.list, func(o *bar) bool { return o == b })
		if p.worth(b) {
			p.note(b.line(p.now()))
		}
	case p.bars:
		p.draw(false)
	}
}

// worth says whether what has ended is worth a line.
func (p *progress) worth(b *bar) bool {
	switch {
	case p.g.debug:
		return true
	case b.state == fetch.Present: // nothing came
		return false
	}
	return !p.local || p.bars && b.took >= time.Second
}

// remote says that something comes over the network from now on. A command that
// shows no progress has none to tell.
func (p *progress) remote() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.local = false
}

func (p *progress) bar(object string) *bar {
	for _, b := range p.list {
		if b.object == object {
			return b
		}
	}
	b := &bar{object: object, began: p.now()}
	p.list = append(p.list, b)
	return b
}

// flush leaves what is on the screen there and starts anew.
func (p *progress) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list, p.drawn, p.ended = nil, 0, map[string]bool{}
}

// note prints a line above the bars.
func (p *progress) note(text string) {
	if p.drawn > 0 {
		fmt.Fprintf(p.g.stderr, "\x1b[%dA\x1b[J", p.drawn)
		p.drawn = 0
	}
	p.g.note(p.cmd, "%s", text)
	if p.bars && len(p.list) > 0 {
		p.draw(true)
	}
}

// draw draws the bars over those that are there.
func (p *progress) draw(now bool) {
	if t := p.now(); now || t.Sub(p.last) >= redraw {
		p.last = t
	} else {
		return
	}
	var out strings.Builder
	if p.drawn > 0 {
		fmt.Fprintf(&out, "\x1b[%dA", p.drawn)
	}
	p.drawn = 0
	for _, b := range p.list {
		line := []rune(plain(b.line(p.last)))
		// A line that is broken by the terminal would be two.
		out.WriteString(string(line[:min(len(line), p.width()-1)]) + "\x1b[K\n")
		p.drawn++
	}
	fmt.Fprint(p.g.stderr, out.String())
}

// barWidth is how many characters a full bar has.
const barWidth = 20

// line is the state of one thing in words and figures.
func (b *bar) line(now time.Time) string {
	name := b.object
	if d, err := digest.ParseOCI(b.object); err == nil {
		name = "layer " + d.Hex[:12]
	}
	size := humanSize(max(b.total, b.done))
	switch b.state {
	case fetch.Present:
		return name + ": is there already"
	case fetch.Waiting:
		return name + ": waits for another rkt that brings it in"
	case fetch.Fetching, fetch.Done:
	}
	if b.took > 0 && round(b.took) == 0 {
		return name + ": " + size // too fast for figures that mean anything
	}
	if b.took > 0 {
		return fmt.Sprintf("%s: %s in %s, %s/s", name, size, round(b.took), humanSize(rate(max(b.total, b.done), b.took)))
	}
	elapsed := now.Sub(b.began)
	perSecond := rate(b.done, elapsed)
	if b.total <= 0 {
		return fmt.Sprintf("%s: %s, %s/s", name, humanSize(b.done), humanSize(perSecond))
	}
	full := int(barWidth * min(b.done, b.total) / b.total)
	left := "?"
	if b.done > 0 {
		left = round(time.Duration(float64(elapsed) * float64(b.total-min(b.done, b.total)) / float64(b.done))).String()
	}
	return fmt.Sprintf("%s: [%s%s] %s of %s, %s/s, %s left", name,
		strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), humanSize(b.done), size, humanSize(perSecond), left)
}

func rate(bytes int64, in time.Duration) int64 {
	if in <= 0 {
		return 0
	}
	return int64(float64(bytes) / in.Seconds())
}

func round(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}
