package remote

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
)

// Decompressor decompresses streams in a rkt-fetch that can do nothing else.
// It is started by the first stream that needs it.
type Decompressor struct {
	program string
	limits  fetchwire.Limits

	mu     sync.Mutex
	client *Client
}

// NewDecompressor takes the program, empty for the one that Find finds.
func NewDecompressor(program string, limits fetchwire.Limits) *Decompressor {
	return &Decompressor{program: program, limits: limits}
}

// Close ends the program and the streams with it. It does not fail.
func (d *Decompressor) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.client != nil {
		d.client.end()
		d.client = nil
	}
	return nil
}

// Open returns the content of in, whatever it is packed with: its first bytes
// tell. An error of in is the stream's. After Close of the stream, nothing reads
// in any more.
func (d *Decompressor) Open(ctx context.Context, in io.Reader) (io.ReadCloser, fetchwire.Compression, error) {
	buffered := bufio.NewReaderSize(in, pipeSize)
	head, err := buffered.Peek(fetchwire.MagicBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fetchwire.Plain, err
	}
	kind := fetchwire.Detect(head)
	if kind == fetchwire.Plain {
		return io.NopCloser(&bounded{r: buffered, most: d.limits.Fill().MaxSize}), kind, nil
	}
	c, err := d.running(ctx)
	if err != nil {
		return nil, kind, err
	}
	r, err := c.unpack(ctx, buffered)
	return r, kind, err
}

// running returns the client, which lives until Close whatever becomes of ctx.
func (d *Decompressor) running(ctx context.Context) (*Client, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.client != nil && d.client.failed() == nil {
		return d.client, nil
	}
	if d.client != nil {
		d.client.end()
		d.client = nil
	}
	c, err := start(context.WithoutCancel(ctx), fetchwire.Unpack, Options{
		Program: d.program, Setup: fetchwire.Setup{Limits: d.limits},
	})
	if err != nil {
		return nil, err
	}
	d.client = c
	return c, nil
}

func (c *Client) unpack(ctx context.Context, in io.Reader) (io.ReadCloser, error) {
	theirs, feed, err := pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	from, w, err := pipe()
	if err != nil {
		feed.Close()
		return nil, err
	}
	defer w.Close()
	fed := feeding(feed, in)
	s, err := c.openInto(ctx, &fetchwire.Request{Decompress: &fetchwire.DecompressRequest{}}, nil, from, theirs, w)
	if err != nil {
		fed.stop()
		return nil, fed.instead(err)
	}
	return &unpacking{stream: s, fed: fed}, nil
}

// feeder writes a stream into a pipe.
type feeder struct {
	to   *os.File
	done chan struct{}
	err  error // of the stream, once done is closed
}

func feeding(to *os.File, in io.Reader) *feeder {
	f := &feeder{to: to, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		defer to.Close()
		buf := make([]byte, pipeSize/4)
		for {
			n, err := in.Read(buf)
			if n > 0 {
				if _, werr := to.Write(buf[:n]); werr != nil {
					return // the other side says why
				}
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				f.err = err
				return
			}
		}
	}()
	return f
}

func (f *feeder) stop() {
	f.to.Close()
	<-f.done
}

// instead prefers the error of what is read to what it led to.
func (f *feeder) instead(err error) error {
	if f.err != nil {
		return f.err
	}
	return err
}

// unpacking is a stream that another one feeds.
type unpacking struct {
	*stream
	fed *feeder
}

// Read reads the next bytes of the content.
func (u *unpacking) Read(p []byte) (int, error) {
	n, err := u.stream.Read(p)
	if err == nil || u.ctx.Err() != nil {
		return n, err
	}
	// The end of what is read comes with its check, so it is waited for; after
	// an error nothing more of it is wanted.
	if !errors.Is(err, io.EOF) {
		u.fed.to.Close()
	}
	select {
	case <-u.fed.done:
		return n, u.fed.instead(err)
	case <-u.ctx.Done():
		return n, u.ctx.Err()
	}
}

// Close gives the stream up.
func (u *unpacking) Close() error {
	err := u.stream.Close()
	u.fed.stop()
	return err
}

// bounded gives an error in place of more bytes than there may be.
type bounded struct {
	r    io.Reader
	most int64
	n    int64
}

// Read reads the next bytes.
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	b.n += int64(n)
	if b.n > b.most {
		return 0, errs.Newf(errs.Corrupt, "more than %d bytes", b.most)
	}
	return n, err
}
