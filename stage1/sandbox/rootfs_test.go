package sandbox

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/stage1/plan"
)

func TestOverlay(t *testing.T) {
	f := newFixture(t)
	p := f.open(plan.Pod{})
	low := f.layer("a=low", "b=low", "dir/x=1")
	top := f.layer("b=top")
	f.must(os.Chown(top, 12, 34))
	f.must(os.Chmod(top, 0o751|os.ModeSticky))
	f.must(unix.Setxattr(top, "user.colour", []byte("red"), 0))
	f.must(unix.Setxattr(top, "trusted.overlay.opaque", []byte("y"), 0))
	att := f.attempt("web", 0)
	root, err := p.MountRootFS(plan.App{Name: "web", Lowers: []string{low, top}}, att)
	f.must(err)

	for name, want := range map[string]string{"a": "low", "b": "top", "dir/x": "1"} {
		if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v; want %q", name, got, err, want)
		}
	}
	var st unix.Stat_t
	f.must(unix.Stat(root, &st))
	if st.Uid != 12 || st.Gid != 34 || st.Mode&0o7777 != 0o1751 {
		t.Errorf("root is %d:%d %o, want the topmost layer's", st.Uid, st.Gid, st.Mode)
	}
	value := make([]byte, 16)
	if n, err := unix.Getxattr(att.Upper(), "user.colour", value); err != nil || string(value[:n]) != "red" {
		t.Errorf("xattr of the root: %q, %v", value[:n], err)
	}
	if _, err := unix.Getxattr(att.Upper(), "trusted.overlay.opaque", value); err == nil {
		t.Error("the upper folder hides all layers")
	}
	f.must(os.WriteFile(filepath.Join(root, "b"), []byte("mine"), 0o600))
	if got, _ := os.ReadFile(filepath.Join(top, "b")); string(got) != "top" {
		t.Errorf("a write went to the layer: %q", got)
	}

	f.must(p.UnmountRootFS(root))
	f.must(p.UnmountRootFS(root)) // twice is no error
	// Another mount of the same upper: what was written is there, though the
	// first one was volatile.
	root, err = p.MountRootFS(plan.App{Name: "web", Lowers: []string{low, top}}, att)
	f.must(err)
	if got, err := os.ReadFile(filepath.Join(root, "b")); err != nil || string(got) != "mine" {
		t.Errorf("after a second mount b is %q, %v", got, err)
	}
}

func TestOverlayIsVolatileUnlessDurable(t *testing.T) {
	for _, durable := range []bool{false, true} {
		f := newFixture(t)
		p := f.open(plan.Pod{Durable: durable})
		root, err := p.MountRootFS(plan.App{Name: "web", Lowers: []string{f.layer("a=1")}}, f.attempt("web", 0))
		f.must(err)
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		f.must(err)
		for line := range strings.SplitSeq(string(mounts), "\n") {
			if strings.Contains(line, " "+root+" ") && strings.Contains(line, "volatile") == durable {
				t.Errorf("durable %v: %s", durable, line)
			}
		}
	}
}

func TestOverlayOfManyLayers(t *testing.T) {
	for _, old := range []bool{false, true} {
		t.Run(fmt.Sprintf("old=%v", old), func(t *testing.T) {
			lowerdirPlus.missing = old
			defer func() { lowerdirPlus.missing = false }()
			f := newFixture(t)
			p := f.open(plan.Pod{})
			var lowers []string
			for i := range 127 {
				lowers = append(lowers, f.layer(fmt.Sprintf("f%d=%d", i, i), fmt.Sprintf("same=%d", i)))
			}
			root, err := p.MountRootFS(plan.App{Name: "web", Lowers: lowers}, f.attempt("web", 0))
			f.must(err)
			for name, want := range map[string]string{"f0": "0", "f126": "126", "same": "126"} {
				if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(got) != want {
					t.Errorf("%s is %q, %v; want %q", name, got, err, want)
				}
			}
		})
	}
}

func TestOverlayErrors(t *testing.T) {
	f := newFixture(t)
	p := f.open(plan.Pod{})
	if _, err := p.MountRootFS(plan.App{Name: "web", Lowers: []string{"/nonexistent/layer"}}, f.attempt("web", 0)); !errs.Is(err, errs.Corrupt) ||
		!strings.Contains(err.Error(), "/nonexistent/layer") {
		t.Errorf("missing layer: %v", err)
	}
	if _, err := p.MountRootFS(plan.App{Name: "web"}, f.attempt("web", 1)); !errs.Is(err, errs.Corrupt) {
		t.Errorf("no layers: %v", err)
	}
	copying := f.open2(plan.Pod{Copy: true})
	if _, err := copying.MountRootFS(plan.App{Name: "web", Lowers: []string{f.layer("a=1")}}, f.attempt("web", 2)); !errs.Is(err, errs.Unsupported) {
		t.Errorf("--no-overlay: %v", err)
	}
}

