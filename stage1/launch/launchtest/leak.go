package launchtest

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/testkit"
	"github.com/rkt-pods/rkt/stage1/launch"
)

// testLeaks looks at what is left in the supervisor, which restarts apps for
// as long as it lives, after starts that went well and starts that did not.
func testLeaks(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	testkit.Program(t, filepath.Join(p.rootfs, "bin/garbage"), []byte("\x00\x01garbage"))
	main := p.start(p.app("/bin/sh", "-c", "echo up; exec sleep 1000"))
	defer p.end(main)
	id := "web-1"
	round := func() {
		for _, argv0 := range []string{"/bin/true", "/bin/garbage", "/bin/nosuch"} {
			app := p.app(argv0)
			app.Name, app.CgroupPath = "other", p.rel+"/apps/other"
			_, err := p.run(app)
			if (err == nil) != (argv0 == "/bin/true") {
				t.Errorf("%s: %v", argv0, err)
			}
			_, err = p.exec(id, launch.Exec{Argv: []string{argv0}})
			if (err == nil) != (argv0 == "/bin/true") {
				t.Errorf("%s: %v", argv0, err)
			}
		}
	}
	round() // what is opened once for all
	fds, routines := descriptors(t), runtime.NumGoroutine()
	for range 3 {
		round()
	}
	// The library's helpers end on their own, and the collector closes what they
	// had in its own time.
	for deadline := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		now := descriptors(t)
		if len(now) <= len(fds) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("descriptors before: %q\nafter: %q", fds, now)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > routines; runtime.Gosched() {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<16)
			t.Fatalf("goroutines: %d, were %d\n%s", runtime.NumGoroutine(), routines, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// descriptors are what this process has open, but for the listing itself.
func descriptors(t *testing.T) []string {
	t.Helper()
	runtime.GC() // closes what is only waiting for it
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.HasPrefix(target, "/proc/") {
			all = append(all, target)
		}
	}
	return all
}
