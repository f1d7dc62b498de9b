package fetch

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/stage0/store"
	"github.com/rkt-pods/rkt/stage0/verify"
	"github.com/rkt-pods/rkt/tests/images"
)

// undamaged fails if verify finds anything.
func undamaged(t testing.TB, st *store.Store, rec image.Record) {
	t.Helper()
	list, err := verify.New(st).Image(t.Context(), rec.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		t.Errorf("verify: %s", f)
	}
}

// layerOf packs a folder of the host with GNU tar, which writes sparse files.
func layerOf(t *testing.T, dir string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("tar", append([]string{"-C", dir, "-c", "--xattrs", "--xattrs-include=*", "--numeric-owner"}, args...)...)
	cmd.Stderr = os.Stderr
	return must(cmd.Output())
}

// special is a folder with a file of each kind and property.
func special(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	p := func(name string) string { return filepath.Join(dir, name) }
	do := func(errs ...error) {
		t.Helper()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	capability := "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	acl := "\x02\x00\x00\x00\x01\x00\x06\x00\xff\xff\xff\xff\x02\x00\x06\x00\xe8\x03\x00\x00" +
		"\x04\x00\x04\x00\xff\xff\xff\xff\x10\x00\x06\x00\xff\xff\xff\xff\x20\x00\x00\x00\xff\xff\xff\xff"
	do(os.Mkdir(p("d"), 0o755), os.Chown(p("d"), 12, 34), unix.Chmod(p("d"), 0o3770),
		os.WriteFile(p("d/suid"), []byte("s"), 0o755), os.Chown(p("d/suid"), 70000, 1<<31), unix.Chmod(p("d/suid"), 0o6755),
		os.WriteFile(p("d/cap"), []byte("c"), 0o755), unix.Setxattr(p("d/cap"), "security.capability", []byte(capability), 0),
		os.WriteFile(p("d/acl"), []byte("a"), 0o660), unix.Setxattr(p("d/acl"), "system.posix_acl_access", []byte(acl), 0),
		os.Mkdir(p("d/sub"), 0o755), unix.Setxattr(p("d/sub"), "system.posix_acl_default", []byte(acl), 0),
		os.WriteFile(p("d/attr"), nil, 0o600), unix.Setxattr(p("d/attr"), "user.note", []byte("a \x00 \xff = b"), 0),
		os.WriteFile(p("d/name-\xff\xfe\n"), []byte("bytes"), 0o644),
		os.Symlink("../nowhere\xff", p("d/link")), os.Link(p("d/suid"), p("hard")),
		unix.Mkfifo(p("d/fifo"), 0o640), unix.Mknod(p("d/chr"), unix.S_IFCHR|0o620, int(unix.Mkdev(5, 300))),
		unix.Mknod(p("d/blk"), unix.S_IFBLK|0o660, int(unix.Mkdev(259, 70000))))
	f := must(os.Create(p("d/sparse")))
	for _, at := range []int64{1 << 20, 3<<20 + 7, 9 << 20} {
		_, err := f.WriteAt([]byte("data"), at)
		do(err)
	}
	do(f.Truncate(16<<20), f.Close())
	for i, name := range []string{"d/suid", "d/fifo", "d/link", "d/sparse", "d/sub", "d"} {
		ts := unix.Timespec{Sec: int64(1_000_000_000 + i), Nsec: int64(123456789 + i)}
		do(unix.UtimesNanoAt(unix.AT_FDCWD, p(name), []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW))
	}
	return dir
}

// TestSpecialFilesAsUmoci packs files of all kinds in each way that tar has, and
// a second layer that refers to them.
func TestSpecialFilesAsUmoci(t *testing.T) {
	needRoot(t)
	dir := special(t)
	upper := must(images.Tar([]images.Entry{
		images.File("d/new", 0o600, "n"), images.Link("d/again", "d/suid"), images.File("d/sub/x", 0o600, "x"),
	}))
	for _, args := range [][]string{
		{"--format=posix", "-S", "."}, {"--format=posix", "-S", "--sparse-version=0.0", "."},
		{"--format=posix", "-S", "--sparse-version=0.1", "."}, {"--format=posix", "."},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			lower := layerOf(t, dir, args...)
			layout := t.TempDir()
			img := images.Image{Name: "1.0", Layers: [][]byte{lower, upper}, Pack: images.Gzip}
			if err := must(images.OCI(img)).WriteDir(layout); err != nil {
				t.Fatal(err)
			}
			st := newStore(t)
			rec := importFile(t, st, layout)
			checkRebuild(t, st, rec, lower)
			want := umoci(t, layout, "1.0")
			got := merged(t, st, rec.Layers)
			compare(t, got, want)
			undamaged(t, st, rec)
			var s unix.Stat_t
			err := unix.Lstat(filepath.Join(st.LayerFS(rec.Layers[0]), "d/sparse"), &s)
			if err != nil || s.Size != 16<<20 || slices.Contains(args, "-S") && s.Blocks*512 > 1<<20 {
				t.Errorf("the sparse file takes %d bytes, %v", s.Blocks*512, err)
			}
		})
	}
}

