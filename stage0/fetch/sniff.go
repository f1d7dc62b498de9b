package fetch

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
)

// format is what a file turned out to be.
type format string

const (
	formatACI     format = "aci"
	formatArchive format = "archive" // a tar with an OCI layout, of docker save, or of both
)

// sniff looks at the first entry of a tar, packed or not.
func (im *importer) sniff() (format, fetchwire.Compression, error) {
	r, c, err := im.opt.Decompressor.Open(im.ctx, io.NewSectionReader(im.file, 0, im.size))
	if err != nil {
		return "", c, err
	}
	defer r.Close()
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.ErrUnexpectedEOF) && c == fetchwire.Plain {
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

func isPathError(err error) bool {
	var pe *os.PathError
	return errors.As(err, &pe)
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
func (im *importer) unpacked(ctx context.Context, r io.ReadCloser, told func(int64)) (io.ReadCloser, error) {
	in, _, err := im.opt.Decompressor.Open(ctx, &counter{r: r, report: told})
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
