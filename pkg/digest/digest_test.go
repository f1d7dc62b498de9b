package digest

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/rkt-pods/rkt/pkg/errs"
)

func TestParse(t *testing.T) {
	hex256, hex512 := strings.Repeat("0a", 32), strings.Repeat("0a", 64)
	for s, ok := range map[string]bool{
		"sha256:" + hex256: true, "sha256-" + hex256: true, "sha512:" + hex512: true, "sha512-" + hex512: true,
		"sha256:" + hex512: false, "sha256:" + hex256[1:]: false, "sha256:" + strings.ToUpper(hex256): false,
		"md5:" + hex256: false, "": false, "sha256": false, ":": false, "sha256:" + strings.Repeat("/.", 32): false,
	} {
		d, err := Parse(s)
		if (err == nil) != ok {
			t.Errorf("%q: %v", s, err)
		}
		if ok && (d.String() != strings.Replace(s, ":", "-", 1) || d.OCI() != strings.Replace(s, "-", ":", 1)) {
			t.Errorf("%q became %s and %s", s, d, d.OCI())
		}
	}
}

func TestReader(t *testing.T) {
	const text = "the content"
	want := Of(SHA256, []byte(text))
	for _, x := range []struct {
		name, data string
		size       int64
		ok         bool
	}{
		{"right", text, int64(len(text)), true},
		{"right, size unknown", text, -1, true},
		{"other", "the Content", -1, false},
		{"short", text[:4], -1, false},
		{"short of size", text[:4], int64(len(text)), false},
		{"long", text + "!", int64(len(text)), false},
		{"empty", "", -1, false},
		{"size too small", text, 3, false},
	} {
		for _, slow := range []bool{false, true} {
			r := io.Reader(strings.NewReader(x.data))
			if slow {
				r = iotest.OneByteReader(r)
			}
			got, err := io.ReadAll(Reader(r, want, x.size))
			if (err == nil) != x.ok || err != nil && !errs.Is(err, errs.Corrupt) {
				t.Errorf("%s: %v", x.name, err)
			}
			if x.ok && string(got) != text {
				t.Errorf("%s: %q", x.name, got)
			}
		}
	}
}

// endless counts how much was taken from it.
type endless int64

func (e *endless) Read(p []byte) (int, error) {
	*e += endless(len(p))
	return len(p), nil
}

func TestReaderStopsAtSize(t *testing.T) {
	var e endless
	if _, err := io.ReadAll(Reader(&e, Of(SHA512, nil), 1000)); !errs.Is(err, errs.Corrupt) {
		t.Error(err)
	}
	if e > 1001 {
		t.Errorf("%d bytes were read", e)
	}
}

func TestImageID(t *testing.T) {
	id := ImageID(Of(SHA512, nil))
	if !IsImageID(id) || IsImageID(id[:70]) || IsImageID("sha512-"+strings.Repeat("G", 128)) || !LooksLikeImageID("sha512-x") {
		t.Error("IsImageID")
	}
	for s, want := range map[string]string{
		"sha512-": "image ID too short", "sha512-0": "image ID too short", "sha512-0g": "hex digits", "sha256-00": "does not begin",
		id + "0": "hex digits", "sha512-" + strings.Repeat("0", 64): "", "sha512-00": "", id: "",
	} {
		got, err := ImageIDPrefix(s)
		if want == "" && (err != nil || got != s) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %q, %v", s, got, err)
		}
	}
	if got := ShortID(id, 12); got != id[:19] || ShortID("x", 12) != "x" {
		t.Errorf("short: %q", got)
	}
}
