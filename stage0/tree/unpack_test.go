package tree

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/layer"
	"github.com/rkt-pods/rkt/tests/images"
)

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("RKT_TEST_UNPRIVILEGED") == "1" {
		t.Skip("needs root")
	}
	t.Fatal("needs root; RKT_TEST_UNPRIVILEGED=1 leaves such tests out")
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// layerTar is an OCI layer of the entries.
func layerTar(entries ...images.Entry) []byte { return must(images.Tar(entries)) }

// unpackTar unpacks an OCI layer to a new folder and checks that it can be
// rebuilt and that meta.json is what was returned.
func unpackTar(t testing.TB, data []byte) (string, Layer, error) {
	t.Helper()
	needRoot(t)
	dir := t.TempDir()
	l, err := Unpack(t.Context(), bytes.NewReader(data), dir, Options{Kind: layer.OCI, Want: digest.Of(digest.SHA256, data)})
	if err != nil {
		return dir, l, err
	}
	var again bytes.Buffer
	if err := Rebuild(dir, l.Meta, &again); err != nil {
		t.Errorf("rebuild: %v", err)
	} else if !bytes.Equal(again.Bytes(), data) {
		t.Error("the rebuilt tar is another")
	}
	var meta layer.Meta
	if err := atomicfile.ReadJSON(filepath.Join(dir, metaFile), &meta); err != nil {
		t.Error(err)
	}
	if meta.Key != l.Meta.Key || !slices.Equal(meta.Implicit, l.Meta.Implicit) || !slices.Equal(meta.Residue, l.Meta.Residue) {
		t.Errorf("meta.json %+v, want %+v", meta, l.Meta)
	}
	entries := must(os.ReadDir(dir))
	for _, e := range entries {
		if !slices.Contains([]string{"fs", splitFile, residueFile, metaFile}, e.Name()) {
			t.Errorf("left beside the tree: %s", e.Name())
		}
	}
	return filepath.Join(dir, "fs"), l, nil
}

func unpackOK(t testing.TB, entries ...images.Entry) (string, layer.Meta) {
	t.Helper()
	fs, l, err := unpackTar(t, layerTar(entries...))
	if err != nil {
		t.Fatal(err)
	}
	return fs, l.Meta
}

func stat(t testing.TB, elem ...string) unix.Stat_t {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(elem...), &st); err != nil {
		t.Fatalf("%s: %v", filepath.Join(elem...), err)
	}
	return st
}

func timed(e images.Entry, at time.Time) images.Entry {
	e.ModTime, e.Format = at, tar.FormatPAX
	return e
}

func device(name string, kind byte, major, minor int64) images.Entry {
	return images.Entry{Header: tar.Header{Name: name, Typeflag: kind, Devmajor: major, Devminor: minor, Mode: 0o640, Uid: 3, Gid: 4}}
}

// someACL is user::rw- user:1000:rw- group::r-- mask::rw- other::---
const someACL = "\x02\x00\x00\x00\x01\x00\x06\x00\xff\xff\xff\xff\x02\x00\x06\x00\xe8\x03\x00\x00" +
	"\x04\x00\x04\x00\xff\xff\xff\xff\x10\x00\x06\x00\xff\xff\xff\xff\x20\x00\x00\x00\xff\xff\xff\xff"

