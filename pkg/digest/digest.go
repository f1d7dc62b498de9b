// Package digest names bytes by their hash: blob digests as OCI and the store
// spell them, image ids, and a reader that gives an error instead of
// end-of-file when the bytes are not the ones that were asked for.
package digest

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"strings"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// Alg is a hash algorithm.
type Alg string

// The algorithms that are accepted.
const (
	SHA256 Alg = "sha256"
	SHA512 Alg = "sha512"
)

// Digest is the hash of some bytes. The zero Digest names nothing.
type Digest struct {
	Alg Alg
	Hex string
}

// New returns the algorithm's hash function, nil for an unknown one.
func (a Alg) New() hash.Hash {
	switch a {
	case SHA256:
		return sha256.New()
	case SHA512:
		return sha512.New()
	default:
		return nil
	}
}

func (a Alg) hexLen() int {
	switch a {
	case SHA256:
		return 2 * sha256.Size
	case SHA512:
		return 2 * sha512.Size
	default:
		return 0
	}
}

// Parse reads `<alg>:<hex>` or `<alg>-<hex>`, always of full length and in
// lower case: a digest has one spelling, so that it is safe as a file name.
func Parse(s string) (Digest, error) {
	i := strings.IndexAny(s, ":-")
	if i < 0 {
		return Digest{}, errs.Newf(errs.Usage, "digest %q: no algorithm", s)
	}
	d := Digest{Alg: Alg(s[:i]), Hex: s[i+1:]}
	if d.Alg.hexLen() == 0 {
		return Digest{}, errs.Newf(errs.Unsupported, "digest %q: unknown algorithm", s)
	}
	if len(d.Hex) != d.Alg.hexLen() || !isHex(d.Hex) {
		return Digest{}, errs.Newf(errs.Usage, "digest %q: not %d lower-case hex digits", s, d.Alg.hexLen())
	}
	return d, nil
}

// ParseOCI is Parse for what OCI's files have, which is `<alg>:<hex>` only.
func ParseOCI(s string) (Digest, error) {
	d, err := Parse(s)
	if err == nil && d.OCI() != s {
		err = errs.Newf(errs.Usage, "digest %q: no algorithm", s)
	}
	return d, err
}

// String spells the digest as the store does, `<alg>-<hex>`.
func (d Digest) String() string { return string(d.Alg) + "-" + d.Hex }

// OCI spells the digest as OCI does, `<alg>:<hex>`.
func (d Digest) OCI() string { return string(d.Alg) + ":" + d.Hex }

// IsZero says whether the digest names nothing.
func (d Digest) IsZero() bool { return d == Digest{} }

// Sum returns the digest of what was written to h.
func Sum(alg Alg, h hash.Hash) Digest {
	return Digest{Alg: alg, Hex: hex.EncodeToString(h.Sum(nil))}
}

// Of returns the digest of data.
func Of(alg Alg, data []byte) Digest {
	h := alg.New()
	h.Write(data) // never fails, says package hash
	return Sum(alg, h)
}

func isHex(s string) bool {
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

type reader struct {
	r    io.Reader
	h    hash.Hash
	want Digest
	left int64 // -1: unknown
	err  error
}

// Reader reads from r and gives an error of class Corrupt instead of io.EOF
// if the bytes were not those of want. With a size of 0 or more it also fails
// when there are fewer bytes, and reads at most one byte more than that from
// r, so that endless data can't hold it.
func Reader(r io.Reader, want Digest, size int64) io.Reader {
	if size < 0 {
		size = -1
	}
	return &reader{r: r, h: want.Alg.New(), want: want, left: size}
}

// Read reads the next bytes.
func (v *reader) Read(p []byte) (int, error) {
	if v.err != nil {
		return 0, v.err
	}
	if v.left >= 0 && int64(len(p)) > v.left+1 {
		p = p[:v.left+1]
	}
	n, err := v.r.Read(p)
	if v.left >= 0 {
		if int64(n) > v.left {
			v.err = errs.Newf(errs.Corrupt, "%s: more bytes than announced", v.want.OCI())
			return 0, v.err
		}
		v.left -= int64(n)
	}
	v.h.Write(p[:n])
	if errors.Is(err, io.EOF) {
		err = v.end()
	}
	v.err = err
	return n, err
}

func (v *reader) end() error {
	if v.left > 0 {
		return errs.Newf(errs.Corrupt, "%s: %d bytes fewer than announced", v.want.OCI(), v.left)
	}
	if got := Sum(v.want.Alg, v.h); got != v.want {
		return errs.Newf(errs.Corrupt, "%s: the content is %s", v.want.OCI(), got.OCI())
	}
	return io.EOF
}
