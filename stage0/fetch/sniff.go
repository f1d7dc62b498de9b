package fetch

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"compress/bzip2"
	"context"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// compression is how a stream is packed; its magic bytes decide, never a name
// or a media type.
type compression string

const (
	plain    compression = "none"
	gzipped  compression = "gzip"
	bzipped  compression = "bzip2"
	xzipped  compression = "xz"
	zstdized compression = "zstd"
)

// maxWindow is the memory that a zstd stream may ask for.
const maxWindow = 128 << 20

func detect(head []byte) compression {
	for _, m := range []struct {
		magic string
		c     compression
	}{
		{"\x1f\x8b", gzipped},
		{"BZh", bzipped},
		{"\xfd7zXZ\x00", xzipped},
		{"\x28\xb5\x2f\xfd", zstdized},
	} {
		if bytes.HasPrefix(head, []byte(m.magic)) {
			return m.c
		}
	}
	return plain
}

// decompress returns the content of r, whatever it is packed with. The reader
// gives errors of class Corrupt for bytes that are damaged, cut off or too many.
func decompress(r io.Reader) (io.ReadCloser, compression, error) {
	in := bufio.NewReaderSize(r, 256<<10)
	head, err := in.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, plain, err
	}
	c := detect(head)
	out := &unpacked{kind: c, r: in}
	switch c {
	case plain:
	case gzipped:
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, c, out.wrap(err)
		}
		z.Multistream(false)
		out.r = &members{in: in, zip: z}
	case bzipped:
		out.r = bzip2.NewReader(in)
	case xzipped:
		z, err := xz.ReaderConfig{DictCap: maxWindow}.NewReader(in)
		if err != nil {
			return nil, c, out.wrap(err)
		}
		out.r = z
	case zstdized:
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, c, out.wrap(err)
		}
		out.r, out.close = z, z.Close
	}
	return out, c, nil
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
		if err != nil || detect(head) != gzipped {
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

type unpacked struct {
	kind  compression
	r     io.Reader
	n     int64
	close func()
}

// Read reads the next bytes.
func (u *unpacked) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	u.n += int64(n)
	return n, u.wrap(err)
}

// Close frees what the decompressor holds.
func (u *unpacked) Close() error {
	if u.close != nil {
		u.close()
	}
	return nil
}

// wrap says in one line what is wrong with the packed stream. Errors of the
// file itself, and of a check of its digest, pass through.
func (u *unpacked) wrap(err error) error {
	var structural bzip2.StructuralError
	switch {
	case err == nil || errors.Is(err, io.EOF) || u.kind == plain:
		return err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errs.Newf(errs.Corrupt, "truncated %s stream", u.kind)
	case errors.As(err, &structural) && strings.Contains(string(structural), "continuation"),
		errors.Is(err, zstd.ErrMagicMismatch) && u.n > 0:
		return errs.Newf(errs.Corrupt, "garbage after the end of the %s stream", u.kind)
	case errs.ClassOf(err) != errs.Internal || errors.Is(err, context.Canceled) || isPathError(err):
		return err
	default:
		return errs.Newf(errs.Corrupt, "damaged %s stream: %w", u.kind, err)
	}
}

func isPathError(err error) bool {
	var pe *os.PathError
	return errors.As(err, &pe)
}

// format is what a file turned out to be.
type format string

const (
	formatACI     format = "aci"
	formatArchive format = "archive" // a tar with an OCI layout, of docker save, or of both
)

// sniff looks at the first entry of a tar, packed or not.
func sniff(f io.Reader) (format, compression, error) {
	r, c, err := decompress(f)
	if err != nil {
		return "", c, err
	}
	defer r.Close()
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.ErrUnexpectedEOF) && c == plain {
			return "", c, unknown(nil) // less than the first block of a tar
		}
		if err != nil {
			return "", c, unknown(err)
		}
		name := strings.TrimLeft(strings.TrimPrefix(h.Name, "."), "/")
		first, _, _ := strings.Cut(name, "/")
		switch {
		case first == "" && h.Typeflag == tar.TypeDir: // `tar -c .`
		case first == "manifest" || first == "rootfs":
			return formatACI, c, nil
		default:
			return formatArchive, c, nil
		}
	}
}

func unknown(err error) error {
	if errs.ClassOf(err) != errs.Internal || isPathError(err) {
		return err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errs.Newf(errs.Corrupt, "truncated archive")
	}
	return errs.WithHint(errs.Newf(errs.Unsupported, "unknown format"),
		"an image is an ACI, an OCI image layout (folder or tar) or what docker save writes")
}

// unpacked opens the content of a layer, whatever it is packed with. The reader's
// end comes with that of r, and so with the check of its digest. Closing it closes
// r.
func (im *importer) unpacked(_ context.Context, r io.ReadCloser, told func(int64)) (io.ReadCloser, error) {
	in, _, err := decompress(&counter{r: r, report: told})
	if err != nil {
		_ = r.Close() // read only
		return nil, err
	}
	return &wholeLayer{in, r}, nil
}

// wholeLayer reads what follows the layer too.
type wholeLayer struct {
	io.ReadCloser
	packed io.ReadCloser
}

// Read reads the next bytes.
func (w *wholeLayer) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		left, rerr := io.Copy(io.Discard, w.packed)
		if rerr == nil && left > 0 {
			rerr = errs.Newf(errs.Corrupt, "%d bytes after the end of the layer", left)
		}
		err = cmp.Or(rerr, err)
	}
	return n, err
}

// Close closes both.
func (w *wholeLayer) Close() error {
	return errors.Join(w.ReadCloser.Close(), w.packed.Close())
}
