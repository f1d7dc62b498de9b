package tree

import (
	"context"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"path/filepath"
	"slices"

	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/layer"
)

// Damage is one thing of a layer that is not as it was imported.
type Damage struct {
	Path   layer.Path `json:"path,omitempty"` // relative to the layer's root; "": the layer's own records
	What   string     `json:"what"`           // what differs, one of the constants below
	Detail string     `json:"detail,omitempty"`
}

// What can differ.
const (
	Content  = "content"
	Mode     = "mode"
	Owner    = "owner"
	MTime    = "mtime"
	XAttr    = "xattr"
	Target   = "symlink target"
	Type     = "type"
	Device   = "device"
	HardLink = "hard link"
	Missing  = "missing"
	Extra    = "extra"
	Unread   = "unreadable"
	Records  = "record"
)

// String says it in one line.
func (d Damage) String() string {
	s := d.What
	if d.Path != "" {
		s = fmt.Sprintf("%q: %s", string(d.Path), s)
	}
	if d.Detail != "" {
		s += ": " + d.Detail
	}
	return s
}

// damages collects what is found. One payload may be reported by the stream
// and by the look at the tree.
type damages struct {
	list []Damage
	seen map[Damage]bool
}

func (c *damages) add(path, what, format string, args ...any) {
	key := Damage{Path: layer.Path(path), What: what}
	if c.seen == nil {
		c.seen = map[Damage]bool{}
	}
	if c.seen[key] {
		return
	}
	c.seen[key] = true
	key.Detail = fmt.Sprintf(format, args...)
	c.list = append(c.list, key)
}

// Verify compares an unpacked tar with what was imported: the digest of the
// stream that is rebuilt from it, type, owner, mode, time and attributes of each
// entry as its header has them, and all names that are there. For that it makes
// the tree once more in scratch, an empty folder on the same file system, but
// without the files' content. The error is about the checking itself. Of an ACI
// the manifest is returned.
func Verify(ctx context.Context, dir string, meta layer.Meta, scratch string) (list []Damage, manifest []byte, err error) {
	kind, want, err := layer.ParseKey(meta.Key)
	if err != nil {
		return nil, nil, err
	}
	found := &damages{}
	pr, pw := io.Pipe()
	rebuilt := make(chan struct{})
	go func() {
		err := rebuildTolerant(dir, meta, pw, found)
		_ = pw.CloseWithError(err) // never fails, says package io
		close(rebuilt)
	}()
	l, err := unpackBare(ctx, pr, scratch, Options{Kind: kind, Want: want})
	if err != nil && ctx.Err() == nil && errs.ClassOf(err) != errs.Internal {
		// The rest is still looked at for content that has changed.
		_, derr := io.Copy(io.Discard, pr)
		err = errs.WithClass(errs.Corrupt, err)
		if derr != nil {
			err = errs.WithClass(errs.Corrupt, derr)
		}
	}
	_ = pr.CloseWithError(io.ErrClosedPipe) // never fails, says package io
	<-rebuilt                               // found is ours from here on
	switch {
	case errs.Is(err, errs.Corrupt):
		found.add("", Records, "%s or %s: %v", splitFile, residueFile, err)
		return found.list, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("verify layer %s: %w", meta.Key, err)
	}
	if l.Digest != want && len(found.list) == 0 {
		found.add("", Records, "%s or %s: the tar they make is %s", splitFile, residueFile, l.Digest.OCI())
	}
	if err := compareDirs(filepath.Join(dir, "fs"), filepath.Join(scratch, "fs"), false, found); err != nil {
		return nil, nil, fmt.Errorf("verify layer %s: %w", meta.Key, err)
	}
	compareMeta(meta, l.Meta, found)
	return found.list, l.Manifest, nil
}

// rebuildTolerant goes on where content is damaged, and says so.
func rebuildTolerant(dir string, meta layer.Meta, w io.Writer, found *damages) error {
	root, err := openRoot(filepath.Join(dir, "fs"))
	if err != nil {
		return errs.WithClass(errs.Corrupt, err)
	}
	defer root.close()
	kind, _, err := layer.ParseKey(meta.Key)
	if err != nil {
		return err
	}
	b := &rebuilder{root: root, kind: kind, w: w, crc: crc64.New(crcTable()), buf: make([]byte, 128<<10)}
	b.damaged = func(name, detail string) {
		if clean, err := b.name(name); err == nil {
			name = clean
		}
		found.add(name, Content, "%s", detail)
	}
	if b.residue, err = openResidue(dir, meta.Residue); err != nil {
		return errs.WithClass(errs.Corrupt, err)
	}
	defer b.residue.close()
	if err = readSplit(filepath.Join(dir, splitFile), b.entry); err == nil {
		err = b.residue.end()
	}
	if err != nil && !errors.Is(err, io.ErrClosedPipe) {
		err = errs.WithClass(errs.Corrupt, err)
	}
	return err
}