func TestEveryPropertyIsKept(t *testing.T) {
	when := time.Date(2031, 5, 6, 7, 8, 9, 123456789, time.UTC)
	// cap_net_raw=ep, revision 2.
	capability := "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	fs, meta := unpackOK(t,
		timed(images.Dir("./", 0o751).Owned(5, 6), when),
		timed(images.Dir("d", 0o2770).Owned(12, 34).XAttr("system.posix_acl_default", someACL), when),
		timed(images.File("d/suid", 0o4755, "x").Owned(1000, 1001), when),
		images.File("d/cap", 0o755, "y").XAttr("security.capability", capability),
		images.File("d/acl", 0o660, "z").XAttr("system.posix_acl_access", someACL),
		images.File("d/attr", 0o600, "a").XAttr("user.note", "with \x00 and \xff").XAttr("trusted.note", "t"),
		images.Dir("d/sub", 0o700),
		timed(images.Symlink("d/link", "../nowhere\xff"), when),
		images.Link("d/hard", "d/suid"),
		images.File("d/bytes-\xff\xfe", 0o644, "name of no encoding"),
		device("null", tar.TypeChar, 1, 3), device("loop", tar.TypeBlock, 7, 9), device("fifo", tar.TypeFifo, 0, 0),
	)
	root, d, suid := stat(t, fs), stat(t, fs, "d"), stat(t, fs, "d/suid")
	if root.Mode&0o7777 != 0o751 || root.Uid != 5 || root.Gid != 6 || root.Mtim.Nsec != 123456789 {
		t.Errorf("root: %+v", root)
	}
	if d.Mode&0o7777 != 0o2770 || d.Uid != 12 || d.Gid != 34 || d.Mtim.Sec != when.Unix() || d.Mtim.Nsec != 123456789 {
		t.Errorf("folder: %+v", d)
	}
	if suid.Mode&0o7777 != 0o4755 || suid.Uid != 1000 || suid.Gid != 1001 || suid.Mtim.Nsec != 123456789 || suid.Nlink != 2 {
		t.Errorf("setuid file: %+v", suid)
	}
	if stat(t, fs, "d/hard").Ino != suid.Ino {
		t.Error("hard link has an inode of its own")
	}
	for _, x := range []struct{ name, attr, want string }{
		{"d/cap", "security.capability", capability},
		{"d/acl", "system.posix_acl_access", someACL},
		{"d", "system.posix_acl_default", someACL},
		{"d/attr", "user.note", "with \x00 and \xff"},
		{"d/attr", "trusted.note", "t"},
	} {
		if got, err := getXattr(filepath.Join(fs, x.name), x.attr); err != nil || string(got) != x.want {
			t.Errorf("%s: %s = %q, %v", x.name, x.attr, got, err)
		}
	}
	for _, name := range []string{"d/sub", "d/cap"} {
		if got, err := getXattr(filepath.Join(fs, name), "system.posix_acl_access"); err == nil {
			t.Errorf("%s inherited an ACL: %q", name, got)
		}
	}
	if link := stat(t, fs, "d/link"); link.Mtim.Sec != when.Unix() || must(os.Readlink(filepath.Join(fs, "d/link"))) != "../nowhere\xff" {
		t.Errorf("symlink: %+v", link)
	}
	if got := string(must(os.ReadFile(filepath.Join(fs, "d/bytes-\xff\xfe")))); got != "name of no encoding" {
		t.Errorf("file of no encoding: %q", got)
	}
	for name, want := range map[string]uint64{"null": unix.Mkdev(1, 3), "loop": unix.Mkdev(7, 9), "fifo": 0} {
		if st := stat(t, fs, name); st.Rdev != want || st.Mode&0o7777 != 0o640 || st.Uid != 3 || st.Gid != 4 {
			t.Errorf("%s: %+v", name, st)
		}
	}
	if len(meta.Implicit) != 0 || len(meta.Residue) != 0 || meta.Entries != 13 {
		t.Errorf("meta: %+v", meta)
	}
}

func TestSparseFile(t *testing.T) {
	needRoot(t)
	src := t.TempDir()
	f := must(os.Create(filepath.Join(src, "sparse")))
	for _, at := range []int64{0, 40 << 20, 100<<20 - 4} {
		must(f.WriteAt([]byte("data"), at))
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"gnu", "pax"} {
		archive := filepath.Join(src, format+".tar")
		run(t, "tar", "-C", src, "--sparse", "--format="+format, "-cf", archive, "sparse")
		fs, l, err := unpackTar(t, must(os.ReadFile(archive)))
		if err != nil {
			t.Fatal(err)
		}
		st := stat(t, fs, "sparse")
		if st.Size != 100<<20 || st.Blocks*512 > 2<<20 {
			t.Errorf("%s: %d bytes, %d on disk", format, st.Size, st.Blocks*512)
		}
		if !bytes.Equal(must(os.ReadFile(filepath.Join(fs, "sparse"))), must(os.ReadFile(f.Name()))) {
			t.Errorf("%s: the content is another", format)
		}
		if len(l.Meta.Residue) != 1 {
			t.Errorf("%s: residue %+v", format, l.Meta.Residue)
		}
	}
}

