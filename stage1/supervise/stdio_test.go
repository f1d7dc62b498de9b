package supervise

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/rkt-pods/rkt/pkg/crilog"
)

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	r, w = os.NewFile(uintptr(fds[0]), "r"), os.NewFile(uintptr(fds[1]), "w")
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	return r, w
}

func newStream(t *testing.T, to *output) (s *stream, app *os.File, logPath string) {
	t.Helper()
	logPath = filepath.Join(t.TempDir(), "log")
	log, err := crilog.Create(logPath, crilog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := newPipe(os.Getuid(), os.Getgid())
	if err != nil {
		t.Fatal(err)
	}
	s = &stream{name: crilog.Stdout, log: log, from: r, to: &lines{to: to}, onError: func(err error) { t.Error(err) }}
	s.pump()
	return s, w, logPath
}

func logged(t *testing.T, path string) []byte {
	t.Helper()
	r, err := crilog.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out []byte
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = e.Bytes(out)
	}
}

// A terminal that takes nothing slows the app down, but once the app is gone
// all of its output comes into the log, and later to the terminal.
func TestBlockedTerminal(t *testing.T) {
	r, w := pipe(t)
	out := newOutput(w)
	s, app, log := newStream(t, out)
	var want bytes.Buffer
	fds := []unix.PollFd{{Fd: int32(app.Fd()), Events: unix.POLLOUT}}
	chunk := []byte(strings.Repeat("0123456789abcde\n", 256))
	for {
		// Full for good: pipe, pump, queue and terminal hold all they can.
		n, err := unix.Poll(fds, 300)
		if err != nil && !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		if _, err := app.Write(chunk); err != nil {
			t.Fatal(err)
		}
		want.Write(chunk)
		if want.Len() > 64<<20 {
			t.Fatal("nothing slows the app down")
		}
	}
	_ = app.Close()
	s.finish()
	if got := logged(t, log); !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%d bytes in the log, want %d", len(got), want.Len())
	}
	got := make(chan []byte)
	go func() {
		data, _ := io.ReadAll(r)
		got <- data
	}()
	out.flush(t.Context())
	_ = w.Close()
	if data := <-got; !bytes.Equal(data, want.Bytes()) {
		t.Errorf("%d bytes on the terminal, want %d", len(data), want.Len())
	}
}

func TestFlushGivesUp(t *testing.T) {
	_, w := pipe(t)
	out := newOutput(w)
	out.write(make([]byte, 4<<20), false, func() bool { return true })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	out.flush(ctx) // returns
	out.write([]byte("x"), false, func() bool { return false })
}

func TestClosedTerminal(t *testing.T) {
	r, w := pipe(t)
	_ = r.Close()
	out := newOutput(w)
	s, app, log := newStream(t, out)
	text := strings.Repeat("line\n", 200_000)
	if _, err := io.WriteString(app, text); err != nil {
		t.Fatal(err)
	}
	_ = app.Close()
	s.finish()
	if got := logged(t, log); string(got) != text {
		t.Errorf("%d bytes in the log, want %d", len(got), len(text))
	}
	out.flush(t.Context())
}

// A terminal may have been made non-blocking by whoever shares it.
func TestNonBlockingTerminal(t *testing.T) {
	r, w := pipe(t)
	if err := unix.SetNonblock(int(w.Fd()), true); err != nil {
		t.Fatal(err)
	}
	out := newOutput(w)
	data := bytes.Repeat([]byte("0123456789"), 100_000)
	out.write(data, false, func() bool { return true })
	got := make([]byte, len(data))
	if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, data) {
		t.Errorf("not what was written, %v", err)
	}
}

func TestOneFileOneOutput(t *testing.T) {
	_, w := pipe(t)
	dup, err := unix.FcntlInt(w.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	w2 := os.NewFile(uintptr(dup), "w2")
	defer w2.Close()
	if a, b := outputs(w, w2); a != b {
		t.Error("one pipe has two outputs: their order would be lost")
	}
	_, other := pipe(t)
	if a, b := outputs(w, other); a == b {
		t.Error("two pipes have one output")
	}
}

func TestLines(t *testing.T) {
	r, w := pipe(t)
	out := newOutput(w)
	l := &lines{to: out, prefix: []byte("p: ")}
	now := func() bool { return true }
	long := strings.Repeat("x", maxLine+10)
	for _, p := range []string{"a", "b\n", "\n\nc", "d\ne", "f"} {
		l.write([]byte(p), now)
	}
	l.end()
	l.end() // nothing is left
	const want = "p: ab\np: \np: \np: cd\np: ef\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
		t.Errorf("got %q, %v", got, err)
	}
	out.giveUp()
	l.write([]byte(long), now)
	if len(l.rest) > maxLine {
		t.Errorf("%d bytes kept", len(l.rest))
	}
}

func TestPipeBelongsToTheApp(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test gives a pipe away: run it as root")
	}
	r, w, err := newPipe(1234, 2345)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(w.Fd()), &st); err != nil || st.Uid != 1234 || st.Gid != 2345 {
		t.Errorf("owner %d:%d, %v", st.Uid, st.Gid, err)
	}
	flags, err := unix.FcntlInt(w.Fd(), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_NONBLOCK != 0 {
		t.Errorf("the app's end is non-blocking: %#x, %v", flags, err)
	}
}

// A terminal that stands still does not hold up what is in the log as well: once
// it moves again, it says how much it has not shown.
func TestTerminalStandsStill(t *testing.T) {
	master, slave := openPTY(t)
	if _, err := term.MakeRaw(int(slave.Fd())); err != nil {
		t.Fatal(err)
	}
	out := newOutput(slave)
	if out.patience != patience {
		t.Fatalf("patience %s with a terminal", out.patience)
	}
	out.patience = 50 * time.Millisecond
	s, app, log := newStream(t, out)
	s.to.kept = true
	want := bytes.Repeat([]byte("0123456789abcde\n"), 4<<20/16)
	if _, err := app.Write(want); err != nil { // for ever, if it waited for the terminal
		t.Fatal(err)
	}
	_ = app.Close()
	s.finish()
	if got := logged(t, log); !bytes.Equal(got, want) {
		t.Errorf("%d bytes in the log, want %d", len(got), len(want))
	}
	got := make(chan []byte)
	go func() {
		var all []byte
		for buf := make([]byte, 64<<10); !bytes.Contains(all, []byte("\nrkt: ")) || !bytes.HasSuffix(all, []byte("has them\n")); {
			n, err := master.Read(buf)
			if err != nil {
				break
			}
			all = append(all, buf[:n]...)
		}
		got <- all
	}()
	out.flush(t.Context())
	all := <-got
	at := bytes.Index(all, []byte("\nrkt: "))
	unseen := 0
	if _, err := fmt.Sscanf(string(all[max(at, 0):]), "\nrkt: %d bytes are not shown here", &unseen); err != nil || unseen == 0 {
		t.Fatalf("no notice: %v: %.200q", err, all[max(at, 0):])
	}
	if !bytes.Equal(all[:at], want[:at]) || at+unseen != len(want) {
		t.Errorf("%d bytes are shown and %d are not, of %d", at, unseen, len(want))
	}
}
