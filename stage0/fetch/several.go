package fetch

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/stage0/oci"
	"github.com/rkt-pods/rkt/stage0/tree"
)

// candidate is one of several images in a file.
type candidate struct {
	name string // for messages
	read func() (image.Record, error)
}

// each imports several images, each for itself, and returns an error that names
// those that did not get in.
func (im *importer) each(list []candidate) error {
	var all []error
	for _, c := range list {
		im.budget = tree.NewBudget(im.opt.Limits.Limits) // it is an image's
		rec, err := im.staged(c.read)
		if cause := im.ctx.Err(); err != nil && cause != nil {
			return interrupted(cause)
		}
		if err != nil {
			all = append(all, errs.WithClass(errs.ClassOf(err), fmt.Errorf("%s: %w", c.name, err)))
			continue
		}
		// One that has two names is there twice, the second time with both.
		im.several = slices.DeleteFunc(im.several, func(r image.Record) bool { return r.ID == rec.ID })
		im.several = append(im.several, rec)
	}
	if len(all) < 2 {
		return errors.Join(all...)
	}
	return errs.WithClass(errs.ClassOf(all[0]), fmt.Errorf("%d of %d images: %w", len(all), len(list), errors.Join(all...)))
}

// every imports all images of a layout.
func (l *ociImport) every(images []oci.Descriptor) error {
	var list []candidate
	for _, d := range images {
		list = append(list, candidate{name: cmp.Or(strings.Join(refNames(d), ", "), d.Digest), read: func() (image.Record, error) {
			desc, err := l.resolve(d, 0)
			if err != nil {
				return image.Record{}, err
			}
			return l.image(desc)
		}})
	}
	return l.each(list)
}

// everySaved imports all images of a docker archive.
func (im *importer) everySaved(f files, saved []oci.Saved) error {
	var list []candidate
	for _, s := range saved {
		list = append(list, candidate{name: cmp.Or(strings.Join(s.RepoTags, ", "), s.Config), read: func() (image.Record, error) {
			return im.savedImage(f, s)
		}})
	}
	return im.each(list)
}
