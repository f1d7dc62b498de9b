package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
)

// maxDiscovery bounds what discovery answers.
const maxDiscovery = 1 << 20

// BlobOptions are what a caller of Blob may add.
type BlobOptions struct {
	Raw      io.Writer   // with Decompress: gets the blob as it is published; the stream's end waits for it
	Progress func(int64) // is told how many bytes came over the network
}

// Manifest gets a manifest or an index. There is no content if the head has
// status 304: what the request knows already is still so.
func (c *Client) Manifest(ctx context.Context, r fetchwire.ManifestRequest) (fetchwire.Head, []byte, error) {
	c.allowRegistry(r.Repository.Registry)
	return c.small(ctx, &fetchwire.Request{Manifest: &r}, c.opts.Setup.Limits.Fill().MaxManifest)
}

// Blob gets a blob, or the tar that is packed in it.
func (c *Client) Blob(ctx context.Context, r fetchwire.BlobRequest, o BlobOptions) (fetchwire.Head, io.ReadCloser, error) {
	c.allowRegistry(r.Repository.Registry)
	request := &fetchwire.Request{Blob: &r}
	if o.Raw == nil {
		return c.body(ctx, request, o.Progress)
	}
	if !r.Decompress {
		return fetchwire.Head{}, nil, errs.Newf(errs.Internal, "a second copy of a blob that is not decompressed")
	}
	from, w, err := pipe()
	if err != nil {
		return fetchwire.Head{}, nil, err
	}
	defer w.Close()
	// The copy has to run while the head is waited for: both pipes are filled
	// by one hand.
	raw := newCopying(o.Raw, from)
	s, err := c.open(ctx, request, o.Progress, w)
	if err != nil {
		w.Close()
		raw.Close()
		return fetchwire.Head{}, nil, err
	}
	return s.head, &twofold{stream: s, raw: raw}, nil
}

// Referrers gets the index of the manifests that refer to a digest.
func (c *Client) Referrers(ctx context.Context, r fetchwire.ReferrersRequest) ([]byte, error) {
	c.allowRegistry(r.Repository.Registry)
	_, data, err := c.small(ctx, &fetchwire.Request{Referrers: &r}, c.opts.Setup.Limits.Fill().MaxManifest)
	return data, err
}

// HTTP gets what a URL names. A status of 202 in the head says that it is not
// ready, 304 that it is as it was; there is no content with either.
func (c *Client) HTTP(ctx context.Context, r fetchwire.HTTPRequest, progress func(int64)) (fetchwire.Head, io.ReadCloser, error) {
	u, err := url.Parse(r.URL)
	if err != nil || u.Host == "" {
		return fetchwire.Head{}, nil, errs.Newf(errs.Usage, "URL %q: it names no host", r.URL)
	}
	c.allow(fetchwire.ForURL, u.Host)
	return c.body(ctx, &fetchwire.Request{HTTP: &r}, progress)
}

// Discover asks the pages of an appc name where the image is.
func (c *Client) Discover(ctx context.Context, r fetchwire.DiscoverRequest) (fetchwire.Discovery, error) {
	host, _, _ := strings.Cut(r.Name, "/")
	c.allow(fetchwire.ForURL, host)
	var d fetchwire.Discovery
	_, data, err := c.small(ctx, &fetchwire.Request{Discover: &r}, maxDiscovery)
	if err != nil {
		return d, err
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return d, errs.Newf(errs.Corrupt, "rkt-fetch: discovery: %w", err)
	}
	return d, nil
}

func (c *Client) body(ctx context.Context, r *fetchwire.Request, progress func(int64)) (fetchwire.Head, io.ReadCloser, error) {
	s, err := c.open(ctx, r, progress)
	if err != nil {
		return fetchwire.Head{}, nil, err
	}
	return s.head, s, nil
}

func (c *Client) small(ctx context.Context, r *fetchwire.Request, most int64) (fetchwire.Head, []byte, error) {
	s, err := c.open(ctx, r, nil)
	if err != nil {
		return fetchwire.Head{}, nil, err
	}
	defer s.end()
	var data bytes.Buffer
	n, err := io.Copy(&data, io.LimitReader(s, most+1))
	if err != nil {
		return s.head, nil, err
	}
	if n > most {
		return s.head, nil, errs.Newf(errs.Corrupt, "rkt-fetch: an answer of more than %d bytes", most)
	}
	return s.head, data.Bytes(), nil
}

// copying copies a pipe into a writer until its end.
type copying struct {
	from *os.File
	done chan struct{}
	err  error
}

func newCopying(to io.Writer, from *os.File) *copying {
	c := &copying{from: from, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		if _, err := io.CopyBuffer(onlyWriter{to}, onlyReader{from}, make([]byte, pipeSize)); err != nil {
			c.err = fmt.Errorf("keep the blob: %w", err)
			// So the other side notices, and the stream beside ends.
			from.Close()
		}
	}()
	return c
}

// Close stops the copy.
func (c *copying) Close() {
	c.from.Close()
	<-c.done
}

type (
	onlyReader struct{ io.Reader }
	onlyWriter struct{ io.Writer }
)

// twofold is a stream whose end waits for the copy beside it.
type twofold struct {
	*stream
	raw *copying
}

// Read reads the next bytes of the content.
func (t *twofold) Read(p []byte) (int, error) {
	n, err := t.stream.Read(p)
	if err == nil {
		return n, nil
	}
	select {
	case <-t.raw.done:
	case <-t.ctx.Done():
		return n, t.ctx.Err()
	}
	if t.raw.err != nil {
		return n, t.raw.err
	}
	return n, err
}

// Close gives the stream and the copy up.
func (t *twofold) Close() error {
	err := t.stream.Close()
	t.raw.Close()
	return err
}