// TestDuplicates has each kind of entry in the place of each other: the last
// counts, and the tar can be rebuilt all the same (unpackTar checks it).
func TestDuplicates(t *testing.T) {
	kinds := map[string][]images.Entry{
		"file":    {images.File("x", 0o600, "first content")},
		"empty":   {images.File("x", 0o600, "")},
		"folder":  {images.Dir("x", 0o700), images.File("x/in/side", 0o600, "inside")},
		"symlink": {images.Symlink("x", "target")},
		"link":    {images.Link("x", "target")},
		"fifo":    {device("x", tar.TypeFifo, 0, 0)},
	}
	types := map[string]uint32{"file": unix.S_IFREG, "empty": unix.S_IFREG, "folder": unix.S_IFDIR, "symlink": unix.S_IFLNK, "link": unix.S_IFREG, "fifo": unix.S_IFIFO}
	for first, a := range kinds {
		for second, b := range kinds {
			all := slices.Concat([]images.Entry{images.File("target", 0o644, "the target")}, a, a, b)
			fs, _ := unpackOK(t, all...)
			if got := stat(t, fs, "x").Mode & unix.S_IFMT; got != types[second] {
				t.Errorf("%s, then %s: type %o", first, second, got)
			}
			if string(must(os.ReadFile(filepath.Join(fs, "target")))) != "the target" {
				t.Errorf("%s, then %s: the target changed", first, second)
			}
		}
	}
}

// TestFolderThatWasReplaced: what a folder was to get at the end does not go to
// what took its place, though that may have its inode.
func TestFolderThatWasReplaced(t *testing.T) {
	old, late := time.Unix(5, 0), time.Unix(1_600_000_000, 0)
	acl := images.Dir("x", 0o711).XAttr("system.posix_acl_default", someACL)
	fs, _ := unpackOK(t, timed(images.Dir("d", 0o755), late), timed(acl, old), images.File("x/f", 0o644, "x"),
		images.Symlink("x", "d"), images.File("x", 0o644, ""), timed(images.Dir("x", 0o755), late),
		timed(images.Dir("y", 0o755), old), timed(images.Symlink("y", "d"), late))
	for _, name := range []string{"d", "x", "y"} {
		if st := stat(t, fs, name); st.Mtim.Sec != late.Unix() {
			t.Errorf("%s: time %d", name, st.Mtim.Sec)
		}
	}
	if names := must(listXattrs(filepath.Join(fs, "x"), unix.Llistxattr)); slices.Contains(names, aclDefault) {
		t.Error("x has the ACL of the folder before it")
	}
}

