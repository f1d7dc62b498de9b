package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/lock"
)

// Held is what the pods need of the store, with the pods that need it.
type Held struct {
	Images map[string][]string // image id → pods
	Layers map[string][]string // layer key → pods
	// Unknown are the pods whose references can't be read. They may need
	// anything, so they hold everything.
	Unknown []string
}

// HeldFunc reads what the pods hold. It is called with the store's lock held,
// so that no pod is added meanwhile.
type HeldFunc func() (Held, error)

// Garbage is what nothing names any more.
type Garbage struct {
	Layers  []string `json:"layers"`
	Blobs   []string `json:"blobs"`
	Staging []string `json:"staging"` // entries of store/tmp whose maker is gone
	Freed   int64    `json:"freed"`   // bytes of the layers' files
}

// Empty says whether there is nothing to collect.
func (g Garbage) Empty() bool { return len(g.Layers)+len(g.Blobs)+len(g.Staging) == 0 }

// InterruptedGrace is how long layers of an interrupted import wait for the next
// try where nobody says otherwise.
const InterruptedGrace = 24 * time.Hour

// Plan says what Collect would delete, and changes nothing.
func (s *Store) Plan(held HeldFunc, grace time.Duration) (Garbage, error) {
	g, err := s.unreferenced(held, grace)
	if err != nil {
		return g, err
	}
	entries, err := s.tmpEntries()
	if err != nil {
		return g, err
	}
	for _, name := range entries {
		busy, err := lock.Held(s.path("tmp", name, "lock"))
		if err != nil {
			return g, err
		}
		resume := s.resumable(name, grace)
		if left, err := os.ReadDir(s.path("tmp", name)); err != nil || busy || resume && len(left) <= 2 {
			continue // at work, gone meanwhile, or its two files only
		}
		g.Staging = append(g.Staging, name)
	}
	return g, nil
}

// Collect deletes layers and blobs that no image and no pod names, and staging
// entries whose maker is gone. What an import that was interrupted less than
// grace ago has brought in stays. It keeps the store's lock for reading the
// references and for renames only.
func (s *Store) Collect(ctx context.Context, held HeldFunc, grace time.Duration) (done Garbage, err error) {
	excl, err := s.Exclude(ctx)
	if err != nil {
		return done, err
	}
	stale, trash, done, err := s.takeOut(held, grace)
	err = errors.Join(err, excl.Close())
	// From here on nobody can see or need what goes.
	for _, g := range stale {
		err = errors.Join(err, g.Close())
	}
	if trash != nil {
		err = errors.Join(err, trash.Close())
	}
	return done, err
}

// takeOut runs with the store's lock. It locks stale entries and moves
// unreferenced layers and blobs into an entry of their own.
func (s *Store) takeOut(held HeldFunc, grace time.Duration) (stale []*Staging, trash *Staging, done Garbage, err error) {
	if err := errors.Join(s.sweep(), s.dropClaims()); err != nil {
		return nil, nil, done, err
	}
	stale, err = s.lockStale(grace)
	if err != nil {
		return stale, nil, done, err
	}
	for _, g := range stale {
		if !g.resume {
			done.Staging = append(done.Staging, filepath.Base(g.dir))
		}
	}
	garbage, err := s.unreferenced(held, grace)
	if err != nil || len(garbage.Layers)+len(garbage.Blobs) == 0 {
		return stale, nil, done, err
	}
	if trash, err = s.newEntry("gc"); err != nil {
		return stale, nil, done, err
	}
	for _, key := range garbage.Layers {
		size := s.layerSize(key)
		if err := atomicfile.Rename("store.layer.drop", s.ownLayer(key), filepath.Join(trash.dir, key), atomicfile.Renamed); err != nil {
			return stale, trash, done, fmt.Errorf("collect layer: %w", err)
		}
		done.Layers = append(done.Layers, key)
		done.Freed += size
	}
	for _, name := range garbage.Blobs {
		d, err := digest.Parse(name)
		if err != nil {
			return stale, trash, done, err
		}
		if err := atomicfile.Rename("store.blob.drop", s.blobPath(d), filepath.Join(trash.dir, name), atomicfile.Renamed); err != nil {
			return stale, trash, done, fmt.Errorf("collect blob: %w", err)
		}
		done.Blobs = append(done.Blobs, name)
	}
	return stale, trash, done, nil
}

