package tests

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
)

// TestLogsComplete: what an app printed right before it ended is all there, in
// the terminal and in the log, and streams stay apart.
func TestLogsComplete(t *testing.T) {
	t.Parallel()
	lines := 100_000
	if testing.Short() {
		lines = 5_000
	}
	h := newHost(t)
	script := fmt.Sprintf(`seq 1 %d & seq 1 %d | sed s/^/e/ >&2; wait`, lines, lines)
	p := h.start(nil, app{name: "x", script: script})
	res := p.wait()
	if res.code != 0 {
		t.Fatalf("exit %d", res.code)
	}
	var want, wantErr strings.Builder
	for i := 1; i <= lines; i++ {
		fmt.Fprintf(&want, "%d\n", i)
		fmt.Fprintf(&wantErr, "e%d\n", i)
	}
	if res.stdout != want.String() {
		t.Errorf("stdout: %d bytes, want %d", len(res.stdout), want.Len())
	}
	if res.stderr != wantErr.String() {
		t.Errorf("stderr: %d bytes, want %d", len(res.stderr), wantErr.Len())
	}
	logs := h.rkt("logs", p.uuid())
	if logs.stdout != want.String() || logs.stderr != wantErr.String() {
		t.Errorf("logs: %d and %d bytes, want %d and %d", len(logs.stdout), len(logs.stderr), want.Len(), wantErr.Len())
	}
	if s := h.status(p.uuid()); s.Apps[0].Status.LogLines != uint64(2*lines) {
		t.Errorf("logLines %d", s.Apps[0].Status.LogLines)
	}
}

// TestBytesUntouched: with one app any bytes pass through.
func TestBytesUntouched(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	res := h.start(nil, app{name: "x", script: `cat /bin/busybox; printf 'no newline'`}).wait()
	sum := h.start(nil, app{name: "x", script: `{ cat /bin/busybox; printf 'no newline'; } | sha256sum`}).wait()
	if got := fmt.Sprintf("%x", sha256.Sum256([]byte(res.stdout))); res.code != 0 || !strings.HasPrefix(sum.stdout, got) {
		t.Errorf("sha256 %s of %d bytes, want %s", got, len(res.stdout), sum.stdout)
	}
}

// TestPrefixes: several apps get their names in front of whole lines.
func TestPrefixes(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	res := h.start([]string{"--exit-policy=all"}, app{name: "a", script: `for i in $(seq 1 1000); do echo line-of-a; done; printf end-a`},
		app{name: "b", script: `for i in $(seq 1 1000); do echo line-of-b; echo err >&2; done`}).wait()
	count := map[string]int{}
	for line := range strings.Lines(res.stdout + res.stderr) {
		count[line]++
	}
	want := map[string]int{"a: line-of-a\n": 1000, "a: end-a\n": 1, "b: line-of-b\n": 1000, "b: err\n": 1000}
	if fmt.Sprint(count) != fmt.Sprint(want) {
		t.Errorf("lines %v", count)
	}
	if strings.Contains(res.stdout, "err") {
		t.Error("stderr in stdout")
	}
}
