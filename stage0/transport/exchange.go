package transport

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
	"github.com/rkt-pods/rkt/stage0/transport/unpack"
	"github.com/rkt-pods/rkt/stage0/transport/web"
)

const (
	// progressEvery bounds how often progress is told.
	progressEvery = 100 * time.Millisecond
	// maxDrain is how much is still read of what is known to be damaged, to tell
	// whether these are the right bytes at all.
	maxDrain = 64 << 20
)

// exchange is one request while it is answered.
type exchange struct {
	s     *Server
	id    uint64
	files []*os.File
	told  time.Time
}

func (x *exchange) head(h fetchwire.Head) error {
	return x.s.conn.Send(&fetchwire.Message{ID: x.id, Head: &h})
}

// progress tells how much came, if it is time to; d may be nil.
func (x *exchange) progress(d *web.Download, last bool) {
	if d == nil || !last && time.Since(x.told) < progressEvery {
		return
	}
	x.told = time.Now()
	// If rkt is gone, the server ends.
	_ = x.s.conn.Send(&fetchwire.Message{ID: x.id, Progress: &fetchwire.Progress{Bytes: d.Offset()}})
}

// small answers with what is there already.
func (x *exchange) small(head fetchwire.Head, data []byte, err error) error {
	if err != nil {
		return err
	}
	if err := x.head(head); err != nil {
		return err
	}
	_, err = x.files[0].Write(data)
	return givenUp(err)
}

// givenUp takes the error of a pipe that rkt has closed for what it means.
func givenUp(err error) error {
	if errors.Is(err, unix.EPIPE) || errors.Is(err, os.ErrClosed) {
		return errs.WithClass(errs.Unavailable, context.Canceled)
	}
	return err
}

func (x *exchange) discovery(d fetchwire.Discovery, err error) error {
	if err != nil {
		return err
	}
	data, err := json.Marshal(d)
	return x.small(fetchwire.Head{Status: http.StatusOK, Size: int64(len(data))}, data, err)
}

func (x *exchange) http(ctx context.Context, r fetchwire.HTTPRequest) error {
	head, d, err := x.s.web.Get(ctx, r, x.s.ask)
	if err != nil {
		return err
	}
	if d == nil {
		return x.head(head)
	}
	defer d.Close()
	if err := x.head(head); err != nil {
		return err
	}
	return x.copy(x.files[0], d, d)
}

func (x *exchange) blob(ctx context.Context, r fetchwire.BlobRequest) error {
	head, d, err := x.s.registry.Blob(ctx, r)
	if err != nil {
		return err
	}
	defer d.Close()
	if !r.Decompress {
		if err := x.head(head); err != nil {
			return err
		}
		return x.copy(x.files[0], d, d)
	}
	var in io.Reader = d
	if len(x.files) > 1 {
		in = &tee{from: d, to: x.files[1]}
	}
	return x.unpack(ctx, in, x.files[0], head, d)
}

func (x *exchange) decompress(ctx context.Context, in io.Reader, out *os.File, d *web.Download) error {
	return x.unpack(ctx, in, out, fetchwire.Head{Size: -1}, d)
}

// unpack writes what comes out of a packed stream. Whatever is wrong with it,
// that it is the wrong stream is the better answer.
func (x *exchange) unpack(ctx context.Context, packed io.Reader, out *os.File, head fetchwire.Head, d *web.Download) error {
	in := readAhead(ctx, packed)
	defer in.Close()
	r, kind, err := unpack.Reader(in, x.s.limits)
	if err == nil {
		defer r.Close()
		head.Compression = kind
		if err := x.head(head); err != nil {
			return err
		}
		err = x.copy(out, r, d)
	}
	if err != nil && (d == nil || !errs.Is(err, errs.Corrupt)) {
		return err
	}
	if _, derr := io.Copy(io.Discard, io.LimitReader(in, maxDrain)); derr != nil {
		return derr
	}
	return err
}

// copy copies in large pieces.
func (x *exchange) copy(to *os.File, from io.Reader, d *web.Download) error {
	buf := make([]byte, piece)
	for {
		n := 0
		var err error
		for n < len(buf) && err == nil {
			var more int
			more, err = from.Read(buf[n:])
			n += more
		}
		x.progress(d, err != nil)
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				return givenUp(werr)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// tee copies what is read.
type tee struct {
	from io.Reader
	to   *os.File
}

// Read reads the next bytes.
func (t *tee) Read(p []byte) (int, error) {
	n, err := t.from.Read(p)
	if n > 0 {
		if _, werr := t.to.Write(p[:n]); werr != nil {
			return n, givenUp(werr)
		}
	}
	return n, err
}
