package pod

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

// Held is what the pods of a data folder keep from being collected, each thing
// with the pods that name it.
type Held struct {
	Images  map[string][]string
	Layers  map[string][]string
	Volumes map[string][]string // named ones
	// Unknown are pods whose references can't be read or rebuilt. Such a pod
	// holds everything: its layers must not be deleted under it.
	Unknown map[string]error
}

// Held counts the references of all pods from their records.
func (p Pods) Held() (Held, error) {
	h := Held{Images: map[string][]string{}, Layers: map[string][]string{}, Volumes: map[string][]string{}, Unknown: map[string]error{}}
	pods, err := p.List()
	if err != nil {
		return h, err
	}
	for _, pod := range pods {
		refs, err := p.refs(pod)
		if err != nil {
			h.Unknown[pod.UUID] = err
			continue
		}
		for _, id := range refs.Images {
			h.Images[id] = append(h.Images[id], pod.UUID)
		}
		for _, key := range refs.Layers {
			h.Layers[key] = append(h.Layers[key], pod.UUID)
		}
		for _, name := range refs.Volumes {
			h.Volumes[name] = append(h.Volumes[name], pod.UUID)
		}
	}
	return h, nil
}

// Err names the pods whose references are unknown, nil if there are none.
func (h Held) Err() error {
	var all error
	for uuid, err := range h.Unknown {
		all = errors.Join(all, fmt.Errorf("pod %s holds everything, since its references can't be read: %w", uuid, err))
	}
	return all
}

// refs reads what a pod holds, following it where it moves. One that is gone
// holds nothing.
func (p Pods) refs(pod Pod) (refs poddir.Refs, err error) {
	_, err = p.settled(pod, func(now Pod) error {
		refs, err = readRefs(now)
		return err
	})
	if _, gone := errors.AsType[goneError](err); gone {
		return poddir.Refs{}, nil
	}
	return refs, err
}

// readRefs reads refs.json, or rebuilds it from the manifest and the apps'
// image records.
func readRefs(pod Pod) (poddir.Refs, error) {
	var refs poddir.Refs
	err := atomicfile.ReadJSON(pod.Dir.Refs(), &refs)
	if err == nil {
		return refs, nil
	}
	state := pod.State
	if pod.Damage != nil && state == AbortedPrepare {
		state = Preparing // for all that anybody knows
	}
	switch state {
	case Embryo, AbortedPrepare, Deleting, Garbage:
		// Before its references are on disk a pod uses nothing, and whoever
		// makes it keeps the store's lock until they are; an aborted one
		// never will use anything, and of garbage they were removed last.
		return refs, nil
	case Preparing, Prepared, Running, Exiting, Exited, ExitedDeleting, ExitedGarbage:
	}
	rebuilt, rebuildErr := rebuildRefs(pod.Dir)
	if rebuildErr != nil {
		return refs, errors.Join(err, rebuildErr)
	}
	return rebuilt, nil
}

func rebuildRefs(dir poddir.Dir) (poddir.Refs, error) {
	var refs poddir.Refs
	data, err := atomicfile.ReadFile(dir.Manifest())
	if err != nil {
		return refs, err
	}
	manifest, err := podspec.Parse(data)
	if err != nil {
		return refs, err
	}
	addImage := func(record string) error {
		var img poddir.AppImage
		if err := atomicfile.ReadJSON(record, &img); err != nil {
			return err
		}
		refs.Images = append(refs.Images, img.ID)
		refs.Layers = append(refs.Layers, img.Layers...)
		return nil
	}
	for _, a := range manifest.Apps {
		if err := addImage(dir.App(a.Name).Image()); err != nil {
			return refs, err
		}
	}
	err = manifest.EachMounted(func(v *podspec.Volume) error {
		switch v.Kind {
		case podspec.VolumeImage:
			return addImage(dir.VolumeImage(v.Source))
		case podspec.VolumeNamed:
			refs.Volumes = append(refs.Volumes, v.NamedSource())
		}
		return nil
	})
	for _, list := range []*[]string{&refs.Images, &refs.Layers, &refs.Volumes} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return refs, err
}
