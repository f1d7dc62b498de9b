package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
)

// maxSources bounds what a record remembers of where its image came from.
const maxSources = 16

// inherit takes over what an earlier import of the same image has said: names,
// sources, and that it was verified, if this one was not asked to.
func (s *Store) inherit(rec image.Record) image.Record {
	old, err := s.ownImage(rec.ID)
	if err != nil {
		return rec // none, or one that this one repairs
	}
	rec.Names, rec.Sources = slices.Clone(rec.Names), slices.Clone(rec.Sources)
	for _, name := range old.Names {
		if !slices.Contains(rec.Names, name) {
			rec.Names = append(rec.Names, name)
		}
	}
	for _, src := range old.Sources {
		if _, ok := rec.Source(src.Ref); !ok && len(rec.Sources) < maxSources {
			rec.Sources = append(rec.Sources, src)
		}
	}
	if old.Trust.Verified && !rec.Trust.Verified {
		rec.Trust, rec.Signatures = old.Trust, old.Signatures
	}
	if rec.Kept == nil {
		rec.Kept = old.Kept
	}
	return rec
}

// claimRecord keeps out others who write the record of the image, so that nothing
// they add is lost. Removal is another matter, and the store's lock's.
func (s *Store) claimRecord(ctx context.Context, id string) (*Claim, error) {
	return s.Claim(ctx, "record-"+digest.ShortID(id, 40))
}

// Named returns the image that has the reference as a name, as it was imported
// last. The error is of class NotFound if there is none.
func (s *Store) Named(ref string) (image.Record, error) {
	return s.among(func(one *Store) (image.Record, error) { return one.named(ref) })
}

func (s *Store) named(ref string) (image.Record, error) {
	id, err := s.resolve(ref)
	if err == nil {
		var rec image.Record
		if rec, err = s.ownImage(id); err == nil {
			return rec, nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) || errs.Is(err, errs.NotFound) || errs.Is(err, errs.Corrupt) {
		err = errs.Newf(errs.NotFound, "image %q: not in the store", ref)
	}
	return image.Record{}, err
}

// Confirm notes that the source still gives the image, or that it does too. The
// reference is a name of the image from now on if named is set; it counts as verified
// if the image does.
func (s *Store) Confirm(ctx context.Context, id string, src image.Source, named bool) (rec image.Record, err error) {
	one, err := s.claimRecord(ctx, id)
	if err != nil {
		return rec, err
	}
	defer func() { err = errors.Join(err, one.Release()) }()
	hold, err := s.Hold(ctx)
	if err != nil {
		return rec, err
	}
	defer hold.Close()
	if rec, err = s.ownImage(id); err != nil {
		return rec, err
	}
	if s.confirmed(rec, src, named) {
		return rec, nil
	}
	rec.Sources = slices.DeleteFunc(rec.Sources, func(o image.Source) bool { return o.Ref == src.Ref })
	rec.Sources = slices.Insert(rec.Sources, 0, src)
	rec.Sources = rec.Sources[:min(len(rec.Sources), maxSources)]
	if named && !slices.Contains(rec.Names, src.Ref) {
		rec.Names = append(rec.Names, src.Ref)
	}
	if err := atomicfile.WriteJSON(s.imagePath(id), rec, 0o600, atomicfile.Synced); err != nil {
		return rec, fmt.Errorf("note source of image: %w", err)
	}
	if !named {
		return rec, nil
	}
	if err := s.writeName(name{Ref: src.Ref, ID: id, Verified: rec.Trust.Verified, ImportedAt: src.FetchedAt}); err != nil {
		return rec, fmt.Errorf("note source of image: name %q: %w", src.Ref, err)
	}
	return rec, nil
}

// confirmed says whether the record tells all of it already. When a source was
// asked last only counts where it says for how long that is good.
func (s *Store) confirmed(rec image.Record, src image.Source, named bool) bool {
	have, ok := rec.Source(src.Ref)
	have.FetchedAt = src.FetchedAt
	if !ok || have != src || src.MaxAge > 0 {
		return false
	}
	id, err := s.resolve(src.Ref)
	return !named || err == nil && id == rec.ID
}