func TestOverlayOnAFileSystemThatCannot(t *testing.T) {
	f := newFixture(t)
	// An overlay can't be the upper of another.
	inner := f.open(plan.Pod{})
	base, err := inner.MountRootFS(plan.App{Name: "web", Lowers: []string{f.layer("a=1")}}, f.attempt("web", 0))
	f.must(err)
	att := poddir.AttemptDir(filepath.Join(base, "0"))
	f.must(os.Mkdir(string(att), 0o700))
	_, err = f.open2(plan.Pod{}).MountRootFS(plan.App{Name: "web", Lowers: []string{f.layer("a=1")}}, att)
	if !errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), att.Upper()) || len(errs.Hints(err)) == 0 {
		t.Errorf("got %v", err)
	}
}

// open2 is a second sandbox with a run folder of its own.
func (f *fixture) open2(pod plan.Pod) *Pod {
	f.Helper()
	return newFixture(f.T).open(pod)
}

func TestNothingIsLeftAfterClose(t *testing.T) {
	f := newFixture(t)
	before, err := os.ReadFile("/proc/self/mountinfo")
	f.must(err)
	p, err := Open(Config{
		Plan: plan.Pod{Volumes: []plan.Volume{{Name: "v", Kind: "host", Source: f.layer("x=1"), Recursive: true}}},
		Dir:  f.dir, RunDir: f.runDir, InitPath: os.Getenv(childEnv),
	})
	f.must(err)
	_, err = p.MountRootFS(plan.App{Name: "web", Lowers: []string{f.layer("a=1")}}, f.attempt("web", 0))
	f.must(err)
	f.must(startInit(soon(t), p))
	f.must(p.KillInit())
	f.must(p.WaitInit(soon(t)))
	f.must(p.Close())
	f.must(p.Close()) // twice is no error
	after, err := os.ReadFile("/proc/self/mountinfo")
	f.must(err)
	if string(before) != string(after) {
		t.Errorf("mounts before:\n%s\nafter:\n%s", before, after)
	}
	left, err := os.ReadDir(f.runDir)
	if err != nil || len(left) != 0 {
		t.Errorf("the run folder has %v, %v", left, err)
	}
}

func TestOpenRefusesANamespaceThatShares(t *testing.T) {
	f := newFixture(t)
	f.must(unix.Mount("none", f.runDir, "tmpfs", 0, ""))
	defer unix.Unmount(f.runDir, unix.MNT_DETACH)
	f.must(unix.Mount("", f.runDir, "", unix.MS_SHARED, ""))
	_, err := Open(Config{Dir: f.dir, RunDir: f.runDir})
	if err == nil || !strings.Contains(err.Error(), "passes mounts on to the host") {
		t.Errorf("got %v", err)
	}
}

// Targets of mounts through symlinks that an image made: whatever they say,
// the result lies in the rootfs, and nothing outside is touched.
func TestEnsureStaysInside(t *testing.T) {
	f := newFixture(t)
	outside := f.TempDir()
	top := f.layer("dir/sub/", "file=x",
		"abs -> "+outside+"/made", "rel -> ../../../../../../.."+outside+"/made", "chain -> abs",
		"self -> self", "loop1 -> loop2", "loop2 -> loop1", "dangling -> nowhere/deep",
		"up -> dir/sub/../..", "magic -> /proc/self/root", "filelink -> file/x", "dot -> .",
	)
	r, err := openRoot(top, nil)
	f.must(err)
	defer r.close()
	any := func(uint64) bool { return true }
	for name, want := range map[string]string{
		"/dir/sub":            "/dir/sub",
		"dir/new/deeper":      "/dir/new/deeper",
		"/../../../etc/x":     "/etc/x",
		"/abs":                outside + "/made",
		"/rel/y":              outside + "/made/y",
		"/chain/z":            outside + "/made/z",
		"/dangling":           "/nowhere/deep",
		"/up/q":               "/q",
		"/magic/etc":          "/proc/self/root/etc",
		"/dot/dot/dot/w":      "/w",
		"/dir/sub/../../here": "/here",
	} {
		fd, err := r.ensure(name, true, any)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := r.place(fd)
		if err != nil || got != want {
			t.Errorf("%s is at %s, %v; want %s", name, got, err, want)
		}
		unix.Close(fd)
		// What the app will find by that name is the very folder.
		seen, err := r.open(name, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			t.Errorf("%s, opened again: %v", name, err)
			continue
		}
		if again, _ := r.place(seen); again != want {
			t.Errorf("%s, opened again, is %s", name, again)
		}
		unix.Close(seen)
	}
	for name, want := range map[string]error{
		"/self/x": unix.ELOOP, "/loop1": unix.ELOOP, "/file/x": unix.ENOTDIR, "/filelink": unix.ENOTDIR,
	} {
		if fd, err := r.ensure(name, true, any); err == nil || !strings.Contains(err.Error(), want.Error()) {
			t.Errorf("%s: descriptor %d, %v; want %v", name, fd, err, want)
		}
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) != 0 {
		t.Errorf("HOST PATH WAS CHANGED: %v, %v", left, err)
	}
}

