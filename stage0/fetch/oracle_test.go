package fetch

import (
	"archive/tar"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/stage0/export"
	"github.com/rkt-pods/rkt/stage0/store"
	"github.com/rkt-pods/rkt/tests/images"
)

// describe says in a line for each file below root all that an image decides.
func describe(root string) (map[string]string, error) {
	out := map[string]string{}
	links := map[uint64][]string{}
	err := filepath.WalkDir(root, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return err
		}
		name, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%06o %d:%d %d.%09d", st.Mode, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %q", data)
		case unix.S_IFLNK:
			link, err := os.Readlink(p)
			if err != nil {
				return err
			}
			line += " -> " + link
		default:
			line += fmt.Sprintf(" %x", st.Rdev)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR && st.Nlink > 1 {
			links[st.Ino] = append(links[st.Ino], name)
		}
		out[name] = line + attributes(p)
		return nil
	})
	// The count of a file's names also counts those that upper layers hide.
	for _, names := range links {
		for _, name := range names {
			if len(names) > 1 {
				out[name] += " = " + names[0]
			}
		}
	}
	return out, err
}

func attributes(p string) string {
	buf := make([]byte, 64<<10) // the most that Linux has of either
	n, err := unix.Llistxattr(p, buf)
	if err != nil {
		return " " + err.Error()
	}
	names := strings.Split(strings.TrimRight(string(buf[:n]), "\x00"), "\x00")
	slices.Sort(names)
	line := ""
	for _, name := range names {
		if name == "" || strings.Contains(name, ".overlay.") || strings.HasPrefix(name, "user.umoci.") || strings.HasPrefix(name, "user.rootlesscontainers") {
			continue
		}
		value := make([]byte, 64<<10)
		n, err := unix.Lgetxattr(p, name, value)
		if err != nil {
			return " " + err.Error()
		}
		line += fmt.Sprintf(" %s=%q", name, value[:n])
	}
	return line
}

// merged describes layers as a pod sees them: through overlayfs, in a mount
// namespace that ends with the thread.
func merged(t *testing.T, st *store.Store, keys []string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"u", "w", "m"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	type result struct {
		files map[string]string
		err   error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread goes, and its mounts with it
		var r result
		defer func() { done <- r }()
		if r.err = unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); r.err != nil {
			return
		}
		if r.err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); r.err != nil {
			return
		}
		if r.err = overlay(st, keys, dir); r.err != nil {
			return
		}
		r.files, r.err = describe(filepath.Join(dir, "m"))
	}()
	r := <-done
	if r.err != nil {
		t.Fatalf("overlay: %v", r.err)
	}
	return r.files
}

