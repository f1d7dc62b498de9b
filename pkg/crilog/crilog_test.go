package crilog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
)

var stamp = time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)

func create(t *testing.T, o Options) (*Writer, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	w, err := Create(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w, path
}

// streams gives the bytes of each stream back.
func streams(t *testing.T, path string) map[Stream][]byte {
	t.Helper()
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out := map[Stream][]byte{}
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out[e.Stream] = e.Bytes(out[e.Stream])
	}
}

func TestFormat(t *testing.T) {
	w, path := create(t, Options{})
	for _, x := range []struct {
		s Stream
		p string
	}{{Stdout, "one\ntwo"}, {Stderr, "err\n\n"}, {Stdout, " more\nend"}} {
		if err := w.Append(x.s, stamp, []byte(x.p)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const at = "2026-01-02T03:04:05.000000600Z "
	want := at + "stdout F one\n" + at + "stdout P two\n" + at + "stderr F err\n" + at + "stderr F \n" +
		at + "stdout F  more\n" + at + "stdout P end\n"
	if string(got) != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
	if lines, dropped := w.Lines(); lines != 5 || dropped != 0 {
		t.Errorf("%d lines, %d dropped; want 5 and 0", lines, dropped)
	}
}

func TestRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	w, path := create(t, Options{MaxSize: 40_000, MaxFiles: 1000})
	want := map[Stream][]byte{}
	for range 300 {
		s := []Stream{Stdout, Stderr}[rng.IntN(2)]
		p := make([]byte, rng.IntN(3000))
		for i := range p {
			p[i] = byte(rng.IntN(40))
		}
		if rng.IntN(50) == 0 {
			p = bytes.Repeat([]byte{'x'}, 3*maxContent+rng.IntN(2))
		}
		want[s] = append(want[s], p...)
		if err := w.Append(s, stamp, p); err != nil {
			t.Fatal(err)
		}
	}
	got := streams(t, path)
	for _, s := range []Stream{Stdout, Stderr} {
		if !bytes.Equal(got[s], want[s]) {
			t.Errorf("%s: %d bytes came back, want %d", s, len(got[s]), len(want[s]))
		}
	}
	if _, err := os.Stat(path + ".9"); err != nil {
		t.Errorf("not rotated: %v", err)
	}
}

func TestRotationCountsLostLines(t *testing.T) {
	w, path := create(t, Options{MaxSize: 1000, MaxFiles: 3})
	const n = 500
	for i := range n {
		if err := w.Append(Stdout, stamp, fmt.Appendf(nil, "line %d\n", i)); err != nil {
			t.Fatal(err)
		}
	}
	left := streams(t, path)[Stdout]
	lines, dropped := w.Lines()
	if kept := uint64(bytes.Count(left, []byte{'\n'})); lines != n || kept+dropped != n || kept < 40 {
		t.Errorf("%d lines, %d kept, %d dropped; want kept + dropped = %d", lines, kept, dropped, n)
	}
	if !bytes.HasSuffix(left, fmt.Appendf(nil, "line %d\nline %d\n", n-2, n-1)) {
		t.Errorf("the end is not the newest lines: …%q", left[max(0, len(left)-40):])
	}
	for _, gone := range []string{".3", ".new"} {
		if _, err := os.Stat(path + gone); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("log%s is there", gone)
		}
	}
}

