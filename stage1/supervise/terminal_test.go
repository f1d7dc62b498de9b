package supervise

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// openPTY returns both ends of a new pseudo terminal.
func openPTY(t *testing.T) (master, slave *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(int(n)), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = master.Close(), slave.Close() })
	return master, slave
}

func TestTerminal(t *testing.T) {
	user, tty := openPTY(t) // the user's terminal: keyboard and screen
	app, appTTY := openPTY(t)
	before, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	setSize(t, tty, 101, 33)
	term, err := openTerminal(tty)
	if err != nil {
		t.Fatal(err)
	}
	if now, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS); err != nil || *now != *before {
		t.Errorf("changed too early: %+v, %v", now, err)
	}
	if err := term.raw(); err != nil {
		t.Fatal(err)
	}
	if w, h := term.size(); w != 101 || h != 33 {
		t.Errorf("size %dx%d", w, h)
	}
	raw, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil || raw.Lflag&(unix.ECHO|unix.ISIG|unix.ICANON) != 0 {
		t.Errorf("not raw: %#x, %v", raw.Lflag, err)
	}
	term.join(app)
	wantSize(t, appTTY, 101, 33)
	setSize(t, tty, 90, 40)
	term.resized()
	wantSize(t, appTTY, 90, 40)

	if _, err := user.Write([]byte("typed\r")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len("typed\n"))
	if _, err := io.ReadFull(appTTY, got); err != nil || !bytes.Equal(got, []byte("typed\n")) {
		t.Errorf("the app read %q, %v", got, err)
	}

	term.leave()
	term.leave()
	term.resized() // nobody to tell
	if _, err := user.Write([]byte("for the shell\r")); err != nil {
		t.Fatal(err)
	}
	term.close()
	term.close()
	after, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("the terminal is not as it was: %+v, want %+v, %v", after, before, err)
	}
	// What was typed after the app's end is still there.
	fds := []unix.PollFd{{Fd: int32(tty.Fd()), Events: unix.POLLIN}}
	if _, err := user.Write([]byte("\r")); err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Poll(fds, int(time.Minute.Milliseconds())); n != 1 || err != nil {
		t.Fatalf("nothing to read: %d, %v", n, err)
	}
	rest := make([]byte, 100)
	n, err := tty.Read(rest)
	if !bytes.HasPrefix(rest[:n], []byte("for the shell")) {
		t.Errorf("the shell reads %q, %v", rest[:n], err)
	}
}

func setSize(t *testing.T, f *os.File, width, height uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(f.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height}); err != nil {
		t.Fatal(err)
	}
}

func wantSize(t *testing.T, f *os.File, width, height uint16) {
	t.Helper()
	ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || ws.Col != width || ws.Row != height {
		t.Errorf("the app's terminal is %+v, %v; want %dx%d", ws, err, width, height)
	}
}

func TestNoTerminal(t *testing.T) {
	r, _ := pipe(t)
	if isTerminal(r) {
		t.Error("a pipe is taken for a terminal")
	}
	term, err := openTerminal(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := term.raw(); err == nil {
		t.Error("a pipe was made raw")
	}
	term.close() // nothing to restore
}
