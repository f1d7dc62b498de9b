package tree

import (
	"archive/tar"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/layer"
	"github.com/rkt-pods/rkt/pkg/proc"
)

// dirEnd is what a folder gets at the end: its times, since what is made inside
// changes them, and its default ACL.
type dirEnd struct {
	name  string
	times times
	acl   []byte
}

type times struct{ access, mod unix.Timespec }

func (u *unpacker) folder(name string, h *tar.Header) error {
	if name == "." {
		delete(u.implicit, ".")
		return u.dirMetadata(u.root.fd, ".", h)
	}
	pfd, base, err := u.parent(name)
	if err != nil {
		return err
	}
	st, err := lstat(pfd, base)
	var real string
	switch {
	case err == nil && isDir(st):
		if real, err = u.realName(pfd, base); err == nil && !u.implicit[real] {
			err = clearXattrs(path.Join(fdPath(pfd), base)) // a second entry takes the place of the first
		}
	case err == nil && !isWhiteout(st):
		// A symlink is replaced and not followed, says the specification.
		if err = u.remove(pfd, base); err != nil {
			return err
		}
		real, err = u.mkdir(pfd, base)
	default:
		real, err = u.mkdir(pfd, base)
	}
	if err != nil {
		return err
	}
	delete(u.implicit, real)
	fd, err := unix.Openat(pfd, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return u.dirMetadata(fd, real, h)
}

// dirMetadata sets owner, mode and attributes, and notes for the end what
// depends on nothing more being made inside.
func (u *unpacker) dirMetadata(fd int, real string, h *tar.Header) error {
	p := fdPath(fd) // an O_PATH descriptor can be changed by name only
	if err := unix.Chown(p, h.Uid, h.Gid); err != nil {
		return err
	}
	if err := unix.Chmod(p, uint32(h.Mode)&0o7777); err != nil {
		return err
	}
	late := dirEnd{name: real, times: headerTimes(h)}
	set := func(name string, value []byte) error {
		if name == aclDefault {
			late.acl = value // whatever is made inside would inherit it
			return nil
		}
		return unix.Setxattr(p, name, value, 0)
	}
	if err := u.xattrs(real, h, set); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat(p, &st); err != nil {
		return err
	}
	u.dirs[st.Ino] = late // a second entry takes the place of the first
	return nil
}

// file writes a regular file, or the payload of a sparse one at its places.
func (u *unpacker) file(name string, h *tar.Header) error {
	u.meta.Size += h.Size
	if u.meta.Size > maxSize {
		return errs.Newf(errs.Denied, "more than %d bytes in one layer", int64(maxSize))
	}
	if err := u.opt.Budget.take(h.Size, 0); err != nil {
		return err
	}
	pfd, base, err := u.parent(name)
	if err != nil {
		return err
	}
	if err := fault.Step("tree.file"); err != nil {
		return err
	}
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(pfd, base, flags, 0o600)
	if errors.Is(err, unix.EEXIST) {
		if err := u.remove(pfd, base); err != nil {
			return err
		}
		fd, err = unix.Openat(pfd, base, flags, 0o600)
	}
	if err != nil {
		return err
	}
	f := rawFile(fd)
	err = u.fill(f, h)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func (u *unpacker) fill(f rawFile, h *tar.Header) error {
	var err error
	if isSparse(h) {
		err = u.copySparse(f, h)
	} else {
		err = u.copyPayload(f, h)
	}
	if err != nil {
		return err
	}
	// chown takes set-user-ID and file capabilities away, so it comes first.
	fd := int(f)
	if err := unix.Fchown(fd, h.Uid, h.Gid); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, uint32(h.Mode)&0o7777); err != nil {
		return err
	}
	set := func(name string, value []byte) error { return unix.Fsetxattr(fd, name, value, 0) }
	if err := u.xattrs(h.Name, h, set); err != nil {
		return err
	}
	return setTimes(unix.AT_FDCWD, fdPath(fd), headerTimes(h), 0)
}

func (u *unpacker) copyPayload(f rawFile, h *tar.Header) error {
	if u.bare {
		return errors.Join(unix.Ftruncate(int(f), h.Size), u.split.payload(h.Name, 0, nil))
	}
	if h.Size == 0 {
		return u.split.payload(h.Name, 0, nil)
	}
	crc := crc64.New(crcTable())
	u.rec.skip = true
	n, err := u.copyData(f, layer.Hole, crc)
	u.rec.endPayload()
	if err != nil {
		return err
	}
	if n != h.Size {
		return errs.Newf(errs.Corrupt, "truncated archive: %d of %d bytes", n, h.Size)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f), &st); err != nil {
		return err
	}
	u.payload[st.Ino] = u.split.pos
	return u.split.payload(h.Name, n, crc.Sum(nil))
}