func TestHardLinkSurvivesItsFirstName(t *testing.T) {
	fs, _ := unpackOK(t,
		images.File("a", 0o644, "one"), images.Link("b", "a"), images.File("a", 0o644, "two"), images.Link("c", "b"),
		images.File("b", 0o644, "three"), images.File("c", 0o644, "four"))
	for name, want := range map[string]string{"a": "two", "b": "three", "c": "four"} {
		if got := string(must(os.ReadFile(filepath.Join(fs, name)))); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestImplicitFolders(t *testing.T) {
	fs, meta := unpackOK(t, images.File("a/b/c", 0o644, "x"), images.Dir("a", 0o700), images.File("d/e", 0o644, "y"))
	if got := meta.Implicit; !slices.Equal(got, []layer.Path{".", "a/b", "d"}) {
		t.Errorf("implicit: %q", got)
	}
	for _, name := range []string{"a/b", "d"} {
		if st := stat(t, fs, name); st.Mode&0o7777 != 0o755 || st.Mtim.Sec != 0 || st.Uid != 0 {
			t.Errorf("%s: %+v", name, st)
		}
	}
}

func TestWhiteouts(t *testing.T) {
	fs, meta := unpackOK(t,
		images.Whiteout("plain"), images.Whiteout("sub/plain"),
		images.File("both", 0o644, "x"), images.Whiteout("both"), // a file hides by itself
		images.Whiteout("rev"), images.File("rev", 0o644, "y"),
		images.Dir("dir", 0o755), images.File("dir/f", 0o644, "z"), images.Whiteout("dir"),
		images.Whiteout("later"), images.File("later/deep/f", 0o644, "z"),
		images.Dir("opq", 0o755), images.Whiteout("opq/x"), images.File("opq/y", 0o644, "y"), images.Opaque("opq"),
		images.Link("hard/.wh.linked", "both"),
		images.File(".wh..wh.plnk", 0o600, "aufs"),
		images.File("data/.wh.full", 0o600, "a whiteout with content"),
	)
	for _, name := range []string{"plain", "sub/plain", "hard/linked", "data/full"} {
		if st := stat(t, fs, name); !isWhiteout(st) {
			t.Errorf("%s: mode %o is no whiteout", name, st.Mode)
		}
	}
	for name, opaque := range map[string]bool{".": false, "dir": true, "later": true, "later/deep": false, "opq": true, "sub": false} {
		for _, mark := range opaqueMarks {
			_, err := getXattr(filepath.Join(fs, name), mark)
			if opaque != (err == nil) {
				t.Errorf("%s: %s: %v", name, mark, err)
			}
		}
	}
	for _, name := range []string{"both", "rev", "opq/y", "later/deep/f", "dir/f"} {
		if st := stat(t, fs, name); !isReg(st) {
			t.Errorf("%s: mode %o", name, st.Mode)
		}
	}
	for _, name := range []string{"opq/x", ".wh..wh.plnk", "dir/.wh..wh..opq"} {
		if _, err := os.Lstat(filepath.Join(fs, name)); err == nil {
			t.Errorf("%s is there", name)
		}
	}
	if got := meta.Whiteouts; !slices.Equal(got, []layer.Path{".", "data", "hard", "sub"}) {
		t.Errorf("whiteouts in %q", got)
	}
}

func TestACIHasNoWhiteouts(t *testing.T) {
	needRoot(t)
	data := must(images.ACI(images.Manifest("example.com/x", "", nil), []images.Entry{images.File(".wh.x", 0o644, "a file like any other")}))
	dir := t.TempDir()
	if _, err := Unpack(t.Context(), bytes.NewReader(data), dir, Options{Kind: layer.ACI}); err != nil {
		t.Fatal(err)
	}
	if st := stat(t, dir, "fs/.wh.x"); !isReg(st) {
		t.Errorf("mode %o", st.Mode)
	}
}

func TestOverlayAttributesAreDropped(t *testing.T) {
	fs, meta := unpackOK(t,
		images.Dir("d", 0o755).XAttr("trusted.overlay.opaque", "y").XAttr("user.overlay.redirect", "/etc"),
		images.File("f", 0o644, "x").XAttr("trusted.overlay.metacopy", "").XAttr("user.kept", "k"))
	for name, want := range map[string][]string{"d": nil, "f": {"user.kept"}} {
		if got := must(listXattrs(filepath.Join(fs, name), unix.Llistxattr)); !slices.Equal(got, want) {
			t.Errorf("%s: attributes %q", name, got)
		}
	}
	if len(meta.Dropped) < 2 {
		t.Errorf("dropped: %+v", meta.Dropped)
	}
}

func TestMissingLinkTargetIsNoted(t *testing.T) {
	_, meta := unpackOK(t, images.Link("a/b", "lower/file"), images.Link("gone", "other"), images.File("gone", 0o644, "came later"))
	want := []layer.HardLink{{Path: "a/b", Target: "lower/file"}}
	if !slices.Equal(meta.HardLinks, want) {
		t.Errorf("hard links %+v, want %+v", meta.HardLinks, want)
	}
}

// TestLinkToWhatTheLayerRemoved: of a whiteout and a link, what comes first counts.
func TestLinkToWhatTheLayerRemoved(t *testing.T) {
	needRoot(t)
	link := images.Link("g", "d/f")
	for _, gone := range []images.Entry{images.Whiteout("d/f"), images.Opaque("d"), images.File(".wh..wh..opq", 0o600, "")} {
		if _, _, err := unpackTar(t, layerTar(gone, link)); !errs.Is(err, errs.Denied) || !strings.Contains(err.Error(), `link to "d/f", which the layer removes`) {
			t.Errorf("%s, then the link: %v", gone.Name, err)
		}
		_, meta := unpackOK(t, link, gone)
		if want := []layer.HardLink{{Path: "g", Target: "d/f"}}; !slices.Equal(meta.HardLinks, want) {
			t.Errorf("the link, then %s: %v", gone.Name, meta.HardLinks)
		}
	}
}

func TestWrongDigest(t *testing.T) {
	needRoot(t)
	data := layerTar(images.File("a", 0o644, "x"))
	_, err := Unpack(t.Context(), bytes.NewReader(data), t.TempDir(), Options{Kind: layer.OCI, Want: digest.Of(digest.SHA256, nil)})
	if !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), "the content is sha256:") {
		t.Error(err)
	}
}
