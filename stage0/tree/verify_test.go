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

	"github.com/rkt-pods/rkt/pkg/layer"
	"github.com/rkt-pods/rkt/tests/images"
)

func verifyRoot(t testing.TB, fs string, meta layer.Meta) []Damage {
	t.Helper()
	list, _, err := Verify(t.Context(), filepath.Dir(fs), meta, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func verified() []images.Entry {
	when := time.Date(2031, 5, 6, 7, 8, 9, 123456789, time.UTC)
	return []images.Entry{
		timed(images.Dir("d", 0o2750).Owned(1, 2), when),
		timed(images.File("d/f", 0o4755, strings.Repeat("content ", 1000)).Owned(3, 4).XAttr("user.note", "v"), when),
		images.File("d/empty", 0o600, ""),
		images.Link("d/hard", "d/f"),
		timed(images.Symlink("d/link", "f"), when),
		device("d/null", tar.TypeChar, 1, 3), device("d/fifo", tar.TypeFifo, 0, 0),
		images.File("deep/er/g", 0o644, "implicit parents"),
		images.File("dup", 0o644, "first"), images.File("dup", 0o600, "second"),
		images.Whiteout("d/gone"), images.Opaque("deep"),
		images.Link("d/below", "not/here"),
	}
}

// TestVerifyNamesEachDamage changes one thing after the other in an unpacked
// layer.
func TestVerifyNamesEachDamage(t *testing.T) {
	touch := func(p string) error { return os.WriteFile(p, []byte("x"), 0o644) }
	swap := func(p string, make func() error) error {
		if err := os.Remove(p); err != nil {
			return err
		}
		return make()
	}
	for _, x := range []struct {
		name   string
		damage func(fs string) error
		path   string
		what   string
	}{
		{"one byte", func(fs string) error {
			f, err := os.OpenFile(filepath.Join(fs, "d/f"), os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteAt([]byte("C"), 4000)
			return err
		}, "d/f", Content},
		{"shorter", func(fs string) error { return os.Truncate(filepath.Join(fs, "d/f"), 10) }, "d/f", Content},
		{"longer", func(fs string) error { return os.Truncate(filepath.Join(fs, "d/empty"), 1) }, "d/empty", Content},
		{"mode", func(fs string) error { return unix.Chmod(filepath.Join(fs, "d/f"), 0o755) }, "d/f", Mode},
		{"folder's mode", func(fs string) error { return unix.Chmod(filepath.Join(fs, "d"), 0o750) }, "d", Mode},
		{"mode of a parent without an entry", func(fs string) error { return unix.Chmod(filepath.Join(fs, "deep/er"), 0o700) }, "deep/er", Mode},
		{"owner", func(fs string) error { return os.Lchown(filepath.Join(fs, "d/link"), 9, -1) }, "d/link", Owner},
		{"group", func(fs string) error { return os.Lchown(filepath.Join(fs, "d"), -1, 9) }, "d", Owner},
		{"nanosecond", func(fs string) error {
			st := stat(t, fs, "d")
			return unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(fs, "d"), []unix.Timespec{st.Atim, {Sec: st.Mtim.Sec, Nsec: st.Mtim.Nsec + 1}}, 0)
		}, "d", MTime},
		{"attribute changed", func(fs string) error { return unix.Setxattr(filepath.Join(fs, "d/f"), "user.note", []byte("w"), 0) }, "d/f", XAttr},
		{"attribute gone", func(fs string) error { return unix.Removexattr(filepath.Join(fs, "d/f"), "user.note") }, "d/f", XAttr},
		{"attribute added", func(fs string) error {
			return unix.Setxattr(filepath.Join(fs, "d/empty"), "trusted.x", []byte("w"), 0)
		}, "d/empty", XAttr},
		{"opaque mark gone", func(fs string) error {
			return unix.Removexattr(filepath.Join(fs, "deep"), "trusted.overlay.opaque")
		}, "deep", XAttr},
		{"symlink's target", func(fs string) error {
			p := filepath.Join(fs, "d/link")
			return swap(p, func() error { return os.Symlink("g", p) })
		}, "d/link", Target},
		{"missing file", func(fs string) error { return os.Remove(filepath.Join(fs, "d/empty")) }, "d/empty", Missing},
		{"missing payload", func(fs string) error { return os.Remove(filepath.Join(fs, "deep/er/g")) }, "deep/er/g", Missing},
		{"missing folder", func(fs string) error { return os.RemoveAll(filepath.Join(fs, "deep")) }, "deep", Missing},
		{"missing whiteout", func(fs string) error { return os.Remove(filepath.Join(fs, "d/gone")) }, "d/gone", Missing},
		{"extra file", func(fs string) error { return touch(filepath.Join(fs, "d/new")) }, "d/new", Extra},
		{"extra folder", func(fs string) error { return os.Mkdir(filepath.Join(fs, "newd"), 0o755) }, "newd", Extra},
		{"file for a fifo", func(fs string) error {
			p := filepath.Join(fs, "d/fifo")
			return swap(p, func() error { return touch(p) })
		}, "d/fifo", Type},
		{"fifo for a file", func(fs string) error {
			p := filepath.Join(fs, "dup")
			return swap(p, func() error { return unix.Mkfifo(p, 0o600) })
		}, "dup", Type},
		{"symlink for a file", func(fs string) error {
			p := filepath.Join(fs, "dup")
			return swap(p, func() error { return os.Symlink("/etc/passwd", p) })
		}, "dup", Type},
		{"another device", func(fs string) error {
			p := filepath.Join(fs, "d/null")
			return swap(p, func() error { return unix.Mknod(p, unix.S_IFCHR|0o640, int(unix.Mkdev(1, 5))) })
		}, "d/null", Device},
		{"hard link parted", func(fs string) error {
			p := filepath.Join(fs, "d/hard")
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			return swap(p, func() error { return os.WriteFile(p, data, 0o755) })
		}, "d/hard", HardLink},
		{"hard link added", func(fs string) error {
			p := filepath.Join(fs, "d/empty")
			return swap(p, func() error { return os.Link(filepath.Join(fs, "d/f"), p) })
		}, "d/hard", HardLink},
		{"root's mode", func(fs string) error { return os.Chmod(fs, 0o700) }, ".", Mode},
		{"split cut", func(fs string) error { return os.Truncate(filepath.Join(fs, "..", splitFile), 50) }, "", Records},
		{"split gone", func(fs string) error { return os.Remove(filepath.Join(fs, "..", splitFile)) }, "", Records},
		{"residue gone", func(fs string) error { return os.Remove(filepath.Join(fs, "..", residueFile)) }, "", Records},
		{"residue cut", func(fs string) error { return os.Truncate(filepath.Join(fs, "..", residueFile), 12) }, "", Records},
		{"residue with more", func(fs string) error { return os.Truncate(filepath.Join(fs, "..", residueFile), 100) }, "", Records},
		{"all gone", func(fs string) error { return os.RemoveAll(fs) }, "", Records},
	} {
		t.Run(x.name, func(t *testing.T) {
			fs, meta := unpackOK(t, verified()...)
			if list := verifyRoot(t, fs, meta); len(list) > 0 {
				t.Fatalf("before: %v", list)
			}
			if err := x.damage(fs); err != nil {
				t.Fatal(err)
			}
			list := verifyRoot(t, fs, meta)
			if !slices.ContainsFunc(list, func(d Damage) bool { return string(d.Path) == x.path && d.What == x.what }) {
				t.Errorf("found %v, want %s of %q", list, x.what, x.path)
			}
		})
	}
}

// TestVerifyRecord changes what overlayfs is told beside the tree.
func TestVerifyRecord(t *testing.T) {
	fs, meta := unpackOK(t, verified()...)
	for name, change := range map[string]func(*layer.Meta){
		"implicit":  func(m *layer.Meta) { m.Implicit = m.Implicit[1:] },
		"whiteouts": func(m *layer.Meta) { m.Whiteouts = nil },
		"hardLinks": func(m *layer.Meta) { m.HardLinks = nil },
		"size":      func(m *layer.Meta) { m.Size++ },
		"entries":   func(m *layer.Meta) { m.Entries-- },
		"tarSize":   func(m *layer.Meta) { m.TarSize += 512 },
	} {
		m := meta
		change(&m)
		if list := verifyRoot(t, fs, m); len(list) != 1 || !strings.Contains(list[0].Detail, name) {
			t.Errorf("%s: found %v", name, list)
		}
	}
	m := meta
	m.Residue = nil
	if list := verifyRoot(t, fs, m); len(list) == 0 {
		t.Error("residue: nothing found")
	}
}

// TestVerifyFindsEachFlip flips single bits of all that lies beside the tree.
func TestVerifyFindsEachFlip(t *testing.T) {
	fs, meta := unpackOK(t, verified()...)
	for _, name := range []string{splitFile, residueFile} {
		p := filepath.Join(filepath.Dir(fs), name)
		data := must(os.ReadFile(p))
		step := 1 + len(data)/60
		for at := 0; at < len(data); at += step {
			flipped := bytes.Clone(data)
			flipped[at] ^= 1 << (at % 8)
			if err := os.WriteFile(p, flipped, 0o600); err != nil {
				t.Fatal(err)
			}
			list := verifyRoot(t, fs, meta)
			// Nine bytes of a gzip header say nothing of the content: time, flags, system.
			header := name == splitFile && at < 10
			// The frame of zstd may be described in more than one way.
			if len(list) == 0 && !header && !sameResidue(t, name, flipped, data) {
				t.Errorf("%s: byte %d of %d: nothing found", name, at, len(data))
			}
		}
		if err := os.WriteFile(p, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// sameResidue says whether both unpack to the same bytes.
func sameResidue(t *testing.T, name string, a, b []byte) bool {
	if name != residueFile {
		return false
	}
	read := func(data []byte) string {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, residueFile), data, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := openResidue(dir, []layer.Residue{{Entry: 0, Size: 1 << 20}})
		if err != nil {
			return err.Error()
		}
		defer r.close()
		payload, _ := r.next(0)
		var out bytes.Buffer
		_, err = out.ReadFrom(payload)
		if err != nil {
			return err.Error()
		}
		return out.String()
	}
	return read(a) == read(b)
}

// TestVerifyLongNames: a name in the layer may be longer than any path.
func TestVerifyLongNames(t *testing.T) {
	deep := strings.Repeat(strings.Repeat("d", 99)+"/", 38)
	fs, meta := unpackOK(t, images.File(deep+strings.Repeat("f", 250), 0o644, "x").XAttr("user.note", "v"), images.Symlink(deep+strings.Repeat("l", 250), "x"))
	if list := verifyRoot(t, fs, meta); len(list) > 0 {
		t.Errorf("found %v", list)
	}
}

// TestVerifyACI: the manifest in the tar is given back.
func TestVerifyACI(t *testing.T) {
	needRoot(t)
	text := images.Manifest("example.com/x", "1", nil)
	data := must(images.ACI(text, []images.Entry{images.File("f", 0o644, "x")}))
	dir := t.TempDir()
	l, err := Unpack(t.Context(), bytes.NewReader(data), dir, Options{Kind: layer.ACI})
	if err != nil {
		t.Fatal(err)
	}
	list, manifest, err := Verify(t.Context(), dir, l.Meta, t.TempDir())
	if err != nil || len(list) > 0 || string(manifest) != text {
		t.Errorf("found %v, manifest %q, %v", list, manifest, err)
	}
}