// TestLargeSparseFile imports and verifies 10 GiB of nothing: packed by a tool
// that knows of holes, and by one that, as most do, writes each zero.
func TestLargeSparseFile(t *testing.T) {
	needRoot(t)
	const whole = 10 << 30
	for what, c := range map[string]struct {
		size int64
		args []string
		pack func(io.Writer) io.WriteCloser
	}{
		"holes":        {whole, []string{"-S", "--format=posix"}, func(w io.Writer) io.WriteCloser { return must(gzip.NewWriterLevel(w, gzip.NoCompression)) }},
		"zeroes, zstd": {whole, nil, func(w io.Writer) io.WriteCloser { return must(zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))) }},
		"zeroes, gzip": {whole / 5, nil, func(w io.Writer) io.WriteCloser { return must(gzip.NewWriterLevel(w, gzip.BestSpeed)) }},
	} {
		t.Run(what, func(t *testing.T) {
			size := c.size
			if testing.Short() {
				size /= 10
			}
			dir, layout := t.TempDir(), t.TempDir()
			f := must(os.Create(filepath.Join(dir, "sparse")))
			for _, at := range []int64{size / 2, size - 3} {
				must(f.WriteAt([]byte("end"), at))
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			packLarge(t, layout, c.pack, append([]string{"-C", dir, "-c", "sparse"}, c.args...)...)
			st := newStore(t)
			rec := importFile(t, st, layout)
			undamaged(t, st, rec)
			var s unix.Stat_t
			if err := unix.Lstat(filepath.Join(st.LayerFS(rec.Layers[0]), "sparse"), &s); err != nil || s.Size != size || s.Blocks*512 > 1<<20 {
				t.Errorf("%d bytes in %d blocks, %v", s.Size, s.Blocks, err)
			}
			if rec.Size != size {
				t.Errorf("size %d", rec.Size)
			}
		})
	}
}

// packLarge writes a layout with one layer, which is not held in memory.
func packLarge(t *testing.T, layout string, pack func(io.Writer) io.WriteCloser, args ...string) {
	t.Helper()
	var packed bytes.Buffer
	content, z := sha256.New(), pack(&packed)
	cmd := exec.Command("tar", args...)
	cmd.Stdout, cmd.Stderr = io.MultiWriter(content, z), os.Stderr
	if err := errors.Join(cmd.Run(), z.Close()); err != nil {
		t.Fatal(err)
	}
	img := images.Image{Name: "x:1", Layers: [][]byte{packed.Bytes()}, EditConfig: func(c map[string]any) {
		c["rootfs"] = map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(content.Sum(nil))}}
	}}
	if err := must(images.OCI(img)).WriteDir(layout); err != nil {
		t.Fatal(err)
	}
}

// TestManyFiles imports, verifies and rebuilds a layer of 200,000 files.
func TestManyFiles(t *testing.T) {
	needRoot(t)
	// In memory: making so many files is what a disk takes its time for.
	dir, err := os.MkdirTemp("/dev/shm", "rkt-test-")
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	st := must(store.Open(filepath.Join(dir, "data")))
	n := 200_000
	if testing.Short() {
		n = 5_000
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range n {
		h := tar.Header{Name: fmt.Sprintf("d%03d/e%02d/f%06d", i/1000, i/100%10, i), Mode: 0o644, Size: int64(i % 40), ModTime: time.Unix(int64(i), 0)}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(bytes.Repeat([]byte{byte(i)}, i%40)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	img := images.Image{Name: "x:1", Layers: [][]byte{b.Bytes(), must(images.Tar([]images.Entry{images.File("d001/e01/new", 0o644, "x")}))}}
	start := time.Now()
	rec := importFile(t, st, writeFile(t, "x.tar", must(must(images.OCI(img)).Tar())))
	imported := time.Since(start)
	undamaged(t, st, rec)
	t.Logf("import %s, verify %s", imported, time.Since(start)-imported)
	checkRebuild(t, st, rec, b.Bytes())
}

// TestBombIsRefused: a header that promises more than any layer may have.
func TestBombIsRefused(t *testing.T) {
	st := newStore(t)
	var b bytes.Buffer
	h := tar.Header{Name: "huge", Mode: 0o644, Size: 1 << 50, Format: tar.FormatPAX}
	if err := tar.NewWriter(&b).WriteHeader(&h); err != nil {
		t.Fatal(err)
	}
	b.Write(make([]byte, 4096))
	img := images.Image{Name: "x:1", Layers: [][]byte{b.Bytes()}}
	_, err := importWith(t.Context(), st, writeFile(t, "x.tar", must(must(images.OCI(img)).Tar())), Options{Policy: unsigned})
	if err == nil || !strings.Contains(err.Error(), `entry "huge": 1125899906842624 bytes are more than a layer may have`) {
		t.Errorf("error %v", err)
	}
	checkClean(t, st)
}
