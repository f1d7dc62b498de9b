package transport

import (
	"context"
	"io"
	"sync"
)

const (
	// piece is how much is read, and written, at once.
	piece = 256 << 10
	// pieces is how many wait to be used.
	pieces = 4
)

// ahead reads on while what it has read is used.
type ahead struct {
	full chan chunk
	free chan []byte
	now  chunk
	at   int
	stop context.CancelFunc
	done sync.WaitGroup
}

type chunk struct {
	data []byte
	err  error // behind the data
}

// readAhead starts to read. Close stops it; r is not used any more then.
func readAhead(ctx context.Context, r io.Reader) *ahead {
	ctx, stop := context.WithCancel(ctx)
	a := &ahead{full: make(chan chunk, pieces), free: make(chan []byte, pieces), stop: stop}
	for range pieces {
		a.free <- make([]byte, piece)
	}
	a.done.Go(func() { a.fill(ctx, r) })
	return a
}

func (a *ahead) fill(ctx context.Context, r io.Reader) {
	defer close(a.full)
	for {
		var buf []byte
		select {
		case buf = <-a.free:
		case <-ctx.Done():
			return
		}
		c := chunk{data: buf[:0]}
		for len(c.data) < piece/2 && c.err == nil {
			var n int
			n, c.err = r.Read(buf[len(c.data):])
			c.data = buf[:len(c.data)+n]
		}
		a.full <- c // has room: there are no more buffers than places
		if c.err != nil {
			return
		}
	}
}

// Read reads the next bytes.
func (a *ahead) Read(p []byte) (int, error) {
	for a.at == len(a.now.data) {
		if a.now.err != nil {
			return 0, a.now.err
		}
		if a.now.data != nil {
			a.free <- a.now.data[:piece]
		}
		next, ok := <-a.full
		if !ok {
			return 0, context.Canceled
		}
		a.now, a.at = next, 0
	}
	n := copy(p, a.now.data[a.at:])
	a.at += n
	return n, nil
}

// Close stops reading and waits for it.
func (a *ahead) Close() {
	a.stop()
	a.done.Wait()
}
