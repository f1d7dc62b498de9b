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

// zeroes are as many as asked for.
type zeroes int64

func (z *zeroes) Read(p []byte) (int, error) {
	if *z <= 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), int64(*z))
	clear(p[:n])
	*z -= zeroes(n)
	return int(n), nil
}

func TestBomb(t *testing.T) {
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	n := zeroes(freely + 100<<20)
	if _, err := io.Copy(w, &n); err != nil {
		t.Fatal(err)
	}
	w.Close()
	r, _, err := Reader(bytes.NewReader(b.Bytes()), fetchwire.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if n, err := io.Copy(io.Discard, r); !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), "more than 2000 bytes come out of each") || n > freely+1<<20 {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, zstd.WithWindowSize(8<<20), zstd.WithSingleSegment(false))
	if err != nil {
		t.Fatal(err)
	}
	n := zeroes(20 << 20)
	if _, err := io.Copy(w, &n); err != nil {
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
