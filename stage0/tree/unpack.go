// Package tree turns the tars of image layers into folders for overlayfs and
// back: it unpacks without ever leaving the folder, keeps what the tar is made
// of so that it can be rebuilt byte by byte, and makes the layers that no tar
// has: fix-ups and whitelisted copies.
package tree

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/layer"
)

// What one layer may have at most. The limits are far above real images and
// below what would take a host down.
const (
	maxEntries = 10_000_000
	maxSize    = 1 << 40
	maxSparse  = 1 << 37 // a sparse file is read at its full size
)

// The top-level names of an ACI.
const (
	aciManifest = "manifest"
	aciRootFS   = "rootfs"
)

// Options say what kind of tar it is.
type Options struct {
	Kind   layer.Kind    // layer.ACI or layer.OCI
	Want   digest.Digest // what the uncompressed tar must be; zero: it is told, not asked
	Budget *Budget       // what the layers of one image may have together; nil: no limit but each layer's own
	Abort  func()        // makes a read of the tar end that waits for more; nil: none does
}

// Limits are what the layers of one image may have at most, together. Zeroes
// stand for the defaults.
type Limits struct {
	Size    int64 // bytes of their files
	Entries int64
}

// DefaultLimits are far above real images and below what fills a host's disk
// or its table of inodes unnoticed.
var DefaultLimits = Limits{Size: 256 << 30, Entries: 5_000_000}

// Budget is what is left of the limits. Several layers may draw on it at once.
type Budget struct {
	limits        Limits
	size, entries atomic.Int64
}

// NewBudget is a budget of which nothing is spent.
func NewBudget(l Limits) *Budget {
	return &Budget{limits: Limits{Size: cmp.Or(l.Size, DefaultLimits.Size), Entries: cmp.Or(l.Entries, DefaultLimits.Entries)}}
}

// take spends. The error is of class Denied once there is nothing left.
func (b *Budget) take(size, entries int64) error {
	switch {
	case b == nil:
		return nil
	case b.entries.Add(entries) > b.limits.Entries:
		return errs.WithHint(errs.Newf(errs.Denied, "the image has more than %d files", b.limits.Entries), "--max-entries=N allows more")
	case b.size.Add(size) > b.limits.Size:
		return errs.WithHint(errs.Newf(errs.Denied, "the image has more than %d bytes", b.limits.Size), "--max-image-size=SIZE allows more")
	}
	return nil
}

// Layer is an unpacked tar.
type Layer struct {
	Meta     layer.Meta
	Digest   digest.Digest
	Manifest []byte // of an ACI
}

// Unpack reads an uncompressed tar to its end, unpacks it to dir/fs and writes
// tar-split.gz, residue.gz and meta.json beside. dir is empty and nobody else
// can reach it. On error it may hold anything; the caller drops it.
func Unpack(ctx context.Context, r io.Reader, dir string, opt Options) (Layer, error) {
	split, err := newSplitWriter(filepath.Join(dir, splitFile))
	if err != nil {
		return Layer{}, fmt.Errorf("unpack layer: %w", err)
	}
	u, err := newUnpacker(ctx, r, dir, opt, split)
	if err != nil {
		return Layer{}, errors.Join(err, split.close())
	}
	defer u.close()
	if err := u.entries(); err != nil {
		_ = u.split.close() // the first error says more
		return Layer{}, err
	}
	if err := u.split.close(); err != nil {
		return Layer{}, err
	}
	got := digest.Sum(u.alg, u.hash)
	if !opt.Want.IsZero() && got != opt.Want {
		return Layer{}, errs.Newf(errs.Corrupt, "layer %s: the content is %s", opt.Want.OCI(), got.OCI())
	}
	if err := u.finish(got); err != nil {
		return Layer{}, fmt.Errorf("unpack layer: %w", err)
	}
	return Layer{Meta: u.meta, Digest: got, Manifest: u.manifest}, nil
}

