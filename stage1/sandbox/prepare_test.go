package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// prepare mounts one app with the volumes at the targets and prepares it.
func (f *fixture) prepare(pod plan.Pod, app plan.App, lowers ...string) (launch.App, error) {
	f.Helper()
	p := f.open(pod)
	app.Name, app.Lowers = "web", lowers
	if app.Cwd == "" {
		app.Cwd = "/"
	}
	root, err := p.MountRootFS(app, f.attempt("web", 0))
	f.must(err)
	return p.Prepare(app, root)
}

func bind(volume, target string, ro bool) plan.Mount {
	return plan.Mount{Type: "bind", Volume: volume, Target: target, VolumeEntry: true, Recursive: true, ReadOnly: ro}
}

func read(t *testing.T, elem ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Error(err)
	}
	return string(data)
}

func TestHostVolumes(t *testing.T) {
	f := newFixture(t)
	src := f.layer("hello=world", "sub/deep=1")
	file := filepath.Join(f.layer("one=1"), "one")
	pod := plan.Pod{Volumes: []plan.Volume{
		{Name: "data", Kind: "host", Source: src, Recursive: true}, {Name: "file", Kind: "host", Source: file, Recursive: true},
	}}
	la, err := f.prepare(pod, plan.App{Mounts: []plan.Mount{
		bind("data", "/data", false), bind("data", "/ro", true), bind("file", "/data/hello", false),
		bind("file", "/etc/one", true), bind("data", "/link/under", false),
	}}, f.layer("link -> /var/lib/x", "etc/", "data/old=hidden"))
	f.must(err)
	if got := read(t, la.RootFS, "data/sub/deep"); got != "1" {
		t.Errorf("volume shows %q", got)
	}
	if got := read(t, la.RootFS, "data/hello"); got != "1" {
		t.Errorf("a file volume inside another shows %q", got)
	}
	if got := read(t, src, "hello"); got != "world" {
		t.Errorf("the source itself is %q", got)
	}
	f.must(os.WriteFile(filepath.Join(la.RootFS, "data/new"), nil, 0o600))
	if _, err := os.Stat(filepath.Join(src, "new")); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(la.RootFS, "ro/new2"), nil, 0o600); err == nil {
		t.Error("the read-only volume can be written to")
	}
	if got := read(t, la.RootFS, "var/lib/x/under/hello"); got != "world" {
		t.Errorf("through a dangling symlink of the image: %q", got)
	}
	if len(la.Mounts) != 0 {
		t.Errorf("left for the launcher: %v", la.Mounts)
	}
	if !slices.ContainsFunc(la.Notes, func(n string) bool { return strings.Contains(n, "/data is hidden") }) {
		t.Errorf("no warning of what is hidden: %q", la.Notes)
	}
}

// TestVolumeHiddenThroughASymlink: a volume that a symlink inside another led
// to where a third is mounted over it is not lost without a word.
func TestVolumeHiddenThroughASymlink(t *testing.T) {
	pod := func(f *fixture) plan.Pod {
		return plan.Pod{Volumes: []plan.Volume{
			{Name: "links", Kind: "host", Source: f.layer("link -> /z/sub"), Recursive: true}, {Name: "lost", Kind: "host", Source: f.layer("lost=1"), Recursive: true},
			{Name: "over", Kind: "host", Source: f.layer("sub/", "over=1"), Recursive: true},
		}}
	}
	for _, c := range []struct {
		over string
		want string
	}{{"/z", "volume lost at /a/link: hidden by another volume: volume over is found there"}, {"/y", ""}} {
		f := newFixture(t)
		la, err := f.prepare(pod(f), plan.App{Mounts: []plan.Mount{
			bind("links", "/a", false), bind("lost", "/a/link", false), bind("over", c.over, false),
		}}, f.layer("a/", "z/sub/", "y/"))
		switch {
		case c.want == "":
			f.must(err)
			if got := read(t, la.RootFS, "z/sub/lost"); got != "1" {
				t.Errorf("the volume shows %q", got)
			}
		case !errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), c.want) || len(errs.Hints(err)) != 1:
			t.Errorf("got %v (%s)", err, errs.ClassOf(err))
		}
	}
}

