package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/stage1/plan"
)

func TestSymlinkedSource(t *testing.T) {
	f := newFixture(t)
	real := f.layer("dir/in=1")
	f.must(os.Symlink(real, filepath.Join(f.TempDir(), "last")))
	top := f.TempDir()
	f.must(os.Symlink(real, filepath.Join(top, "link")))
	for _, source := range []string{filepath.Join(top, "link"), filepath.Join(top, "link/dir")} {
		v := plan.Volume{Name: "v", Kind: "host", Source: source}
		_, err := Open(Config{Plan: plan.Pod{Volumes: []plan.Volume{v}}, Dir: f.dir, RunDir: f.runDir})
		if !errs.Is(err, errs.Denied) || len(errs.Hints(err)) != 1 || !strings.Contains(errs.Hints(err)[0], real) {
			t.Errorf("%s: %v %q", source, err, errs.Hints(err))
		}
		v.FollowSymlinks = true
		p, err := Open(Config{Plan: plan.Pod{Volumes: []plan.Volume{v}}, Dir: f.dir, RunDir: f.runDir})
		f.must(err)
		f.must(p.Close())
	}
}

func TestTmpfsVolume(t *testing.T) {
	f := newFixture(t)
	la, err := f.prepare(plan.Pod{Volumes: []plan.Volume{{Name: "mem", Kind: "tmpfs", Size: 1 << 20, Mode: 0o1770, UID: 5, GID: 6}}},
		plan.App{Mounts: []plan.Mount{bind("mem", "/mem", false), bind("mem", "/ro", true)}}, f.layer("x=1"))
	f.must(err)
	var fs unix.Statfs_t
	f.must(unix.Statfs(filepath.Join(la.RootFS, "mem"), &fs))
	var st unix.Stat_t
	f.must(unix.Stat(filepath.Join(la.RootFS, "mem"), &st))
	if fs.Type != unix.TMPFS_MAGIC || int64(fs.Blocks)*fs.Bsize != 1<<20 || st.Mode&0o7777 != 0o1770 || st.Uid != 5 || st.Gid != 6 {
		t.Errorf("type %x, %d bytes, mode %o, owner %d:%d", fs.Type, int64(fs.Blocks)*fs.Bsize, st.Mode, st.Uid, st.Gid)
	}
	f.must(os.WriteFile(filepath.Join(la.RootFS, "mem/a"), []byte("1"), 0o600))
	if read(t, la.RootFS, "ro/a") != "1" || os.WriteFile(filepath.Join(la.RootFS, "ro/b"), nil, 0o600) == nil {
		t.Error("the second mount is another volume, or can be written to")
	}
}

func TestImageVolume(t *testing.T) {
	for _, layers := range [][]string{{"one"}, {"one", "two"}} {
		f := newFixture(t)
		img := poddir.AppImage{ID: "sha512-1"}
		for _, l := range layers {
			img.Lowers = append(img.Lowers, f.layer("d/"+l+"="+l, "all="+l))
		}
		f.must(unix.Mknod(filepath.Join(img.Lowers[0], "gone"), unix.S_IFCHR, 0))
		record := f.dir.VolumeImage(img.ID)
		f.must(os.MkdirAll(filepath.Dir(record), 0o700))
		f.must(atomicfile.WriteJSON(record, img, 0o600, atomicfile.Renamed))
		la, err := f.prepare(plan.Pod{Volumes: []plan.Volume{{Name: "img", Kind: "image", Source: img.ID}}},
			plan.App{Mounts: []plan.Mount{bind("img", "/img", true), {Type: "bind", Volume: "img", Target: "/part", VolumeEntry: true, ReadOnly: true, SubPath: "d"}}}, f.layer("x=1"))
		f.must(err)
		last := layers[len(layers)-1]
		if read(t, la.RootFS, "img/all") != last || read(t, la.RootFS, "img/d/one") != "one" || read(t, la.RootFS, "part", last) != last {
			t.Error("not the image's files")
		}
		if _, err := os.Lstat(filepath.Join(la.RootFS, "img/gone")); err == nil {
			t.Error("a whiteout is shown")
		}
		if err := os.WriteFile(filepath.Join(la.RootFS, "img/new"), nil, 0o600); err == nil {
			t.Error("it can be written to")
		}
	}
	f := newFixture(t)
	_, err := Open(Config{Plan: plan.Pod{Volumes: []plan.Volume{{Name: "img", Kind: "image", Source: "sha512-2"}}}, Dir: f.dir, RunDir: f.runDir})
	if err == nil || !strings.Contains(err.Error(), "volume img") {
		t.Errorf("without a record: %v", err)
	}
}

