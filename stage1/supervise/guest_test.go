package supervise

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/stage1/launch"
)

// No stream that is handed on is a terminal, and those that are none stay.
func TestGuestHasNoTerminal(t *testing.T) {
	_, tty := openPTY(t)
	_, other := openPTY(t)
	r, w := pipe(t)
	for _, c := range []Env{
		{Stdin: tty, Stdout: w, Stderr: w}, {Stdin: r, Stdout: tty, Stderr: w}, {Stdin: r, Stdout: w, Stderr: tty},
		{Stdin: r, Stdout: tty, Stderr: tty}, {Stdin: r, Stdout: tty, Stderr: other}, {Stdin: tty, Stdout: w, Stderr: tty},
		{Stdin: tty, Stdout: tty, Stderr: tty}, {Stdin: r, Stdout: w, Stderr: w},
	} {
		for _, asked := range []bool{true, false} {
			both := isTerminal(c.Stdin) && isTerminal(c.Stdout)
			g, err := openGuest(c, asked)
			if err != nil {
				t.Fatal(err)
			}
			if g.stdio.TTY != (asked && both) {
				t.Errorf("%v: a pty: %v", c, g.stdio.TTY)
			}
			mine := []*os.File{c.Stdin, c.Stdout, c.Stderr}
			for i, f := range []*os.File{g.stdio.Stdin, g.stdio.Stdout, g.stdio.Stderr} {
				switch {
				case g.stdio.TTY && f == nil:
				case f == nil || isTerminal(f):
					t.Errorf("%v: stream %d is handed on", c, i)
				case !isTerminal(mine[i]) && f != mine[i]:
					t.Errorf("%v: stream %d is replaced", c, i)
				}
			}
			g.finish(t.Context())
		}
	}
}

// What is typed reaches the program with its end, what it writes is all on the
// terminal when finish returns.
func TestGuestStreams(t *testing.T) {
	user, tty := openPTY(t)
	g, err := openGuest(Env{Stdin: tty, Stdout: tty, Stderr: tty}, false)
	if err != nil {
		t.Fatal(err)
	}
	screen := make(chan string, 1)
	go func() {
		var all strings.Builder
		buf := make([]byte, 4096)
		for !strings.Contains(all.String(), "the end") {
			n, err := user.Read(buf)
			all.Write(buf[:n])
			if err != nil {
				break
			}
		}
		screen <- all.String()
	}()
	cmd := exec.Command("/bin/sh", "-c", "cat; i=0; while [ $i -lt 3000 ]; do echo line $i; echo err $i >&2; i=$((i+1)); done; echo the end")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = g.stdio.Stdin, g.stdio.Stdout, g.stdio.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	g.started(nil)
	if _, err := io.WriteString(user, "typed\n\x04"); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	g.finish(t.Context())
	select {
	case got := <-screen:
		if !strings.Contains(got, "typed\r\nline 0\r\nerr 0\r\nline 1\r\n") || !strings.HasSuffix(got, "line 2999\r\nerr 2999\r\nthe end\r\n") {
			t.Errorf("on the terminal: %.200q … %q", got, got[max(0, len(got)-100):])
		}
	case <-time.After(time.Minute):
		t.Error("the output is not on the terminal")
	}
}

// A full pipe that nobody empties must not hold up the end.
func TestFeedEnds(t *testing.T) {
	user, tty := openPTY(t)
	f, input, err := openFeed(tty)
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	f.start()
	if _, err := io.WriteString(user, "x\n"); err != nil {
		t.Fatal(err)
	}
	f.close()
	f.close()
	rest, err := io.ReadAll(input)
	if err != nil || len(rest) != 0 && string(rest) != "x\n" {
		t.Errorf("%q, %v", rest, err)
	}
	never, unread, err := openFeed(tty)
	if err != nil {
		t.Fatal(err)
	}
	defer unread.Close()
	never.close()
	if n, err := unread.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("%d, %v", n, err)
	}
}

// An app that inherits the standard input gets a pipe for a terminal.
func TestInheritedTerminal(t *testing.T) {
	user, tty := openPTY(t)
	inherit := appc.Annotations{{Name: podspec.AnnStdin, Value: "inherit"}}
	tp := newTestPod(t, poddir.RunOptions{}, "", spec{name: "a", script: "test -t 0 && echo TERMINAL; cat", ann: inherit})
	tp.stdin = tty
	tp.launcher.onStart = func(a launch.App) error {
		for i, f := range []*os.File{a.Stdio.Stdin, a.Stdio.Stdout, a.Stdio.Stderr} {
			if f == nil || isTerminal(f) {
				t.Errorf("stream %d is %v", i, f)
			}
		}
		return nil
	}
	if _, err := io.WriteString(user, "typed\n\x04"); err != nil {
		t.Fatal(err)
	}
	tp.wantCode(0)
	if tp.stdout != "typed\n" {
		t.Errorf("the app saw %q", tp.stdout)
	}
}