func TestVolumeErrors(t *testing.T) {
	src := t.TempDir()
	for name, c := range map[string]struct {
		mounts []plan.Mount
		class  errs.Class
		text   string
	}{
		"missing inside a host volume": {
			[]plan.Mount{bind("data", "/data", false), bind("data", "/data/none", false)}, errs.NotFound, "/data/none",
		},
		"onto itself by a symlink": {
			[]plan.Mount{bind("data", "/real", false), bind("data", "/same", false)}, errs.Usage, "volume data is already",
		},
		"over proc by a symlink": {[]plan.Mount{bind("data", "/toproc", false)}, errs.Denied, "/proc is the executor's"},
		"over the root":          {[]plan.Mount{bind("data", "/self", false)}, errs.Denied, "whole rootfs"},
		"loop":                   {[]plan.Mount{bind("data", "/loop", false)}, errs.Internal, "too many levels"},
		"file onto a folder":     {[]plan.Mount{bind("file", "/real", false)}, errs.Usage, "the source is a file"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			pod := plan.Pod{Volumes: []plan.Volume{
				{Name: "data", Kind: "host", Source: src, Recursive: true}, {Name: "file", Kind: "host", Source: "/proc/version"},
			}}
			_, err := f.prepare(pod, plan.App{Mounts: c.mounts},
				f.layer("real/", "same -> /real", "toproc -> proc/sys", "self -> .", "loop -> loop"))
			if !errs.Is(err, c.class) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v (%s)", err, errs.ClassOf(err))
			}
			if left, _ := os.ReadDir(src); len(left) != 0 {
				t.Errorf("made in the host's folder: %v", left)
			}
		})
	}
}

func TestVolumeWithoutSource(t *testing.T) {
	f := newFixture(t)
	_, err := Open(Config{Plan: plan.Pod{Volumes: []plan.Volume{{Name: "data", Kind: "host", Source: "/nonexistent/x"}}}, Dir: f.dir, RunDir: f.runDir})
	if !errs.Is(err, errs.NotFound) || !strings.Contains(err.Error(), "volume data: source /nonexistent/x: not there") {
		t.Errorf("got %v", err)
	}
}

func TestEmptyVolumesAndSeeds(t *testing.T) {
	f := newFixture(t)
	image := f.layer("0750 var/lib/db/", "0600 var/lib/db/conf=image", "var/lib/db/link -> conf", "0711 var/lib/db/in/", "var/lib/db/in/x=1")
	f.must(os.Chown(filepath.Join(image, "var/lib/db"), 70, 71))
	f.must(os.Link(filepath.Join(image, "var/lib/db/conf"), filepath.Join(image, "var/lib/db/same")))
	f.must(unix.Mkfifo(filepath.Join(image, "var/lib/db/pipe"), 0o640))
	pod := plan.Pod{Volumes: []plan.Volume{
		{Name: "tmp", Kind: "empty", Mode: 0o1777, UID: 5, GID: 6},
		{Name: "db", Kind: "empty", Mode: 0o755, SeedApp: "web", SeedPath: "/var/lib/db"},
		{Name: "none", Kind: "empty", Mode: 0o755, SeedApp: "web", SeedPath: "/missing"},
	}}
	la, err := f.prepare(pod, plan.App{Mounts: []plan.Mount{
		bind("tmp", "/tmp", false), bind("tmp", "/tmp/made/below", false), bind("db", "/var/lib/db", false), bind("none", "/missing", false),
	}}, image)
	f.must(err)
	var st unix.Stat_t
	f.must(unix.Stat(f.dir.Volume("tmp"), &st))
	if st.Uid != 5 || st.Gid != 6 || st.Mode&0o7777 != 0o1777 {
		t.Errorf("empty volume: %d:%d %o", st.Uid, st.Gid, st.Mode)
	}
	f.must(unix.Stat(filepath.Join(la.RootFS, "var/lib/db"), &st))
	if st.Uid != 70 || st.Gid != 71 || st.Mode&0o7777 != 0o750 {
		t.Errorf("seeded volume: %d:%d %o", st.Uid, st.Gid, st.Mode)
	}
	db := f.dir.Volume("db")
	if got := read(t, db, "link"); got != "image" {
		t.Errorf("seeded: %q", got)
	}
	f.must(unix.Stat(filepath.Join(db, "conf"), &st))
	if st.Nlink != 2 || st.Mode&0o7777 != 0o600 {
		t.Errorf("seeded file: %d names, mode %o", st.Nlink, st.Mode)
	}
	f.must(unix.Stat(filepath.Join(db, "pipe"), &st))
	if st.Mode != unix.S_IFIFO|0o640 {
		t.Errorf("seeded fifo: mode %o", st.Mode)
	}
	f.must(unix.Stat(filepath.Join(db, "in"), &st))
	if st.Mode&0o7777 != 0o711 {
		t.Errorf("seeded folder: mode %o", st.Mode)
	}

	// A second execution finds what the first one left, not the image's.
	f.must(os.Remove(filepath.Join(db, "same")))
	app := la.App
	app.Mounts = []plan.Mount{bind("db", "/var/lib/db", false)}
	root, err := f.pod.MountRootFS(app, f.attempt("web", 1))
	f.must(err)
	_, err = f.pod.Prepare(app, root)
	f.must(err)
	if _, err := os.Stat(filepath.Join(root, "var/lib/db/same")); err == nil {
		t.Error("the volume was filled a second time")
	}
}

