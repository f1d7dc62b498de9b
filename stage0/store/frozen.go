package store

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
)

// frozenFile marks a store that nobody writes to any more.
const frozenFile = "frozen"

// Use adds frozen stores that this one is read together with: folders "store" of
// other data folders, often of a read-only mount. What they have is used where
// it lies, without any lock, and nothing is written there. One that can't be
// used is named in the error of whoever looks for something in vain.
func (s *Store) Use(dirs []string) {
	for _, dir := range dirs {
		other, err := OpenFrozen(dir)
		if err != nil {
			s.broken = append(s.broken, err)
			continue
		}
		s.frozen = append(s.frozen, other)
	}
}

// OpenFrozen opens a frozen store, and refuses one that others than root could
// change, or replace by another.
func OpenFrozen(dir string) (*Store, error) {
	s, err := openFrozen(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = errs.WithClass(errs.Unavailable, err)
	}
	if err != nil {
		return nil, fmt.Errorf("additional store %s: %w", dir, err)
	}
	return s, nil
}

func openFrozen(dir string) (*Store, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		if pe, ok := errors.AsType[*fs.PathError](err); ok {
			err = pe.Err // the folder is named already
		}
		return nil, err
	}
	for parent := filepath.Dir(real); ; parent = filepath.Dir(parent) {
		if err := checkParent(parent); err != nil {
			return nil, err
		}
		if parent == filepath.Dir(parent) {
			break
		}
	}
	for _, f := range folders(filepath.Dir(real)) {
		// What a folder of any other name has in it is the same.
		below, ok := relative(filepath.Join(filepath.Dir(real), "store"), f.path)
		if !ok || below == "tmp" {
			continue
		}
		f.path = filepath.Join(real, below)
		if err := f.check(); errors.Is(err, fs.ErrNotExist) {
			return nil, errs.WithHint(errs.Newf(errs.Unavailable, "no store is there: it has no folder %q", below), "if it lies in a file system of its own, mount that")
		} else if err != nil {
			return nil, err
		}
	}
	s := &Store{data: real, root: real}
	if _, err := os.Lstat(s.path(frozenFile)); errors.Is(err, fs.ErrNotExist) {
		return nil, errs.WithHint(errs.Newf(errs.Denied, "is not frozen"), "once nothing is written to it any more: touch %s", s.path(frozenFile))
	} else if err != nil {
		return nil, err
	}
	return s, s.load()
}

func relative(base, path string) (string, bool) {
	rel, err := filepath.Rel(base, path)
	return rel, err == nil && filepath.IsLocal(rel)
}

// checkParent refuses a folder in which others could put another store in the
// place of this one. In one with the sticky bit they can't.
func checkParent(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	st := info.Sys().(*syscall.Stat_t)
	if int(st.Uid) == os.Geteuid() && (st.Mode&(unix.S_IWGRP|unix.S_IWOTH) == 0 || st.Mode&unix.S_ISVTX != 0) {
		return nil
	}
	return errs.Newf(errs.Denied, "%s: owner %d, mode %04o: other users could put another store there", dir, st.Uid, st.Mode&0o7777)
}

// among asks this store, and then the frozen ones in their order, until one knows
// the image.
func (s *Store) among(find func(*Store) (image.Record, error)) (image.Record, error) {
	rec, err := find(s)
	if err == nil || !errs.Is(err, errs.NotFound) {
		return rec, err
	}
	for _, other := range s.frozen {
		found, ferr := find(other)
		if ferr == nil {
			return s.foreign(other, found), nil
		}
		if !errs.Is(ferr, errs.NotFound) {
			return found, fmt.Errorf("additional store %s: %w", other.root, ferr)
		}
	}
	return rec, s.orBroken(err)
}

// foreign says where the image is, and what was judged here of it.
func (s *Store) foreign(other *Store, rec image.Record) image.Record {
	rec.Store = other.root
	if t, ok := s.judged.Load(rec.ID); ok {
		rec.Trust = t.(image.Trust)
	}
	return rec
}

// Judged notes what the host's policy says of an image of a frozen store, and
// returns the record with it.
func (s *Store) Judged(rec image.Record, t image.Trust) image.Record {
	s.judged.Store(rec.ID, t)
	rec.Trust = t
	return rec
}

// IsJudged says whether Judged was told of the image.
func (s *Store) IsJudged(id string) bool {
	_, ok := s.judged.Load(id)
	return ok
}

// orBroken adds to the error of what was not found that it may be where nobody
// can look.
func (s *Store) orBroken(err error) error {
	if len(s.broken) == 0 {
		return err
	}
	broken := errors.Join(s.broken...)
	err = errs.WithClass(errs.ClassOf(broken), fmt.Errorf("%w; %w", err, broken))
	for _, b := range s.broken {
		for _, hint := range errs.Hints(b) {
			err = errs.WithHint(err, "%s", hint)
		}
	}
	return errs.WithHint(err, "the additional stores are listed in paths.d")
}

// elsewhere is the error of who wants to change an image of a frozen store.
func (s *Store) elsewhere(id string, err error) error {
	for _, other := range s.frozen {
		if _, ferr := other.ownImage(id); ferr == nil {
			return errs.Newf(errs.Denied, "image %s: is in the additional store %s, where nothing is changed", digest.ShortID(id, 12), other.root)
		}
	}
	return err
}

// Image returns the record of the image with that full id.
func (s *Store) Image(id string) (image.Record, error) {
	return s.among(func(one *Store) (image.Record, error) { return one.ownImage(id) })
}

// Images returns the records of all images, the oldest import first, one that
// several stores have once. With an error there are those that could be read.
func (s *Store) Images() ([]image.Record, error) {
	list, err := s.ownImages()
	if errs.Is(err, errs.Denied) {
		return list, err
	}
	bad := append([]error{err}, s.broken...)
	for _, other := range s.frozen {
		more, err := other.ownImages()
		bad = append(bad, err)
		for _, rec := range more {
			if !slices.ContainsFunc(list, func(r image.Record) bool { return r.ID == rec.ID }) {
				list = append(list, s.foreign(other, rec))
			}
		}
	}
	slices.SortStableFunc(list, func(a, b image.Record) int {
		return cmp.Or(a.ImportedAt.Compare(b.ImportedAt), cmp.Compare(a.Store, b.Store))
	})
	return list, errors.Join(bad...)
}

// withLayer is the store that has the layer, this one if none does.
func (s *Store) withLayer(key string) *Store {
	if len(s.frozen) == 0 {
		return s
	}
	for _, one := range append([]*Store{s}, s.frozen...) {
		if _, err := os.Lstat(filepath.Join(one.ownLayer(key), "meta.json")); err == nil {
			return one
		}
	}
	return s
}

// LayerStore is the frozen store that has the layer: its id and its folder, ""
// for this one.
func (s *Store) LayerStore(key string) (id, dir string) {
	if one := s.withLayer(key); one != s {
		return one.id, one.root
	}
	return "", ""
}

func (s *Store) findBlob(d digest.Digest) string {
	for _, one := range append([]*Store{s}, s.frozen...) {
		if _, err := os.Lstat(one.blobPath(d)); err == nil {
			return one.blobPath(d)
		}
	}
	return s.blobPath(d)
}

// CheckFrozen says whether the frozen store in the folder is the one with the id.
func CheckFrozen(dir, id string) error {
	s, err := OpenFrozen(dir)
	if err == nil && s.id != id {
		err = errs.Newf(errs.Unavailable, "additional store %s: is store %s now, and was %s", dir, s.id, id)
	}
	return err
}
