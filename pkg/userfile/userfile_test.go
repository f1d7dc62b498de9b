package userfile

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
)

func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func fdPath(f *os.File) string { return "/dev/fd/" + strconv.Itoa(int(f.Fd())) }

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := Read(t.Context(), path, 5); err != nil || string(data) != "12345" {
		t.Errorf("regular: %q, %v", data, err)
	}
	for _, bad := range []string{path, "/dev/zero", "/dev/urandom", filepath.Dir(path)} {
		if _, err := Read(t.Context(), bad, 4); !errs.Is(err, errs.Usage) || !strings.HasPrefix(err.Error(), bad+": ") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := Read(t.Context(), path+"x", 4); !errs.Is(err, errs.NotFound) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	if _, err := ReadRegular(fifo(t), 4); !errs.Is(err, errs.Usage) {
		t.Errorf("a pipe as a regular file: %v", err)
	}
}

// TestReadPipe: what a shell makes of <(…), and a named pipe with a writer that
// comes later.
func TestReadPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	named := fifo(t)
	go func() {
		_, _ = w.WriteString("piped")
		_ = w.Close()
		_ = os.WriteFile(named, []byte("piped"), 0)
	}()
	for _, path := range []string{fdPath(r), named} {
		if data, err := Read(t.Context(), path, 10); err != nil || string(data) != "piped" {
			t.Errorf("%s: %q, %v", path, data, err)
		}
	}
}

// TestEndless: neither a pipe without another end nor one without an end is
// waited for longer than allowed.
func TestEndless(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	path := fifo(t)
	if _, err := Read(ctx, path, 10); !errs.Is(err, errs.Unavailable) {
		t.Errorf("read: %v", err)
	}
	// The reader of before still waits, and would take what is written.
	if err := Write(ctx, fifo(t), []byte("x"), 0o600); !errs.Is(err, errs.Unavailable) {
		t.Errorf("write: %v", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() {
		_, err := w.Write(make([]byte, 1<<20))
		written <- err
	}()
	if _, err := Read(t.Context(), fdPath(r), 1000); !errs.Is(err, errs.Usage) {
		t.Errorf("too much: %v", err)
	}
	_ = r.Close()
	if err := <-written; !errors.Is(err, unix.EPIPE) {
		t.Errorf("writer: %v", err)
	}
	_ = w.Close()
}

// TestWriteKeepsTheKind: what is at the place is of the same kind afterwards.
func TestWriteKeepsTheKind(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	null := at("null")
	if err := unix.Mknod(null, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(at("block"), unix.S_IFBLK|0o600, int(unix.Mkdev(250, 250))); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"link": "file", "dangling": "new", "tonull": null, "loop": "loop"} {
		if err := os.Symlink(to, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(at("file"), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"null", "tonull", "link", "dangling", "fresh"} {
		if err := Write(t.Context(), at(name), []byte("text"), 0o644); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"loop", "block", ".", "none/x", "file/x"} {
		if err := Write(t.Context(), at(name), []byte("text"), 0o644); err == nil {
			t.Errorf("%s was written", name)
		}
	}
	for name, want := range map[string]fs.FileMode{
		"null": fs.ModeDevice | fs.ModeCharDevice, "tonull": fs.ModeSymlink, "link": fs.ModeSymlink, "dangling": fs.ModeSymlink,
		"file": 0, "new": 0, "fresh": 0, "block": fs.ModeDevice, "loop": fs.ModeSymlink,
	} {
		info, err := os.Lstat(at(name))
		if err != nil || info.Mode().Type() != want {
			t.Errorf("%s: %v, %v", name, info, err)
		}
		if want == 0 {
			if data, _ := os.ReadFile(at(name)); string(data) != "text" {
				t.Errorf("%s: %q", name, data)
			}
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 9 {
		t.Errorf("left behind: %v", entries)
	}
}

// TestWriteDescriptor: a descriptor gets the bytes where its writer stands, and
// the file behind it stays the same.
func TestWriteDescriptor(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, part := range []string{"before ", "", " after"} {
		if part == "" {
			err = Write(t.Context(), fdPath(f), []byte("id"), 0o644)
		} else {
			_, err = f.WriteString(part)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if data, err := os.ReadFile(f.Name()); err != nil || !bytes.Equal(data, []byte("before id after")) {
		t.Errorf("%q, %v", data, err)
	}
	path := fifo(t)
	got := make(chan string, 1)
	go func() {
		data, _ := os.ReadFile(path)
		got <- string(data)
	}()
	if err := Write(t.Context(), path, []byte("id"), 0o644); err != nil || <-got != "id" {
		t.Errorf("pipe: %v", err)
	}
}