func TestVolumesUnderStandardMountsAreLeft(t *testing.T) {
	f := newFixture(t)
	pod := plan.Pod{Volumes: []plan.Volume{{Name: "data", Kind: "host", Source: t.TempDir()}, {Name: "null", Kind: "host", Source: "/dev/null"}}}
	la, err := f.prepare(pod, plan.App{Mounts: []plan.Mount{
		{Type: "tmpfs", Target: "/dev"}, bind("data", "/dev/data", false), {Type: "bind", Target: "/dev/shm", Volume: plan.ShmVolume},
		bind("null", "/dev/zilch", true), bind("data", "/link", false), bind("null", "/nil", false),
	}}, f.layer("link -> /dev/linked"))
	f.must(err)
	var got []string
	for _, m := range la.Mounts {
		got = append(got, m.Target+" "+m.CreateAs)
		if m.Type == "bind" {
			if _, err := os.Stat(m.Source); err != nil {
				t.Errorf("source of %s: %v", m.Target, err)
			}
		}
	}
	want := []string{"/dev ", "/dev/data dir", "/dev/linked dir", "/dev/shm ", "/dev/zilch file"}
	if !slices.Equal(got, want) {
		t.Errorf("left for the launcher: %q, want %q", got, want)
	}
	wantDev := []plan.Device{
		{Path: "/dev/zilch", Type: 'c', Major: 1, Minor: 3, Access: "r", RuleOnly: true},
		{Path: "/nil", Type: 'c', Major: 1, Minor: 3, Access: "rw", RuleOnly: true},
	}
	if !slices.Equal(la.Devices, wantDev) {
		t.Errorf("devices %+v", la.Devices)
	}
}

