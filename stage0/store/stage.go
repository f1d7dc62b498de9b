package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/lock"
)

// holdDeadline bounds the wait for the store's lock: nobody keeps it for
// longer than some renames take.
const holdDeadline = time.Minute

// Hold keeps out Collect and RemoveImage until it is closed: what was found in
// the store stays there. Keep it from resolve until the record that names what
// was found (a pod's refs.json, a staging entry's refs.json) exists, and no
// longer. Any number may hold at once, but nobody twice: a
// collector that waits in between would wait for the first, and the second for it.
func (s *Store) Hold(ctx context.Context) (*lock.Lock, error) { return s.acquire(ctx, lock.Shared) }

// Exclude keeps out all who Hold.
func (s *Store) Exclude(ctx context.Context) (*lock.Lock, error) {
	return s.acquire(ctx, lock.Exclusive)
}

// acquire passes the gate, where who wants the lock exclusively stands while it
// waits: else holders that overlap could keep it waiting for ever.
func (s *Store) acquire(ctx context.Context, take func(context.Context, string) (*lock.Lock, error)) (*lock.Lock, error) {
	if _, err := os.Lstat(s.path(frozenFile)); err == nil {
		err := errs.Newf(errs.Denied, "store %s: is frozen", s.path())
		return nil, errs.WithHint(err, "other hosts and stores count on it as it is; it is written again without %s", s.path(frozenFile))
	}
	ctx, cancel := context.WithTimeout(ctx, holdDeadline)
	defer cancel()
	gate, err := take(ctx, s.path("gate"))
	if err != nil {
		return nil, fmt.Errorf("hold store: %w", err)
	}
	defer gate.Close()
	l, err := take(ctx, s.path("lock"))
	if err != nil {
		return nil, fmt.Errorf("hold store: %w", err)
	}
	return l, nil
}

// Staging is an entry of store/tmp: what is being made, out of everyone's
// sight. It owns the lock that tells Collect that its maker lives.
type Staging struct {
	store  *Store
	dir    string
	lock   *lock.Lock
	layers atomic.Int64
	blobs  []digest.Digest
	early  bool // layers were committed before the image
	resume bool // refs.json stays, so that they do
}

// staged is refs.json of a staging entry: the layers of the store that the
// image to come is made of, or what is read of one. Collect counts it as needed.
type staged struct {
	Layers []string `json:"layers"`
	Blobs  []string `json:"blobs,omitempty"`
	// Resume is set for an import: should it be interrupted, those of the layers
	// that are in the store by then stay there for some time, for the next try.
	Resume bool `json:"resume,omitempty"`
}

// Stage makes an empty staging entry, which the caller closes.
func (s *Store) Stage(ctx context.Context) (*Staging, error) {
	// Between mkdir and lock the entry looks like one whose maker died.
	hold, err := s.Hold(ctx)
	if err != nil {
		return nil, err
	}
	defer hold.Close()
	return s.newEntry("import")
}

func (s *Store) newEntry(what string) (*Staging, error) {
	g := &Staging{store: s, dir: s.path("tmp", what+"-"+rand.Text())}
	if err := fault.Step("store.stage"); err != nil {
		return nil, err
	}
	if err := os.Mkdir(g.dir, 0o700); err != nil {
		return nil, fmt.Errorf("stage: %w", err)
	}
	// A default ACL of the data folder would get into everything below.
	if err := unix.Removexattr(g.dir, "system.posix_acl_default"); err != nil && !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.ENOTSUP) {
		return nil, fmt.Errorf("stage: %w", err)
	}
	l, err := lock.TryExclusive(filepath.Join(g.dir, "lock"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("stage: %w", err), os.RemoveAll(g.dir))
	}
	g.lock = l
	return g, nil
}

// Interrupt is Close for an import that ends without an image for a reason that
// may be gone at the next try: layers that CommitLayers has put into the store
// stay there until Collect finds that they have waited for long enough.
func (g *Staging) Interrupt() error {
	g.resume = g.early
	return g.Close()
}

// Close deletes what was not committed.
func (g *Staging) Close() error {
	if g.lock == nil {
		return nil
	}
	err := fault.Step("store.stage.remove")
	if err == nil {
		err = g.empty()
	}
	// Only now: an unlocked entry is anyone's to delete.
	err = errors.Join(err, g.lock.Close())
	g.lock = nil
	return err
}