// unreferenced reads all references once.
func (s *Store) unreferenced(held HeldFunc, grace time.Duration) (Garbage, error) {
	var g Garbage
	pods, err := held()
	if err != nil {
		return g, err
	}
	if len(pods.Unknown) > 0 {
		return g, nil // fail closed: whoever gave Unknown reports it
	}
	layers, blobs, err := s.references(grace)
	if err != nil {
		return g, err
	}
	for key := range pods.Layers {
		layers[key] = true
	}
	entries, err := os.ReadDir(s.path("layers"))
	if err != nil {
		return g, fmt.Errorf("list layers: %w", err)
	}
	for _, e := range entries {
		if !layers[e.Name()] {
			g.Layers = append(g.Layers, e.Name())
			g.Freed += s.layerSize(e.Name())
		}
	}
	for _, alg := range []digest.Alg{digest.SHA256, digest.SHA512} {
		entries, err := os.ReadDir(s.path("blobs", string(alg)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return g, fmt.Errorf("list blobs: %w", err)
		}
		for _, e := range entries {
			d := digest.Digest{Alg: alg, Hex: e.Name()}
			// A name that is no digest is not ours to delete.
			if _, err := digest.Parse(d.String()); err == nil && !blobs[d.String()] {
				g.Blobs = append(g.Blobs, d.String())
			}
		}
	}
	return g, nil
}

// layerSize is how many bytes the files of a layer have, 0 if it can't be told.
func (s *Store) layerSize(key string) int64 {
	meta, err := s.LayerMeta(key)
	if err != nil {
		return 0
	}
	return meta.Size
}

// resumable says whether a staging entry without a maker is one of an import
// that was interrupted less than grace ago.
func (s *Store) resumable(entry string, grace time.Duration) bool {
	info, err := os.Stat(s.path("tmp", entry, refsFile))
	if err != nil || time.Since(info.ModTime()) >= grace {
		return false
	}
	_, ok := s.interrupted(entry)
	return ok
}

// references are the layers and blobs that images and live staging entries
// name, and interrupted ones within the grace. One unreadable record is an error:
// it may name anything.
func (s *Store) references(grace time.Duration) (layers, blobs map[string]bool, err error) {
	layers, blobs = map[string]bool{}, map[string]bool{}
	images, err := s.ownImages()
	if err != nil {
		return nil, nil, fmt.Errorf("no layer is collected while a record can't be read: %w", err)
	}
	for _, rec := range images {
		for _, key := range Layers(rec) {
			layers[key] = true
		}
		for _, b := range Blobs(rec) {
			blobs[b] = true
		}
	}
	entries, err := s.tmpEntries()
	if err != nil {
		return nil, nil, err
	}
	for _, name := range entries {
		var refs staged
		err := atomicfile.ReadJSON(s.path("tmp", name, refsFile), &refs)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, nil, errs.WithClass(errs.Corrupt, err)
		}
		busy, err := lock.Held(s.path("tmp", name, "lock"))
		if err != nil {
			return nil, nil, err
		}
		if !busy && !s.resumable(name, grace) {
			continue // its maker is gone, and so will it be
		}
		for _, key := range refs.Layers {
			layers[key] = true
		}
		for _, name := range refs.Blobs {
			blobs[name] = true
		}
	}
	return layers, blobs, nil
}

// tmpEntries are the folders of store/tmp.
func (s *Store) tmpEntries() ([]string, error) {
	entries, err := os.ReadDir(s.path("tmp"))
	if err != nil {
		return nil, fmt.Errorf("list staging entries: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// lockStale locks the entries whose maker is gone. Their references are void,
// but for those of an import that the next one may go on with.
func (s *Store) lockStale(grace time.Duration) ([]*Staging, error) {
	names, err := s.tmpEntries()
	if err != nil {
		return nil, err
	}
	var stale []*Staging
	for _, name := range names {
		dir := s.path("tmp", name)
		l, err := lock.TryExclusive(filepath.Join(dir, "lock"))
		if errs.Is(err, errs.Busy) || errors.Is(err, fs.ErrNotExist) {
			continue // at work, or done right now
		}
		if err != nil {
			return stale, err
		}
		g := &Staging{store: s, dir: dir, lock: l, resume: s.resumable(name, grace)}
		stale = append(stale, g)
		if g.resume {
			continue
		}
		if err := os.Remove(g.refs()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return stale, fmt.Errorf("collect staging entry: %w", err)
		}
	}
	return stale, nil
}

// RemoveImage removes the image's names and record, readable or not; its layers
// go with the next Collect. It refuses, with class Busy, an image that a pod
// holds or that is pinned.
func (s *Store) RemoveImage(ctx context.Context, id string, held HeldFunc) error {
	return s.removeImage(ctx, id, held, func() error { return nil })
}

// removeImage asks allowed with the store's lock held.
func (s *Store) removeImage(ctx context.Context, id string, held HeldFunc, allowed func() error) error {
	if !digest.IsImageID(id) {
		return errs.Newf(errs.Usage, "image %q: not a full image ID", id)
	}
	if _, err := os.Lstat(s.imagePath(id)); errors.Is(err, fs.ErrNotExist) {
		if err := s.elsewhere(id, nil); err != nil {
			return err
		}
	}
	excl, err := s.Exclude(ctx)
	if err != nil {
		return err
	}
	defer excl.Close()
	pods, err := held()
	if err != nil {
		return err
	}
	short := digest.ShortID(id, 12)
	if holders := slices.Concat(pods.Images[id], pods.Unknown); len(holders) > 0 {
		err := errs.Newf(errs.Busy, "image %s: in use by pod %s", short, strings.Join(slices.Compact(slices.Sorted(slices.Values(holders))), ", "))
		return errs.WithHint(err, "\"rkt rm\" removes an exited pod, \"rkt gc\" all of them")
	}
	if _, err := os.Lstat(s.imagePath(id)); errors.Is(err, fs.ErrNotExist) {
		return errs.Newf(errs.NotFound, "image %s: not in the store", short)
	}
	if _, pinned := s.Pinned(id); pinned {
		return errs.WithHint(errs.Newf(errs.Busy, "image %s: is pinned", short), "\"rkt image unpin %s\" lets it go", short)
	}
	if err := allowed(); err != nil {
		return err
	}
	if err := fault.Step("store.name.remove"); err != nil {
		return err
	}
	if err := s.dropNames(id); err != nil {
		return fmt.Errorf("image %s: %w", short, err)
	}
	if err := fault.Step("store.image.remove"); err != nil {
		return err
	}
	if err := os.Remove(s.imagePath(id)); err != nil {
		return fmt.Errorf("remove image record: %w", err)
	}
	if err := os.Remove(s.usedPath(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove image record: %w", err)
	}
	return nil
}
