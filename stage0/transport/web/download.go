package web

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
)

// progressBytes is how many new bytes make an attempt one that got somewhere.
const progressBytes = 16 << 10

// Want says what a download has to be.
type Want struct {
	What   string        // for errors
	Size   int64         // -1: whatever comes
	Digest digest.Digest // zero: not known
	Most   int64         // where Size is -1
	// Open sends the request again. The header has Range and If-Range if a rest
	// is asked for.
	Open func(ctx context.Context, header http.Header) (*http.Response, error)
}

// Download reads what an answer brings to its end, whatever happens to the
// connection: after a cut it asks for the rest, or, of a server that can't give
// that, for all, and compares what it has had already.
type Download struct {
	c    *Client
	ctx  context.Context
	want Want
	body *body

	hash      hash.Hash // of all that was handed out
	offset    int64
	validator string
	chunked   bool  // the answer itself says where it ends, though not how long it is
	attempts  int   // in a row that got nowhere
	mark      int64 // offset at the last attempt
	err       error
}

// Download opens what is wanted. The answer is the first one, whose status the
// caller looks at: one that is not 200 has no download.
func (c *Client) Download(ctx context.Context, want Want) (*Download, *http.Response, error) {
	d := &Download{c: c, ctx: ctx, want: want}
	d.hash = d.newHash()
	resp, err := d.open()
	if err != nil {
		return nil, nil, err
	}
	if resp.StatusCode != http.StatusOK {
		d.body.Close()
		return nil, resp, nil
	}
	return d, resp, nil
}

func (d *Download) newHash() hash.Hash {
	if d.want.Digest.IsZero() {
		return sha256.New()
	}
	return d.want.Digest.Alg.New()
}

// Offset is how many bytes were handed out.
func (d *Download) Offset() int64 { return d.offset }

// Close gives the rest up.
func (d *Download) Close() {
	if d.body != nil {
		d.body.Close()
	}
}

// open asks for what is not there yet.
func (d *Download) open() (*http.Response, error) {
	header := http.Header{}
	if d.offset > 0 && (d.validator != "" || !d.want.Digest.IsZero()) {
		header.Set("Range", "bytes="+strconv.FormatInt(d.offset, 10)+"-")
		if d.validator != "" {
			header.Set("If-Range", d.validator)
		}
	}
	ctx, giveUp := context.WithCancelCause(d.ctx)
	resp, err := d.want.Open(ctx, header)
	if err != nil {
		giveUp(nil)
		return nil, err
	}
	if resp.StatusCode == http.StatusRequestedRangeNotSatisfiable && header.Get("Range") != "" {
		// It has no such rest, or can't tell: all of it then, compared with what came.
		resp.Body.Close()
		if resp, err = d.want.Open(ctx, http.Header{}); err != nil {
			giveUp(nil)
			return nil, err
		}
	}
	d.body = &body{r: resp.Body, giveUp: giveUp, window: d.c.limits.Stall, enough: d.c.limits.StallBytes}
	d.chunked = false
	switch resp.StatusCode {
	case http.StatusOK:
		err = d.whole(resp)
	case http.StatusPartialContent:
		err = d.rest(resp, header.Get("Range") != "")
	default:
		if d.offset > 0 {
			err = StatusError(resp, d.want.What)
		}
	}
	if err != nil {
		d.body.Close()
		return nil, err
	}
	return resp, nil
}

// whole takes an answer that begins at the beginning.
func (d *Download) whole(resp *http.Response) error {
	if d.want.Size >= 0 && resp.ContentLength >= 0 && resp.ContentLength != d.want.Size {
		return d.corrupt("wrong length: %s sends %d bytes in place of %d", resp.Request.URL.Host, resp.ContentLength, d.want.Size)
	}
	if d.want.Size < 0 && resp.ContentLength > d.want.Most {
		return d.corrupt("more than %d bytes", d.want.Most)
	}
	d.chunked = resp.ContentLength < 0 && len(resp.TransferEncoding) > 0
	if d.offset == 0 {
		d.validator = validator(resp.Header)
		if d.want.Size < 0 {
			d.want.Size = resp.ContentLength
		}
		return nil
	}
	again := d.newHash()
	if _, err := io.CopyN(again, d.body, d.offset); err != nil {
		return &cutError{err}
	}
	if string(again.Sum(nil)) != string(d.hash.Sum(nil)) {
		return d.corrupt("changed while it was being fetched")
	}
	return nil
}

