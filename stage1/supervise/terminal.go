package supervise

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// terminal is the user's terminal in raw mode, joined to an app's pty.
type terminal struct {
	in             *os.File
	saved          *term.State // nil until raw
	wake           [2]int      // a pipe that ends the copying of input
	left, restored sync.Once

	mu     sync.Mutex
	master *os.File // nil once the app is gone
}

// isTerminal says whether the file is one.
func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// openTerminal prepares to take the terminal over.
func openTerminal(in *os.File) (*terminal, error) {
	t := &terminal{in: in, wake: [2]int{-1, -1}}
	if err := unix.Pipe2(t.wake[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("pipe: %w", err)
	}
	return t, nil
}

// raw hands all keys to the app, right before it starts, so that errors until
// then are printed as usual. Whatever happens, close must be called before the
// process ends: the user's shell would be left in raw mode.
func (t *terminal) raw() (err error) {
	if t.saved, err = term.MakeRaw(int(t.in.Fd())); err != nil {
		return fmt.Errorf("terminal: raw mode: %w", err)
	}
	return nil
}

// size returns the terminal's size, zero if it has none.
func (t *terminal) size() (width, height uint16) {
	ws, err := unix.IoctlGetWinsize(int(t.in.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return ws.Col, ws.Row
}

// join copies what is typed to the pty's master until leave.
func (t *terminal) join(master *os.File) {
	t.mu.Lock()
	t.master = master
	t.mu.Unlock()
	t.resized()
	go t.copyInput(int(t.in.Fd()))
}

// resized hands the terminal's size on to the pty (SIGWINCH).
func (t *terminal) resized() {
	t.mu.Lock()
	defer t.mu.Unlock()
	ws, err := unix.IoctlGetWinsize(int(t.in.Fd()), unix.TIOCGWINSZ)
	if err != nil || t.master == nil {
		return
	}
	c, err := t.master.SyscallConn()
	if err != nil {
		return
	}
	// Not master.Fd(), which would make it blocking. If the app is gone
	// nobody misses the size.
	_ = c.Control(func(fd uintptr) {
		_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, ws)
	})
}

func (t *terminal) copyInput(in int) {
	copyTyped(in, t.wake[0], func(p []byte) error {
		t.mu.Lock()
		master := t.master
		t.mu.Unlock()
		if master == nil {
			return os.ErrClosed
		}
		_, err := master.Write(p)
		return err
	})
}

// leave ends the copying of input: what is typed from now on is for the shell.
func (t *terminal) leave() {
	if t == nil {
		return
	}
	t.left.Do(func() {
		t.mu.Lock()
		t.master = nil
		t.mu.Unlock()
		_ = unix.Close(t.wake[1]) // wakes copyInput
	})
}

// close gives the terminal back as it was. It may be called twice.
func (t *terminal) close() {
	if t == nil {
		return
	}
	t.leave()
	t.restored.Do(func() {
		if t.saved == nil {
			return
		}
		// With an error the terminal is gone.
		_ = term.Restore(int(t.in.Fd()), t.saved)
	})
}
