package tree

import (
	"bytes"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/layer"
)

// Rebuild writes the tar that the layer in dir was unpacked from. A payload
// that the tree no longer has is an error of class Corrupt that names it.
func Rebuild(dir string, meta layer.Meta, w io.Writer) error {
	return rebuild(dir, meta, w, true)
}

// rebuild checks each payload only if told to: whoever looks at the whole stream
// need not.
func rebuild(dir string, meta layer.Meta, w io.Writer, check bool) error {
	root, err := openRoot(filepath.Join(dir, "fs"))
	if err != nil {
		return err
	}
	defer root.close()
	kind, _, _ := strings.Cut(meta.Key, "-")
	b := &rebuilder{root: root, kind: layer.Kind(kind), w: w, buf: make([]byte, 128<<10)}
	if check {
		b.crc = crc64.New(crcTable())
	}
	if b.residue, err = openResidue(dir, meta.Residue); err != nil {
		return err
	}
	defer b.residue.close()
	return readSplit(filepath.Join(dir, splitFile), b.entry)
}

type rebuilder struct {
	root    *root
	kind    layer.Kind
	residue *residueReader
	w       io.Writer
	crc     hash.Hash64 // nil: content is not checked here
	buf     []byte
	// damaged is told of content that has changed, and zeros take the place of
	// what is missing; nil: the first is an error.
	damaged func(name, detail string)
}

