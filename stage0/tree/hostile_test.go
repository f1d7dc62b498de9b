package tree

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/layer"
	"github.com/rkt-pods/rkt/tests/images"
)

func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// cage is a folder with a file beside the place to unpack to.
type cage struct {
	t      testing.TB
	dir    string
	before string
}

func newCage(t testing.TB) *cage {
	c := &cage{t: t, dir: t.TempDir()}
	for _, name := range []string{"etc", "layer"} {
		if err := os.Mkdir(filepath.Join(c.dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"canary", "etc/passwd", "layer/canary"} {
		if err := os.WriteFile(filepath.Join(c.dir, name), []byte("untouched"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c.before = c.snapshot()
	return c
}

// snapshot is all that is outside the layer's own folder.
func (c *cage) snapshot() string {
	var b strings.Builder
	err := filepath.WalkDir(c.dir, func(p string, _ fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case p == filepath.Join(c.dir, "layer/new"):
			return fs.SkipDir
		case p == c.dir || p == filepath.Join(c.dir, "layer"):
			return nil
		}
		st := stat(c.t, p)
		fmt.Fprintf(&b, "%s %o %d:%d %d %d %v\n", p, st.Mode, st.Uid, st.Gid, st.Nlink, st.Size, st.Mtim)
		return nil
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return b.String()
}

func (c *cage) unpack(data []byte, opt Options) (Layer, error) {
	dir := filepath.Join(c.dir, "layer/new")
	if err := os.Mkdir(dir, 0o700); err != nil {
		c.t.Fatal(err)
	}
	l, err := Unpack(context.Background(), bytes.NewReader(data), dir, opt)
	if after := c.snapshot(); after != c.before {
		c.t.Fatalf("HOST PATH WAS CHANGED:\n%s\nbefore:\n%s", after, c.before)
	}
	return l, err
}

func TestEscapes(t *testing.T) {
	needRoot(t)
	up := strings.Repeat("../", 12)
	for _, x := range []struct {
		name    string
		entries []images.Entry
		err     string // part of the text; "" means contained
	}{
		{"dots", []images.Entry{images.File("../canary", 0o644, "x")}, `entry "../canary": a name with ".."`},
		{"dots inside", []images.Entry{images.File("a/../../canary", 0o644, "x")}, "a name with"},
		{"dots at the end", []images.Entry{images.Dir("a/..", 0o777)}, "a name with"},
		{"absolute", []images.Entry{images.File("/etc/passwd", 0o644, "x")}, ""},
		{"symlink out, file through it", []images.Entry{images.Symlink("s", up), images.File("s/canary", 0o644, "x")}, ""},
		{"absolute symlink, file through it", []images.Entry{images.Symlink("s", "/etc"), images.Dir("etc", 0o755), images.File("s/passwd", 0o644, "x")}, ""},
		{"dangling symlink, file through it", []images.Entry{images.Symlink("s", "/not/there"), images.File("s/f", 0o644, "x")}, ""},
		{"dangling symlink out, file through it", []images.Entry{images.Symlink("s", up+"new/there"), images.File("s/f", 0o644, "x")}, ""},
		{"dangling symlinks, file through them", []images.Entry{images.Symlink("s", "../t/u"), images.Symlink("t", up+"../v/w"), images.File("s/f", 0o644, "x")}, ""},
		{"symlink to a file, file through it", []images.Entry{images.File("f", 0o644, "x"), images.Symlink("s", "f"), images.File("s/f", 0o644, "x")}, `parent folder "f"`},
		{"symlink loop", []images.Entry{images.Symlink("s", "t"), images.Symlink("t", "s"), images.File("s/f", 0o644, "x")}, "s/f"},
		{"file in the place of a folder", []images.Entry{images.File("f", 0o644, "x"), images.File("f/g", 0o644, "x")}, `parent folder "f"`},
		{"file over a symlink", []images.Entry{images.Symlink("s", up+"canary"), images.File("s", 0o644, "x")}, ""},
		{"folder over a symlink", []images.Entry{images.Symlink("s", up), images.Dir("s", 0o777), images.File("s/canary", 0o644, "x")}, ""},
		{"symlink to a folder over a folder", []images.Entry{images.Dir("s", 0o755), images.Symlink("s", "../../../etc")}, ""},
		{"symlink to a file over a folder", []images.Entry{images.Dir("d", 0o755), images.Dir("d/s", 0o755), images.Symlink("d/s", "../../../../canary")}, ""},
		{"symlink over a folder of folders", []images.Entry{images.Dir("d", 0o755), images.Dir("d/s", 0o755), images.Symlink("d", "../../../etc"), images.File("d/passwd", 0o644, "x")}, ""},
		{"hard link out", []images.Entry{images.Link("h", "../../canary")}, `link to "../../canary"`},
		{"hard link through a symlink", []images.Entry{images.Symlink("s", up), images.Link("h", "s/canary"), images.File("h", 0o644, "x")}, ""},
		{"hard link to a symlink", []images.Entry{images.Symlink("s", up+"canary"), images.Link("h", "s"), images.File("h", 0o644, "x")}, ""},
		{"hard link to a folder", []images.Entry{images.Dir("d", 0o755), images.Link("h", "d")}, "which is a folder"},
		{"hard link to a whiteout", []images.Entry{images.Whiteout("w"), images.Link("h", "w")}, "which the layer removes"},
		{"device 0:0", []images.Entry{device("d", tar.TypeChar, 0, 0)}, "a character device 0:0"},
		{"root as a symlink", []images.Entry{images.Symlink(".", up)}, "the root must be a folder"},
		{"whiteout of dots", []images.Entry{images.File(".wh...", 0o644, "")}, "a whiteout of"},
		{"whiteout of the folder", []images.Entry{images.File("a/.wh..", 0o644, "")}, "a whiteout of"},
		{"whiteout through a symlink", []images.Entry{images.Symlink("s", up), images.Whiteout("s/canary"), images.Opaque("s")}, ""},
		{"name of 4 KiB", []images.Entry{images.File(strings.Repeat("a/", 2500)+"f", 0o644, "x")}, "file name too long"},
		{"element of 300 bytes", []images.Entry{images.File(strings.Repeat("a", 300), 0o644, "x")}, "file name too long"},
		{"owner out of range", []images.Entry{images.File("f", 0o644, "x").Owned(1<<32-1, 0)}, "out of range"},
		{"attribute beyond the kernel's", []images.Entry{images.File("f", 0o644, "").XAttr("user.x", strings.Repeat("v", 70000))}, `attribute "user.x": its value of 70000 bytes`},
		{"attribute of a long name", []images.Entry{images.File("f", 0o644, "").XAttr("user."+strings.Repeat("x", 300), "v")}, "its name of 305 bytes"},
		{"attribute of a symlink", []images.Entry{images.Symlink("s", up+"canary").XAttr("trusted.x", "y")}, ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			data := layerTar(x.entries...)
			_, err := newCage(t).unpack(data, Options{Kind: layer.OCI, Want: digest.Of(digest.SHA256, data)})
			if (err == nil) != (x.err == "") || err != nil && !strings.Contains(err.Error(), x.err) {
				t.Errorf("error %v, want %q", err, x.err)
			}
			if err != nil && !strings.Contains(err.Error(), "entry ") {
				t.Errorf("error %v names no entry", err)
			}
		})
	}
}

func TestBrokenArchives(t *testing.T) {
	needRoot(t)
	manifest := images.Manifest("example.com/x", "", nil)
	good := must(images.ACI(manifest, []images.Entry{images.File("f", 0o644, "content")}))
	negative := bytes.Clone(good)
	copy(negative[124:136], "-0000000001\x00")
	for _, x := range []struct {
		name string
		data []byte
		err  string
	}{
		{"empty", nil, "truncated archive"},
		{"no end", good[:len(good)-1024], "truncated archive"},
		{"cut payload", good[:1024+600], "truncated archive"},
		{"garbage behind", append(bytes.Clone(good), "garbage"...), "garbage after the end"},
		{"negative size", negative, "not a valid tar"},
		{"two manifests", must(images.Tar([]images.Entry{images.File("manifest", 0o644, manifest), images.File("./manifest", 0o644, manifest)})), "there twice"},
		{"no manifest", must(images.Tar(images.RootFS(nil))), "no file \"manifest\""},
		{"manifest is a link", must(images.Tar([]images.Entry{images.Symlink("manifest", "x")})), "not a regular file"},
		{"another file", must(images.Tar([]images.Entry{images.File("rootfs2/x", 0o644, "x")})), "nothing beside"},
		{"link out of rootfs", must(images.Tar([]images.Entry{images.Link("rootfs/x", "manifest")})), "outside of rootfs"},
	} {
		t.Run(x.name, func(t *testing.T) {
			_, err := newCage(t).unpack(x.data, Options{Kind: layer.ACI})
			if err == nil || !strings.Contains(err.Error(), x.err) || errs.ClassOf(err) == errs.Internal {
				t.Errorf("error %v (%s), want %q", err, errs.ClassOf(err), x.err)
			}
		})
	}
}

// TestCutAndFlipped sweeps over a whole archive: no cut is taken for an image,
// and no changed byte goes unnoticed by the id.
func TestCutAndFlipped(t *testing.T) {
	needRoot(t)
	good := must(images.ACI(images.Manifest("example.com/x", "", nil),
		[]images.Entry{images.Dir("d", 0o755), images.File("d/f", 0o644, "content"), images.Symlink("l", "d")}))
	id, err := newCage(t).unpack(good, Options{Kind: layer.ACI})
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(good)-1024; at += 97 {
		if _, err := newCage(t).unpack(good[:at], Options{Kind: layer.ACI}); err == nil {
			t.Errorf("cut at %d was accepted", at)
		}
		bad := bytes.Clone(good)
		bad[at] ^= 1
		if l, err := newCage(t).unpack(bad, Options{Kind: layer.ACI}); err == nil && l.Digest == id.Digest {
			t.Errorf("flip at %d has the same id", at)
		}
	}
}

func TestManyFolders(t *testing.T) {
	var entries []images.Entry
	for i := range 3000 {
		entries = append(entries, images.File(fmt.Sprintf("d%d/e/f", i), 0o644, "x"))
	}
	fs, meta := unpackOK(t, entries...)
	if meta.Entries != 3000 || len(meta.Implicit) != 6001 {
		t.Errorf("%d entries, %d implicit folders", meta.Entries, len(meta.Implicit))
	}
	if !slices.IsSorted(meta.Implicit) || !isReg(stat(t, fs, "d2999/e/f")) {
		t.Error("not all there")
	}
}

// FuzzLayer feeds any bytes to the unpacker with a canary beside the root. What
// is accepted can be rebuilt.
func FuzzLayer(f *testing.F) {
	needRoot(f)
	f.Add(layerTar(images.Dir("a", 0o755), images.File("a/b", 0o644, "x"), images.Link("c", "a/b"), images.Whiteout("a/w"), images.Opaque("a")))
	f.Add(layerTar(images.Symlink("s", "../../"), images.File("s/canary", 0o644, "x"), device("d", tar.TypeChar, 1, 3)))
	f.Add(layerTar(images.File("x", 0o644, "1"), images.File("x", 0o644, "2").XAttr("trusted.overlay.opaque", "y"), images.Link("../y", "x")))
	f.Add(must(images.ACI(images.Manifest("example.com/x", "", nil), []images.Entry{images.File("f", 0o644, "x")})))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, opt := range []Options{{Kind: layer.ACI}, {Kind: layer.OCI, Want: digest.Of(digest.SHA256, data)}} {
			c := newCage(t)
			l, err := c.unpack(data, opt)
			if err != nil {
				continue
			}
			var again bytes.Buffer
			if err := Rebuild(filepath.Join(c.dir, "layer/new"), l.Meta, &again); err != nil || !bytes.Equal(again.Bytes(), data) {
				t.Errorf("rebuild: %v", err)
			}
		}
	})
}