// overlay mounts by descriptor: there is no limit to the length of options.
func overlay(st *store.Store, keys []string, dir string) error {
	fd, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, key := range slices.Backward(keys) {
		if err := unix.FsconfigSetString(fd, "lowerdir+", st.LayerFS(key)); err != nil {
			return err
		}
	}
	for opt, value := range map[string]string{"upperdir": "u", "workdir": "w"} {
		if err := unix.FsconfigSetString(fd, opt, filepath.Join(dir, value)); err != nil {
			return err
		}
	}
	if err := unix.FsconfigCreate(fd); err != nil {
		return err
	}
	mount, err := unix.Fsmount(fd, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(mount)
	return unix.MoveMount(mount, "", unix.AT_FDCWD, filepath.Join(dir, "m"), unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// umociVersion is the reference implementation's. Distributions have older ones.
const umociVersion = "v0.6.0"

// umociPath builds the reference implementation once, from its module, so that it
// stays out of go.mod. It can't be installed by its name, since its go.mod
// replaces a module.
var umociPath = func() func(*testing.T) string {
	build := sync.OnceValues(func() (string, error) {
		cache, err := filepath.Abs("../../.cache")
		if err != nil {
			return "", err
		}
		target := filepath.Join(cache, "umoci-"+umociVersion)
		if _, err := os.Stat(target); err == nil {
			return target, nil
		}
		var module struct{ Dir string }
		cmd := exec.Command("go", "mod", "download", "-json", "github.com/opencontainers/umoci@"+umociVersion)
		cmd.Dir = os.TempDir() // in no module
		out, err := cmd.Output()
		if err == nil {
			err = json.Unmarshal(out, &module)
		}
		if err != nil {
			return "", fmt.Errorf("download umoci: %w\n%s", err, out)
		}
		if err := os.MkdirAll(cache, 0o755); err != nil {
			return "", err
		}
		tmp := fmt.Sprintf("%s.%d", target, os.Getpid())
		cmd = exec.Command("go", "build", "-o", tmp, "./cmd/umoci")
		cmd.Dir, cmd.Env = module.Dir, append(os.Environ(), "GOFLAGS=", "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build umoci: %w\n%s", err, out)
		}
		return target, os.Rename(tmp, target)
	})
	return func(t *testing.T) string {
		t.Helper()
		path, err := build()
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
}()

// umoci describes what the reference implementation makes of a layout.
func umoci(t *testing.T, layout, tag string) map[string]string {
	t.Helper()
	bundle := filepath.Join(t.TempDir(), "bundle")
	out, err := exec.Command(umociPath(t), "unpack", "--image", layout+":"+tag, bundle).CombinedOutput()
	if err != nil {
		t.Fatalf("umoci: %v\n%s", err, out)
	}
	files, err := describe(filepath.Join(bundle, "rootfs"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func compare(t *testing.T, got, want map[string]string) {
	t.Helper()
	got, want = maps.Clone(got), maps.Clone(want)
	delete(got, ".") // the pod's own folder
	delete(want, ".")
	compareAll(t, got, want)
}

func compareAll(t *testing.T, got, want map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			t.Errorf("%q\n got %s\nwant %s", name, got[name], want[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok {
			t.Errorf("%q should not be there: %s", name, got[name])
		}
	}
}

func at(e images.Entry, sec int64) images.Entry {
	e.ModTime, e.Format = time.Unix(sec, 987654321), tar.FormatPAX
	return e
}

// TestSameTreeAsUmoci imports images of several layers and compares what a pod
// would see, entry by entry, with what umoci unpacks.
func TestSameTreeAsUmoci(t *testing.T) {
	needRoot(t)
	base := []images.Entry{
		at(images.Dir("tmp", 0o1777), 1000), at(images.Dir("root", 0o700), 2000), at(images.Dir("home", 0o755), 3000),
		at(images.Dir("home/u", 0o2750).Owned(1000, 100).XAttr("user.note", "kept"), 4000), at(images.File("home/u/a", 0o4755, "a").Owned(1000, 100), 5000),
		at(images.Dir("bin", 0o755), 6000), at(images.File("bin/box", 0o755, "box"), 7000), images.Link("bin/link", "bin/box"),
		at(images.Dir("etc", 0o755), 8000), at(images.File("etc/one", 0o644, "1"), 8100), at(images.File("etc/two", 0o644, "2"), 8200),
		at(images.Dir("var", 0o755), 9000), at(images.Dir("var/old", 0o711), 9100), at(images.File("var/old/x", 0o600, "x"), 9200), at(images.Dir("var/old/deep", 0o700), 9300),
	}
	links := []images.Entry{
		at(images.Dir("usr", 0o755), 1), at(images.Dir("usr/bin", 0o751), 2), at(images.File("usr/bin/sh", 0o755, "sh"), 3), images.Link("usr/bin/ash", "usr/bin/sh"),
		at(images.Dir("usr/lib", 0o750), 4), at(images.Dir("usr/lib/sub", 0o700), 5), at(images.File("usr/lib/sub/x", 0o600, "x"), 5), at(images.Dir("run", 0o711), 6), at(images.Dir("var", 0o755), 7),
		at(images.Symlink("bin", "usr/bin"), 8), at(images.Symlink("lib", "/usr/lib"), 9), at(images.Symlink("var/run", "/run"), 10),
		at(images.Symlink("up", "../../../../run"), 11), at(images.Symlink("rel", "var/run/../usr/bin"), 12),
	}
	file := func(name string) images.Entry { return at(images.File(name, 0o644, name), 20000) }
	for name, layers := range map[string][][]images.Entry{
		"one":                 {base},
		"parents":             {base, {file("tmp/new"), file("root/new"), file("home/u/new")}},
		"parents, two layers": {base, {file("tmp/new"), file("home/u/new")}, {file("home/u/newer"), file("root/n")}},
		"whiteouts":           {base, {images.Whiteout("etc/one"), images.Whiteout("var/old")}, {file("etc/three")}},
		"opaque":              {base, {at(images.Dir("etc", 0o700), 1), images.Opaque("etc"), file("etc/new")}},
		"opaque, then parents": {base,
			{at(images.Dir("var", 0o700), 1), images.Opaque("var")}, {file("var/new")}},
		"opaque without an entry":      {base, {images.Opaque("etc"), file("etc/new"), images.Opaque("home/u")}, {file("home/u/z")}},
		"whiteout in an opaque folder": {base, {images.Opaque("etc"), images.Whiteout("etc/one"), file("etc/new")}, {images.Whiteout("etc/new")}},
		"removed and made again":       {base, {images.Whiteout("var/old"), at(images.Dir("var/old", 0o701), 11), file("var/old/n")}, {file("var/old/m")}},
		"explicit between":             {base, {at(images.Dir("root", 0o750), 77)}, {file("root/new")}},
		"hard links":                   {base, {images.Link("bin/other", "bin/box"), images.Link("home/u/b", "home/u/a")}},
		"hard link to what is replaced later": {base,
			{images.Link("bin/other", "bin/box")}, {file("bin/box")}},
		"hard link that is removed later": {base,
			{images.Link("bin/other", "bin/box")}, {images.Whiteout("bin/other")}},
		"hard link to a hard link": {base,
			{images.Link("bin/other", "bin/link")}, {images.Link("bin/third", "bin/other")}},
		"file and folder": {base, {file("var/old")}, {images.Whiteout("etc"), file("tmp/x")}, {at(images.Dir("etc", 0o755), 5), file("etc/again")}},
		"whiteout of nothing": {base,
			{at(images.Dir("new", 0o755), 5), images.Whiteout("new/nothing"), file("new/x")}},
		"whiteout of nothing in a folder that is nowhere": {base,
			{images.Whiteout("no/nothing"), images.Whiteout("de/ep/nothing"), file("tmp/x")}, {images.Whiteout("tmp/no/nothing"), images.Whiteout("var/old")}, {images.Whiteout("var/old/x")}},
		"layer twice":     {base, {file("tmp/x")}, base},
		"below a symlink": {links, {file("bin/tool"), file("var/run/pid"), file("up/new"), file("rel/new")}},
		"below a symlink, in and through": {links,
			{file("bin/tool"), file("usr/bin/other"), images.Link("bin/again", "usr/bin/sh"), images.Link("usr/bin/more", "bin/tool")},
			{file("bin/third"), images.Link("bin/fourth", "bin/again")}},
		"removed below a symlink": {links,
			{images.Whiteout("bin/sh"), file("bin/tool")}, {images.Whiteout("usr/bin/tool"), images.Whiteout("lib/sub")}},
		"opaque below a symlink":    {links, {file("bin/tool"), images.Opaque("bin")}, {file("bin/next")}},
		"symlink removed, and made": {links, {file("bin/tool")}, {images.Whiteout("bin"), at(images.Dir("bin", 0o711), 7), file("bin/own")}, {file("bin/more")}},
		"symlink becomes a folder":  {links, {file("bin/tool")}, {at(images.Dir("bin", 0o711), 7), file("bin/own")}, {file("bin/more"), images.Whiteout("bin/own")}},
		"folder below a symlink": {links,
			{at(images.Dir("lib/sub", 0o701), 70), file("lib/sub/x"), at(images.Dir("lib/new", 0o702), 71)}, {file("lib/new/y"), images.Whiteout("usr/lib/sub/x")}},
		"symlink below a symlink": {links, {at(images.Symlink("bin/to", "/run"), 7)}, {file("usr/bin/to/pid"), file("bin/to/pid2")}},
		"symlink changes":         {links, {file("bin/tool")}, {at(images.Symlink("bin", "/usr/lib"), 7)}, {file("bin/so")}},
		"symlink of this layer, to a lower folder": {links,
			{at(images.Symlink("opt", "usr/lib"), 7), file("opt/x")}, {images.Whiteout("opt/x"), file("opt/y")}},
		"symlink of this layer, through a lower one":            {links, {at(images.Symlink("sbin", "bin"), 7), file("sbin/x")}},
		"hard link through a symlink":                           {links, {images.Link("sh", "bin/sh"), images.Link("lnk", "bin")}, {file("lnk/x")}},
		"hard link through a symlink, then its target goes":     {links, {images.Link("sh", "bin/sh"), images.Whiteout("bin/sh"), file("bin/x")}, {images.Link("bin/sh2", "sh"), images.Whiteout("sh")}},
		"hard link below a symlink, then its target is another": {links, {file("bin/x"), images.Link("sh", "usr/bin/sh"), file("usr/bin/sh")}},
		"hard link, then the root goes":                         {base, {images.Link("l", "bin/box"), at(images.Dir("new", 0o711), 5), images.Link("new/b", "bin/box"), images.File(".wh..wh..opq", 0o600, "")}, {images.Link("m", "l"), images.Whiteout("l"), file("new/c")}},
		"hard link to a hard link whose target went":            {base, {images.Link("etc/g", "etc/one"), images.Whiteout("etc/one")}, {images.Link("etc/h", "etc/g"), images.Whiteout("etc/g")}},
		"layer twice, below a symlink":                          {links, {file("bin/tool"), images.Whiteout("usr/bin/sh")}, links},
		"layer twice, links between": {base,
			{images.Link("bin/other", "bin/box"), images.Link("home/u/b", "home/u/a"), file("root/n")}, base},
		"layer twice, links to what is gone between": {base,
			{images.Link("bin/other", "bin/box"), images.Link("tmp/kept", "etc/one")}, {images.Whiteout("etc/one"), images.Whiteout("var/old")}, base},
		"layer twice, with links and whiteouts": {base,
			{images.Link("bin/other", "bin/box"), images.Opaque("etc"), images.Whiteout("tmp/z")}, {file("etc/new"), file("tmp/y")},
			{images.Link("bin/other", "bin/box"), images.Opaque("etc"), images.Whiteout("tmp/z")}},
		"layer twice, whiteouts in a folder of its own": {
			{at(images.Dir("n", 0o755), 5), images.Whiteout("n/nothing"), file("n/x")}, {file("n/y")},
			{at(images.Dir("n", 0o755), 5), images.Whiteout("n/nothing"), file("n/x")}},
		"layer three times": {base, {file("tmp/x")}, base, {images.Link("tmp/l", "bin/box")}, base, {file("root/z")}},
		"many":              many(base, 126),
	} {
		t.Run(name, func(t *testing.T) {
			var tars [][]byte
			for _, l := range layers {
				tars = append(tars, must(images.Tar(l)))
			}
			dir := t.TempDir()
			if err := must(images.OCI(images.Image{Name: "1.0", Layers: tars})).WriteDir(dir); err != nil {
				t.Fatal(err)
			}
			st := newStore(t)
			rec := importFile(t, st, dir)
			want := umoci(t, dir, "1.0")
			compare(t, merged(t, st, rec.Layers), maps.Clone(want))
			compare(t, rendered(t, st, rec), want)
			undamaged(t, st, rec)
		})
	}
}

// TestSameRootAsUmoci has images whose root folder has an entry: what it looks
// like is compared too.
func TestSameRootAsUmoci(t *testing.T) {
	needRoot(t)
	root := at(images.Dir("./", 0o751).Owned(3, 4).XAttr("user.note", "root"), 500)
	plain := at(images.Dir("./", 0o755), 600)
	base := []images.Entry{root, at(images.Dir("etc", 0o711), 1000), at(images.File("etc/f", 0o640, "f"), 1100)}
	gone := images.File(".wh..wh..opq", 0o600, "")
	file := func(name string) images.Entry { return at(images.File(name, 0o644, name), 20000) }
	links := []images.Entry{at(images.Dir("usr", 0o701), 9), at(images.Symlink("bin", "usr"), 10)}
	for name, layers := range map[string][][]images.Entry{
		"opaque":                           {base, {gone, file("new")}},
		"opaque, last":                     {base, {file("new"), gone}, {file("newer")}},
		"opaque and nothing else":          {base, {gone}},
		"opaque, with an entry":            {base, {at(images.Dir("./", 0o700), 7), gone, file("new")}, {file("newer")}},
		"opaque, default looks":            {{plain, file("old")}, {gone, file("new")}},
		"opaque twice":                     {base, {gone, file("a")}, {file("b")}, {gone, file("c")}, {file("d")}},
		"opaque, a folder made again":      {base, {gone, file("etc/g")}, {file("etc/h")}},
		"opaque, layer twice":              {base, {gone, file("new")}, {file("b")}, {gone, file("new")}},
		"opaque, layer twice around":       {{file("a")}, base, {gone, file("new")}, {file("a")}},
		"opaque, below a symlink":          {base, {gone, file("new")}, links, {file("bin/tool")}},
		"opaque above a symlink":           {append([]images.Entry{root}, links...), {gone, file("bin/tool")}, {file("bin/next")}},
		"entry in the root":                {base, {file("new")}},
		"entry in the root, default looks": {{plain, at(images.Dir("etc", 0o755), 5)}, {file("new")}},
		"root between":                     {base, {plain, file("new")}, {file("newer")}},
		"default looks, below a symlink":   {append([]images.Entry{plain}, links...), {file("bin/tool"), file("new")}},
		"whiteout in the root":             {base, {images.Whiteout("etc")}},
		"parents without an entry": {append([]images.Entry{root, at(images.Dir("opt/x", 0o700).Owned(7, 8), 11)}, links...),
			{file("bin/tool"), at(images.Dir("srv/y/z", 0o711).Owned(5, 6), 12)}, {file("opt/x/n"), at(images.Dir("bin/new/sub", 0o750), 13)}},
	} {
		t.Run(name, func(t *testing.T) {
			var tars [][]byte
			for _, l := range layers {
				tars = append(tars, must(images.Tar(l)))
			}
			dir := t.TempDir()
			if err := must(images.OCI(images.Image{Name: "1.0", Layers: tars})).WriteDir(dir); err != nil {
				t.Fatal(err)
			}
			st := newStore(t)
			rec := importFile(t, st, dir)
			want, got, folder := umoci(t, dir, "1.0"), merged(t, st, rec.Layers), rendered(t, st, rec)
			untime(want, got, folder)
			compareAll(t, folder, want)
			compare(t, got, want)
			undamaged(t, st, rec)
		})
	}
}

// rendered describes the folder that the image is written to.
func rendered(t *testing.T, st *store.Store, rec image.Record) map[string]string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "rendered")
	if err := export.Folder(t.Context(), st, rec, dir, export.FolderOptions{Dependents: true}); err != nil {
		t.Fatal(err)
	}
	return must(describe(dir))
}

func many(base []images.Entry, n int) [][]images.Entry {
	layers := [][]images.Entry{base}
	for i := range n {
		layers = append(layers, []images.Entry{at(images.File(fmt.Sprintf("home/u/f%d", i), 0o644, "x"), 100)})
	}
	return layers
}