// copySparse leaves the holes out of the file; what the tar has in their stead
// goes to the residue.
func (u *unpacker) copySparse(f rawFile, h *tar.Header) error {
	if u.bare {
		return u.copyPayload(f, h)
	}
	return u.rawToResidue(h, func() error {
		_, err := u.copyData(f, page, io.Discard)
		return err
	})
}

// page is what a file system hands out at least.
const page = 4 << 10

// copyData writes the content of the entry to the file and to a hash, and leaves
// out of the file what is a hole, or may be one: grain zeroes, from a multiple of
// that on. A layer of nothing, which packs to nothing, takes no space then.
func (u *unpacker) copyData(f rawFile, grain int, sum io.Writer) (int64, error) {
	var at, end int64 // end: of what was written
	for {
		if err := u.ctx.Err(); err != nil {
			return at, err
		}
		n := 0
		var err error
		for n < len(u.buf) && err == nil {
			var more int
			more, err = u.tar.Read(u.buf[n:])
			n += more
		}
		_, _ = sum.Write(u.buf[:n]) // hashes never fail
		written, werr := writeData(f, u.buf[:n], at, grain)
		if werr != nil {
			return at, werr
		}
		if written > 0 {
			end = at + int64(written)
		}
		at += int64(n)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return at, tarError(err)
		}
	}
	if end == at {
		return at, nil
	}
	return at, unix.Ftruncate(int(f), at) // a hole up to the end
}

// writeData writes the parts of b that are not zero, and says where the last of
// them ends.
func writeData(f rawFile, b []byte, at int64, grain int) (end int, err error) {
	for from := 0; from < len(b); {
		to := min(from+grain, len(b))
		if layer.NotZero(b[from:to]) < 0 {
			from = to
			continue
		}
		for to < len(b) {
			next := min(to+grain, len(b))
			if layer.NotZero(b[to:next]) < 0 {
				break
			}
			to = next
		}
		if _, err := f.WriteAt(b[from:to], at+int64(from)); err != nil {
			return end, err
		}
		from, end = to, to
	}
	return end, nil
}

// onlyWriter and onlyReader hide the shortcuts of io.Copy, which would not use
// the buffer.
type (
	onlyWriter struct{ io.Writer }
	onlyReader struct{ io.Reader }
)

// node makes what has neither content nor children.
func (u *unpacker) node(name string, h *tar.Header) error {
	pfd, base, err := u.parent(name)
	if err != nil {
		return err
	}
	if err := fault.Step("tree.node"); err != nil {
		return err
	}
	err = mknod(pfd, base, h)
	if errors.Is(err, unix.EEXIST) {
		if err := u.remove(pfd, base); err != nil {
			return err
		}
		err = mknod(pfd, base, h)
	}
	if err != nil {
		return err
	}
	if err := unix.Fchownat(pfd, base, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if h.Typeflag != tar.TypeSymlink {
		if err := unix.Fchmodat(pfd, base, uint32(h.Mode)&0o7777, 0); err != nil {
			return err
		}
	}
	set := func(attr string, value []byte) error {
		return unix.Lsetxattr(path.Join(fdPath(pfd), base), attr, value, 0)
	}
	if err := u.xattrs(name, h, set); err != nil {
		return err
	}
	return setTimes(pfd, base, headerTimes(h), unix.AT_SYMLINK_NOFOLLOW)
}

func mknod(pfd int, base string, h *tar.Header) error {
	dev := unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor))
	if (h.Typeflag == tar.TypeChar || h.Typeflag == tar.TypeBlock) && !proc.HostUsers() {
		return errs.WithHint(errs.Newf(errs.Unsupported, "a device, which takes the host's root to make"), "apps get their devices anyway: leave it out of the image, or fetch it as root")
	}
	switch h.Typeflag {
	case tar.TypeSymlink:
		return unix.Symlinkat(h.Linkname, pfd, base)
	case tar.TypeChar:
		return unix.Mknodat(pfd, base, unix.S_IFCHR|0o600, int(dev))
	case tar.TypeBlock:
		return unix.Mknodat(pfd, base, unix.S_IFBLK|0o600, int(dev))
	default:
		return unix.Mknodat(pfd, base, unix.S_IFIFO|0o600, 0)
	}
}

