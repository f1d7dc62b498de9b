package unpack

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/zstd"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
	"github.com/rkt-pods/rkt/pkg/layer"
	"github.com/rkt-pods/rkt/tests/images"
)

var packings = map[fetchwire.Compression]images.Compression{
	fetchwire.Gzip: images.Gzip, fetchwire.Bzip2: images.Bzip2, fetchwire.Xz: images.XZ, fetchwire.Zstd: images.Zstd,
}

func pack(t *testing.T, kind fetchwire.Compression, data []byte) []byte {
	t.Helper()
	if kind == fetchwire.Plain {
		return data
	}
	packed, err := images.Compress(packings[kind], data)
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

func unpacked(packed io.Reader, l fetchwire.Limits) ([]byte, fetchwire.Compression, error) {
	r, kind, err := Reader(packed, l)
	if err != nil {
		return nil, kind, err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	return data, kind, err
}

var text = []byte(strings.Repeat("what is packed is unpacked again, ", 20_000))

func TestEachCompression(t *testing.T) {
	kinds := []fetchwire.Compression{fetchwire.Plain}
	for kind := range packings {
		kinds = append(kinds, kind)
	}
	for _, kind := range kinds {
		packed := pack(t, kind, text)
		for what, in := range map[string]io.Reader{
			"at once": bytes.NewReader(packed), "in bits": iotest.OneByteReader(bytes.NewReader(packed)), "with its end": iotest.DataErrReader(bytes.NewReader(packed)),
		} {
			got, found, err := unpacked(in, fetchwire.Limits{})
			if err != nil || found != kind || !bytes.Equal(got, text) {
				t.Errorf("%s %s: %d bytes, %s, %v", kind, what, len(got), found, err)
			}
		}
		// An error of what is read is not the packing's.
		broken := io.MultiReader(bytes.NewReader(packed[:len(packed)/2]), iotest.ErrReader(errs.Newf(errs.Busy, "broken")))
		if _, _, err := unpacked(broken, fetchwire.Limits{}); !errs.Is(err, errs.Busy) {
			t.Errorf("%s of a broken reader: %v", kind, err)
		}
		if kind == fetchwire.Plain {
			continue
		}
		if _, _, err := unpacked(bytes.NewReader(packed[:len(packed)-5]), fetchwire.Limits{}); !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), "truncated "+string(kind)) {
			t.Errorf("%s truncated: %v", kind, err)
		}
		garbage := append(bytes.Clone(packed), "garbage"...)
		if _, _, err := unpacked(bytes.NewReader(garbage), fetchwire.Limits{}); !errs.Is(err, errs.Corrupt) {
			t.Errorf("%s with garbage: %v", kind, err)
		}
		flipped := bytes.Clone(packed)
		flipped[len(flipped)/2] ^= 0xff
		if got, _, err := unpacked(bytes.NewReader(flipped), fetchwire.Limits{}); !errs.Is(err, errs.Corrupt) {
			t.Errorf("%s flipped: %d bytes, %v", kind, len(got), err)
		}
		if _, _, err := unpacked(bytes.NewReader(packed), fetchwire.Limits{MaxSize: int64(len(text)) - 1}); !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), "more than") {
			t.Errorf("%s over its limit: %v", kind, err)
		}
		if _, _, err := unpacked(bytes.NewReader(packed), fetchwire.Limits{MaxSize: int64(len(text))}); err != nil {
			t.Errorf("%s at its limit: %v", kind, err)
		}
	}
	if got, kind, err := unpacked(bytes.NewReader(nil), fetchwire.Limits{}); err != nil || kind != fetchwire.Plain || len(got) != 0 {
		t.Errorf("nothing: %q, %s, %v", got, kind, err)
	}
}

func TestGzipOfSeveralMembers(t *testing.T) {
	packed := append(pack(t, fetchwire.Gzip, text), pack(t, fetchwire.Gzip, []byte("more"))...)
	got, _, err := unpacked(bytes.NewReader(packed), fetchwire.Limits{})
	if err != nil || !bytes.Equal(got, append(bytes.Clone(text), "more"...)) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	for _, tail := range []string{"\x1f", "\x1f\x8b", "\x00\x00"} {
		if _, _, err := unpacked(bytes.NewReader(append(bytes.Clone(packed), tail...)), fetchwire.Limits{}); !errs.Is(err, errs.Corrupt) {
			t.Errorf("%q behind: %v", tail, err)
		}
	}
}

