package main

import (
	"cmp"
	"fmt"

	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/stage0/prepare"
)

// resolveVolumes puts the ids of their images into the volumes of kind image
// that the command line asks for, and returns the ids. It may be asked again,
// when an image was removed meanwhile.
func (o *podFlags) resolveVolumes(resolve func(arg string) (image.Record, error)) ([]string, error) {
	var ids []string
	for i := range o.volumes {
		v := &o.volumes[i]
		if v.Kind != podspec.VolumeImage {
			continue
		}
		arg := cmp.Or(o.volumeRefs[v.Name], v.Source)
		rec, err := resolve(arg)
		if err != nil {
			return nil, fmt.Errorf("volume %s: %w", v.Name, err)
		}
		if o.volumeRefs == nil {
			o.volumeRefs = map[string]string{}
		}
		o.volumeRefs[v.Name], v.Source = arg, rec.ID
		ids = append(ids, rec.ID)
	}
	return ids, nil
}

// volumesOf does the same for a manifest, in which ids may be cut short.
func (h host) volumesOf(manifest *podspec.Pod) ([]string, error) {
	var ids []string
	err := manifest.Every(func(v *podspec.Volume) error {
		if v.Kind != podspec.VolumeImage {
			return nil
		}
		rec, err := h.store.Lookup(v.Source)
		if err != nil {
			return fmt.Errorf("volume %s: %w", v.Name, err)
		}
		v.Source = rec.ID
		ids = append(ids, rec.ID)
		return nil
	})
	return ids, err
}

// volumeImages are the images of the planned pod's volumes, by id.
func (h host) volumeImages(planned *podspec.Pod) (map[string]prepare.Image, error) {
	images := map[string]prepare.Image{}
	err := planned.EachMounted(func(v *podspec.Volume) error {
		if v.Kind != podspec.VolumeImage {
			return nil
		}
		rec, err := h.store.Image(v.Source)
		if err != nil {
			return err
		}
		manifest, err := h.store.Manifest(rec)
		if err != nil {
			return err
		}
		images[rec.ID] = prepare.Image{Record: rec, Manifest: manifest}
		return nil
	})
	return images, err
}
