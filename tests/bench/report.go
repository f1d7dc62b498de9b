package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// report is what a run of the bench has found.
type report struct {
	host    string
	peers   []*peer
	rounds  int
	results []result
}

func (r report) header(out io.Writer) {
	fmt.Fprintf(out, "%s, %s of each case after a warm-up\n", r.host, plural(r.rounds, "round"))
	for _, p := range r.peers {
		if p.missing != "" {
			fmt.Fprintf(out, "%s is left out: %s\n", p.name, p.missing)
		} else {
			fmt.Fprintf(out, "%s: %s\n", p.name, p.version)
		}
	}
}

// rows are a table's: the heading first. The ratio is that of the first
// contender to the row's.
func (r result) rows() [][]string {
	head := []string{r.title}
	for _, m := range r.metrics {
		head = append(head, m.String()+" median", "min", "ratio")
	}
	rows := [][]string{head}
	for _, f := range r.figures {
		row := []string{f.name}
		for _, m := range r.metrics {
			ratio := ""
			if f.name != r.figures[0].name {
				ratio = number(r.figures[0].median(m) / f.median(m))
			}
			row = append(row, number(f.median(m))+" "+m.unit(), number(f.least(m)), ratio)
		}
		rows = append(rows, row)
	}
	return rows
}

func (r result) table(out io.Writer) {
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range r.rows() {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	// A terminal that is gone will not see the error either.
	_ = w.Flush()
	if len(r.leftOut) > 0 {
		fmt.Fprintf(out, "left out: %s\n", strings.Join(r.leftOut, ", "))
	}
	fmt.Fprintln(out, r.loadLine())
	for _, t := range r.targets {
		fmt.Fprintf(out, "target: %s\n", r.judge(t))
	}
}

// loadLine quotes the load, and marks a run that had no CPU for itself.
func (r result) loadLine() string {
	line := fmt.Sprintf("load average %.1f at the start, %.1f at the end", r.load[0], r.load[1])
	if r.busy {
		line += " (*: above one a CPU, trust the ratios only)"
	}
	return line
}

func (r report) summary(out io.Writer) {
	met, all := 0, 0
	for _, res := range r.results {
		for _, t := range res.targets {
			all++
			if res.judge(t).met {
				met++
			}
		}
	}
	fmt.Fprintf(out, "\n%d of %s met\n", met, plural(all, "target"))
}

// wanted says what a target asks for.
func (t target) wanted() string {
	if t.against == "" {
		return fmt.Sprintf("%s at most %g %s", t.metric, t.most, t.metric.unit())
	}
	return fmt.Sprintf("%s at most %g × %s", t.metric, t.most, t.against)
}

// found says what was measured.
func (v verdict) found() string {
	switch {
	case v.lost != "":
		return "not measured: " + v.lost
	case v.against == "":
		return number(v.got) + " " + v.metric.unit()
	default:
		return number(v.got) + " ×"
	}
}

func (v verdict) outcome() string {
	switch {
	case v.lost != "":
		return "–"
	case v.met:
		return "met"
	default:
		return "missed"
	}
}

// String is the verdict in a line.
func (v verdict) String() string {
	return fmt.Sprintf("%s: %s: %s", v.wanted(), v.found(), v.outcome())
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