// empty removes the entry, its lock file last. A collector that looks at the
// folder right then makes a lock file of its own and owns the rest.
func (g *Staging) empty() error {
	entries, err := os.ReadDir(g.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == "lock" || g.resume && e.Name() == refsFile {
			continue
		}
		if err := removeTree(filepath.Join(g.dir, e.Name())); err != nil {
			return err
		}
	}
	if g.resume {
		return nil
	}
	if err := os.Remove(filepath.Join(g.dir, "lock")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err = os.Remove(g.dir)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Path is a name in the entry's folder, for files that are dropped at its end.
func (g *Staging) Path(name string) string { return filepath.Join(g.dir, "spool-"+name) }

// NewLayer makes an empty folder for a layer that is to be unpacked.
func (g *Staging) NewLayer() (string, error) {
	dir := filepath.Join(g.dir, fmt.Sprintf("layer-%d", g.layers.Add(1)))
	if err := fault.Step("store.layer.mkdir"); err != nil {
		return "", err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("stage layer: %w", err)
	}
	return dir, nil
}

// AddBlob puts a small blob beside the layers and returns its name.
func (g *Staging) AddBlob(alg digest.Alg, data []byte) (string, error) {
	d := digest.Of(alg, data)
	if err := atomicfile.Write(filepath.Join(g.dir, "blob-"+d.String()), data, 0o600, atomicfile.Renamed); err != nil {
		return "", fmt.Errorf("stage blob: %w", err)
	}
	if !slices.Contains(g.blobs, d) {
		g.blobs = append(g.blobs, d)
	}
	return d.String(), nil
}

// AddBlobFrom puts a blob of any size beside the layers. r is read to its end
// and has to be what d says.
func (g *Staging) AddBlobFrom(d digest.Digest, r io.Reader) (string, error) {
	if err := fault.Step("store.blob.write"); err != nil {
		return "", err
	}
	f, err := os.OpenFile(filepath.Join(g.dir, "blob-"+d.String()), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return "", fmt.Errorf("stage blob: %w", err)
	}
	_, err = io.Copy(f, digest.Reader(r, d, -1))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return "", fmt.Errorf("stage blob: %w", err)
	}
	if !slices.Contains(g.blobs, d) {
		g.blobs = append(g.blobs, d)
	}
	return d.String(), nil
}

// OpenBlob opens a blob that was added.
func (g *Staging) OpenBlob(name string) (*os.File, error) {
	f, err := os.Open(filepath.Join(g.dir, "blob-"+name))
	if err != nil {
		return nil, fmt.Errorf("staged blob: %w", err)
	}
	return f, nil
}

// Need notes that the image to come is made of these layers, and returns
// which of them the store lacks. The others will not be collected as long as
// the entry is open.
func (g *Staging) Need(ctx context.Context, keys []string) (missing []string, err error) {
	hold, err := g.store.Hold(ctx)
	if err != nil {
		return nil, err
	}
	defer hold.Close()
	if err := atomicfile.WriteJSON(g.refs(), staged{Layers: keys, Resume: true}, 0o600, atomicfile.Renamed); err != nil {
		return nil, fmt.Errorf("stage: %w", err)
	}
	for _, key := range keys {
		if _, err := g.store.LayerMeta(key); errs.Is(err, errs.NotFound) {
			missing = append(missing, key)
		} else if err != nil {
			return nil, err
		}
	}
	return missing, nil
}

// Protect makes an entry that keeps all parts of the image in the store while it
// is open, whatever becomes of the image. The record is what it is now: another
// import may have replaced it since it was found. The error is of class NotFound
// if the image is gone.
func (s *Store) Protect(ctx context.Context, id string) (*Staging, image.Record, error) {
	hold, err := s.Hold(ctx)
	if err != nil {
		return nil, image.Record{}, err
	}
	defer hold.Close()
	rec, err := s.Image(id)
	if err != nil {
		return nil, rec, err
	}
	g, err := s.newEntry("read")
	if err != nil {
		return nil, rec, err
	}
	refs := staged{Layers: Layers(rec), Blobs: Blobs(rec)}
	if err := atomicfile.WriteJSON(g.refs(), refs, 0o600, atomicfile.Renamed); err != nil {
		return nil, rec, errors.Join(fmt.Errorf("protect image: %w", err), g.Close())
	}
	return g, rec, nil
}

const refsFile = "refs.json"

func (g *Staging) refs() string { return filepath.Join(g.dir, refsFile) }

// Import is what Commit gives a name.
type Import struct {
	Record image.Record
	Layers map[string]string // key → folder from NewLayer, for those that the store lacked
}

// Commit makes the image part of the store: one sync of everything, then
// renames in the order blob, layer, image, name. It is idempotent: nil means
// that the image is in the store, whoever put each part there.
func (g *Staging) Commit(ctx context.Context, in Import) (rec image.Record, err error) {
	in.Record.Version = recordVersion
	one, err := g.store.claimRecord(ctx, in.Record.ID)
	if err != nil {
		return in.Record, err
	}
	defer func() { err = errors.Join(err, one.Release()) }()
	rec = g.store.inherit(in.Record)
	temp := filepath.Join(g.dir, "image.json")
	if err := atomicfile.WriteJSON(temp, rec, 0o600, atomicfile.Renamed); err != nil {
		return rec, fmt.Errorf("commit image: %w", err)
	}
	if err := fault.Step("store.sync"); err != nil {
		return rec, err
	}
	if err := atomicfile.SyncFS(g.dir); err != nil {
		return rec, fmt.Errorf("commit image: %w", err)
	}
	// The layers of others that the record names were noted by Need; this
	// covers the new ones, which are nobody's between rename and record.
	hold, err := g.store.Hold(ctx)
	if err != nil {
		return rec, err
	}
	defer hold.Close()
	// What an earlier record said is gone if the image was removed meanwhile.
	if _, err := os.Lstat(g.store.imagePath(rec.ID)); errors.Is(err, fs.ErrNotExist) {
		rec = in.Record
		if err := atomicfile.WriteJSON(temp, rec, 0o600, atomicfile.Synced); err != nil {
			return rec, fmt.Errorf("commit image: %w", err)
		}
	}
	if err := g.place(in); err != nil {
		return rec, fmt.Errorf("commit image: %w", err)
	}
	if err := g.present(rec); err != nil {
		return rec, fmt.Errorf("commit image: %w", err)
	}
	if err := atomicfile.Rename("store.image.rename", temp, g.store.imagePath(rec.ID), atomicfile.Renamed); err != nil {
		return rec, fmt.Errorf("commit image: %w", err)
	}
	if err := atomicfile.SyncDir(g.store.path("images")); err != nil {
		return rec, fmt.Errorf("commit image: %w", err)
	}
	for _, ref := range rec.Names {
		if err := g.store.writeName(name{Ref: ref, ID: rec.ID, Verified: rec.Trust.Verified, ImportedAt: rec.ImportedAt}); err != nil {
			return rec, fmt.Errorf("commit image: name %q: %w", ref, err)
		}
	}
	// What can't be forgotten now is forgotten when its time is over.
	_ = g.store.forgetInterrupted(Layers(rec))
	return rec, nil
}

// place moves blobs and layers to their final names and syncs those names: after
// a power loss too there is no record of what is not there.
func (g *Staging) place(in Import) error {
	dirs := map[string]bool{}
	for _, d := range g.blobs {
		target := g.store.blobPath(d)
		from := filepath.Join(g.dir, "blob-"+d.String())
		if err := atomicfile.Rename("store.blob.rename", from, target, atomicfile.Renamed); err != nil {
			return err
		}
		dirs[filepath.Dir(target)] = true
	}
	g.blobs = nil
	for key, dir := range in.Layers {
		if err := g.placeLayer(key, dir); err != nil {
			return err
		}
		dirs[g.store.path("layers")] = true
	}
	for dir := range dirs {
		if err := atomicfile.SyncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// placeLayer gives a layer its name, unless somebody else imported the same
// layer meanwhile: then this one goes with the entry.
func (g *Staging) placeLayer(key, dir string) error {
	if err := fault.Step("store.layer.rename"); err != nil {
		return err
	}
	err := unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, g.store.ownLayer(key), unix.RENAME_NOREPLACE)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("layer %s: %w", key, err)
	}
	return nil
}

// present checks that all parts of the record are there: a record is never
// written before what it names.
func (g *Staging) present(rec image.Record) error {
	for _, key := range Layers(rec) {
		if _, err := g.store.LayerMeta(key); err != nil {
			return err
		}
	}
	for _, blob := range Blobs(rec) {
		d, err := digest.Parse(blob)
		if err != nil {
			return err
		}
		if _, err := os.Stat(g.store.blobPath(d)); err != nil {
			return err
		}
	}
	return nil
}

// layersOf are the layers that a pod mounts and those that the image is verified
// and exported from, which may be others: see Record.Own.
// Layers are the keys of all layers that the image has, its own ones too.
func Layers(rec image.Record) []string { return slices.Concat(rec.Layers, rec.Own) }

// Blobs are the names of all blobs that the image has.
func Blobs(rec image.Record) []string {
	var list []string
	all := append([]string{rec.Manifest, rec.Index, rec.Config}, rec.Signatures...)
	if k := rec.Kept; k != nil {
		all = append(append(all, k.Layout, k.Index), k.Blobs...)
	}
	for _, b := range all {
		if b != "" {
			list = append(list, b)
		}
	}
	return list
}
