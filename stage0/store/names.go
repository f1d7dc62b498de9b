package store

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
)

// name is a file of store/names: the image that a reference means. The newest
// import wins.
type name struct {
	Ref        string    `json:"ref"`
	ID         string    `json:"id"`
	Verified   bool      `json:"verified"`
	ImportedAt time.Time `json:"importedAt"`
}

// nameFile is the file name of a reference: readable where that is possible.
func nameFile(ref string) string {
	s := url.QueryEscape(ref)
	if len(s) > 200 || strings.HasPrefix(s, ".") {
		sum := sha256.Sum256([]byte(ref))
		return "=" + hex.EncodeToString(sum[:])
	}
	return s
}

// resolve returns the image id that a reference means.
func (s *Store) resolve(ref string) (string, error) {
	var n name
	err := atomicfile.ReadJSON(s.path("names", nameFile(ref)), &n)
	if err != nil {
		return "", err
	}
	if n.Ref != ref {
		return "", errs.Newf(errs.Corrupt, "name %q: the record is of %q", ref, n.Ref)
	}
	return n.ID, nil
}

// CheckName says what is wrong with the record of a reference: that it is
// damaged, or means an image that is not there. None at all is no error, since
// it may have gone with another image that had the name later.
func (s *Store) CheckName(ref string) error {
	id, err := s.resolve(ref)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return errs.Newf(errs.Corrupt, "name %q: %w", ref, err)
	}
	if _, err := os.Lstat(s.imagePath(id)); !digest.IsImageID(id) || err != nil {
		return errs.Newf(errs.Corrupt, "name %q: means image %q, which is not there", ref, id)
	}
	return nil
}

func (s *Store) writeName(n name) error {
	return atomicfile.WriteJSON(s.path("names", nameFile(n.Ref)), n, 0o600, atomicfile.Renamed)
}

// dropNames removes the references that mean the image.
func (s *Store) dropNames(id string) error {
	entries, err := os.ReadDir(s.path("names"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		var n name
		path := s.path("names", e.Name())
		if err := atomicfile.ReadJSON(path, &n); err != nil || n.ID != id {
			continue // another's, or unreadable: then it means no image at all
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove name: %w", err)
		}
	}
	return nil
}

// DanglingNames lists the references that mean an image which is not there.
// Collect removes them.
func (s *Store) DanglingNames() ([]string, error) {
	entries, err := os.ReadDir(s.path("names"))
	if err != nil {
		return nil, err
	}
	var refs []string
	for _, e := range entries {
		var n name
		if err := atomicfile.ReadJSON(s.path("names", e.Name()), &n); err != nil || !digest.IsImageID(n.ID) {
			continue // gone, or damaged, which is for verify to tell
		}
		if _, err := os.Lstat(s.imagePath(n.ID)); errors.Is(err, fs.ErrNotExist) {
			refs = append(refs, n.Ref)
		}
	}
	return refs, nil
}

// sweep removes what killed writers left: names and pins are written by holders
// of the store's lock only, so that with the exclusive one nobody is at it. It
// also removes what lies beside a record that is gone.
func (s *Store) sweep() error {
	refs, err := s.DanglingNames()
	if err != nil {
		return err
	}
	for _, ref := range refs {
		if err := os.Remove(s.path("names", nameFile(ref))); err != nil {
			return fmt.Errorf("remove name: %w", err)
		}
	}
	for _, dir := range []string{"names", "images"} {
		entries, err := os.ReadDir(s.path(dir))
		if err != nil {
			return err
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), ".tmp-") && (dir != "images" || !s.orphaned(e.Name())) {
				continue
			}
			if err := os.Remove(s.path(dir, e.Name())); err != nil {
				return fmt.Errorf("remove left-over: %w", err)
			}
		}
	}
	return nil
}

// orphaned says whether the file lies beside the record of an image that is gone.
func (s *Store) orphaned(file string) bool {
	id, ok := strings.CutSuffix(file, ".used")
	if !ok {
		id, ok = strings.CutSuffix(file, ".pin")
	}
	if !ok || !digest.IsImageID(id) {
		return false
	}
	_, err := os.Lstat(s.imagePath(id))
	return errors.Is(err, fs.ErrNotExist)
}