// hardLink links to a file of this layer. Where the target is another layer's
// the link is noted for the fix-up of the chain.
func (u *unpacker) hardLink(name string, h *tar.Header) error {
	target, err := cleanName(h.Linkname)
	if err != nil {
		return fmt.Errorf("link to %q: %w", h.Linkname, err)
	}
	if u.opt.Kind == layer.ACI {
		below, ok := strings.CutPrefix(target, aciRootFS+"/")
		if !ok {
			return errs.Newf(errs.Denied, "link to %q, which is outside of rootfs", h.Linkname)
		}
		target = below
	}
	pfd, base, err := u.parent(name)
	if err != nil {
		return err
	}
	pfd, err = unix.Dup(pfd) // the look at the target takes the cached one away
	if err != nil {
		return err
	}
	defer unix.Close(pfd)
	unix.CloseOnExec(pfd)
	tfd, tbase, err := u.root.at(target)
	var st unix.Stat_t
	if err == nil {
		st, err = lstat(tfd, tbase)
	}
	switch {
	case errors.Is(err, unix.ENOENT):
		if u.removed(target) {
			return errRemoved(h)
		}
		return u.linkBelow(pfd, base, target)
	case err != nil:
		return fmt.Errorf("link to %q: %w", h.Linkname, err)
	case isDir(st):
		real, err := u.realName(tfd, tbase)
		if err != nil {
			return err
		}
		if u.opt.Kind == layer.OCI && u.implicit[real] {
			return u.linkBelow(pfd, base, real) // it may be a symlink of a lower layer
		}
		return errs.Newf(errs.Denied, "link to %q, which is a folder", h.Linkname)
	case isWhiteout(st):
		return errRemoved(h)
	}
	if old, err := lstat(pfd, base); err == nil {
		if old.Ino == st.Ino {
			return nil // a link to itself
		}
		if err := u.remove(pfd, base); err != nil {
			return err
		}
		u.root.forget() // the target's folder may have been in there
		if tfd, tbase, err = u.root.at(target); err != nil {
			return fmt.Errorf("link to %q: %w", h.Linkname, err)
		}
	}
	if err := fault.Step("tree.link"); err != nil {
		return err
	}
	return unix.Linkat(tfd, tbase, pfd, base, 0)
}

func errRemoved(h *tar.Header) error {
	return errs.Newf(errs.Denied, "link to %q, which the layer removes", h.Linkname)
}

// removed says whether a folder of this layer hides what lower ones have at the
// name, and no link of this layer is there.
func (u *unpacker) removed(name string) bool {
	noted := func(l layer.HardLink) bool { return string(l.Path) == name }
	if slices.ContainsFunc(u.meta.HardLinks, noted) {
		return false
	}
	for dir := path.Dir(name); ; dir = path.Dir(dir) {
		if u.opaque[dir] || dir == "." {
			return u.opaque[dir]
		}
	}
}

func (u *unpacker) linkBelow(pfd int, base, target string) error {
	real, err := u.realName(pfd, base)
	if err != nil || real == target {
		return err
	}
	if err := u.remove(pfd, base); err != nil {
		return err
	}
	link := layer.HardLink{Path: layer.Path(real), Target: layer.Path(target)}
	for _, l := range slices.Backward(u.meta.HardLinks) {
		if l.Path == link.Target {
			link.Target = l.Target // a link to a link that is not here either
			break
		}
	}
	u.meta.HardLinks = append(u.meta.HardLinks, link)
	return nil
}

// remove makes place for another entry of the same name. Content that only
// the removed file has goes to the residue, and nothing waits any more for the
// folders that go: the next file or link may get the inode of one.
func (u *unpacker) remove(pfd int, base string) error {
	if pfd != u.root.pfd {
		u.root.forget() // it may have been resolved through what goes
	}
	return removeAll(pfd, base, func(dirfd int, base string, st unix.Stat_t) error {
		delete(u.dirs, st.Ino)
		pos, ok := u.payload[st.Ino]
		if !ok {
			return nil
		}
		delete(u.payload, st.Ino)
		u.residue[pos] = st.Size
		return unix.Renameat(dirfd, base, unix.AT_FDCWD, u.residuePath(pos))
	})
}
