package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// metric is one of the numbers of a sample.
type metric int

const (
	wall metric = iota
	cpu
	rss
	pssOf
)

// String is the heading of a metric's column.
func (m metric) String() string { return [...]string{"wall", "CPU", "peak RSS", "PSS"}[m] }

// of is the sample's value: milliseconds or MiB.
func (m metric) of(s sample) float64 {
	switch m {
	case wall:
		return float64(s.wall) / float64(time.Millisecond)
	case cpu:
		return float64(s.cpu) / float64(time.Millisecond)
	case rss:
		return float64(s.rss) / (1 << 20)
	default:
		return float64(s.pss) / (1 << 20)
	}
}

func (m metric) unit() string {
	if m == wall || m == cpu {
		return "ms"
	}
	return "MiB"
}

// contender is one side of a case.
type contender struct {
	name string // as in the tables; rkt's begin with "rkt"
	peer string // whose absence leaves it out; "": nobody's
	// commands are what is measured. sample is instead of it, for what is no
	// list of commands.
	commands func(round int) []command
	sample   func(ctx context.Context, round int) (sample, error)
	// before and after are not measured.
	before, after func(ctx context.Context, round int) error
}

// target is what rkt is to reach: a ratio to another contender, or a value.
type target struct {
	who     string // the contender it is about
	metric  metric
	against string // "": most is a value
	most    float64
}

// benchCase is one thing to measure, by several contenders in turn.
type benchCase struct {
	name, title string
	note        string // for the document; what a reader must know of the case
	metrics     []metric
	contenders  []contender
	targets     []target
	// setUp and tearDown frame the rounds, and round comes before each.
	setUp, tearDown func(ctx context.Context) error
	round           func(ctx context.Context, round int) error
}

// figures are the samples of one contender, one a round.
type figures struct {
	name    string
	samples []sample
}

func (f figures) values(m metric) []float64 {
	out := make([]float64, len(f.samples))
	for i, s := range f.samples {
		out[i] = m.of(s)
	}
	return out
}

func (f figures) median(m metric) float64 { return median(f.values(m)) }

func (f figures) least(m metric) float64 { return slices.Min(f.values(m)) }

// result is a case and what it gave.
type result struct {
	benchCase
	figures []figures
	leftOut []string // contenders; the report's head has the reasons
	load    [2]float64
	busy    bool // the load was above one a CPU
}

func (r result) of(name string) (figures, bool) {
	i := slices.IndexFunc(r.figures, func(f figures) bool { return f.name == name })
	if i < 0 {
		return figures{}, false
	}
	return r.figures[i], true
}

// run takes the case: a warm-up, then the contenders in turn.
func (b *bench) run(ctx context.Context, c benchCase) (r result, err error) {
	r = result{benchCase: c}
	if r.load[0], err = load(); err != nil {
		return r, err
	}
	if c.tearDown != nil {
		// Also what was interrupted is put away.
		defer func() {
			if downErr := c.tearDown(context.WithoutCancel(ctx)); err == nil && downErr != nil {
				err = fmt.Errorf("put away: %s: %w", c.name, downErr)
			}
		}()
	}
	if c.setUp != nil {
		if err := c.setUp(ctx); err != nil {
			return r, fmt.Errorf("prepare: %s: %w", c.name, err)
		}
	}
	var racing []contender
	for _, who := range c.contenders {
		if p := b.peer(who.peer); p.missing != "" {
			r.leftOut = append(r.leftOut, who.name)
			continue
		}
		racing = append(racing, who)
		r.figures = append(r.figures, figures{name: who.name})
	}
	for round := range b.rounds + 1 {
		if err := b.oneRound(ctx, &r, racing, round); err != nil {
			return r, err
		}
	}
	if r.load[1], err = load(); err != nil {
		return r, err
	}
	r.busy = max(r.load[0], r.load[1]) > float64(b.cpus)
	return r, nil
}

// oneRound lets each contender run once. Round 0 is the warm-up, which doesn't
// count.
func (b *bench) oneRound(ctx context.Context, r *result, racing []contender, round int) error {
	if r.round != nil {
		if err := r.round(ctx, round); err != nil {
			return fmt.Errorf("prepare a round: %s: %w", r.name, err)
		}
	}
	for i, who := range racing {
		s, err := b.turn(ctx, who, round)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", r.name, who.name, err)
		}
		if round > 0 {
			r.figures[i].samples = append(r.figures[i].samples, s)
		}
	}
	return nil
}

func (b *bench) turn(ctx context.Context, who contender, round int) (sample, error) {
	if err := ctx.Err(); err != nil {
		return sample{}, err
	}
	if who.before != nil {
		if err := who.before(ctx, round); err != nil {
			return sample{}, err
		}
	}
	s, err := b.take(ctx, who, round)
	if err != nil {
		return s, err
	}
	b.noteStores()
	if who.after != nil {
		return s, who.after(ctx, round)
	}
	return s, nil
}

func (b *bench) take(ctx context.Context, who contender, round int) (sample, error) {
	if who.sample != nil {
		return who.sample(ctx, round)
	}
	return b.meter.run(ctx, who.commands(round)...)
}

// verdict says how a target came out.
type verdict struct {
	target
	got  float64
	met  bool
	lost string // why there is none
}

func (r result) judge(t target) verdict {
	v := verdict{target: t}
	own, ok := r.of(t.who)
	if !ok {
		v.lost = t.who + " was left out"
		return v
	}
	v.got = own.median(t.metric)
	if t.against != "" {
		other, ok := r.of(t.against)
		if !ok {
			v.lost = t.against + " was left out"
			return v
		}
		v.got /= other.median(t.metric)
	}
	v.met = v.got <= t.most
	return v
}