// unpackBare makes the tree without the content of its files and with nothing
// beside it: what each entry's header says of a file can be compared then. The
// digest is that of the stream, whatever was wanted.
func unpackBare(ctx context.Context, r io.Reader, dir string, opt Options) (Layer, error) {
	u, err := newUnpacker(ctx, r, dir, opt, &splitWriter{})
	if err != nil {
		return Layer{}, err
	}
	defer u.close()
	u.bare, u.rec.mute = true, true
	if err := u.entries(); err != nil {
		return Layer{}, err
	}
	got := digest.Sum(u.alg, u.hash)
	if err := u.finishTree(got); err != nil {
		return Layer{}, fmt.Errorf("unpack layer: %w", err)
	}
	return Layer{Meta: u.meta, Digest: got, Manifest: u.manifest}, nil
}

type unpacker struct {
	ctx   context.Context
	opt   Options
	alg   digest.Alg
	hash  hash.Hash // of all that came out of ahead, once that is at its end
	sum   hash.Hash32
	ahead *ahead
	dir   string
	root  *root
	rec   *recorder
	tar   *tar.Reader
	split *splitWriter
	bare  bool // only what headers say
	meta  layer.Meta
	buf   []byte

	manifest []byte
	dirs     map[uint64]dirEnd // by inode
	implicit map[string]bool   // folders without an entry so far, by real name
	opaque   map[string]bool   // real names
	replaced map[string]bool   // those of them that a whiteout names, rather than their content
	whited   map[string]bool   // folders that a whiteout was made in, by real name
	payload  map[uint64]int    // inode → position of the tar-split entry that has its content
	residue  map[int]int64     // position → size, those in residue.d
}

func (u *unpacker) close() {
	u.ahead.close(u.opt.Abort)
	u.root.close()
}

func newUnpacker(ctx context.Context, r io.Reader, dir string, opt Options, split *splitWriter) (*unpacker, error) {
	alg := digest.SHA512
	if !opt.Want.IsZero() {
		alg = opt.Want.Alg
	}
	if err := fault.Step("tree.mkdir"); err != nil {
		return nil, err
	}
	fs := filepath.Join(dir, "fs")
	for _, d := range []string{fs, filepath.Join(dir, residueDir)} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return nil, fmt.Errorf("unpack layer: %w", err)
		}
	}
	if err := os.Chmod(fs, 0o755); err != nil { // whatever the umask is
		return nil, fmt.Errorf("unpack layer: %w", err)
	}
	// An ACL of the data folder must not get into images.
	if err := clearXattrs(fs); err != nil {
		return nil, fmt.Errorf("unpack layer: %w", err)
	}
	rt, err := openRoot(fs)
	if err != nil {
		return nil, err
	}
	h := alg.New()
	sum := crc32.New(sumTable())
	stream := readAhead(r, io.MultiWriter(h, sum))
	rec := &recorder{r: stream}
	return &unpacker{
		ctx: ctx, opt: opt, alg: alg, hash: h, sum: sum, ahead: stream, dir: dir, root: rt, rec: rec, tar: tar.NewReader(rec), split: split,
		meta: layer.Meta{Version: layer.MetaVersion}, buf: make([]byte, 128<<10),
		dirs: map[uint64]dirEnd{}, implicit: map[string]bool{".": true}, opaque: map[string]bool{}, replaced: map[string]bool{},
		whited: map[string]bool{}, payload: map[uint64]int{}, residue: map[int]int64{},
	}, nil
}

// entries reads the tar to its end.
func (u *unpacker) entries() error {
	for {
		if err := u.ctx.Err(); err != nil {
			return err
		}
		h, err := u.tar.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return tarError(err)
		}
		if err := u.split.segment(u.rec.seg.Bytes()); err != nil {
			return err
		}
		u.rec.seg.Reset()
		u.rec.pad = 0
		if err := u.entry(h); err != nil {
			return fmt.Errorf("entry %q: %w", h.Name, blame(err))
		}
	}
	var zeros int64
	var err error
	if u.bare {
		zeros, err = io.Copy(io.Discard, u.rec)
	} else {
		zeros, err = u.rec.drain(u.split)
	}
	if err != nil {
		return tarError(err)
	}
	// The digest of an ACI is nowhere promised: without its end, a cut archive
	// would be taken for a smaller one.
	if u.opt.Want.IsZero() && zeros < 512 {
		return errs.Newf(errs.Corrupt, "truncated archive: no end-of-archive block")
	}
	u.meta.TarSize = u.rec.n
	if u.opt.Kind == layer.ACI && u.manifest == nil {
		return errs.Newf(errs.Corrupt, "no file \"manifest\" in the image")
	}
	return nil
}