func (b *rebuilder) entry(e splitEntry) error {
	if e.Type == segmentEntry {
		_, err := b.w.Write(e.Payload)
		return err
	}
	if e.Size == 0 {
		return nil
	}
	if r, ok := b.residue.next(e.Position); ok {
		return b.payload(e, r)
	}
	name, err := b.name(e.name())
	if err != nil {
		return errs.WithClass(errs.Corrupt, fmt.Errorf("entry %q: %w", e.name(), err))
	}
	// O_NONBLOCK: a fifo in the place of a file must not hold us.
	f, err := b.root.openRaw(name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil && b.damaged != nil {
		return b.zeros(e.Size) // the look at the tree names it
	}
	if err != nil {
		return errs.Newf(errs.Corrupt, "entry %q: %w", e.name(), err)
	}
	defer func() { _ = f.Close() }() // read only
	return b.payload(e, f)
}

// name is where the tree has the payload of an entry.
func (b *rebuilder) name(entry string) (string, error) {
	name, err := cleanName(entry)
	if b.kind == layer.ACI {
		name = strings.TrimPrefix(name, aciRootFS+"/")
	}
	return name, err
}

func (b *rebuilder) payload(e splitEntry, r io.Reader) error {
	w := b.w
	if b.crc != nil {
		b.crc.Reset()
		w = io.MultiWriter(b.w, b.crc)
	}
	// One byte more than there should be, so that a longer file is noticed.
	n, err := io.CopyBuffer(onlyWriter{w}, onlyReader{io.LimitReader(r, e.Size+b.extra())}, b.buf)
	if b.damaged != nil {
		return b.tolerate(e, n, err)
	}
	if err != nil {
		return fmt.Errorf("entry %q: %w", e.name(), err)
	}
	if n != e.Size || b.crc != nil && !bytes.Equal(b.crc.Sum(nil), e.Payload) {
		return errs.Newf(errs.Corrupt, "entry %q: the content has changed", e.name())
	}
	return nil
}

func (b *rebuilder) extra() int64 {
	if b.damaged != nil {
		return 0 // the stream's length must stay; sizes are compared elsewhere
	}
	return 1
}

// tolerate reports a payload that is not what it was.
func (b *rebuilder) tolerate(e splitEntry, n int64, err error) error {
	switch {
	case errors.Is(err, io.ErrClosedPipe):
		return err
	case err != nil:
		b.damaged(e.name(), err.Error())
	case n != e.Size:
		b.damaged(e.name(), fmt.Sprintf("%d bytes of %d", n, e.Size))
	case !bytes.Equal(b.crc.Sum(nil), e.Payload):
		b.damaged(e.name(), "the bytes are others")
	}
	return b.zeros(e.Size - n)
}

var zeroes [4096]byte

func (b *rebuilder) zeros(n int64) error {
	for n > 0 {
		m := min(n, int64(len(zeroes)))
		if _, err := b.w.Write(zeroes[:m]); err != nil {
			return err
		}
		n -= m
	}
	return nil
}

// finish sets what had to wait, tries the rebuild and writes meta.json.
func (u *unpacker) finish(got digest.Digest) error {
	if err := u.finishTree(got); err != nil {
		return err
	}
	if err := u.writeResidue(); err != nil {
		return fmt.Errorf("write residue: %w", err)
	}
	if err := u.tryRebuild(got); err != nil {
		return fmt.Errorf("rebuild the tar: %w", err)
	}
	if err := fault.Step("tree.meta"); err != nil {
		return err
	}
	return atomicfile.WriteJSON(filepath.Join(u.dir, metaFile), u.meta, 0o600, atomicfile.Renamed)
}

// finishTree sets in the tree what had to wait for its last entry.
func (u *unpacker) finishTree(got digest.Digest) error {
	u.meta.Key = layer.Key(u.opt.Kind, got)
	if err := u.sweepOpaque(); err != nil {
		return err
	}
	if err := u.implicitDirs(); err != nil {
		return err
	}
	if err := u.dirEnds(); err != nil {
		return err
	}
	u.meta.HardLinks = slices.DeleteFunc(u.meta.HardLinks, func(l layer.HardLink) bool {
		st, err := u.root.stat(string(l.Path))
		return err == nil && !isWhiteout(st) // a later entry of the name counts
	})
	return nil
}

// sumTable is of the sum that processors compute by themselves.
var sumTable = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

// tryRebuild shows that the tar can be had back, while the disk is busy with it
// already: the commit has to wait for that anyway, and finds less left to do. A
// cheap sum is enough to find a slip of ours; what the disk does to the bytes
// later is for Verify to find.
func (u *unpacker) tryRebuild(got digest.Digest) error {
	synced := make(chan error, 1)
	go func() { synced <- atomicfile.SyncFS(u.dir) }()
	sum := crc32.New(sumTable())
	err := rebuild(u.dir, u.meta, sum, false)
	if serr := <-synced; err == nil {
		err = serr
	}
	if err != nil {
		return err
	}
	if sum.Sum32() != u.sum.Sum32() {
		return errs.Newf(errs.Internal, "%s became another", got.OCI())
	}
	return nil
}

// implicitDirs lists the folders that never got an entry. Their time is 1970, so
// that the same tar always makes the same tree.
func (u *unpacker) implicitDirs() error {
	for real := range u.implicit {
		st, err := u.root.stat(real)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || err == nil && !isDir(st) {
			continue // another entry took its place
		}
		if err != nil {
			return err
		}
		// A folder in the place of a removed one owes that one nothing.
		if !u.replaced[real] {
			u.meta.Implicit = append(u.meta.Implicit, layer.Path(real))
		}
		u.dirs[st.Ino] = dirEnd{name: real}
	}
	slices.Sort(u.meta.Implicit)
	for real := range u.whited {
		if !u.opaque[real] { // swept
			u.meta.Whiteouts = append(u.meta.Whiteouts, layer.Path(real))
		}
	}
	slices.Sort(u.meta.Whiteouts)
	return nil
}

// dirEnds gives each folder that is still there what waited for the end. It is
// opened without following a link, as its name is a stranger's.
func (u *unpacker) dirEnds() error {
	for ino, d := range u.dirs {
		if err := u.dirEnd(ino, d); err != nil {
			return fmt.Errorf("folder %q: %w", d.name, err)
		}
	}
	return nil
}

func (u *unpacker) dirEnd(ino uint64, d dirEnd) error {
	dir, err := u.root.openRaw(d.name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(int(dir)) // O_PATH: nothing to flush
	var st unix.Stat_t
	if err := unix.Fstat(int(dir), &st); err != nil {
		return err
	}
	if st.Ino != ino {
		return errs.Newf(errs.Internal, "another one than was made")
	}
	if d.acl != nil {
		if err := unix.Setxattr(fdPath(int(dir)), aclDefault, d.acl, 0); err != nil {
			return fmt.Errorf("attribute %s: %w", aclDefault, err)
		}
	}
	if err := setTimes(unix.AT_FDCWD, fdPath(int(dir)), d.times, 0); err != nil {
		return fmt.Errorf("time: %w", err)
	}
	return nil
}
