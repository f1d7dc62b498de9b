package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/image"
)

// Pin is <id>.pin beside an image's record: it keeps the image until it is
// unpinned, whoever asks for its removal.
type Pin struct {
	PinnedAt time.Time `json:"pinnedAt"`
}

// PinImage pins an image. Pinning twice is no error.
func (s *Store) PinImage(ctx context.Context, id string) error {
	// Between the look at the record and the pin it must not go.
	hold, err := s.Hold(ctx)
	if err != nil {
		return err
	}
	defer hold.Close()
	if _, err := s.ownImage(id); err != nil {
		return s.elsewhere(id, err)
	}
	if _, pinned := s.Pinned(id); pinned {
		return nil
	}
	if err := atomicfile.WriteJSON(s.pinPath(id), Pin{PinnedAt: time.Now().UTC()}, 0o600, atomicfile.Synced); err != nil {
		return fmt.Errorf("pin image: %w", err)
	}
	return nil
}

// UnpinImage lets a pinned image go. One that is not pinned is no error.
func (s *Store) UnpinImage(id string) error {
	if err := fault.Step("store.unpin"); err != nil {
		return err
	}
	err := os.Remove(s.pinPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = atomicfile.SyncDir(s.path("images"))
	}
	if err != nil {
		return fmt.Errorf("unpin image: %w", err)
	}
	return nil
}

// Pinned says whether the image is pinned. A pin that can't be read is one.
func (s *Store) Pinned(id string) (Pin, bool) {
	var p Pin
	err := atomicfile.ReadJSON(s.pinPath(id), &p)
	if errors.Is(err, fs.ErrNotExist) {
		return p, false
	}
	return p, true
}

// Usage is how many bytes the layers of an image take.
type Usage struct {
	Total  int64 `json:"total"`  // of all its layers, each once
	Unique int64 `json:"unique"` // of those that no other image has: what goes with it
}

// Usage returns the bytes of each of the images, which are all there are, by id.
// A layer without a readable record counts nothing.
func (s *Store) Usage(records []image.Record) (map[string]Usage, error) {
	size, users := map[string]int64{}, map[string]int{}
	for _, rec := range records {
		for key := range unique(Layers(rec)) {
			users[key]++
			if _, ok := size[key]; ok {
				continue
			}
			meta, err := s.LayerMeta(key)
			if err != nil && !errs.Is(err, errs.NotFound) && !errs.Is(err, errs.Corrupt) {
				return nil, err
			}
			size[key] = meta.Size
		}
	}
	out := map[string]Usage{}
	for _, rec := range records {
		var u Usage
		for key := range unique(Layers(rec)) {
			u.Total += size[key]
			if users[key] == 1 {
				u.Unique += size[key]
			}
		}
		out[rec.ID] = u
	}
	return out, nil
}

func unique(keys []string) map[string]bool {
	m := map[string]bool{}
	for _, k := range keys {
		m[k] = true
	}
	return m
}