// blame gives errors of the kernel that only the archive can be the reason of
// their class.
func blame(err error) error {
	for _, errno := range []unix.Errno{unix.ELOOP, unix.ENAMETOOLONG, unix.ENOTDIR, unix.EEXIST, unix.EISDIR, unix.ENOENT, unix.EINVAL} {
		if errs.ClassOf(err) == errs.Internal && errors.Is(err, errno) {
			return errs.WithClass(errs.Corrupt, err)
		}
	}
	return err
}

func tarError(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errs.Newf(errs.Corrupt, "truncated archive: %w", err)
	case errors.Is(err, tar.ErrHeader), errors.Is(err, tar.ErrFieldTooLong):
		return errs.Newf(errs.Corrupt, "not a valid tar: %w", err)
	default:
		return err
	}
}

func (u *unpacker) entry(h *tar.Header) error {
	u.meta.Entries++
	if u.meta.Entries > maxEntries {
		return errs.Newf(errs.Denied, "more than %d entries", maxEntries)
	}
	if err := u.opt.Budget.take(0, 1); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeXGlobalHeader {
		return u.split.payload(h.Name, 0, nil)
	}
	name, err := cleanName(h.Name)
	if err != nil {
		return err
	}
	if u.opt.Kind == layer.ACI {
		below, ok := strings.CutPrefix(name, aciRootFS+"/")
		switch {
		case name == aciManifest:
			return u.readManifest(h)
		case name == aciRootFS:
			name = "."
		case ok:
			name = below
		case name == "." && h.Typeflag == tar.TypeDir:
			return u.split.payload(h.Name, 0, nil) // `tar -c .` has an entry for the whole
		default:
			return errs.Newf(errs.Corrupt, "an ACI has nothing beside \"manifest\" and \"rootfs\"")
		}
	}
	if u.opt.Kind == layer.OCI && strings.HasPrefix(path.Base(name), whiteoutPrefix) {
		if err := u.whiteout(name); err != nil {
			return err
		}
		return u.toResidue(h)
	}
	return u.place(name, h)
}

// cleanName is the entry's name relative to the root, "." for the root itself.
// A name that goes up is refused even where it would stay inside: no tool
// makes one without meaning harm.
func cleanName(name string) (string, error) {
	if strings.ContainsRune(name, 0) {
		return "", errs.Newf(errs.Denied, "a name with a NUL byte")
	}
	for elem := range strings.SplitSeq(name, "/") {
		if elem == ".." {
			return "", errs.Newf(errs.Denied, "a name with \"..\" in it")
		}
	}
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if name == "" {
		return ".", nil
	}
	return name, nil
}

func (u *unpacker) readManifest(h *tar.Header) error {
	switch {
	case h.Typeflag != tar.TypeReg || isSparse(h):
		return errs.Newf(errs.Corrupt, "not a regular file")
	case u.manifest != nil:
		return errs.Newf(errs.Corrupt, "there twice")
	case h.Size > image.MaxManifest:
		return errs.Newf(errs.Corrupt, "larger than %d bytes", image.MaxManifest)
	case h.Size == 0:
		return errs.Newf(errs.Corrupt, "empty")
	}
	var err error
	u.manifest, err = u.residueBytes(h)
	return err
}

// place makes what the entry says at name.
func (u *unpacker) place(name string, h *tar.Header) error {
	if err := checkHeader(h); err != nil {
		return err
	}
	if name == "." && h.Typeflag != tar.TypeDir {
		return errs.Newf(errs.Denied, "the root must be a folder")
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		return u.file(name, h)
	case tar.TypeDir:
		if err := u.folder(name, h); err != nil {
			return err
		}
	case tar.TypeLink:
		if err := u.hardLink(name, h); err != nil {
			return err
		}
	case tar.TypeSymlink, tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		if err := u.node(name, h); err != nil {
			return err
		}
	default:
		return errs.Newf(errs.Unsupported, "entries of type %q", h.Typeflag)
	}
	return u.toResidue(h)
}

