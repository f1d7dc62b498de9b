package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{{[]float64{7}, 7}, {[]float64{9, 1, 5}, 5}, {[]float64{8, 1, 3, 5}, 4}} {
		if got := median(c.in); got != c.want {
			t.Errorf("median of %v: %v, want %v", c.in, got, c.want)
		}
	}
	if got := median(nil); got == got {
		t.Errorf("median of nothing: %v", got)
	}
}

// fixture has two contenders; rkt takes half as long as the peer, and three
// times the memory that it may.
func fixture() result {
	c := benchCase{
		name: "x", title: "A <case> of `two`", metrics: []metric{cpu, wall},
		targets: []target{
			{who: "rkt", metric: wall, against: "peer", most: 0.4},
			{who: "rkt", metric: wall, against: "peer", most: 0.5},
			{who: "rkt", metric: rss, most: 10},
			{who: "rkt", metric: cpu, against: "gone", most: 1},
		},
	}
	ms := func(n int) sample {
		return sample{wall: time.Duration(n) * time.Millisecond, cpu: time.Duration(n) * time.Millisecond, rss: 30 << 20}
	}
	return result{benchCase: c, leftOut: []string{"gone"}, load: [2]float64{0.5, 3}, busy: true, figures: []figures{
		{name: "rkt", samples: []sample{ms(90), ms(100), ms(400)}},
		{name: "peer", samples: []sample{ms(200), ms(190), ms(900)}},
	}}
}

func TestTargets(t *testing.T) {
	r := fixture()
	for i, want := range []string{
		"wall at most 0.4 × peer: 0.500 ×: missed",
		"wall at most 0.5 × peer: 0.500 ×: met",
		"peak RSS at most 10 MiB: 30.0 MiB: missed",
		"CPU at most 1 × gone: not measured: gone was left out: –",
	} {
		if got := r.judge(r.targets[i]).String(); got != want {
			t.Errorf("target %d: %q, want %q", i, got, want)
		}
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	fixture().table(&out)
	for _, want := range []string{"100 ms      90.0", "200 ms      190   0.500", "left out: gone", "load average 0.5 at the start, 3.0 at the end (*"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}

// TestWrite keeps what people wrote around the figures, and replaces the
// figures.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	r := report{
		host: "2 CPUs, Linux 6.0", rounds: 3, results: []result{fixture()},
		peers: []*peer{{name: "peer", version: "peer 1.0"}, {name: "gone", missing: "not installed"}},
	}
	page := filepath.Join(dir, "performance.md")
	before := "# Performance\n\nabove\n\n" + beginMark + "\nold figures\n" + endMark + "\n\nbelow\n"
	if err := os.WriteFile(page, []byte(before), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.write(dir); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nabove\n", "\nbelow\n", "Peers: peer 1.0.", "Left out: gone (not installed).", "| missed |", "| 200 ms | 190 | 0.500 |"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "old figures") || strings.Count(string(text), beginMark) != 1 {
		t.Errorf("figures not replaced:\n%s", text)
	}
	if err := os.WriteFile(page, []byte("no marks"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := r.write(dir); err == nil {
		t.Error("a page without marks was overwritten")
	}
	checkXML(t, filepath.Join(dir, "performance.svg"))
}

func checkXML(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	bars := 0
	for d := xml.NewDecoder(f); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "rect" {
			bars++
		}
	}
	if bars != 1+3+4 { // background, legend, two contenders of two metrics
		t.Errorf("%d rectangles", bars)
	}
}

// TestOrphansCount: the CPU time of a process that outlives its command counts,
// and the wall clock stops with the command.
func TestOrphansCount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes a cgroup")
	}
	m, err := newMeter(filepath.Join(t.TempDir(), "output"))
	if err != nil {
		t.Fatal(err)
	}
	const loop = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"
	whole, err := m.run(context.Background(), sh("%s", loop))
	if err != nil {
		t.Fatal(err)
	}
	left, err := m.run(context.Background(), sh("(setsid sh -c '%s' &) ", loop))
	if err != nil {
		t.Fatal(err)
	}
	if left.cpu < whole.cpu/2 {
		t.Errorf("CPU of an orphan: %v, of the same as a child: %v", left.cpu, whole.cpu)
	}
	if left.wall > whole.wall/2 {
		t.Errorf("wall clock of a command that leaves an orphan: %v", left.wall)
	}
	if groups, err := filepath.Glob(filepath.Join(m.account.root, fmt.Sprintf("bench-%d*", os.Getpid()))); err != nil || len(groups) > 0 {
		t.Errorf("cgroups left: %v: %v", groups, err)
	}
	if own, err := m.account.ownGroup(); err != nil || own != m.account.own {
		t.Errorf("this process is in %s instead of %s: %v", own, m.account.own, err)
	}
}