// What the launcher mounts lies over host volumes too: it would make the
// missing targets and the working directory in the host's folder.
func TestLauncherMakesNothingOnTheHost(t *testing.T) {
	standard := []plan.Mount{
		{Type: "tmpfs", Target: "/dev"}, {Type: "sysfs", Target: "/sys"}, {Type: "cgroup", Target: "/sys/fs/cgroup"},
	}
	for name, c := range map[string]struct {
		mounts []plan.Mount
		cwd    string
		text   string // "" if it works
	}{
		"volume inside":              {[]plan.Mount{bind("data", "/dev/x", false), bind("empty", "/dev/x/none", false)}, "/", "/dev/x/none: not there"},
		"deep inside":                {[]plan.Mount{bind("data", "/dev/x", false), bind("empty", "/dev/x/a/b", false)}, "/", "/dev/x/a/b: not there"},
		"inside by a symlink":        {[]plan.Mount{bind("data", "/dev/x", false), bind("empty", "/todev/none", false)}, "/", "/dev/x/none: not there"},
		"file inside":                {[]plan.Mount{bind("data", "/dev/x", false), bind("file", "/dev/x/none", false)}, "/", "/dev/x/none: not there"},
		"file onto a folder":         {[]plan.Mount{bind("data", "/dev/x", false), bind("empty", "/dev/x/file", false)}, "/", "in the way"},
		"by a symlink of the host":   {[]plan.Mount{bind("data", "/dev/x", false), bind("empty", "/dev/x/link/y", false)}, "/", "in the way"},
		"standard mount inside":      {[]plan.Mount{bind("data", "/tosys", false)}, "/", "/sys/fs/cgroup: not there"},
		"working directory":          {[]plan.Mount{bind("data", "/dev/x", false)}, "/dev/x/none", "/dev/x/none: not there"},
		"the same by a symlink":      {[]plan.Mount{bind("data", "/dev/x", false)}, "/todev/imaged", "/dev/x/imaged: not there"},
		"what is there":              {[]plan.Mount{bind("data", "/dev/x", false), bind("empty", "/dev/x/sub", false)}, "/dev/x/sub", ""},
		"a file that is there":       {[]plan.Mount{bind("data", "/dev/x", false), bind("file", "/dev/x/file", false)}, "/dev/x", ""},
		"inside a volume of the pod": {[]plan.Mount{bind("empty", "/dev/x", false), bind("data", "/dev/x/new", false)}, "/", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			src := f.layer("sub/", "file=1", "link -> sub")
			pod := plan.Pod{Volumes: []plan.Volume{
				{Name: "data", Kind: "host", Source: src, Recursive: true}, {Name: "empty", Kind: "empty", Mode: 0o755}, {Name: "file", Kind: "host", Source: filepath.Join(src, "file")},
			}}
			_, err := f.prepare(pod, plan.App{Mounts: slices.Concat(standard, c.mounts), Cwd: c.cwd},
				f.layer("todev -> /dev/x", "dev/x/imaged/", "tosys -> /sys", "sys/"))
			if (err == nil) != (c.text == "") || err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, want %q", err, c.text)
			}
		})
	}
}

