package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
)

// Retention says which images stay. Those that a pod holds and those that are
// pinned stay under each.
type Retention struct {
	Grace   time.Duration // what was used within it stays, unless MaxSize says otherwise
	Keep    int           // so many of those used last stay in any case
	MaxSize int64         // above it those used longest ago go, whatever their age; 0: no limit
}

// Candidate is an image as the retention looks at it.
type Candidate struct {
	ID       string
	Name     string
	LastUsed time.Time
	Layers   []string // each once
	Pods     []string // those that hold it
	Pinned   bool
}

// Decision is what becomes of an image, and why.
type Decision struct {
	ID       string    `json:"id"`
	Name     string    `json:"name"`
	LastUsed time.Time `json:"lastUsed"`
	Remove   bool      `json:"remove"`
	Reason   string    `json:"reason"`
	Freed    int64     `json:"freed"` // bytes that go with it, if all decisions are carried out
}

// Decide says what becomes of each image. size has the bytes of each layer, and
// also of those that only pods hold, as inUse lists them.
func (r Retention) Decide(now time.Time, list []Candidate, size map[string]int64, inUse map[string]bool) []Decision {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b Candidate) int {
		return cmp.Or(b.LastUsed.Compare(a.LastUsed), strings.Compare(a.ID, b.ID))
	})
	out := make([]Decision, len(list))
	users := map[string]int{}
	total := int64(0)
	for i, c := range list {
		out[i] = Decision{ID: c.ID, Name: c.Name, LastUsed: c.LastUsed}
		for _, key := range c.Layers {
			if users[key]++; users[key] == 1 {
				total += size[key]
			}
		}
	}
	drop := func(i int, reason string) {
		out[i].Remove, out[i].Reason = true, reason
		for _, key := range list[i].Layers {
			if users[key]--; users[key] == 0 && !inUse[key] {
				out[i].Freed += size[key]
				total -= size[key]
			}
		}
	}
	// From the one used longest ago: what it leaves of the limit is for the others.
	fixed := make([]bool, len(list))
	for i, c := range slices.Backward(list) {
		age := now.Sub(c.LastUsed)
		switch {
		case len(c.Pods) > 0:
			fixed[i], out[i].Reason = true, "in use by pod "+strings.Join(c.Pods, ", ")
		case c.Pinned:
			fixed[i], out[i].Reason = true, "pinned"
		case i < r.Keep:
			fixed[i], out[i].Reason = true, fmt.Sprintf("among the %d used last", r.Keep)
		case age < r.Grace:
			out[i].Reason = fmt.Sprintf("used %s ago", age.Round(time.Second))
		default:
			drop(i, fmt.Sprintf("not used for %s", age.Round(time.Second)))
		}
	}
	if r.MaxSize <= 0 {
		return out
	}
	for i := range slices.Backward(list) {
		if total > r.MaxSize && !fixed[i] && !out[i].Remove {
			drop(i, fmt.Sprintf("%d bytes of images are more than %d", total, r.MaxSize))
		}
	}
	return out
}

// PlanImages decides what becomes of each image of the store. It changes
// nothing. The error is of class Busy if a pod's references can't be read, since
// that pod may hold any image.
func (s *Store) PlanImages(now time.Time, r Retention, held HeldFunc) ([]Decision, error) {
	pods, err := held()
	if err != nil {
		return nil, err
	}
	if len(pods.Unknown) > 0 {
		return nil, errs.Newf(errs.Busy, "pod %s: its references can't be read, so that it may hold any image", strings.Join(pods.Unknown, ", "))
	}
	records, err := s.ownImages()
	if err != nil {
		return nil, err
	}
	var list []Candidate
	size, inUse := map[string]int64{}, map[string]bool{}
	for key := range pods.Layers {
		inUse[key] = true
	}
	for _, rec := range records {
		c := Candidate{
			ID: rec.ID, Name: image.Reference(rec.Name, rec.Labels), LastUsed: s.LastUsed(rec),
			Pods: slices.Sorted(slices.Values(pods.Images[rec.ID])),
		}
		_, c.Pinned = s.Pinned(rec.ID)
		for key := range unique(Layers(rec)) {
			c.Layers = append(c.Layers, key)
			meta, err := s.LayerMeta(key)
			if err != nil && !errs.Is(err, errs.NotFound) && !errs.Is(err, errs.Corrupt) {
				return nil, err
			}
			size[key] = meta.Size
		}
		list = append(list, c)
	}
	return r.Decide(now, list, size, inUse), nil
}

// Retain carries the decisions out and collects the layers that go with the
// images. A decision that no longer holds, since a pod, a pin or a use came
// between, is changed to what is true. The error joins those of the images
// that were due and stay for another reason. grace is Collect's.
func (s *Store) Retain(ctx context.Context, list []Decision, held HeldFunc, grace time.Duration) (Garbage, error) {
	var all []error
	for i := range list {
		d := &list[i]
		if !d.Remove {
			continue
		}
		err := s.removeUnused(ctx, d, held)
		switch {
		case errs.Is(err, errs.NotFound): // somebody else removed it
		case errs.Is(err, errs.Busy):
			d.Remove, d.Reason, d.Freed = false, err.Error(), 0
		case err != nil:
			d.Remove, d.Reason, d.Freed = false, err.Error(), 0
			all = append(all, fmt.Errorf("could not remove image %s: %w", digest.ShortID(d.ID, 12), err))
		}
	}
	g, err := s.Collect(ctx, held, grace)
	return g, errors.Join(append(all, err)...)
}

func (s *Store) removeUnused(ctx context.Context, d *Decision, held HeldFunc) error {
	return s.removeImage(ctx, d.ID, held, func() error {
		rec, err := s.ownImage(d.ID)
		if err == nil && s.LastUsed(rec).After(d.LastUsed) {
			err = errs.Newf(errs.Busy, "used right now")
		}
		return err
	})
}
