package tree

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/layer"
)

// The files of a layer's folder beside fs.
const (
	splitFile   = "tar-split.gz"
	residueFile = "residue.gz"
	metaFile    = "meta.json"
	residueDir  = "residue.d" // while unpacking: a file for each position
)

func (u *unpacker) residuePath(pos int) string {
	return filepath.Join(u.dir, residueDir, strconv.Itoa(pos))
}

// toResidue keeps the payload of an entry that has none in the tree.
func (u *unpacker) toResidue(h *tar.Header) error {
	if h.Size == 0 {
		return u.split.payload(h.Name, 0, nil)
	}
	if err := u.opt.Budget.take(h.Size, 0); err != nil {
		return err
	}
	return u.rawToResidue(h, func() error {
		_, err := io.CopyBuffer(onlyWriter{io.Discard}, onlyReader{u.tar}, u.buf)
		return tarError(err)
	})
}

// residueBytes is toResidue for a payload that is wanted here too.
func (u *unpacker) residueBytes(h *tar.Header) ([]byte, error) {
	var b bytes.Buffer
	err := u.rawToResidue(h, func() error {
		_, err := io.Copy(&b, u.tar)
		return tarError(err)
	})
	return b.Bytes(), err
}

// rawToResidue keeps what read takes from the tar, as it is in there.
func (u *unpacker) rawToResidue(h *tar.Header, read func() error) error {
	if u.bare {
		return errors.Join(read(), u.split.payload(h.Name, 0, nil))
	}
	if err := fault.Step("tree.residue"); err != nil {
		return err
	}
	pos := u.split.pos
	f, err := os.OpenFile(u.residuePath(pos), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	crc := crc64.New(crcTable())
	start := u.rec.n
	raw := &holeWriter{file: f}
	u.rec.raw = io.MultiWriter(raw, crc)
	err = read()
	u.rec.endPayload()
	if err == nil {
		err = f.Truncate(raw.at)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	size := u.rec.n - start
	if size > 0 {
		u.residue[pos] = size
	}
	return u.split.payload(h.Name, size, crc.Sum(nil))
}

// holeWriter leaves out what is nothing but zeroes. Whoever is done truncates the
// file to where it is.
type holeWriter struct {
	file *os.File
	at   int64
}

// Write writes p, or nothing.
func (w *holeWriter) Write(p []byte) (int, error) {
	if layer.NotZero(p) >= 0 {
		if n, err := w.file.WriteAt(p, w.at); err != nil {
			return n, err
		}
	}
	w.at += int64(len(p))
	return len(p), nil
}

// writeResidue joins residue.d into residue.gz, in the order of the tar.
func (u *unpacker) writeResidue() error {
	if err := fault.Step("tree.residue.write"); err != nil {
		return err
	}
	if len(u.residue) > 0 {
		f, err := os.OpenFile(filepath.Join(u.dir, residueFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		err = u.joinResidue(f)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return err
		}
	}
	return os.RemoveAll(filepath.Join(u.dir, residueDir))
}

func (u *unpacker) joinResidue(w io.Writer) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	for _, pos := range slices.Sorted(maps.Keys(u.residue)) {
		f, err := os.Open(u.residuePath(pos))
		if err != nil {
			return err
		}
		n, err := io.Copy(z, f)
		_ = f.Close() // read only
		if err != nil {
			return err
		}
		if n != u.residue[pos] {
			return errs.Newf(errs.Internal, "residue of entry %d: %d bytes of %d", pos, n, u.residue[pos])
		}
		u.meta.Residue = append(u.meta.Residue, layer.Residue{Entry: pos, Size: n})
	}
	return z.Close()
}

// residueReader gives back residue.gz entry by entry.
type residueReader struct {
	file *os.File
	zip  *gzip.Reader
	left []layer.Residue
}

func openResidue(dir string, list []layer.Residue) (*residueReader, error) {
	r := &residueReader{left: list}
	if len(list) == 0 {
		return r, nil
	}
	var err error
	if r.file, err = os.Open(filepath.Join(dir, residueFile)); err != nil {
		return nil, fmt.Errorf("read residue: %w", err)
	}
	if r.zip, err = gzip.NewReader(r.file); err != nil {
		_ = r.file.Close()
		return nil, errs.Newf(errs.Corrupt, "read residue: %w", err)
	}
	return r, nil
}

// next returns the payload of the entry at pos if the residue has it.
func (r *residueReader) next(pos int) (io.Reader, bool) {
	if len(r.left) == 0 || r.left[0].Entry != pos {
		return nil, false
	}
	size := r.left[0].Size
	r.left = r.left[1:]
	return io.LimitReader(r.zip, size), true
}

// end is an error unless all was taken and nothing follows.
func (r *residueReader) end() error {
	if r.zip == nil {
		return nil
	}
	if len(r.left) > 0 {
		return errs.Newf(errs.Corrupt, "read residue: %s is too long", metaFile)
	}
	n, err := io.Copy(io.Discard, r.zip)
	switch {
	case err != nil:
		return errs.Newf(errs.Corrupt, "read residue: %w", err)
	case n > 0:
		return errs.Newf(errs.Corrupt, "read residue: %d bytes too many", n)
	}
	return nil
}

func (r *residueReader) close() {
	if r.file != nil {
		_ = r.file.Close() // read only
	}
}
