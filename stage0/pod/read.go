package pod

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

// Read runs a function that reads the pod's files and keeps nothing of what it
// found before, again each time that the pod was moved meanwhile. What it read
// counts only if the folder is still there afterwards: a missing file means
// something in a folder that stayed, and nothing in one that was just taken
// away. A pod never comes back to a folder that it has left, so one look at the
// end tells that all the reads before it were right.
//
// The error names the pod; it is of class NotFound if that was removed meanwhile.
func (p Pods) Read(pod Pod, read func(Pod) error) error {
	now, err := p.settled(pod, read)
	if err != nil {
		return podErr(now, err)
	}
	return nil
}

// settled is Read with an error as it is, and the pod as it was read.
func (p Pods) settled(pod Pod, read func(Pod) error) (Pod, error) {
	for range maxMoves {
		err := read(pod)
		if exists(string(pod.Dir)) {
			return pod, err
		}
		again, err := p.Get(pod.UUID)
		if errors.Is(err, fs.ErrNotExist) {
			return pod, Removed(pod.UUID, "read")
		}
		if err != nil {
			return pod, err
		}
		pod = again
	}
	return pod, errs.Newf(errs.Busy, "keeps moving")
}

// ReadKept is Read for what is of no use when it is not whole. A pod that is
// being removed is read as long as its manifest is there, which goes first; the
// error then wraps fs.ErrNotExist.
func (p Pods) ReadKept(pod Pod, read func(Pod) error) error {
	return p.Read(pod, func(now Pod) error {
		err := read(now)
		// A pod that was never prepared has no manifest, and nothing to read.
		if now.Folder == poddir.Garbage && !exists(now.Dir.Manifest()) && exists(string(now.Dir)) {
			gone := goneError{errs.Newf(errs.NotFound, "pod %s: is being removed", now.UUID)}
			return errs.WithHint(gone, "\"rkt status %s\" shows what is left of it", now.UUID)
		}
		return err
	})
}

// ManifestBytes reads the pod's manifest as it was written.
func (p Pods) ManifestBytes(pod Pod) (data []byte, err error) {
	err = p.ReadKept(pod, func(now Pod) error {
		data, err = atomicfile.ReadFile(now.Dir.Manifest())
		if errors.Is(err, fs.ErrNotExist) {
			return errs.WithHint(errs.Newf(errs.NotFound, "has no manifest yet, it is %s", now.State), "\"rkt list\" shows which pods are prepared")
		}
		return err
	})
	return data, err
}

// Whole reads all that the pod was prepared with: its manifest, the options of
// its run and the images of its apps.
func (p Pods) Whole(pod Pod) (m *podspec.Pod, o poddir.RunOptions, images map[string]poddir.AppImage, err error) {
	data, err := p.ManifestBytes(pod)
	if err != nil {
		return nil, o, nil, err
	}
	if m, err = podspec.Parse(data); err != nil {
		return nil, o, nil, fmt.Errorf("pod %s: %w", pod.UUID, err)
	}
	images = map[string]poddir.AppImage{}
	err = p.ReadKept(pod, func(now Pod) error {
		if err := atomicfile.ReadJSON(now.Dir.Run(), &o); err != nil {
			return err
		}
		for _, a := range m.Apps {
			var image poddir.AppImage
			if err := atomicfile.ReadJSON(now.Dir.App(a.Name).Image(), &image); err != nil {
				return err
			}
			images[a.Name] = image
		}
		return nil
	})
	return m, o, images, err
}

// Removed is the error for a pod that went away in the middle of a command: it
// was being read, or waited for. It wraps fs.ErrNotExist.
func Removed(uuid, what string) error {
	err := errs.Newf(errs.NotFound, "pod %s: was removed while it was %s", uuid, what)
	return errs.WithHint(goneError{err}, "\"rkt list\" shows the pods that are left; without --rm a pod stays until \"rkt gc\" finds it due")
}

// goneError is fs.ErrNotExist for those who ask, in words that a user
// understands.
type goneError struct{ error }

func (e goneError) Unwrap() error { return e.error }

// Is says that what was read is not there.
func (e goneError) Is(target error) bool { return target == fs.ErrNotExist }
