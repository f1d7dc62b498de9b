package main

import (
	"fmt"
	"html"
	"strings"
)

// The chart's measures, in pixels.
const (
	chartWidth = 760
	nameWidth  = 120
	barLeft    = nameWidth + 20
	barRoom    = chartWidth - barLeft - 110 // the value stands behind the bar
	barHeight  = 11
	rowGap     = 8
	titleRoom  = 26
	caseGap    = 18
	legendRoom = 40
)

var barColour = map[metric]string{cpu: "#3b6ea5", wall: "#9dc0e0", rss: "#8a6fb0", pssOf: "#8a6fb0"}

// svg draws one panel a case, each with a scale of its own, and in it one bar
// a contender and metric: the median.
func (r report) svg() string {
	var body strings.Builder
	y := legend(&body)
	for _, res := range r.results {
		y = res.panel(&body, y)
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="11">
<rect width="100%%" height="100%%" fill="#ffffff"/>
%[3]s</svg>
`, chartWidth, y, body.String())
}

func legend(b *strings.Builder) int {
	for i, m := range []metric{cpu, wall, pssOf} {
		name := m.String()
		if m == pssOf {
			name = "memory"
		}
		x := barLeft + i*90
		fmt.Fprintf(b, `<rect x="%d" y="14" width="%d" height="%d" fill="%s"/>`, x, barHeight, barHeight, barColour[m])
		text(b, x+barHeight+5, 23, "", name)
	}
	return legendRoom
}

func (r result) panel(b *strings.Builder, y int) int {
	text(b, 20, y+14, ` font-weight="bold" font-size="12"`, r.title)
	y += titleRoom
	for _, f := range r.figures {
		text(b, 20, y+barHeight-2, "", f.name)
		for _, m := range r.metrics {
			v := f.median(m)
			width := max(1, int(v/r.scale(m)*barRoom))
			fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/>`, barLeft, y, width, barHeight, barColour[m])
			text(b, barLeft+width+5, y+barHeight-2, "", number(v)+" "+m.unit())
			y += barHeight + 1
		}
		y += rowGap
	}
	return y + caseGap
}

// scale is what a full bar stands for: the greatest median of all metrics with
// the same unit.
func (r result) scale(m metric) float64 {
	most := 0.0
	for _, f := range r.figures {
		for _, other := range r.metrics {
			if other.unit() == m.unit() {
				most = max(most, f.median(other))
			}
		}
	}
	if most == 0 {
		return 1
	}
	return most
}

func text(b *strings.Builder, x, y int, attrs, s string) {
	fmt.Fprintf(b, `<text x="%d" y="%d"%s fill="#222222">%s</text>`+"\n", x, y, attrs, html.EscapeString(strings.ReplaceAll(s, "`", "")))
}
