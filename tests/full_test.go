package tests

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestExitFullDisk: an app that fills the disk of the data folder takes neither
// its exit code nor the terminal's output with it, and what the log lacks is
// told.
func TestExitFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=12m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	h := &host{t: t, dir: filepath.Join(dir, "data")}
	t.Cleanup(h.clean)
	const lines = 500
	var want strings.Builder
	want.WriteString("early\n")
	for i := range lines {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	script := fmt.Sprintf(`echo early; dd if=/dev/zero of=/fill bs=4k 2>/dev/null; echo x 2>/dev/null >/more && [ -s /more ] && exit 1
		i=0; while [ $i -lt %d ]; do echo line $i; i=$((i+1)); done; exit 7`, lines)
	p := h.start(nil, app{name: "x", script: script}, app{name: "y", script: "sleep 1000"})
	res := p.wait()
	if res.code != 7 || strings.ReplaceAll(res.stdout, "x: ", "") != want.String() {
		t.Errorf("want 7 and all lines: exit %d, %d bytes, stderr %s", res.code, len(res.stdout), res.stderr)
	}
	if !strings.Contains(res.stderr, "no space left on device") {
		t.Errorf("nobody was told of the log: %s", res.stderr)
	}
	id := p.uuid()
	s := h.status(id)
	if s.State != "exited" || s.Exit == nil || s.Exit.Code != 7 || s.Exit.Cause != "policy" || s.Exit.App != "x" || s.Exit.Derived {
		t.Errorf("state %s, end %+v", s.State, s.Exit)
	}
	for i, reason := range []string{"Error", "PodEnded"} {
		if a := s.Apps[i].Status; a == nil || a.State != "exited" || a.Reason != reason {
			t.Errorf("app %s: %+v", s.Apps[i].Name, a)
		}
	}
	var logs struct {
		Apps []struct {
			Status struct{ LogLines, LogDropped uint64 }
		}
	}
	if err := json.Unmarshal([]byte(h.must("status", "--format=json", id)), &logs); err != nil {
		t.Fatal(err)
	}
	kept := h.must("logs", "--app=x", id)
	n := uint64(strings.Count(kept, "\n"))
	st := logs.Apps[0].Status
	if st.LogLines != lines+1 || st.LogDropped == 0 || n+st.LogDropped != st.LogLines || !strings.HasPrefix(kept, "early\n") {
		t.Errorf("%d lines kept, %d of %d dropped, %.40q", n, st.LogDropped, st.LogLines, kept)
	}
	if text := h.must("status", id); !strings.Contains(text, fmt.Sprintf("app-x-log-dropped=%d\n", st.LogDropped)) || strings.Contains(text, "app-y-log") {
		t.Errorf("status: %s", text)
	}
}
