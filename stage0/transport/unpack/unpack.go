// Package unpack decompresses streams: gzip, zstd, bzip2, xz, and what is not
// packed at all. It gives up on streams that are damaged, that want too much
// memory and that hold more than their size lets expect.
package unpack

import (
	"bufio"
	"cmp"
	"compress/bzip2"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
	"github.com/rkt-pods/rkt/pkg/layer"
)

// readSize is how much is read of the packed stream at once.
const readSize = 256 << 10

// freely is how many bytes come out before the ratio counts: a small layer may
// be all the same byte.
const freely = 256 << 20

// zeroDiscount is by how much zeroes count less than data: they become holes, which
// take no space but the time to hash them. zstd packs a large sparse file, which
// most tools write into a tar with all its zeroes, at 32,768 to one at best.
const zeroDiscount = 32

// Reader returns the content of r, whatever it is packed with. The reader gives
// errors of class Corrupt for bytes that are damaged, cut off or too many;
// errors of r pass through.
func Reader(r io.Reader, limits fetchwire.Limits) (io.ReadCloser, fetchwire.Compression, error) {
	limits = limits.Fill()
	packed := &source{r: r}
	in := bufio.NewReaderSize(packed, readSize)
	head, err := in.Peek(fetchwire.MagicBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fetchwire.Plain, err
	}
	c := fetchwire.Detect(head)
	out := &content{kind: c, r: in, packed: packed, limits: limits}
	switch c {
	case fetchwire.Plain:
	case fetchwire.Gzip:
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, c, out.wrap(err)
		}
		z.Multistream(false)
		out.r = &members{in: in, zip: z}
	case fetchwire.Bzip2:
		out.r = bzip2.NewReader(in)
	case fetchwire.Xz:
		z, err := xz.ReaderConfig{DictCap: int(limits.MaxWindow)}.NewReader(in)
		if err != nil {
			return nil, c, out.wrap(err)
		}
		out.r = z
	case fetchwire.Zstd:
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(uint64(limits.MaxWindow)))
		if err != nil {
			return nil, c, out.wrap(err)
		}
		out.r, out.close = z, z.Close
	}
	return out, c, nil
}

// source counts what is read of a packed stream and keeps its error, which is
// told from the decompressor's.
type source struct {
	r   io.Reader
	n   int64
	err error
}

// Read reads the next bytes.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// members reads the members of a gzip stream one by one, so that the end of
// one is told from what is no further member.
type members struct {
	in  *bufio.Reader
	zip *gzip.Reader
}

// Read reads the next bytes.
func (m *members) Read(p []byte) (int, error) {
	for {
		n, err := m.zip.Read(p)
		if !errors.Is(err, io.EOF) || n > 0 {
			if errors.Is(err, io.EOF) {
				err = nil // told again
			}
			return n, err
		}
		if _, err := m.in.Peek(1); err != nil {
			return 0, err
		}
		head, err := m.in.Peek(2)
		if err != nil || fetchwire.Detect(head) != fetchwire.Gzip {
			return 0, cmp.Or(ignoreEOF(err), errs.Newf(errs.Corrupt, "garbage after the end of the gzip stream"))
		}
		if err := m.zip.Reset(m.in); err != nil {
			return 0, err
		}
		m.zip.Multistream(false)
	}
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

type content struct {
	kind   fetchwire.Compression
	r      io.Reader
	packed *source
	limits fetchwire.Limits
	n      int64
	weight int64 // of the pieces that came out
	filled int   // of the piece that is not whole yet
	data   bool  // there is some in that
	close  func()
}

// Read reads the next bytes.
func (c *content) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	c.weigh(p[:n])
	if c.n > c.limits.MaxSize {
		return 0, errs.Newf(errs.Corrupt, "%s stream: more than %d bytes come out of it", c.kind, c.limits.MaxSize)
	}
	if c.weight > freely && c.kind != fetchwire.Plain && c.weight/c.limits.MaxExpansion > c.packed.n {
		err := errs.Newf(errs.Corrupt, "%s stream: more than %d bytes come out of each of its bytes", c.kind, c.limits.MaxExpansion)
		return 0, errs.WithHint(err, "--max-ratio=N allows more, if you trust where it comes from")
	}
	return n, c.wrap(err)
}

// weigh counts a piece of the length of a hole for what it is if there is data in
// it, and for less if not. Wherever the pieces of a file begin, no more than twice
// of what counts in full is written to the disk.
func (c *content) weigh(p []byte) {
	for len(p) > 0 {
		n := min(len(p), layer.Hole-c.filled)
		c.data = c.data || layer.NotZero(p[:n]) >= 0
		if c.filled += n; c.filled == layer.Hole {
			if c.data {
				c.weight += layer.Hole
			} else {
				c.weight += layer.Hole / zeroDiscount
			}
			c.filled, c.data = 0, false
		}
		p = p[n:]
	}
}

// Close frees what the decompressor holds.
func (c *content) Close() error {
	if c.close != nil {
		c.close()
	}
	return nil
}

// wrap says in one line what is wrong with the packed stream.
func (c *content) wrap(err error) error {
	var structural bzip2.StructuralError
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return err
	case c.packed.err != nil:
		return c.packed.err
	case c.kind == fetchwire.Plain || errs.ClassOf(err) != errs.Internal || errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errs.Newf(errs.Corrupt, "truncated %s stream", c.kind)
	case errors.As(err, &structural) && strings.Contains(string(structural), "continuation"),
		errors.Is(err, zstd.ErrMagicMismatch) && c.n > 0:
		return errs.Newf(errs.Corrupt, "garbage after the end of the %s stream", c.kind)
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return errs.Newf(errs.Corrupt, "%s stream: wants more than %d MiB of memory", c.kind, c.limits.MaxWindow>>20)
	default:
		return errs.Newf(errs.Corrupt, "damaged %s stream: %w", c.kind, err)
	}
}