func checkHeader(h *tar.Header) error {
	if h.Uid < 0 || h.Gid < 0 || int64(h.Uid) > 1<<32-2 || int64(h.Gid) > 1<<32-2 {
		return errs.Newf(errs.Denied, "owner %d:%d is out of range", h.Uid, h.Gid)
	}
	if h.Typeflag == tar.TypeChar && h.Devmajor == 0 && h.Devminor == 0 {
		return errs.Newf(errs.Denied, "a character device 0:0: overlayfs would take it for a removed file")
	}
	if h.Size > maxSize || (isSparse(h) && h.Size > maxSparse) {
		return errs.Newf(errs.Denied, "%d bytes are more than a layer may have", h.Size)
	}
	return nil
}

// parent opens the folder that name lies in, and makes it if the tar has no
// entry for it so far.
func (u *unpacker) parent(name string) (int, string, error) {
	fd, base, err := u.root.at(name)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		if err := u.makeParents(path.Dir(name), 0); err != nil {
			return -1, base, err
		}
		fd, base, err = u.root.at(name)
	}
	if err != nil {
		return -1, base, fmt.Errorf("parent folder: %w", err)
	}
	return fd, base, nil
}

// makeParents makes the folders of dir that are missing. In the place of a
// whiteout the new folder is opaque: both say that what lies below is gone.
// followed is how many symlinks led to dir.
func (u *unpacker) makeParents(dir string, followed int) error {
	for i := 1; i <= len(dir); i++ {
		if i < len(dir) && dir[i] != '/' {
			continue
		}
		prefix := dir[:i]
		fd, err := u.root.openDir(prefix)
		if err == nil {
			_ = unix.Close(fd)
			continue
		}
		if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
			return fmt.Errorf("parent folder %q: %w", prefix, err)
		}
		target, err := u.linkTarget(prefix)
		if err != nil {
			return fmt.Errorf("parent folder %q: %w", prefix, err)
		}
		if target != "" {
			if followed >= maxFollowed {
				return errs.Newf(errs.Corrupt, "parent folder %q: symlinks in a circle", prefix)
			}
			if err := u.makeParents(target, followed+1); err != nil {
				return err
			}
			continue
		}
		pfd, base, err := u.root.at(prefix)
		if err != nil {
			return fmt.Errorf("parent folder %q: %w", prefix, err)
		}
		if _, err := u.mkdir(pfd, base); err != nil {
			return errs.WithClass(errs.Denied, fmt.Errorf("parent folder %q: %w", prefix, err))
		}
	}
	return nil
}

// linkTarget is where in the root a symlink of this layer leads that no folder
// of it is behind: to one of a lower layer. It is "" if there is no such link.
func (u *unpacker) linkTarget(name string) (string, error) {
	if u.opt.Kind != layer.OCI {
		return "", nil
	}
	pfd, base, err := u.root.at(name)
	if err != nil {
		return "", err
	}
	if st, err := lstat(pfd, base); err != nil || !isSymlink(st) {
		return "", ignoreMissing(err)
	}
	target, err := os.Readlink(path.Join(fdPath(pfd), base))
	if err != nil {
		return "", err
	}
	if !path.IsAbs(target) {
		dir, err := u.root.realName(pfd)
		if err != nil {
			return "", err
		}
		target = path.Join(dir, target)
	}
	return path.Clean("/" + target)[1:], nil
}

// mkdir makes a folder, implicit until its entry comes.
func (u *unpacker) mkdir(pfd int, base string) (real string, err error) {
	if err := fault.Step("tree.mkdir"); err != nil {
		return "", err
	}
	st, err := lstat(pfd, base)
	whited := err == nil && isWhiteout(st)
	if whited {
		if err := unix.Unlinkat(pfd, base, 0); err != nil {
			return "", err
		}
	}
	if err := unix.Mkdirat(pfd, base, 0o700); err != nil {
		return "", err
	}
	// Whatever the umask is, and whatever a set-group-ID parent hands down.
	if err := unix.Fchownat(pfd, base, 0, 0, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return "", err
	}
	if err := unix.Fchmodat(pfd, base, 0o755, 0); err != nil {
		return "", err
	}
	real, err = u.realName(pfd, base)
	if err != nil {
		return "", err
	}
	u.implicit[real] = true
	if whited {
		return real, u.markOpaque(pfd, base, real)
	}
	return real, nil
}

// realName is the name of base in an open folder, with no symlink in it.
func (u *unpacker) realName(pfd int, base string) (string, error) {
	dir, err := u.root.realName(pfd)
	if err != nil {
		return "", err
	}
	return path.Join(dir, base), nil
}
