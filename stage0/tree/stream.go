package tree

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"os"
	"sync"
	"unicode/utf8"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/layer"
)

// recorder passes the bytes of a tar on and remembers those that are no
// payload: headers and padding. archive/tar reads no byte ahead, so what passes
// during Next is exactly the end of one entry and the header of the next.
type recorder struct {
	r    io.Reader
	seg  bytes.Buffer // what passed with raw nil
	raw  io.Writer    // where payload goes as it is in the tar, nil outside of payload
	skip bool         // payload that tar gives back unchanged
	mute bool         // remember nothing at all
	n    int64
	pad  int64 // bytes that fill the last block of the last payload
}

// endPayload goes back to remembering: padding and the next header follow.
func (t *recorder) endPayload() {
	t.raw, t.skip = nil, false
	t.pad = -t.n & 511
}

// Read reads from the tar.
func (t *recorder) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	t.n += int64(n)
	switch {
	case t.raw != nil:
		if _, werr := t.raw.Write(p[:n]); werr != nil {
			return n, werr
		}
	case !t.skip && !t.mute:
		t.seg.Write(p[:n])
	}
	return n, err
}

// splitEntry is a line of tar-split.gz.
type splitEntry struct {
	Type     int    `json:"type"`
	Name     string `json:"name,omitempty"`
	RawName  []byte `json:"name_raw,omitempty"` // in place of Name if that is not UTF-8
	Size     int64  `json:"size,omitempty"`
	Payload  []byte `json:"payload"` // the bytes of a segment, the CRC-64 of a payload
	Position int    `json:"position"`
}

// The types of entries.
const (
	payloadEntry = 1
	segmentEntry = 2
)

func (e *splitEntry) name() string {
	if len(e.RawName) > 0 {
		return string(e.RawName)
	}
	return e.Name
}

// splitWriter writes tar-split.gz, the format of tar-split: JSON lines, each a
// run of raw bytes or the name, size and CRC of a payload. Its own packer
// refuses a name that comes twice; here the residue says which payload is not
// to be had from the file of that name. The zero splitWriter only counts.
type splitWriter struct {
	file *os.File
	zip  *gzip.Writer
	enc  *json.Encoder
	pos  int
}

func newSplitWriter(path string) (*splitWriter, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	return &splitWriter{file: f, zip: z, enc: json.NewEncoder(z)}, nil
}

func (w *splitWriter) add(e splitEntry) error {
	e.Position = w.pos
	w.pos++
	if w.enc == nil {
		return nil
	}
	if err := w.enc.Encode(e); err != nil {
		return fmt.Errorf("write tar-split: %w", err)
	}
	return nil
}

// segment writes raw bytes, if there are any.
func (w *splitWriter) segment(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	return w.add(splitEntry{Type: segmentEntry, Payload: b})
}

func (w *splitWriter) payload(name string, size int64, crc []byte) error {
	e := splitEntry{Type: payloadEntry, Size: size, Payload: crc}
	if utf8.ValidString(name) {
		e.Name = name
	} else {
		e.RawName = []byte(name)
	}
	return w.add(e)
}

func (w *splitWriter) close() error {
	if w.enc == nil {
		return nil
	}
	err := w.zip.Close()
	if cerr := w.file.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("write tar-split: %w", err)
	}
	return nil
}

// readSplit calls fn for each entry of a tar-split.gz.
func readSplit(path string, fn func(splitEntry) error) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read tar-split: %w", err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return errs.Newf(errs.Corrupt, "read tar-split: %w", err)
	}
	dec := json.NewDecoder(z)
	for pos := 0; ; pos++ {
		var e splitEntry
		err := dec.Decode(&e)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil || e.Position != pos {
			return errs.Newf(errs.Corrupt, "read tar-split: entry %d is damaged", pos)
		}
		if err := fn(e); err != nil {
			return err
		}
	}
}

// crcTable is made at its first use: it takes a tenth of a millisecond, which
// commands that unpack nothing can do without.
var crcTable = sync.OnceValue(func() *crc64.Table { return crc64.MakeTable(crc64.ISO) })

// isSparse says whether the payload in the tar is not the file's content.
func isSparse(h *tar.Header) bool {
	if h.Typeflag == tar.TypeGNUSparse {
		return true
	}
	for _, key := range []string{"GNU.sparse.major", "GNU.sparse.map", "GNU.sparse.size", "GNU.sparse.realsize"} {
		if _, ok := h.PAXRecords[key]; ok {
			return true
		}
	}
	return false
}

// maxTail is how many zeroes may follow the last entry: writers fill the last of
// their records, whose size is a few MiB at most, and all of it is kept.
const maxTail = 64 << 20

// drain reads what follows the last entry: the end-of-archive blocks, as many
// as the writer liked. It says how many zero bytes there were in all.
func (t *recorder) drain(w *splitWriter) (int64, error) {
	zeros := int64(0)
	take := func(b []byte) error {
		if i := layer.NotZero(b); i >= 0 {
			return errs.Newf(errs.Corrupt, "garbage after the end of the archive, at byte %d", t.n-int64(len(b)-i))
		}
		if zeros += int64(len(b)); zeros > maxTail {
			return errs.Newf(errs.Denied, "more than %d zeroes after the end of the archive", maxTail)
		}
		return w.segment(b)
	}
	// Padding may be anything, and is no part of the end.
	pad := t.seg.Next(int(t.pad))
	if err := w.segment(pad); err != nil {
		return 0, err
	}
	if err := take(t.seg.Bytes()); err != nil {
		return 0, err
	}
	t.seg.Reset()
	t.skip = true
	buf := make([]byte, 64<<10)
	for {
		n, err := t.Read(buf)
		if terr := take(buf[:n]); terr != nil {
			return 0, terr
		}
		if errors.Is(err, io.EOF) {
			return zeros, nil
		}
		if err != nil {
			return 0, err
		}
	}
}
