package export

import (
	"archive/tar"
	"context"
	"io"
	"os"
	"path"
	"time"
)

// sink is where the files of a layout or an archive go: a tar, or a folder.
type sink interface {
	// begin starts the next file, and ends the one before.
	begin(name string, size int64) (io.Writer, error)
	// end ends the last file.
	end() error
}

// tarSink writes files without any property of their own, so that the same
// image is always the same archive.
type tarSink struct{ tar *tar.Writer }

func (s *tarSink) begin(name string, size int64) (io.Writer, error) {
	err := s.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size, ModTime: time.Unix(0, 0)})
	return s.tar, err
}

func (s *tarSink) end() error { return s.tar.Close() }

// folderSink writes files below a new folder.
type folderSink struct {
	ctx  context.Context
	root *os.Root
	file *os.File
}

func (s *folderSink) begin(name string, _ int64) (io.Writer, error) {
	if err := s.end(); err != nil {
		return nil, err
	}
	if err := s.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return nil, err
	}
	file, err := s.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	s.file = file
	return contextWriter{s.ctx, file}, nil
}

func (s *folderSink) end() error {
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	s.file = nil
	return err
}
