package crilog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/fault"
)

// Options bound a log's size. The zero value means the defaults.
type Options struct {
	MaxSize  int64 // of one file, which is exceeded by one batch at most; default 64 MiB
	MaxFiles int   // the current one included; default 5
}

// The defaults of Options.
const (
	DefaultMaxSize  = 64 << 20
	DefaultMaxFiles = 5
)

func (o Options) orDefaults() Options {
	if o.MaxSize <= 0 {
		o.MaxSize = DefaultMaxSize
	}
	if o.MaxFiles <= 0 {
		o.MaxFiles = DefaultMaxFiles
	}
	return o
}

// Total is how large a log may become, but for a batch in each file.
func (o Options) Total() int64 {
	o = o.orDefaults()
	if int64(o.MaxFiles) > math.MaxInt64/o.MaxSize {
		return math.MaxInt64
	}
	return o.MaxSize * int64(o.MaxFiles)
}

// Size is how large the log at path is, over all of its files; 0 if there is none.
func Size(path string) (total int64) {
	for _, n := range append(numbers(path), 0) {
		if info, err := os.Lstat(numbered(path, n)); err == nil {
			total += info.Size()
		}
	}
	return total
}

// Writer writes one app's log. It may be used by several goroutines.
type Writer struct {
	path string
	opts Options

	mu      sync.Mutex
	f       *os.File
	size    int64
	buf     []byte
	inLine  map[Stream]bool // the stream's last entry was partial
	counts  []uint64        // lines begun in each file, the current one first
	lines   uint64
	dropped uint64
}

// Create makes a new, empty log.
func Create(path string, o Options) (*Writer, error) {
	if err := fault.Step("log.create"); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &Writer{path: path, opts: o.orDefaults(), f: f, inLine: map[Stream]bool{}, counts: []uint64{0}}, nil
}

// Append logs what the app wrote to the stream, with one write(2) and without
// a sync. If that fails the batch is dropped as a whole and counted; the next
// one is tried again.
func (w *Writer) Append(s Stream, at time.Time, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var rotated error
	if w.size >= w.opts.MaxSize {
		// The log grows beyond its bound rather than lose what it can hold.
		rotated = w.rotate()
	}
	lines := w.encode(s, at, p)
	if err := w.write(w.buf); err != nil {
		w.dropped += lines
		w.lines += lines
		return errors.Join(rotated, fmt.Errorf("log %s: %w", w.path, err))
	}
	w.counts[0] += lines
	w.lines += lines
	return rotated
}

// Lines returns how many lines the app has written, and how many of them are
// in no file: rotated away, or not written for want of space.
func (w *Writer) Lines() (written, dropped uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lines, w.dropped
}

// Close closes the file.
func (w *Writer) Close() error { return w.f.Close() }

// encode fills the buffer and returns the number of lines begun.
func (w *Writer) encode(s Stream, at time.Time, p []byte) (lines uint64) {
	stamp := at.UTC().Format(timeFormat)
	w.buf = w.buf[:0]
	for len(p) > 0 {
		content, partial := p, true
		i := bytes.IndexByte(p[:min(len(p), maxContent+1)], '\n')
		switch {
		case i >= 0:
			content, p, partial = p[:i], p[i+1:], false
		case len(p) > maxContent:
			content, p = p[:maxContent], p[maxContent:]
		default:
			p = nil
		}
		if !w.inLine[s] {
			lines++
		}
		w.inLine[s] = partial
		w.buf = appendEntry(w.buf, stamp, s, partial, content)
	}
	return lines
}

func (w *Writer) write(p []byte) error {
	if err := fault.Step("log.write"); err != nil {
		return err
	}
	n, err := w.f.Write(p)
	if err != nil {
		// A torn entry would swallow the next one.
		return errors.Join(err, w.f.Truncate(w.size))
	}
	w.size += int64(n)
	return nil
}

// rotate moves each file to the next number and begins a new one. The current
// file keeps its name until the new one takes it; a kill in between leaves two
// names of one file, which readers see.
func (w *Writer) rotate() error {
	if err := fault.Step("log.rotate"); err != nil {
		return err
	}
	unlock, err := lockDir(w.path, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		// A reader opens the files just now. The app must not wait for it:
		// the next batch tries again.
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	tmp := w.path + ".new"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("rotate log %s: %w", w.path, err)
	}
	if err := w.shift(tmp); err != nil {
		// The error that is returned says more than these would.
		_ = f.Close()
		_ = os.Remove(tmp)
		return fmt.Errorf("rotate log %s: %w", w.path, err)
	}
	// Nothing is lost with an error here: all bytes were written before.
	_ = w.f.Close()
	w.f, w.size = f, 0
	w.counts = slices.Insert(w.counts, 0, 0)
	for len(w.counts) > w.opts.MaxFiles {
		last := len(w.counts) - 1
		w.dropped += w.counts[last]
		w.counts = w.counts[:last]
	}
	return nil
}

func (w *Writer) shift(tmp string) error {
	if w.opts.MaxFiles > 1 {
		for n := w.opts.MaxFiles - 1; n > 1; n-- {
			err := os.Rename(numbered(w.path, n-1), numbered(w.path, n))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		// Left over if an earlier rotation failed half way.
		if err := os.Remove(numbered(w.path, 1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Link(w.path, numbered(w.path, 1)); err != nil {
			return err
		}
	}
	return os.Rename(tmp, w.path)
}

func numbered(path string, n int) string {
	if n == 0 {
		return path
	}
	return path + "." + strconv.Itoa(n)
}
