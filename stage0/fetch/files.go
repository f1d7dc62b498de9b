package fetch

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/ref"
)

// files is a folder of files: a real one, or a tar with an index.
type files interface {
	// open returns the file and its size; the error is fs.ErrNotExist if there
	// is none.
	open(name string) (io.ReadCloser, int64, error)
}

// dirFiles is a folder of the host. Symlinks can't lead out of it.
type dirFiles struct{ root *os.Root }

func (d dirFiles) open(name string) (io.ReadCloser, int64, error) {
	f, err := d.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errs.Newf(errs.Corrupt, "%s: not a regular file", name)
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// tarFiles is an uncompressed tar.
type tarFiles struct {
	file    io.ReaderAt
	entries map[string]member
}

type member struct {
	offset, size int64
	link         string // name of another member
}

const (
	maxMembers = 100_000
	maxLinks   = 8
)

// indexTar notes where the members of a tar lie, skipping their content.
func indexTar(file io.ReaderAt, size int64) (*tarFiles, error) {
	s := io.NewSectionReader(file, 0, size)
	t := tar.NewReader(s)
	f := &tarFiles{file: file, entries: map[string]member{}}
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return f, nil
		}
		if err != nil {
			return nil, unknown(err)
		}
		name := path.Clean("/" + h.Name)[1:]
		m := member{size: h.Size}
		switch h.Typeflag {
		case tar.TypeReg:
			// The position is behind the header: archive/tar reads no byte ahead.
			if m.offset, err = s.Seek(0, io.SeekCurrent); err != nil {
				return nil, err
			}
			if m.offset+h.Size > size {
				return nil, errs.Newf(errs.Corrupt, "truncated archive")
			}
		case tar.TypeSymlink:
			m.link = path.Join("/", path.Dir(name), h.Linkname)[1:]
		case tar.TypeLink:
			m.link = path.Clean("/" + h.Linkname)[1:]
		default:
			continue
		}
		if len(f.entries) >= maxMembers {
			return nil, errs.Newf(errs.Denied, "archive with more than %d files", maxMembers)
		}
		f.entries[name] = m
	}
}

func (f *tarFiles) open(name string) (io.ReadCloser, int64, error) {
	for range maxLinks {
		m, ok := f.entries[name]
		if !ok {
			break
		}
		if m.link == "" {
			return io.NopCloser(io.NewSectionReader(f.file, m.offset, m.size)), m.size, nil
		}
		name = m.link
	}
	return nil, 0, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
}

// readSmall reads a whole JSON file.
func readSmall(f files, name string) ([]byte, error) {
	r, size, err := f.open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if size > image.MaxManifest {
		return nil, errs.Newf(errs.Corrupt, "%s: larger than %d bytes", name, image.MaxManifest)
	}
	return io.ReadAll(r)
}

// archive imports from a tar that is no ACI. A packed one is unpacked to a
// temporary file first, since its members come in any order.
func (im *importer) archive(packed fetchwire.Compression) (rec image.Record, err error) {
	file, size := im.file, im.size
	if packed != fetchwire.Plain {
		if file, size, err = im.spool(); err != nil {
			return rec, err
		}
		defer file.Close()
	}
	f, err := indexTar(file, size)
	if err != nil {
		return rec, err
	}
	// What docker save writes nowadays is both.
	for form, read := range map[ref.Form]func(files) (image.Record, bool, error){ref.OCIArchive: im.layout, ref.DockerArchive: im.docker} {
		if im.opt.Form == form {
			if rec, ok, err := read(f); ok || err != nil {
				return rec, err
			}
			return rec, errs.Newf(errs.Usage, "is no %s", form)
		}
	}
	if rec, ok, err := im.layout(f); ok || err != nil {
		return rec, err
	}
	rec, ok, err := im.docker(f)
	if !ok && err == nil {
		err = unknown(nil)
	}
	return rec, err
}

func (im *importer) spool() (*os.File, int64, error) {
	in, _, err := im.opt.Decompressor.Open(im.ctx, im.input())
	if err != nil {
		return nil, 0, err
	}
	defer in.Close()
	if err := fault.Step("fetch.spool"); err != nil {
		return nil, 0, err
	}
	f, err := os.OpenFile(im.staging.Path("archive"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, 0, err
	}
	n, err := io.Copy(f, in)
	if err != nil {
		_ = f.Close() // goes with the staging entry
		return nil, 0, err
	}
	return f, n, nil
}

// layoutDir imports from a folder.
func (im *importer) layoutDir() (rec image.Record, err error) {
	root, err := os.OpenRoot(im.path)
	if err != nil {
		return rec, classify(err)
	}
	defer root.Close()
	rec, ok, err := im.layout(dirFiles{root})
	if !ok && err == nil {
		err = errs.WithHint(errs.Newf(errs.Unsupported, "a folder without an OCI image layout"),
			"an OCI image layout has the files oci-layout and index.json")
	}
	return rec, err
}

func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// stem is the file's name without the endings of archives.
func stem(name string) string {
	if abs, err := filepath.Abs(name); err == nil {
		name = abs // "." has a name too
	}
	base := path.Base(name)
	for _, end := range []string{".gz", ".tgz", ".bz2", ".xz", ".zst", ".tar", ".oci", ".docker", ".aci"} {
		if s := strings.TrimSuffix(base, end); s != "" {
			base = s
		}
	}
	return base
}