func TestEnsureMakesRootsOwn(t *testing.T) {
	f := newFixture(t)
	defer unix.Umask(unix.Umask(0o077))
	r, err := openRoot(f.layer(), nil)
	f.must(err)
	defer r.close()
	fd, err := r.ensure("/a/b", true, func(uint64) bool { return true })
	f.must(err)
	unix.Close(fd)
	for _, name := range []string{"/a", "/a/b"} {
		st, err := r.stat(name)
		if err != nil || st.Uid != 0 || st.Gid != 0 || st.Mode&0o7777 != 0o755 {
			t.Errorf("%s: %d:%d %o, %v; want 0:0 755", name, st.Uid, st.Gid, st.Mode, err)
		}
	}
}

func TestRealPaths(t *testing.T) {
	dir := t.TempDir()
	fd, err := openDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	text := fmt.Sprintf("x %s y %s/z /proc/self/fd/999999 /proc/self/fd/", fdPath(fd), fdPath(fd))
	if got, want := realPaths(text), "x "+dir+" y "+dir+"/z /proc/self/fd/999999 /proc/self/fd/"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestHostFacts(t *testing.T) {
	host, err := HostFacts()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(host.Bounding, "CAP_SYS_ADMIN") || slices.Contains(host.Bounding, "CAP_SYS_RESOURCE") != host.SysResource {
		t.Errorf("%+v", host)
	}
	mask, err := capMask("Name:\tx\nCapPrm:\t00f0\nCapBnd:\t0ff0\n", "CapPrm:", "CapBnd:")
	if err != nil || mask != 0xf0 {
		t.Errorf("mask %x, %v", mask, err)
	}
	if _, err := capMask("Name:\tx\n", "CapPrm:"); err == nil {
		t.Error("no error without the line")
	}
}

// Whatever symlinks an image has, a target is made inside, and it is where the
// app will find it by that name.
func FuzzEnsure(f *testing.F) {
	f.Add("/a/b", "a -> /etc\nb -> ../../..")
	f.Add("/a/../b/c", "a -> a\nb -> ../../../../outside")
	f.Add("a/b/../../c", "a -> d/e/f\nd -> /\nc -> .")
	f.Add("//./a//", "a -> /a/../b\nb -> ..")
	f.Fuzz(func(t *testing.T, name, links string) {
		if strings.Contains(name+links, "\x00") || len(name) > 200 || len(links) > 400 {
			return
		}
		base := t.TempDir()
		top := filepath.Join(base, "root")
		if err := os.Mkdir(top, 0o755); err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(links, "\n") {
			from, to, ok := strings.Cut(line, " -> ")
			if ok && from != "" && from != "." && from != ".." && !strings.Contains(from, "/") && to != "" {
				_ = os.Symlink(to, filepath.Join(top, from))
			}
		}
		r, err := openRoot(top, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer r.close()
		fd, err := r.ensure(name, true, func(uint64) bool { return true })
		if left, _ := os.ReadDir(base); len(left) != 1 {
			t.Fatalf("HOST PATH WAS CHANGED: %v", left)
		}
		if err != nil {
			return
		}
		defer unix.Close(fd)
		want, err := r.place(fd)
		if err != nil {
			t.Fatal(err)
		}
		again, err := r.open(path.Clean("/"+name), unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			t.Fatalf("%q made at %s can't be opened: %v", name, want, err)
		}
		defer unix.Close(again)
		if got, err := r.place(again); err != nil || got != want {
			t.Errorf("%q made at %s, found at %s, %v", name, want, got, err)
		}
	})
}
