package fetchwire

import "bytes"

// Compression is how a stream is packed; its magic bytes decide, never a name
// or a media type.
type Compression string

// The compressions.
const (
	Plain Compression = "none"
	Gzip  Compression = "gzip"
	Bzip2 Compression = "bzip2"
	Xz    Compression = "xz"
	Zstd  Compression = "zstd"
)

// MagicBytes is how many bytes of a stream Detect needs to be sure.
const MagicBytes = 6

// Detect tells by the beginning of a stream how it is packed.
func Detect(head []byte) Compression {
	for _, m := range []struct {
		magic string
		c     Compression
	}{
		{"\x1f\x8b", Gzip},
		{"BZh", Bzip2},
		{"\xfd7zXZ\x00", Xz},
		{"\x28\xb5\x2f\xfd", Zstd},
	} {
		if bytes.HasPrefix(head, []byte(m.magic)) {
			return m.c
		}
	}
	return Plain
}
