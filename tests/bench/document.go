package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
)

// The marks around what the bench writes. The rest of the page is people's.
const (
	beginMark = "<!-- figures: written by make bench WRITE=1 -->"
	endMark   = "<!-- end of figures -->"
)

// write puts the figures into the page, and the chart beside it.
func (r report) write(docs string) error {
	page := filepath.Join(docs, "performance.md")
	old, err := os.ReadFile(page)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text, err := splice(string(old), r.markdown())
	if err != nil {
		return fmt.Errorf("write figures: %s: %w", page, err)
	}
	return errors.Join(
		atomicfile.Write(page, []byte(text), 0o644, atomicfile.Renamed),
		atomicfile.Write(filepath.Join(docs, "performance.svg"), []byte(r.svg()), 0o644, atomicfile.Renamed),
	)
}

// splice replaces what stands between the marks.
func splice(page, figures string) (string, error) {
	if page == "" {
		page = "# Performance\n\n" + beginMark + "\n" + endMark + "\n"
	}
	head, rest, begun := strings.Cut(page, beginMark)
	_, tail, ended := strings.Cut(rest, endMark)
	if !begun || !ended {
		return "", errors.New("the marks around the figures are not there")
	}
	return head + beginMark + "\n" + figures + endMark + tail, nil
}

func (r report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nMeasured on %s, in %s of each case.\n", r.host, plural(r.rounds, "round"))
	r.peerLines(&b)
	b.WriteString("\n## Targets\n\n| case | target | measured | |\n|---|---|---|---|\n")
	for _, res := range r.results {
		for _, t := range res.targets {
			v := res.judge(t)
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", res.heading(), v.wanted(), v.found(), v.outcome())
		}
	}
	b.WriteString("\n![Medians of CPU and wall clock](performance.svg)\n\n## Figures\n")
	for _, res := range r.results {
		res.section(&b)
	}
	return b.String()
}

func (r report) peerLines(b *strings.Builder) {
	var present, missing []string
	for _, p := range r.peers {
		if p.missing != "" {
			missing = append(missing, p.name+" ("+p.missing+")")
		} else {
			present = append(present, p.version)
		}
	}
	if len(present) > 0 {
		fmt.Fprintf(b, "Peers: %s.\n", strings.Join(present, "; "))
	}
	if len(missing) > 0 {
		fmt.Fprintf(b, "Left out: %s.\n", strings.Join(missing, "; "))
	}
}

// heading is the title, marked if the host was busy.
func (r result) heading() string {
	if r.busy {
		return r.title + " \\*"
	}
	return r.title
}

func (r result) section(b *strings.Builder) {
	rows := r.rows()
	fmt.Fprintf(b, "\n### %s\n\n", r.heading())
	if r.note != "" {
		fmt.Fprintf(b, "%s\n\n", r.note)
	}
	rows[0][0] = ""
	for i, row := range rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			b.WriteString("|---|" + strings.Repeat("--:|", len(row)-1) + "\n")
		}
	}
	if len(r.leftOut) > 0 {
		fmt.Fprintf(b, "\nLeft out: %s.\n", strings.Join(r.leftOut, ", "))
	}
	fmt.Fprintf(b, "\nLoad average %.1f at the start and %.1f at the end.\n", r.load[0], r.load[1])
}
