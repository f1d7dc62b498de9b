package supervise

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// feed stands between the user's terminal and the standard input of a process
// in the pod. No terminal's descriptor goes into a pod: any process that may
// look at the receiver's would open it again through /proc, and read what the
// user types to others, or write to the screen.
type feed struct {
	in   *os.File
	pipe *os.File // the write end, in the runtime's poller
	wake [2]int   // a pipe that ends the copying
	left sync.Once
	runs bool
}

// openFeed returns the end to hand on.
func openFeed(in *os.File) (f *feed, input *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("pipe: %w", err)
	}
	// Not os.Pipe: it would make the other end non-blocking too.
	err = unix.SetNonblock(fds[1], true)
	input, w := os.NewFile(uintptr(fds[0]), "pipe"), os.NewFile(uintptr(fds[1]), "pipe")
	f = &feed{in: in, pipe: w}
	if err == nil {
		err = unix.Pipe2(f.wake[:], unix.O_CLOEXEC)
	}
	if err != nil {
		_, _ = input.Close(), w.Close()
		return nil, nil, fmt.Errorf("pipe: %w", err)
	}
	return f, input, nil
}

// start copies what is typed, once there is somebody to read it. The end of
// file goes on too.
func (f *feed) start() {
	if f == nil {
		return
	}
	f.runs = true
	in := int(f.in.Fd())
	go func() {
		copyTyped(in, f.wake[0], func(p []byte) error {
			_, err := f.pipe.Write(p)
			return err
		})
		_ = f.pipe.Close() // tells the end; a write that failed has no reader
		_ = unix.Close(f.wake[0])
	}()
}

// close ends the copying: what is typed from now on is for the shell.
func (f *feed) close() {
	if f == nil {
		return
	}
	f.left.Do(func() {
		_ = unix.Close(f.wake[1]) // wakes the copying
		_ = f.pipe.Close()        // ends a write to a pipe that nobody empties
		if !f.runs {
			_ = unix.Close(f.wake[0])
		}
	})
}

// copyTyped passes on what comes from a terminal until its end, an error, or
// the end of the wake pipe. It reads only what is there while somebody wants
// it: what is typed after that is meant for the shell.
func copyTyped(in, wake int, pass func([]byte) error) {
	buf := make([]byte, 4096)
	for {
		fds := []unix.PollFd{{Fd: int32(in), Events: unix.POLLIN}, {Fd: int32(wake), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil || fds[1].Revents != 0 {
			return
		}
		n, err := unix.Read(in, buf)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil || n <= 0 || pass(buf[:n]) != nil {
			return
		}
	}
}