// TestFailureSaysWhy: the last line of a command that fails is in the error.
func TestFailureSaysWhy(t *testing.T) {
	m := &meter{output: filepath.Join(t.TempDir(), "output")}
	_, err := m.one(context.Background(), sh("echo first; echo the reason >&2; exit 3"))
	if err == nil || !strings.Contains(err.Error(), "exit status 3: the reason") {
		t.Errorf("error: %v", err)
	}
}

// TestLargeImage: as large as asked, the same each time, and no single file
// takes it all.
func TestLargeImage(t *testing.T) {
	const size = 4 << 20
	var first, second bytes.Buffer
	for _, b := range []*bytes.Buffer{&first, &second} {
		w := tar.NewWriter(b)
		if err := errors.Join(writeLarge(w, size), w.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two images differ")
	}
	files, sum := 0, int64(0)
	for r := tar.NewReader(&first); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg && h.Name != "manifest" {
			files, sum = files+1, sum+h.Size
		}
	}
	if sum != size || files < 100 {
		t.Errorf("%d bytes in %d files", sum, files)
	}
}

func TestParseStatus(t *testing.T) {
	p, parent := parseStatus(70, "Name:\tpodinit\nPPid:\t12\nNSpid:\t70\t1\n")
	if p != (process{pid: 70, inner: 1, comm: "podinit"}) || parent != 12 {
		t.Errorf("%+v of %d", p, parent)
	}
	if n, err := pss(os.Getpid()); err != nil || n <= 0 {
		t.Errorf("own memory: %d: %v", n, err)
	}
}

// TestSweep: empty folders and locks go, what has content stays.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	for name, body := range map[string]string{"mine/a/lock": "", "theirs/state": "x"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(body), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(sweep(filepath.Join(dir, "mine")), sweep(filepath.Join(dir, "theirs")), sweep(filepath.Join(dir, "none"))); err != nil {
		t.Fatal(err)
	}
	if exists(filepath.Join(dir, "mine")) || !exists(filepath.Join(dir, "theirs/state")) {
		t.Error("swept the wrong folder")
	}
}

// TestHideaway: what is started there doesn't see the hierarchy, and the host
// still does.
func TestHideaway(t *testing.T) {
	h, err := openHideaway()
	if err != nil {
		t.Fatal(err)
	}
	if h == nil {
		if h.place() != nil {
			t.Error("a place on a host without the mount")
		}
		return
	}
	defer h.close()
	m := &meter{output: filepath.Join(t.TempDir(), "output")}
	if _, err := m.one(context.Background(), sh("! test -e %s/cgroup.procs", unified).in(h.place())); err != nil {
		t.Error(err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(unified, &fs); err != nil || fs.Type != unix.CGROUP2_SUPER_MAGIC {
		t.Errorf("on the host: type %x: %v", fs.Type, err)
	}
}

// TestLeft finds a cgroup that carries the id of the bench's store, and no
// other.
func TestLeft(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes a cgroup")
	}
	account, err := findAccount()
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for i := range 2 {
		id := fmt.Sprintf("%015x%d", os.Getpid(), i)
		dir := filepath.Join(account.root, "rkt-"+id)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(dir)
		ids = append(ids, id)
	}
	b := &bench{bin: t.TempDir(), stores: ids[:1]}
	left, err := b.left()
	if err != nil || len(left) != 1 || !strings.HasSuffix(left[0], ids[0]) {
		t.Errorf("left: %q: %v", left, err)
	}
}