// rest takes an answer that goes on where the last one ended.
func (d *Download) rest(resp *http.Response, asked bool) error {
	span, ok := strings.CutPrefix(resp.Header.Get("Content-Range"), "bytes ")
	from, span, _ := strings.Cut(span, "-")
	_, total, _ := strings.Cut(span, "/")
	if !ok || !asked || from != strconv.FormatInt(d.offset, 10) {
		return d.corrupt("a rest that was not asked for")
	}
	if d.want.Size >= 0 && total != "*" && total != strconv.FormatInt(d.want.Size, 10) {
		return d.corrupt("wrong length: %s has %.20q bytes in place of %d", resp.Request.URL.Host, total, d.want.Size)
	}
	return nil
}

// validator is what a rest can be bound to: a strong ETag, else a date
// (RFC 9110, 13.1.5).
func validator(h http.Header) string {
	if tag := h.Get("ETag"); tag != "" && !strings.HasPrefix(tag, "W/") {
		return tag
	}
	return h.Get("Last-Modified")
}

func (d *Download) corrupt(format string, args ...any) error {
	return errs.Newf(errs.Corrupt, "%s: %w", d.want.What, fmt.Errorf(format, args...))
}

// cutError is a connection that ended too early.
type cutError struct{ err error }

func (e *cutError) Error() string { return e.err.Error() }
func (e *cutError) Unwrap() error { return e.err }

// Read reads the next bytes. io.EOF says that size and digest fit.
func (d *Download) Read(p []byte) (int, error) {
	for d.err == nil {
		n, err := d.read(p)
		if n > 0 {
			return n, nil
		}
		if err != nil {
			d.err = d.finish(err)
		}
	}
	return 0, d.err
}

// read reads from the connection that there is, or opens one.
func (d *Download) read(p []byte) (int, error) {
	if d.body == nil {
		if _, err := d.open(); err != nil { //nolint:bodyclose // it is d.body, which Close closes
			return 0, err
		}
	}
	if d.want.Size >= 0 && d.offset < d.want.Size {
		p = p[:min(int64(len(p)), d.want.Size-d.offset)]
	}
	n, err := d.body.Read(p)
	switch most := d.most(); {
	case d.offset+int64(n) > most && d.want.Size >= 0:
		return 0, d.corrupt("wrong length: more than the %d bytes that it should have", d.want.Size)
	case d.offset+int64(n) > most:
		return 0, d.corrupt("more than %d bytes", most)
	}
	d.hash.Write(p[:n])
	d.offset += int64(n)
	if n > 0 {
		return n, nil // an error comes again
	}
	return 0, err
}

func (d *Download) most() int64 {
	if d.want.Size >= 0 {
		return d.want.Size
	}
	return d.want.Most
}

// finish decides what the end of a connection means. nil says: on with another.
func (d *Download) finish(err error) error {
	if d.body != nil {
		d.body.Close()
	}
	switch {
	case d.ctx.Err() != nil:
		return d.ctx.Err()
	case errs.ClassOf(err) != errs.Internal && !errs.Is(err, errs.Unavailable):
		return err
	case d.want.Size >= 0 && d.offset == d.want.Size, d.want.Size < 0 && errors.Is(err, io.EOF):
		return d.check() // a cut behind the last byte does no harm
	case errors.Is(err, io.EOF) && d.chunked:
		return d.corrupt("wrong length: %d bytes in place of %d", d.offset, d.want.Size)
	case errors.Is(err, context.Canceled), errors.Is(err, errStalled):
		err = errs.Newf(errs.Unavailable, "%s: it stalls: less than %d bytes came in %s", d.want.What, d.c.limits.StallBytes, d.c.limits.Stall)
	}
	d.body = nil
	d.attempts++
	if d.offset-d.mark >= progressBytes {
		d.attempts, d.mark = 1, d.offset
	}
	if d.attempts > d.c.limits.Attempts {
		if errs.ClassOf(err) != errs.Internal {
			return err
		}
		return Explain(err, fmt.Sprintf("%s: cut off after %d bytes, %d times", d.want.What, d.offset, d.attempts))
	}
	if d.attempts == 1 {
		return nil
	}
	return Wait(d.ctx, Backoff(d.attempts-1))
}

// check is the last thing before the end is reported.
func (d *Download) check() error {
	if !d.want.Digest.IsZero() {
		if got := digest.Sum(d.want.Digest.Alg, d.hash); got != d.want.Digest {
			return d.corrupt("wrong digest: it is %s in place of %s", got.OCI(), d.want.Digest.OCI())
		}
	}
	return io.EOF
}