func TestSecrets(t *testing.T) {
	f := newFixture(t)
	dir := f.layer("db=one", "tls=two", ".hidden=x", "sub/x=y")
	f.Setenv("CREDENTIALS_DIRECTORY", dir)
	pod := plan.Pod{Volumes: []plan.Volume{
		{Name: "all", Kind: "secret", Mode: 0o400, UID: -1, GID: -1},
		{Name: "one", Kind: "secret", Credentials: []string{"tls"}, Mode: 0o440, UID: 3, GID: 4},
		{Name: "file", Kind: "secret", Source: filepath.Join(dir, "db"), Mode: 0o400, UID: -1, GID: -1},
	}}
	la, err := f.prepare(pod, plan.App{User: "app", Mounts: []plan.Mount{bind("all", "/run/all", true), bind("one", "/run/one", true), bind("file", "/run/file", true)}},
		f.layer("etc/passwd=app:x:1000:1001::/home/app:/bin/sh\n"))
	f.must(err)
	for _, c := range []struct {
		dir      string
		names    string
		mode     uint32
		uid, gid uint32
	}{{"all", "db tls", 0o400, 1000, 1001}, {"one", "tls", 0o440, 3, 4}, {"file", "db", 0o400, 1000, 1001}} {
		place := filepath.Join(la.RootFS, "run", c.dir)
		entries, err := os.ReadDir(place)
		f.must(err)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		var fs unix.Statfs_t
		f.must(unix.Statfs(place, &fs))
		var st, top unix.Stat_t
		f.must(unix.Stat(filepath.Join(place, names[0]), &st))
		f.must(unix.Stat(place, &top))
		if strings.Join(names, " ") != c.names || st.Mode&0o7777 != c.mode || st.Uid != c.uid || st.Gid != c.gid || top.Uid != c.uid || top.Mode&0o777 != c.mode|c.mode>>2 {
			t.Errorf("%s: %v mode %o of %d:%d, folder %o of %d", c.dir, names, st.Mode, st.Uid, st.Gid, top.Mode, top.Uid)
		}
		if fs.Type != unix.TMPFS_MAGIC && fs.Type != unix.RAMFS_MAGIC || fs.Flags&unix.ST_RDONLY == 0 || fs.Flags&unix.ST_NOEXEC == 0 {
			t.Errorf("%s: file system %x, flags %x", c.dir, fs.Type, fs.Flags)
		}
	}
	if read(t, la.RootFS, "run/all/tls") != "two" {
		t.Error("not the content")
	}
	mounts := read(t, "/proc/self/mountinfo")
	if strings.Contains(mounts, " - tmpfs") && strings.Count(mounts, "noswap") < 3 && !strings.Contains(mounts, " - ramfs") {
		t.Error("the secrets may be swapped out")
	}
}

func TestSecretErrors(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "big"), make([]byte, maxSecret+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]struct {
		env string
		v   plan.Volume
	}{
		"$CREDENTIALS_DIRECTORY is not set": {"", plan.Volume{}},
		"/nowhere: not there":               {"/nowhere", plan.Volume{}},
		"which is no folder":                {"/etc/passwd", plan.Volume{}},
		"none: not there":                   {dir, plan.Volume{Credentials: []string{"none"}}},
		"big: larger than":                  {dir, plan.Volume{Credentials: []string{"big"}}},
		"fifo: not a file":                  {dir, plan.Volume{Credentials: []string{"fifo"}}},
		"/none: not there":                  {dir, plan.Volume{Source: "/none"}},
	} {
		f := newFixture(t)
		f.Setenv("CREDENTIALS_DIRECTORY", c.env)
		c.v.Name, c.v.Kind = "keys", "secret"
		_, err := Open(Config{Plan: plan.Pod{Volumes: []plan.Volume{c.v}}, Dir: f.dir, RunDir: f.runDir})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "volume keys") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// named makes a fresh named volume as stage0 does.
func (f *fixture) named(name string) poddir.NamedDir {
	f.Helper()
	dir := poddir.NamedVolume(f.dir.Data(), name)
	f.must(os.MkdirAll(dir.Files(), 0o755))
	f.must(os.WriteFile(dir.Fresh(), nil, 0o600))
	return dir
}