// same are as many of one byte as asked for.
type same struct {
	left int64
	b    byte
}

func (s *same) Read(p []byte) (int, error) {
	if s.left <= 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), s.left)
	clear(p[:n])
	for i := 0; i < int(n) && s.b != 0; i++ {
		p[i] = s.b
	}
	s.left -= n
	return int(n), nil
}

func packStream(t *testing.T, to io.Writer, from io.Reader) {
	t.Helper()
	w, err := zstd.NewWriter(to, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(w, from); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestBomb: what would fill the disk is not let out, whatever bytes it is made of.
func TestBomb(t *testing.T) {
	for what, from := range map[string]io.Reader{
		"of one byte": &same{freely + 100<<20, 'A'},
		// Data in each piece that could be a hole, and in as few as will do.
		"nearly of zeroes": io.LimitReader(forever{}, freely+100<<20),
	} {
		var b bytes.Buffer
		packStream(t, &b, from)
		r, _, err := Reader(bytes.NewReader(b.Bytes()), fetchwire.Limits{MaxExpansion: 500})
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, r)
		if !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), "more than 500 bytes come out of each") || n > freely+1<<20 {
			t.Errorf("%s: %d bytes, %v", what, n, err)
		}
		if hints := errs.Hints(err); len(hints) != 1 || !strings.Contains(hints[0], "--max-ratio=N") {
			t.Errorf("%s: hints %q", what, hints)
		}
		r.Close()
	}
}

// forever is a byte and many zeroes, over and over.
type forever struct{}

func (forever) Read(p []byte) (int, error) {
	p = p[:min(len(p), layer.Hole)]
	clear(p)
	p[0] = 1
	return len(p), nil
}

// TestSparse: of zeroes, which become holes, more may come out than of data, but
// not without end either.
func TestSparse(t *testing.T) {
	const size = 1 << 30
	var b bytes.Buffer
	packStream(t, &b, io.MultiReader(strings.NewReader("begin"), &same{left: size}, strings.NewReader("end")))
	r, _, err := Reader(bytes.NewReader(b.Bytes()), fetchwire.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if n, err := io.Copy(io.Discard, r); err != nil || n != size+8 || n/int64(b.Len()) < 5000 {
		t.Errorf("%d bytes of %d, %v", n, b.Len(), err)
	}
	endless := &content{kind: fetchwire.Bzip2, r: &same{left: 1 << 40}, packed: &source{n: 1000}, limits: fetchwire.Limits{}.Fill()}
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, endless, make([]byte, 1<<20))
	if !errs.Is(err, errs.Corrupt) || n > (freely+1<<20)*zeroDiscount {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, zstd.WithWindowSize(8<<20), zstd.WithSingleSegment(false))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(w, &same{left: 20 << 20}); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if _, _, err := unpacked(bytes.NewReader(b.Bytes()), fetchwire.Limits{MaxWindow: 4 << 20}); !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), "wants more than 4 MiB") {
		t.Errorf("%v", err)
	}
	if _, _, err := unpacked(bytes.NewReader(b.Bytes()), fetchwire.Limits{MaxWindow: 8 << 20}); err != nil {
		t.Errorf("%v", err)
	}
}

func FuzzReader(f *testing.F) {
	for _, kind := range packings {
		packed, err := images.Compress(kind, []byte("seed"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packed)
	}
	f.Fuzz(func(t *testing.T, packed []byte) {
		limits := fetchwire.Limits{MaxSize: 1 << 20, MaxWindow: 1 << 20}
		r, _, err := Reader(bytes.NewReader(packed), limits)
		if err == nil {
			defer r.Close()
			_, err = io.Copy(io.Discard, r)
		}
		if err != nil && !errs.Is(err, errs.Corrupt) && !errors.Is(err, io.EOF) {
			t.Errorf("%v", err)
		}
	})
}