func TestGeneratedFiles(t *testing.T) {
	f := newFixture(t)
	pod := plan.Pod{
		Files: []plan.File{
			{Target: "/etc/resolv.conf", Content: "nameserver 10.0.0.1\n", IfMissing: true},
			{Target: "/etc/hosts", Content: "forced\n"},
			{Target: "/etc/hostname", Source: "/etc/hostname", IfMissing: true},
		},
		Volumes: []plan.Volume{{Name: "file", Kind: "host", Source: filepath.Join(f.layer("h=volume"), "h")}},
	}
	la, err := f.prepare(pod, plan.App{},
		f.layer("etc/hosts=image", "etc/hostname=", "etc/resolv.conf -> ../run/systemd/resolve/stub-resolv.conf"))
	f.must(err)
	if got := read(t, la.RootFS, "run/systemd/resolve/stub-resolv.conf"); got != "nameserver 10.0.0.1\n" {
		t.Errorf("resolv.conf where the image's dangling symlink points: %q", got)
	}
	if got := read(t, la.RootFS, "etc/hosts"); got != "forced\n" {
		t.Errorf("hosts asked for: %q", got)
	}
	if got := read(t, la.RootFS, "etc/hostname"); got != read(t, "/etc/hostname") {
		t.Errorf("hostname in place of an empty file: %q", got)
	}
	if err := os.WriteFile(filepath.Join(la.RootFS, "etc/hostname"), nil, 0o600); err == nil {
		t.Error("the host's own file can be written to")
	}
	if link, err := os.Readlink(filepath.Join(la.RootFS, "etc/mtab")); link != "../proc/self/mounts" {
		t.Errorf("mtab: %q, %v", link, err)
	}

	f = newFixture(t)
	la, err = f.prepare(pod, plan.App{Mounts: []plan.Mount{bind("file", "/etc/hosts", false)}},
		f.layer("etc/resolv.conf=image", "etc/hostname=image"))
	f.must(err)
	for name, want := range map[string]string{"etc/hosts": "volume", "etc/resolv.conf": "image", "etc/hostname": "image"} {
		if got := read(t, la.RootFS, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestGeneratedFilesAndAVolumeAtEtc(t *testing.T) {
	f := newFixture(t)
	src := f.layer("hosts=own")
	la, err := f.prepare(plan.Pod{
		Files: []plan.File{
			{Target: "/etc/hosts", Content: "x", IfMissing: true}, {Target: "/etc/hostname", Content: "x", IfMissing: true},
		},
		Volumes: []plan.Volume{{Name: "etc", Kind: "host", Source: src, Recursive: true}},
	}, plan.App{Mounts: []plan.Mount{bind("etc", "/etc", false)}}, f.layer())
	f.must(err)
	names, err := os.ReadDir(src)
	f.must(err)
	if len(names) != 1 || read(t, la.RootFS, "etc/hosts") != "own" {
		t.Errorf("the host's folder has %v", names)
	}
}

func TestWorkingDirectory(t *testing.T) {
	for cwd, want := range map[string]struct {
		class errs.Class
		ok    bool
	}{
		"/there": {ok: true}, "/link": {ok: true}, "/vol/in": {ok: true}, "/proc/self": {ok: true},
		"/missing": {class: errs.NotFound}, "/file": {class: errs.Usage}, "/dangling": {class: errs.NotFound},
		"/loop": {class: errs.Internal},
	} {
		t.Run(cwd, func(t *testing.T) {
			f := newFixture(t)
			la, err := f.prepare(plan.Pod{Volumes: []plan.Volume{{Name: "v", Kind: "host", Source: f.layer("in/")}}},
				plan.App{Cwd: cwd, Mounts: []plan.Mount{{Type: "proc", Target: "/proc"}, bind("v", "/vol", false)}},
				f.layer("there/", "link -> /there", "file=x", "dangling -> "+f.TempDir(), "loop -> loop"))
			if (err == nil) != want.ok || err != nil && !errs.Is(err, want.class) {
				t.Errorf("got %v (%s)", err, errs.ClassOf(err))
			}
			if err == nil && la.Cwd != cwd {
				t.Errorf("became %s", la.Cwd)
			}
			if err != nil && !strings.Contains(err.Error(), "working directory") {
				t.Errorf("%v does not say what it is about", err)
			}
		})
	}
}

func TestTopsMustBeFolders(t *testing.T) {
	for _, entry := range []string{"dev -> /tmp", "dev -> ../../../../..", "dev=file", "dev -> dev"} {
		f := newFixture(t)
		_, err := f.prepare(plan.Pod{}, plan.App{Mounts: []plan.Mount{
			{Type: "tmpfs", Target: "/dev"}, {Type: "mqueue", Target: "/dev/mqueue"},
		}}, f.layer(entry))
		if !errs.Is(err, errs.Denied) || !strings.Contains(err.Error(), "/dev: the image has a symlink or a file") {
			t.Errorf("%s: %v", entry, err)
		}
	}
	f := newFixture(t)
	if _, err := f.prepare(plan.Pod{}, plan.App{Mounts: []plan.Mount{{Type: "proc", Target: "/proc"}}}, f.layer("bin/")); err != nil {
		t.Errorf("without a /proc: %v", err)
	}
}

func TestDefaultFilesNeverFailAPod(t *testing.T) {
	files := func(ifMissing bool) plan.Pod {
		return plan.Pod{Files: []plan.File{{Target: "/etc/hosts", Content: "x", IfMissing: ifMissing}}}
	}
	for _, entries := range [][]string{{"etc/hosts -> hosts"}, {"etc=file"}, {"etc/hosts -> /etc/passwd/x", "etc/passwd=x"}} {
		f := newFixture(t)
		la, err := f.prepare(files(true), plan.App{}, f.layer(entries...))
		if err != nil || len(la.Notes) != 1 || !strings.Contains(la.Notes[0], "/etc/hosts is left as the image has it") {
			t.Errorf("%q: %v, notes %q", entries, err, la.Notes)
		}
		f = newFixture(t)
		if _, err := f.prepare(files(false), plan.App{}, f.layer(entries...)); err == nil || !strings.Contains(err.Error(), "/etc/hosts") {
			t.Errorf("%q, asked for: %v", entries, err)
		}
	}
}