func TestNamedVolume(t *testing.T) {
	seeded := plan.Volume{Name: "v", Kind: "named", Source: "db", SeedApp: "web", SeedPath: "/var/db"}
	app := plan.App{Mounts: []plan.Mount{bind("v", "/var/db", false)}}
	names := func(dir poddir.NamedDir) string {
		entries, err := os.ReadDir(dir.Files())
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, e := range entries {
			list = append(list, e.Name())
		}
		return strings.Join(list, " ")
	}
	image := func(f *fixture) string { return f.layer("0700 var/db/", "var/db/a=1", "var/db/b=2", "var/db/d/c=3") }
	t.Run("fresh", func(t *testing.T) {
		f := newFixture(t)
		dir := f.named("db")
		la, err := f.prepare(plan.Pod{Volumes: []plan.Volume{seeded}}, app, image(f))
		f.must(err)
		info, err := os.Stat(dir.Files())
		f.must(err)
		if names(dir) != "a b d" || read(t, la.RootFS, "var/db/d/c") != "3" || exists(dir.Fresh()) || exists(dir.Seed()) || info.Mode().Perm() != 0o700 {
			t.Errorf("files %s, fresh %v, mode %v", names(dir), exists(dir.Fresh()), info.Mode())
		}
	})
	t.Run("used before", func(t *testing.T) {
		f := newFixture(t)
		dir := f.named("db")
		f.must(os.Remove(dir.Fresh()))
		_, err := f.prepare(plan.Pod{Volumes: []plan.Volume{seeded}}, app, image(f))
		f.must(err)
		if names(dir) != "" {
			t.Errorf("filled again with %s", names(dir))
		}
	})
	t.Run("not empty", func(t *testing.T) {
		f := newFixture(t)
		dir := f.named("db")
		f.must(os.WriteFile(filepath.Join(dir.Files(), "mine"), nil, 0o600))
		_, err := f.prepare(plan.Pod{Volumes: []plan.Volume{seeded}}, app, image(f))
		f.must(err)
		if names(dir) != "mine" || exists(dir.Fresh()) {
			t.Errorf("has %s, fresh %v", names(dir), exists(dir.Fresh()))
		}
	})
	t.Run("copy cut off", func(t *testing.T) {
		f := newFixture(t)
		dir := f.named("db")
		f.must(os.MkdirAll(filepath.Join(dir.SeedNew(), "half"), 0o755))
		_, err := f.prepare(plan.Pod{Volumes: []plan.Volume{seeded}}, app, image(f))
		f.must(err)
		if names(dir) != "a b d" || exists(dir.SeedNew()) {
			t.Errorf("has %s", names(dir))
		}
	})
	t.Run("move cut off", func(t *testing.T) {
		f := newFixture(t)
		dir := f.named("db")
		f.must(os.WriteFile(filepath.Join(dir.Files(), "a"), []byte("kept"), 0o600))
		f.must(os.MkdirAll(dir.Seed(), 0o755))
		f.must(os.WriteFile(filepath.Join(dir.Seed(), "a"), []byte("lost"), 0o600))
		f.must(os.WriteFile(filepath.Join(dir.Seed(), "b"), []byte("moved"), 0o600))
		_, err := f.prepare(plan.Pod{Volumes: []plan.Volume{seeded}}, app, image(f))
		f.must(err)
		if names(dir) != "a b" || read(t, dir.Files(), "a") != "kept" || read(t, dir.Files(), "b") != "moved" {
			t.Errorf("has %s", names(dir))
		}
	})
	t.Run("missing", func(t *testing.T) {
		f := newFixture(t)
		_, err := Open(Config{Plan: plan.Pod{Volumes: []plan.Volume{seeded}}, Dir: f.dir, RunDir: f.runDir})
		if !errs.Is(err, errs.NotFound) {
			t.Errorf("got %v", err)
		}
	})
}

func TestSubPath(t *testing.T) {
	f := newFixture(t)
	host := f.layer("dir/in=1", "file=2", "inside -> dir", "out -> /etc", "up -> ../../../..", "dir/up -> ../../..")
	pod := plan.Pod{Volumes: []plan.Volume{{Name: "host", Kind: "host", Source: host, Recursive: true}, {Name: "own", Kind: "empty", Mode: 0o755}}}
	p := f.open(pod)
	for sub, want := range map[string]string{
		"dir": "", "file": "", "inside": "", "inside/in": "", "dir/in": "",
		"none": "not in the volume", "out": "leads out", "out/passwd": "leads out", "up": "leads out", "dir/up/x": "leads out", "file/x": "not a directory",
	} {
		part, err := p.volumes["host"].open(plan.Mount{SubPath: sub})
		if err == nil {
			part.close()
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", sub, err, want)
		}
	}
	own, err := p.volumes["own"].open(plan.Mount{SubPath: "a/b"})
	f.must(err)
	own.close()
	if info, err := os.Stat(filepath.Join(f.dir.Volume("own"), "a/b")); err != nil || !info.IsDir() {
		t.Errorf("a part of an empty volume is not made: %v", err)
	}
}

// TestSubPathBelowDev: what only the launcher can mount has a path of its own.
func TestSubPathBelowDev(t *testing.T) {
	f := newFixture(t)
	dev := plan.Mount{Type: "tmpfs", Target: "/dev"}
	m := bind("host", "/dev/x", true)
	m.SubPath = "dir"
	la, err := f.prepare(plan.Pod{Volumes: []plan.Volume{{Name: "host", Kind: "host", Source: f.layer("dir/in=1"), Recursive: true}}}, plan.App{Mounts: []plan.Mount{dev, m}}, f.layer("dev/"))
	f.must(err)
	i := slices.IndexFunc(la.Mounts, func(m plan.Mount) bool { return m.Target == "/dev/x" })
	if i < 0 || read(t, la.Mounts[i].Source, "in") != "1" || la.Mounts[i].CreateAs != "dir" {
		t.Errorf("left: %+v", la.Mounts)
	}
}