// compareMeta compares what overlayfs can't be told by the tree: fix-ups are
// made from it.
func compareMeta(got, want layer.Meta, found *damages) {
	for _, f := range []struct {
		name string
		same bool
	}{
		{"tarSize", got.TarSize == want.TarSize},
		{"entries", got.Entries == want.Entries},
		{"size", got.Size == want.Size},
		{"implicit", slices.Equal(got.Implicit, want.Implicit)},
		{"whiteouts", slices.Equal(got.Whiteouts, want.Whiteouts)},
		{"hardLinks", slices.Equal(got.HardLinks, want.HardLinks)},
		{"dropped", slices.Equal(got.Dropped, want.Dropped)},
	} {
		if !f.same {
			found.add("", Records, "%s: %s is not what the tar says", metaFile, f.name)
			return
		}
	}
}

// Locate returns the folder and the record of a layer.
type Locate func(key string) (dir string, meta layer.Meta, err error)

// VerifyMade compares a layer that no tar has, a fix-up or a derived one, with
// what is made in scratch of the layers it came from. Where one of those is
// gone from the store, the digest that was taken of the tree decides.
func VerifyMade(ctx context.Context, dir string, meta layer.Meta, scratch string, locate Locate) ([]Damage, error) {
	found := &damages{}
	made, err := remake(ctx, meta, scratch, locate)
	if errs.Is(err, errs.NotFound) {
		return verifyDigest(dir, meta, found)
	}
	if err != nil {
		return nil, fmt.Errorf("verify layer %s: %w", meta.Key, err)
	}
	if made.Key != meta.Key {
		found.add("", Records, "%s: describes layer %s", metaFile, made.Key)
		return found.list, nil
	}
	if err := compareDirs(filepath.Join(dir, "fs"), filepath.Join(scratch, "fs"), true, found); err != nil {
		return nil, fmt.Errorf("verify layer %s: %w", meta.Key, err)
	}
	compareMeta(meta, made, found)
	return found.list, nil
}

// remake makes a fix-up or derived layer anew.
func remake(ctx context.Context, meta layer.Meta, scratch string, locate Locate) (layer.Meta, error) {
	out := layer.Meta{Version: layer.MetaVersion}
	if meta.From != "" && len(meta.Whitelist) > 0 {
		dir, from, err := locate(meta.From)
		if err != nil {
			return out, err
		}
		out.Key, out.From, out.Whitelist = layer.DerivedKey(meta.From, meta.Whitelist), meta.From, meta.Whitelist
		return out, derive(ctx, placed{dir, from}, scratch, &out)
	}
	var chain []placed
	for _, key := range meta.Chain {
		dir, m, err := locate(key)
		if err != nil {
			return out, err
		}
		chain = append(chain, placed{dir, m})
	}
	v, err := newView(chain)
	if err != nil {
		return out, err
	}
	defer v.close()
	p, err := v.plan()
	if err != nil {
		return out, err
	}
	out.Key, out.Chain = layer.FixupKey(meta.Chain), meta.Chain
	return out, v.build(scratch, p, &out)
}

func verifyDigest(dir string, meta layer.Meta, found *damages) ([]Damage, error) {
	root, err := openRoot(filepath.Join(dir, "fs"))
	if err != nil {
		found.add("", Missing, "%v", err)
		return found.list, nil
	}
	defer root.close()
	got, err := root.digest()
	if err != nil {
		found.add("", Unread, "%v", err)
		return found.list, nil
	}
	if got != meta.Tree {
		found.add("", Content, "the tree is %s; a layer it was made of is gone, so that no file can be named", got)
	}
	return found.list, nil
}

// NeedsFixup says whether the chain has to end with a fix-up layer.
func NeedsFixup(chain []string, locate Locate) (bool, error) {
	var layers []placed
	for _, key := range chain {
		dir, meta, err := locate(key)
		if err != nil {
			return false, err
		}
		layers = append(layers, placed{dir, meta})
	}
	v, err := newView(layers)
	if err != nil {
		return false, err
	}
	defer v.close()
	p, err := v.plan()
	return err == nil && !p.empty(), err
}

// WriteTar writes the tar that the layer was unpacked from, and checks that it
// is that one: the error is of class Corrupt if not.
func WriteTar(dir string, meta layer.Meta, w io.Writer) error {
	_, want, err := layer.ParseKey(meta.Key)
	if err != nil {
		return err
	}
	h := want.Alg.New()
	if err := Rebuild(dir, meta, io.MultiWriter(w, h)); err != nil {
		return fmt.Errorf("layer %s: %w", meta.Key, err)
	}
	if got := digest.Sum(want.Alg, h); got != want {
		return errs.Newf(errs.Corrupt, "layer %s: the content is %s", meta.Key, got.OCI())
	}
	return nil
}
