package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
