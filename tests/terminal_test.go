package tests

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// openPTY returns the user's side of a new terminal and the side for programs.
func openPTY(t *testing.T) (user, tty *os.File) {
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
	user = os.NewFile(uintptr(fd), "/dev/ptmx")
	tty, err = os.OpenFile("/dev/pts/"+strconv.Itoa(int(n)), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = user.Close(), tty.Close() })
	return user, tty
}

// holders are the processes of the pod that have the terminal open.
func (h *host) holders(uuid string, tty *os.File) []string {
	h.t.Helper()
	var want unix.Stat_t
	if err := unix.Fstat(int(tty.Fd()), &want); err != nil {
		h.t.Fatal(err)
	}
	var found []string
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, f := range files {
		groups, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(f)), "cgroup"))
		if err != nil || !strings.Contains(string(groups), uuid) || strings.Contains(string(groups), uuid+"/supervisor") {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(f, &st) == nil && st.Rdev == want.Rdev && st.Dev == want.Dev && st.Ino == want.Ino {
			found = append(found, f)
		}
	}
	return found
}

// TestNoTerminalInThePod: whichever streams of rkt are the user's terminal, no
// process of the pod has it, and all goes through all the same.
func TestNoTerminalInThePod(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.start(nil, app{name: "x", script: "exec sleep 1000"})
	p.running()
	const script = `for fd in 0 1 2; do test -t $fd && echo terminal $fd; done; readlink /proc/self/fd/* | grep /dev/pts
head -n 1; echo ready; while ! test -e /go; do sleep 0.05; done; rm /go; cat; i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; exit 3`
	for _, c := range []struct{ in, out, err bool }{
		{true, false, false}, {false, true, false}, {false, false, true}, {false, true, true}, {true, false, true}, {true, true, true},
	} {
		user, tty := openPTY(t)
		cmd := h.command("enter", p.uuid(), "/bin/sh", "-c", script)
		input, feed, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		result, output, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = input, output, output
		typed, shown := io.Writer(feed), io.Reader(result)
		if c.in {
			cmd.Stdin, typed = tty, user
		}
		if c.out {
			cmd.Stdout, shown = tty, user
		}
		if c.err {
			cmd.Stderr = tty
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_, _ = input.Close(), output.Close()
		if _, err := io.WriteString(typed, "typed\n"); err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		readUntil(t, shown, &got, "ready")
		if held := h.holders(p.uuid(), tty); len(held) > 0 {
			t.Errorf("%+v: the host's terminal is open in the pod: %v", c, held)
		}
		h.must("enter", p.uuid(), "/bin/touch", "/go")
		if c.in {
			_, err = io.WriteString(user, "\x04")
		} else {
			err = feed.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		readUntil(t, shown, &got, "line 1999")
		_ = cmd.Wait() // the code is looked at
		text := strings.ReplaceAll(got.String(), "\r", "")
		if code := cmd.ProcessState.ExitCode(); code != 3 || !strings.Contains(text, "typed\n") || !strings.Contains(text, "line 0\n") {
			t.Errorf("%+v: code %d, output %.300q", c, code, text)
		}
		// With a terminal on both sides the program has one of the pod's own.
		if own := c.in && c.out; strings.Contains(text, "terminal ") != own {
			t.Errorf("%+v: output %.300q", c, text)
		}
		_, _ = feed.Close(), result.Close()
	}
	h.must("stop", "--force", p.uuid())
	p.wait()
}

// readUntil reads until the text has come.
func readUntil(t *testing.T, from io.Reader, into *bytes.Buffer, text string) {
	t.Helper()
	buf := make([]byte, 4096)
	for !strings.Contains(into.String(), text) {
		n, err := from.Read(buf)
		into.Write(buf[:n])
		if err != nil {
			t.Fatalf("before %q: %v, after %.300q", text, err, into.String())
		}
	}
}
