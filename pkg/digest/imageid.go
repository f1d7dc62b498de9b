package digest

import (
	"strings"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// The shape of image ids.
const (
	idPrefix  = "sha512-"
	idHex     = 128
	minPrefix = 2
)

// ImageID returns the id of the image whose defining bytes have the SHA-512 d.
func ImageID(d Digest) string { return idPrefix + d.Hex }

// IsImageID says whether s is a full image id.
func IsImageID(s string) bool {
	hex, ok := strings.CutPrefix(s, idPrefix)
	return ok && len(hex) == idHex && isHex(hex)
}

// LooksLikeImageID says whether s can only be meant as an image id or a prefix
// of one.
func LooksLikeImageID(s string) bool { return strings.HasPrefix(s, idPrefix) }

// ImageIDPrefix checks that s is an image id or a prefix of one that is long
// enough to be looked up.
func ImageIDPrefix(s string) (string, error) {
	hex, ok := strings.CutPrefix(s, idPrefix)
	if !ok {
		return "", errs.Newf(errs.Usage, "image ID %q: does not begin with %q", s, idPrefix)
	}
	if len(hex) < minPrefix {
		return "", errs.Newf(errs.Usage, "image ID too short")
	}
	if len(hex) > idHex || !isHex(hex) {
		return "", errs.Newf(errs.Usage, "image ID %q: not up to %d lower-case hex digits", s, idHex)
	}
	return s, nil
}

// ShortID cuts an image id to the n hex digits that listings show.
func ShortID(id string, n int) string { return id[:min(len(id), len(idPrefix)+n)] }