// A rotation beside a reader must neither hide nor repeat a file.
func TestReadBesideRotation(t *testing.T) {
	w, path := create(t, Options{MaxSize: 300, MaxFiles: 1000})
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for i := range 400 {
			if err := w.Append(Stdout, stamp, fmt.Appendf(nil, "%d\n", i)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for last := 0; last < 400; {
		lines := bytes.Split(bytes.TrimSuffix(streams(t, path)[Stdout], []byte{'\n'}), []byte{'\n'})
		if len(lines) == 1 && len(lines[0]) == 0 {
			continue
		}
		for i, l := range lines {
			if string(l) != fmt.Sprint(i) {
				t.Fatalf("line %d is %q", i, l)
			}
		}
		last = len(lines)
	}
}

// After a kill between link and rename the same file has two names.
func TestInterruptedRotation(t *testing.T) {
	w, path := create(t, Options{})
	if err := w.Append(Stdout, stamp, []byte("once\n")); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if got := string(streams(t, path)[Stdout]); got != "once\n" {
		t.Errorf("got %q", got)
	}
}

func TestFullDiskDropsWholeEntries(t *testing.T) {
	w, path := create(t, Options{})
	if err := w.Append(Stdout, stamp, []byte("good\n")); err != nil {
		t.Fatal(err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	good := w.f
	w.f = full
	if err := w.Append(Stdout, stamp, []byte("lost\nlost\n")); err == nil {
		t.Fatal("no error from a full disk")
	}
	_ = full.Close()
	w.f = good
	if err := w.Append(Stdout, stamp, []byte("again\n")); err != nil {
		t.Fatal(err)
	}
	if got := string(streams(t, path)[Stdout]); got != "good\nagain\n" {
		t.Errorf("got %q", got)
	}
	if lines, dropped := w.Lines(); lines != 4 || dropped != 2 {
		t.Errorf("%d lines, %d dropped; want 4 and 2", lines, dropped)
	}
}

// A write that stops half way leaves no torn entry, which would swallow the
// next one.
func TestTornWriteIsUndone(t *testing.T) {
	w, _ := create(t, Options{})
	fd, err := unix.MemfdCreate("full", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	full := os.NewFile(uintptr(fd), "full")
	defer full.Close()
	// Room for two pages, and no more.
	if err := full.Truncate(8192); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_GROW); err != nil {
		t.Fatal(err)
	}
	good := w.f
	w.f = full
	if err := w.Append(Stdout, stamp, bytes.Repeat([]byte("line\n"), 1000)); err == nil {
		t.Fatal("no error from a full file")
	}
	w.f = good
	if at, err := full.Seek(0, io.SeekCurrent); err != nil || at == 0 {
		t.Fatalf("nothing was written: %d, %v", at, err)
	}
	if info, err := full.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("%d bytes are left, %v", info.Size(), err)
	}
}

func TestReaderGoesOnAfterCorruption(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	const good = "2026-01-02T03:04:05Z stdout F fine\n"
	data := good + "garbage\n" + string(bytes.Repeat([]byte{'y'}, 2*lineLimit)) + "\n" + good + "2026-01-02T03:04:05Z stdout F torn"
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i, corrupt := range []bool{false, true, true, false} {
		e, err := r.Next()
		if corrupt != errs.Is(err, errs.Corrupt) || !corrupt && string(e.Content) != "fine" {
			t.Errorf("entry %d: %+v, %v", i, e, err)
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the torn entry: %v, want EOF", err)
	}
}

// TestOpenNoLog: what took the place of one of the log's files does not keep
// the reader.
func TestOpenNoLog(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"fifo":   func(path string) error { return unix.Mkfifo(path, 0o600) },
		"loop":   func(path string) error { return os.Symlink(path, path) },
		"device": func(path string) error { return os.Symlink("/dev/zero", path) },
		"socket": func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) },
	} {
		for _, rotated := range []bool{false, true} {
			_, path := create(t, Options{})
			at := path
			if rotated {
				at += ".1"
			} else if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := put(at); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(path); !errs.Is(err, errs.Corrupt) || len(errs.Hints(err)) != 1 {
				t.Errorf("%s, rotated %v: %v", name, rotated, err)
			}
		}
	}
	dir := filepath.Join(t.TempDir(), "0")
	if err := unix.Mkfifo(dir, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Join(dir, "log")); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("a fifo for a folder: %v", err)
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte("2026-01-02T03:04:05.000000001Z stdout F hello\n2026-01-02T03:04:05+02:00 stderr P:x a b \n"))
	f.Add([]byte("x\n\n2026-01-02T03:04:05Z stdout F\n"))
	f.Add([]byte("2026-01-02T03:04:05Z stdout F torn"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for n := 0; ; n++ {
			if n > bytes.Count(data, []byte{'\n'}) {
				t.Fatal("more entries than lines")
			}
			e, err := r.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if errs.Is(err, errs.Corrupt) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			line := appendEntry(nil, e.Time.Format(timeFormat), e.Stream, e.Partial, e.Content)
			again, err := parse(line[:len(line)-1])
			if err != nil || !again.Time.Equal(e.Time) || again.Stream != e.Stream ||
				again.Partial != e.Partial || !bytes.Equal(again.Content, e.Content) {
				t.Fatalf("%+v became %+v, %v", e, again, err)
			}
		}
	})
}

// TestSize: of all files of a log together, which Total bounds.
func TestSize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if n := Size(path); n != 0 {
		t.Errorf("no log has %d bytes", n)
	}
	o := Options{MaxSize: 100, MaxFiles: 3}
	w, err := Create(path, o)
	if err != nil {
		t.Fatal(err)
	}
	for range 40 {
		if err := w.Append(Stdout, time.Unix(1, 0), []byte("twelve bytes\n")); err != nil {
			t.Fatal(err)
		}
	}
	var want int64
	files, _ := filepath.Glob(path + "*")
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		want += info.Size()
	}
	// The last entry of each file may go beyond.
	if got := Size(path); len(files) != 3 || got != want || got <= 200 || got > o.Total()+3*64 {
		t.Errorf("size %d of %d files, want %d, and no more than %d and a little", got, len(files), want, o.Total())
	}
	if n := (Options{MaxSize: 1 << 62, MaxFiles: 10}).Total(); n != math.MaxInt64 {
		t.Errorf("too large for a number: %d", n)
	}
	if n := (Options{}).Total(); n != 5*64<<20 {
		t.Errorf("by default %d", n)
	}
}
