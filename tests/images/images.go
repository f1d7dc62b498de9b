// Package images builds container images for tests and for the demo: ACIs, OCI
// image layouts and docker archives, from entries that a test writes down. What
// it writes depends on its input only, byte by byte.
package images

import (
	"archive/tar"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// Time is the time of all entries that have none of their own.
var Time = time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)

// Entry is one entry of a tar.
type Entry struct {
	tar.Header
	Body []byte
}

// Dir is a folder of root's.
func Dir(name string, mode int64) Entry {
	return Entry{Header: tar.Header{Name: strings.TrimSuffix(name, "/") + "/", Typeflag: tar.TypeDir, Mode: mode}}
}

// File is a regular file of root's.
func File(name string, mode int64, body string) Entry {
	return Entry{Header: tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode}, Body: []byte(body)}
}

// Symlink is a symbolic link.
func Symlink(name, target string) Entry {
	return Entry{Header: tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target, Mode: 0o777}}
}

// Link is a hard link to another entry.
func Link(name, target string) Entry {
	return Entry{Header: tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: target, Mode: 0o644}}
}

// Whiteout says in a layer that name of a lower one is gone.
func Whiteout(name string) Entry {
	dir, base := "", name
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		dir, base = name[:i+1], name[i+1:]
	}
	return File(dir+".wh."+base, 0o600, "")
}

// Opaque says in a layer that all of lower layers in the folder is gone.
func Opaque(dir string) Entry { return File(dir+"/.wh..wh..opq", 0o600, "") }

// Owned is the entry with another owner.
func (e Entry) Owned(uid, gid int) Entry {
	e.Uid, e.Gid = uid, gid
	return e
}

// XAttr is the entry with an extended attribute.
func (e Entry) XAttr(name, value string) Entry {
	records := map[string]string{"SCHILY.xattr." + name: value}
	for k, v := range e.PAXRecords {
		records[k] = v
	}
	e.PAXRecords, e.Format = records, tar.FormatPAX
	return e
}

// Tar writes an uncompressed tar.
func Tar(entries []Entry) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := e.Header
		h.Size = int64(len(e.Body))
		if h.ModTime.IsZero() {
			h.ModTime = Time
		}
		if h.ModTime.Nanosecond() != 0 && h.Format == tar.FormatUnknown {
			h.Format = tar.FormatPAX
		}
		if err := w.WriteHeader(&h); err != nil {
			return nil, fmt.Errorf("entry %q: %w", h.Name, err)
		}
		if _, err := w.Write(e.Body); err != nil {
			return nil, fmt.Errorf("entry %q: %w", h.Name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Compression names how bytes are packed.
type Compression string

// The ways to pack.
const (
	None  Compression = "none"
	Gzip  Compression = "gzip"
	Bzip2 Compression = "bzip2"
	XZ    Compression = "xz"
	Zstd  Compression = "zstd"
)

// Compress packs data. For bzip2 it runs the program of that name, since no
// library here writes it.
func Compress(c Compression, data []byte) ([]byte, error) {
	var b bytes.Buffer
	var w io.WriteCloser
	var err error
	switch cmp.Or(c, None) {
	case None:
		return data, nil
	case Gzip:
		w = gzip.NewWriter(&b)
	case XZ:
		w, err = xz.NewWriter(&b)
	case Zstd:
		w, err = zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1))
	case Bzip2:
		cmd := exec.Command("bzip2", "-c")
		cmd.Stdin, cmd.Stdout = bytes.NewReader(data), &b
		if err := cmd.Run(); err != nil {
			return nil, fmt.Errorf("bzip2: %w", err)
		}
		return b.Bytes(), nil
	default:
		return nil, fmt.Errorf("unknown compression %q", c)
	}
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// ACI writes an uncompressed App Container Image. As with actool the manifest
// comes last.
func ACI(manifest string, rootfs []Entry) ([]byte, error) {
	return Tar(slices.Concat(RootFS(rootfs), []Entry{File("manifest", 0o644, manifest)}))
}

// RootFS moves entries to where an ACI has them. Without an entry for the root
// it adds one.
func RootFS(entries []Entry) []Entry {
	var out []Entry
	if !slices.ContainsFunc(entries, func(e Entry) bool { return strings.Trim(e.Name, "./") == "" }) {
		out = append(out, Dir("rootfs", 0o755))
	}
	for _, e := range entries {
		e.Name = "rootfs/" + strings.TrimPrefix(e.Name, "./")
		if e.Typeflag == tar.TypeLink {
			e.Linkname = "rootfs/" + e.Linkname
		}
		out = append(out, e)
	}
	return out
}
