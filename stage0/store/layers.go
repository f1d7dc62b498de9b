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
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/layer"
	"github.com/rkt-pods/rkt/pkg/lock"
)

// claimDeadline bounds the wait for somebody else's work on the same layer or
// URL. It is long, since that work may be a download.
const claimDeadline = 15 * time.Minute

const claimSuffix = ".claim"

// Claim keeps out all others that want to bring in the same thing, a layer's key
// or another safe file name, until it is released. Who waited looks first
// whether the thing is there by now. Who holds one claim never waits for
// another, so that no two can wait for each other.
type Claim struct {
	path string
	lock *lock.Lock
}

// Claim waits for its turn. The error is of class Busy, and names the holder,
// if that takes too long.
func (s *Store) Claim(ctx context.Context, name string) (*Claim, error) {
	path := s.path("tmp", name+claimSuffix)
	wait, cancel := context.WithTimeout(ctx, claimDeadline)
	defer cancel()
	l, err := lock.Exclusive(wait, path)
	if err != nil {
		return nil, errors.Join(ctx.Err(), fmt.Errorf("wait for %s: %w", name, err))
	}
	return &Claim{path, l}, nil
}

// Release lets the next one in. Its file goes with it: who waits for the lock
// finds that and makes another one.
func (c *Claim) Release() error {
	err := os.Remove(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, c.lock.Close())
}

// dropClaims removes the files of claims whose holder was killed.
func (s *Store) dropClaims() error {
	entries, err := os.ReadDir(s.path("tmp"))
	if err != nil {
		return fmt.Errorf("list staging entries: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() || !strings.HasSuffix(e.Name(), claimSuffix) {
			continue
		}
		path := s.path("tmp", e.Name())
		l, err := lock.TryExclusive(path)
		if errs.Is(err, errs.Busy) {
			continue
		}
		if err == nil {
			err = (&Claim{path, l}).Release()
		}
		if err != nil {
			return fmt.Errorf("collect claim: %w", err)
		}
	}
	return nil
}

// CommitLayers gives verified layers their names before the image is there, so
// that they outlive its import if that is interrupted. Need has to have named
// them before. Other than at the image's commit nobody has to be kept out: Need's
// word holds.
func (g *Staging) CommitLayers(layers map[string]string) error {
	if err := fault.Step("store.layer.sync"); err != nil {
		return err
	}
	if err := atomicfile.SyncFS(g.dir); err != nil {
		return fmt.Errorf("commit layer: %w", err)
	}
	for key, dir := range layers {
		if err := g.placeLayer(key, dir); err != nil {
			return fmt.Errorf("commit layer: %w", err)
		}
		g.early = true
	}
	if err := atomicfile.SyncDir(g.store.path("layers")); err != nil {
		return fmt.Errorf("commit layer: %w", err)
	}
	return nil
}

// forgetInterrupted drops what interrupted imports left for the next try, if all
// of it belongs to an image now. Else it would keep the layers longer than that.
func (s *Store) forgetInterrupted(keys []string) error {
	names, err := s.tmpEntries()
	if err != nil {
		return err
	}
	for _, name := range names {
		layers, ok := s.interrupted(name)
		if !ok || slices.ContainsFunc(layers, func(key string) bool { return !slices.Contains(keys, key) }) {
			continue
		}
		l, err := lock.TryExclusive(filepath.Join(s.path("tmp", name), "lock"))
		if errs.Is(err, errs.Busy) || errors.Is(err, fs.ErrNotExist) {
			continue // at work
		}
		if err != nil {
			return err
		}
		if err := (&Staging{store: s, dir: s.path("tmp", name), lock: l}).Close(); err != nil {
			return err
		}
	}
	return nil
}

// interrupted returns the layers of the store that an entry of an import names,
// and false if it is none, or there are none.
func (s *Store) interrupted(entry string) (layers []string, ok bool) {
	var refs staged
	if atomicfile.ReadJSON(s.path("tmp", entry, refsFile), &refs) != nil || !refs.Resume {
		return nil, false
	}
	for _, key := range refs.Layers {
		if has, err := s.HasLayer(key); has && err == nil {
			layers = append(layers, key)
		}
	}
	return layers, len(layers) > 0
}

// HasLayer says whether the store has the layer.
func (s *Store) HasLayer(key string) (bool, error) {
	if _, _, err := layer.ParseKey(key); err != nil {
		return false, err
	}
	_, err := os.Lstat(filepath.Join(s.LayerDir(key), "meta.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
