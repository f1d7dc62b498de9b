package web

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// errStalled says that a body brought too little for too long.
var errStalled = errors.New("stalled")

// body reads what an answer brings and gives up on one that stalls.
type body struct {
	r      io.ReadCloser
	giveUp context.CancelCauseFunc
	window time.Duration
	enough int64

	spent time.Duration // waited for, since enough came
	got   int64
	timer *time.Timer
}

// Read reads the next bytes. Only the time in here counts: a reader that is
// slow itself is not the other side's fault.
func (b *body) Read(p []byte) (int, error) {
	start := time.Now()
	if b.timer == nil {
		b.timer = time.AfterFunc(b.window, func() { b.giveUp(errStalled) })
	} else {
		b.timer.Reset(b.window - b.spent)
	}
	n, err := b.r.Read(p)
	b.timer.Stop()
	b.got += int64(n)
	b.spent += time.Since(start)
	if b.got >= b.enough {
		b.got, b.spent = 0, 0
	}
	return n, err
}

// Close gives the rest up.
func (b *body) Close() {
	b.giveUp(context.Canceled)
	b.r.Close()
}

// ReadAll reads a small body to its end.
func ReadAll(r io.Reader, most int64, what string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return nil, Explain(err, what)
	}
	if int64(len(data)) > most {
		return nil, errs.Newf(errs.Corrupt, "%s: more than %d bytes", what, most)
	}
	return data, nil
}
