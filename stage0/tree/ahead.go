package tree

import "io"

// ahead reads and hashes a stream in a goroutine of its own, so that unpacking
// one piece goes on while the next is decompressed.
type ahead struct {
	full chan piece
	free chan []byte
	stop chan struct{}
	done chan struct{}
	cur  piece
	left []byte
}

type piece struct {
	buf []byte
	n   int
	err error
}

const (
	pieces    = 4
	pieceSize = 256 << 10
)

// readAhead starts reading. All of the stream is in h, which are hashes, once
// Read returned io.EOF.
func readAhead(r io.Reader, h io.Writer) *ahead {
	a := &ahead{
		full: make(chan piece, pieces), free: make(chan []byte, pieces),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	for range pieces {
		a.free <- make([]byte, pieceSize)
	}
	go a.run(r, h)
	return a
}

func (a *ahead) run(r io.Reader, h io.Writer) {
	defer close(a.done)
	for {
		var p piece
		select {
		case p.buf = <-a.free:
		case <-a.stop:
			return
		}
		for p.n < len(p.buf) && p.err == nil {
			var n int
			n, p.err = r.Read(p.buf[p.n:])
			p.n += n
		}
		_, _ = h.Write(p.buf[:p.n]) // hashes never fail
		select {
		case a.full <- p:
		case <-a.stop:
			return
		}
		if p.err != nil {
			return
		}
	}
}

// Read reads the next bytes.
func (a *ahead) Read(p []byte) (int, error) {
	for len(a.left) == 0 {
		if a.cur.err != nil {
			return 0, a.cur.err
		}
		if a.cur.buf != nil {
			a.free <- a.cur.buf
		}
		a.cur = <-a.full
		a.left = a.cur.buf[:a.cur.n]
	}
	n := copy(p, a.left)
	a.left = a.left[n:]
	return n, nil
}

// close waits until the stream is no longer in use. abort, if there is one, ends
// a read that waits for more; at the end of the stream nothing waits.
func (a *ahead) close(abort func()) {
	close(a.stop)
	if abort != nil && a.cur.err == nil {
		abort()
	}
	<-a.done
}
