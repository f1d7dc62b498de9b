// Package layer names the unpacked layers of the store and has the record that
// lies beside each: what its tar was, and what overlayfs can't be told by the
// layer alone.
package layer

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
)

// Kind is the first word of a key: where a layer comes from.
type Kind string

// The kinds of layer.
const (
	ACI     Kind = "aci" // the rootfs of an ACI; the digest is that of its uncompressed tar
	OCI     Kind = "oci" // a layer of an OCI or Docker image; the digest is its diff id
	Fixup   Kind = "fix" // what a chain of layers needs on top; the digest is that of the chain
	Derived Kind = "der" // a layer cut to path whitelists; the digest is that of layer and lists
)

// Key names a layer: `<kind>-<alg>-<hex>`. It is the name of its folder.
func Key(kind Kind, d digest.Digest) string { return string(kind) + "-" + d.String() }

// ParseKey takes a key apart and checks it, so that it is safe as a file name.
func ParseKey(key string) (Kind, digest.Digest, error) {
	kind, rest, _ := strings.Cut(key, "-")
	switch Kind(kind) {
	case ACI, OCI, Fixup, Derived:
	default:
		return "", digest.Digest{}, errs.Newf(errs.Corrupt, "layer key %q: unknown kind", key)
	}
	d, err := digest.Parse(rest)
	if err != nil || d.String() != rest {
		return "", digest.Digest{}, errs.Newf(errs.Corrupt, "layer key %q: not a digest", key)
	}
	return Kind(kind), d, nil
}

// FixupKey is the key of the fix-up layer of a chain, the lowest layer first.
func FixupKey(chain []string) string { return hashed(Fixup, chain) }

// DerivedKey is the key of a layer that is cut to each of the whitelists. Their
// order and doublets make no difference to the result but do to the key, so
// the caller gives them normalised.
func DerivedKey(key string, whitelists [][]string) string {
	parts := []string{key}
	for _, list := range whitelists {
		parts = append(parts, "")
		parts = append(parts, list...)
	}
	return hashed(Derived, parts)
}

// hashed writes lengths before the parts: no two lists are one string.
func hashed(kind Kind, parts []string) string {
	h := sha256.New()
	fmt.Fprintf(h, "rkt %s 1\n", kind)
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s\n", len(p), p)
	}
	return Key(kind, digest.Digest{Alg: digest.SHA256, Hex: hex.EncodeToString(h.Sum(nil))})
}

// MetaVersion is the version of meta.json that this build writes.
const MetaVersion = 1

// Meta is store/layers/<key>/meta.json. It never changes.
type Meta struct {
	Version   int        `json:"version"`
	Key       string     `json:"key"`
	TarSize   int64      `json:"tarSize,omitempty"` // bytes of the uncompressed tar
	Entries   int64      `json:"entries"`
	Size      int64      `json:"size"`                // bytes of its files
	Implicit  []Path     `json:"implicit,omitempty"`  // folders that the tar has no entry for; "." is the root
	Whiteouts []Path     `json:"whiteouts,omitempty"` // folders that have one
	HardLinks []HardLink `json:"hardLinks,omitempty"` // those whose target the layer lacks: they are not in fs
	Residue   []Residue  `json:"residue,omitempty"`   // what residue.gz holds, in its order
	Dropped   []Dropped  `json:"dropped,omitempty"`   // extended attributes that were not written
	Chain     []string   `json:"chain,omitempty"`     // of a fix-up layer: the image's layers as given, one that comes twice included
	Tree      string     `json:"tree,omitempty"`      // of a fix-up or derived layer: the digest of all that is in fs
	From      string     `json:"from,omitempty"`      // of a derived layer
	Whitelist [][]string `json:"whitelist,omitempty"` // of a derived layer
}

// HardLink is an entry that links Path to Target, both relative to the root.
type HardLink struct {
	Path   Path `json:"path"`
	Target Path `json:"target"`
}

// Residue is one run of bytes of the tar that its tree can't give back: the
// payload of the tar-split entry at that position.
type Residue struct {
	Entry int   `json:"entry"`
	Size  int64 `json:"size"`
}

// Dropped is an extended attribute, or another record of PAX for one, that is
// not on the file: overlayfs would obey it, or it means the host that made the
// tar.
type Dropped struct {
	Path  Path   `json:"path"`
	XAttr string `json:"xattr"`
}

// Path is a file name of any bytes. In JSON a byte that is not UTF-8 is written
// as \xNN and a backslash is doubled.
type Path string

// MarshalText escapes the path.
func (p Path) MarshalText() ([]byte, error) {
	if utf8.ValidString(string(p)) && !strings.Contains(string(p), `\`) {
		return []byte(p), nil
	}
	var b []byte
	for s := string(p); s != ""; {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			b = fmt.Appendf(b, `\x%02x`, s[0])
		case r == '\\':
			b = append(b, `\\`...)
		default:
			b = append(b, s[:n]...)
		}
		s = s[n:]
	}
	return b, nil
}

// UnmarshalText undoes MarshalText.
func (p *Path) UnmarshalText(text []byte) error {
	var b []byte
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			b = append(b, text[i])
			continue
		}
		switch rest := text[i+1:]; {
		case len(rest) > 0 && rest[0] == '\\':
			b = append(b, '\\')
			i++
		case len(rest) > 2 && rest[0] == 'x':
			raw, err := hex.DecodeString(string(rest[1:3]))
			if err != nil {
				return errs.Newf(errs.Corrupt, "path %q: bad escape", text)
			}
			b = append(b, raw...)
			i += 3
		default:
			return errs.Newf(errs.Corrupt, "path %q: bad escape", text)
		}
	}
	*p = Path(b)
	return nil
}
