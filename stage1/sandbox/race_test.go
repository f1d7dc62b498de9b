package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/stage1/plan"
)

// races is how often a writer gets the chance to get something out.
const races = 1000

// flip exchanges a folder with a symlink as fast as it can, until the test
// ends, and says how often it did.
func flip(t *testing.T, dir, name, link string) *atomic.Int64 {
	t.Helper()
	other := filepath.Join(dir, name+".other")
	if err := os.Symlink(link, other); err != nil {
		t.Fatal(err)
	}
	var n atomic.Int64
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, name), unix.AT_FDCWD, other, unix.RENAME_EXCHANGE)
			n.Add(1)
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
	return &n
}

// TestSubPathRace: an app that has the volume puts symlinks where a part of it
// is looked up. What is mounted is inside all the same.
func TestSubPathRace(t *testing.T) {
	f := newFixture(t)
	canary := f.layer("x/canary=1")
	p := f.open(plan.Pod{Volumes: []plan.Volume{{Name: "v", Kind: "empty", Mode: 0o755}}})
	v := p.volumes["v"]
	top := f.dir.Volume("v")
	for _, link := range []string{canary, strings.Repeat("../", 30) + canary[1:]} {
		// Either name may be the symlink now.
		f.must(os.RemoveAll(filepath.Join(top, "d.other")))
		f.must(os.RemoveAll(filepath.Join(top, "d")))
		f.must(os.MkdirAll(filepath.Join(top, "d/x/inside"), 0o755))
		t.Run("", func(t *testing.T) {
			flips := flip(t, top, "d", link)
			mounted := 0
			for n := 0; n < races || flips.Load() < races || mounted == 0; n++ {
				if n == 1000*races {
					t.Fatalf("nothing was tried: %d mounted, %d flips", mounted, flips.Load())
				}
				part, err := v.open(plan.Mount{SubPath: "d/x"})
				if err != nil {
					continue
				}
				tree, err := part.clone(plan.Mount{})
				part.close()
				f.must(err)
				var st unix.Stat_t
				if unix.Fstatat(tree, "canary", &st, 0) == nil {
					t.Fatal("the mount is outside of the volume")
				}
				if err := unix.Fstatat(tree, "inside", &st, 0); err != nil {
					t.Fatalf("the mount is of something else: %v", err)
				}
				_ = unix.Close(tree)
				mounted++
			}
		})
	}
}

// TestTargetRace: an app that has a volume puts symlinks where another volume
// is to be mounted in it. Nothing is mounted outside of the rootfs.
func TestTargetRace(t *testing.T) {
	f := newFixture(t)
	canary := filepath.Join(f.TempDir(), "canary")
	f.must(os.Mkdir(canary, 0o755))
	p := f.open(plan.Pod{Volumes: []plan.Volume{
		{Name: "shared", Kind: "empty", Mode: 0o755}, {Name: "data", Kind: "host", Source: f.layer("data=1")},
	}})
	top := f.dir.Volume("shared")
	f.must(os.MkdirAll(filepath.Join(top, "t"), 0o755))
	flip(t, top, "t", strings.Repeat("../", 30)+canary[1:])
	app := plan.App{Name: "web", Lowers: []string{f.layer("a/")}, Cwd: "/", Mounts: []plan.Mount{bind("shared", "/a", false), bind("data", "/a/t", false)}}
	good := 0
	for n := range races {
		root, err := p.MountRootFS(app, f.attempt("web", n))
		f.must(err)
		if _, err = p.Prepare(app, root); err == nil {
			good++
		}
		if entries, err := os.ReadDir(canary); err != nil || len(entries) > 0 {
			t.Fatalf("round %d: the host's folder shows %v, %v", n, entries, err)
		}
		for line := range strings.Lines(read(t, "/proc/self/mountinfo")) {
			if fields := strings.Fields(line); strings.Contains(fields[4], "canary") && !strings.HasPrefix(fields[4], root) {
				t.Fatalf("round %d: mounted at %s", n, fields[4])
			}
		}
		f.must(p.UnmountRootFS(root))
		f.must(os.RemoveAll(string(f.dir.App("web").Attempt(n))))
	}
	if good == 0 {
		t.Error("not one of them went well: nothing was tried")
	}
}
