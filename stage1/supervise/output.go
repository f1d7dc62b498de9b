package supervise

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// queueLimit is how far the terminal may lag behind the logs before the apps
// are made to wait.
const queueLimit = 256 << 10

// patience is how long a terminal may stand still, as after Ctrl-S, before apps
// go on without it. Their logs have what it is not shown then. A pipe is waited
// for as long as it takes: whoever reads it wants all of it.
const patience = 5 * time.Second

// pieceSize is how much of the queue is written at once to a terminal: a slow one
// does not stand still.
const pieceSize = 4 << 10

// output is one of the supervisor's own streams, which apps share. Writes are
// taken in whole and done by one goroutine, so that a blocked terminal holds
// up nobody who has not filled the queue. A stream that takes no more, such as
// a closed pipe, swallows everything from then on.
type output struct {
	f        *os.File
	patience time.Duration // 0: without end

	mu     sync.Mutex
	change *sync.Cond
	queue  []byte
	spare  []byte
	busy   bool // a write is under way
	turns  int  // pieces begun and ended
	still  bool // it has been for longer than the patience
	unseen int  // bytes that were left out meanwhile
	broken bool
	closed bool
}

func newOutput(f *os.File) *output {
	o := &output{f: f}
	if term.IsTerminal(int(f.Fd())) {
		o.patience = patience
	}
	o.change = sync.NewCond(&o.mu)
	go o.run()
	return o
}

// outputs returns the two streams; they are one if both descriptors are the
// same file, so that what came first goes out first.
func outputs(stdout, stderr *os.File) (out, err *output) {
	out = newOutput(stdout)
	if sameFile(stdout, stderr) {
		return out, out
	}
	return out, newOutput(stderr)
}

// write queues p, after waiting for room as long as hurry says no. What makes
// it say yes must call wake. What is kept elsewhere is left out if there is no
// room and the terminal stands still.
func (o *output) write(p []byte, kept bool, hurry func() bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.broken && len(o.queue) >= queueLimit && !hurry() {
		if o.still && kept {
			o.unseen += len(p)
			return
		}
		o.change.Wait()
	}
	if o.broken {
		return
	}
	o.queue = append(o.queue, p...)
	o.change.Broadcast()
}

// wake lets writers that wait for room ask again whether to hurry.
func (o *output) wake() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.change.Broadcast()
}

// giveUp drops what is queued and whatever comes.
func (o *output) giveUp() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.broken, o.queue = true, nil
	o.change.Broadcast()
}

// flush returns once all is written, or when ctx ends: what is left is given
// up then.
func (o *output) flush(ctx context.Context) {
	stop := context.AfterFunc(ctx, o.giveUp)
	defer stop()
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.broken && (o.busy || len(o.queue) > 0) {
		o.change.Wait()
	}
}

// close ends the goroutine once the queue is empty.
func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.change.Broadcast()
}

func (o *output) run() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		for len(o.queue) == 0 && !o.closed {
			o.change.Wait()
		}
		if len(o.queue) == 0 || o.broken {
			if o.closed {
				return
			}
			o.queue = nil
			continue
		}
		p := o.queue
		o.queue, o.busy = o.spare[:0], true
		if o.unseen > 0 {
			o.queue = fmt.Appendf(o.queue, "\nrkt: %d bytes are not shown here: \"rkt logs\" has them\n", o.unseen)
			o.unseen = 0
		}
		o.change.Broadcast()
		o.mu.Unlock()
		err := o.writeOut(p)
		o.mu.Lock()
		o.spare, o.busy = p, false
		if cap(o.spare) > 4*queueLimit {
			o.spare = nil
		}
		if err != nil {
			o.broken, o.queue = true, nil
		}
		o.change.Broadcast()
	}
}

// writeOut writes p, and notes when that takes the terminal too long.
func (o *output) writeOut(p []byte) error {
	if o.patience == 0 {
		return writeAll(o.f, p)
	}
	for piece := range slices.Chunk(p, pieceSize) {
		turn := o.turn(false)
		late := time.AfterFunc(o.patience, func() { o.lag(turn) })
		err := writeAll(o.f, piece)
		late.Stop() // one that fires all the same finds that its turn is over
		o.turn(true)
		if err != nil {
			return err
		}
	}
	return nil
}

// turn begins or ends the write of a piece.
func (o *output) turn(over bool) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.turns++
	if over && o.still {
		o.still = false
		o.change.Broadcast()
	}
	return o.turns
}

// lag says that the write of that turn takes long.
func (o *output) lag(turn int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.turns == turn {
		o.still = true
		o.change.Broadcast()
	}
}

// writeAll writes to a file that may be non-blocking: whoever shares the
// terminal with rkt may have made it so, also after this process began.
func writeAll(f *os.File, p []byte) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	// Control keeps the descriptor from being closed, and used again for
	// another file, in the middle of it.
	cerr := c.Control(func(fd uintptr) {
		for len(p) > 0 && err == nil {
			var n int
			n, err = unix.Write(int(fd), p)
			p = p[max(n, 0):]
			switch {
			case errors.Is(err, unix.EINTR):
				err = nil
			case errors.Is(err, unix.EAGAIN):
				err = waitWritable(int32(fd))
			}
		}
	})
	return errors.Join(cerr, err)
}

func waitWritable(fd int32) error {
	fds := []unix.PollFd{{Fd: fd, Events: unix.POLLOUT}}
	if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
		return err
	}
	return nil
}

// maxLine is the longest line that is kept whole behind a prefix.
const maxLine = 1 << 20

// lines passes an app's stream on. With a prefix each line gets it, and only
// whole lines go on; without one the bytes are passed as they come.
type lines struct {
	to     *output
	kept   bool // in a log, too
	prefix []byte
	rest   []byte
	buf    []byte
}

func (l *lines) write(p []byte, hurry func() bool) {
	if l.prefix == nil {
		l.to.write(p, l.kept, hurry)
		return
	}
	l.buf = l.buf[:0]
	for len(p) > 0 {
		line, rest, whole := bytes.Cut(p, []byte{'\n'})
		if !whole && len(l.rest)+len(line) < maxLine {
			l.rest = append(l.rest, line...)
			break
		}
		l.line(line)
		p = rest
	}
	if len(l.buf) > 0 {
		l.to.write(l.buf, l.kept, hurry)
	}
}

// end passes on a last line that had no newline.
func (l *lines) end() {
	if len(l.rest) == 0 {
		return
	}
	l.buf = l.buf[:0]
	l.line(nil)
	l.to.write(l.buf, l.kept, func() bool { return true })
}

func (l *lines) line(end []byte) {
	l.buf = append(l.buf, l.prefix...)
	l.buf = append(l.buf, l.rest...)
	l.buf = append(l.buf, end...)
	l.buf = append(l.buf, '\n')
	l.rest = l.rest[:0]
}
