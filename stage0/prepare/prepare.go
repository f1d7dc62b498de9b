// Package prepare fills a pod's folder with everything that stage1 needs, so
// that from then on neither the store nor the command line is asked again.
package prepare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/idrange"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/lock"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/pkg/proc"
	"github.com/rkt-pods/rkt/stage0/kube"
	"github.com/rkt-pods/rkt/stage0/pod"
	"github.com/rkt-pods/rkt/stage0/uids"
	"github.com/rkt-pods/rkt/stage0/volume"
)

// Layers says where the store has a layer's files.
type Layers interface {
	LayerFS(key string) string
	// LayerStore is the frozen store that has the layer, "" for the host's own.
	LayerStore(key string) (id, dir string)
}

// Input is what a pod is made of.
type Input struct {
	Pods     pod.Pods
	Layers   Layers
	Manifest *podspec.Pod
	Images   map[string]Image // by app
	// VolumeImages are those of volumes of kind image, by their ids.
	VolumeImages map[string]Image
	Volumes      Volumes
	Options      poddir.RunOptions
	// HostPaths are checked, and made where they may be.
	HostPaths []kube.HostPath
	// Created is told the pod's id as soon as its folder is there, so that
	// whoever waits for it can clean up also after a failure. May be nil.
	Created func(uuid string) error
}

// Volumes makes the named volumes that are not there yet.
type Volumes interface{ Ensure(v volume.Spec) error }

// Image is an image of the store with its manifest.
type Image struct {
	Record   image.Record
	Manifest *image.Manifest
}

// Fill makes a pod. hold is the store's lock under which the images were
// found; Fill releases it as soon as the pod's own references are on disk. On
// error nothing of the pod is left.
func Fill(ctx context.Context, hold *lock.Lock, in Input) (*pod.PreparingPod, error) {
	created := time.Now().UTC()
	specs, err := in.named()
	if err != nil {
		return nil, errors.Join(err, hold.Close())
	}
	p, err := in.Pods.Create(in.refs(created, specs))
	// After the references and before the lock is given up: nobody removes a
	// volume that a pod names.
	for _, s := range specs {
		if err == nil {
			err = in.Volumes.Ensure(s)
		}
	}
	// The pod's references hold the images now, or there is no pod.
	if cerr := hold.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		if p != nil {
			err = errors.Join(err, p.Discard(ctx))
		}
		return nil, err
	}
	err = in.claim(ctx, p)
	if err == nil {
		err = in.takeIDs(ctx, p)
	}
	if err != nil {
		return nil, errors.Join(err, p.Discard(ctx))
	}
	if err := in.fill(p, created); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare pod: %w", err), p.Discard(ctx))
	}
	return p, nil
}

// named are the named volumes that the pod mounts.
func (in Input) named() (specs []volume.Spec, err error) {
	err = in.Manifest.EachMounted(func(v *podspec.Volume) error {
		if v.Kind != podspec.VolumeNamed {
			return nil
		}
		s, err := volume.SpecOf(v)
		specs = append(specs, s)
		return err
	})
	return specs, err
}

func (in Input) refs(created time.Time, volumes []volume.Spec) poddir.Refs {
	refs := poddir.Refs{CreatedAt: created, Images: []string{}, Layers: []string{}, Volumes: []string{}}
	for _, images := range []map[string]Image{in.Images, in.VolumeImages} {
		for _, img := range images {
			refs.Images = append(refs.Images, img.Record.ID)
			for _, key := range img.Record.Layers {
				id, dir := in.Layers.LayerStore(key)
				if id == "" {
					refs.Layers = append(refs.Layers, key)
					continue
				}
				if refs.Stores == nil {
					refs.Stores = map[string]string{}
				}
				refs.Stores[id], refs.Layers = dir, append(refs.Layers, id+"/"+key)
			}
		}
	}
	refs.Name, _ = in.Manifest.Annotations.Get(podspec.AnnPodName)
	for _, s := range volumes {
		refs.Volumes = append(refs.Volumes, s.Name)
	}
	for _, list := range []*[]string{&refs.Images, &refs.Layers, &refs.Volumes} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return refs
}

// claim takes the pod's name, if it has one.
func (in Input) claim(ctx context.Context, p *pod.PreparingPod) error {
	name, named := in.Manifest.Annotations.Get(podspec.AnnPodName)
	if !named {
		return nil
	}
	return in.Pods.ClaimName(ctx, name, p.UUID())
}

// takeIDs takes ids of the host for the pod's user namespace, if it has one.
func (in Input) takeIDs(ctx context.Context, p *pod.PreparingPod) error {
	text, own := in.Manifest.Annotations.Get(podspec.AnnUsers)
	if !own {
		return nil
	}
	wanted, err := idrange.Parse(text)
	if err != nil {
		return err
	}
	if !proc.HostUsers() {
		if wanted == nil {
			return nil // rkt itself is in one, and what it runs too
		}
		return errs.WithHint(errs.Newf(errs.Unsupported, "user ids %s: only the host's root can give them", wanted),
			"an ordinary user's pods have those of /etc/subuid and /etc/subgid")
	}
	ids, err := uids.OfHost().Take(ctx, uids.Holder{Data: in.Pods.Data, UUID: p.UUID()}, wanted)
	if err != nil {
		return err
	}
	return atomicfile.WriteJSON(p.Dir().IDs(), ids, 0o600, atomicfile.Renamed)
}

func (in Input) fill(p *pod.PreparingPod, created time.Time) error {
	if in.Created != nil {
		if err := in.Created(p.UUID()); err != nil {
			return err
		}
	}
	if err := in.hostPaths(); err != nil {
		return err
	}
	for _, a := range in.Manifest.Apps {
		if err := in.fillApp(p.Dir().App(a.Name), in.Images[a.Name]); err != nil {
			return fmt.Errorf("app %s: %w", a.Name, err)
		}
	}
	for id, img := range in.VolumeImages {
		if err := in.fillVolume(p.Dir().VolumeImage(id), img); err != nil {
			return fmt.Errorf("image %s: %w", id, err)
		}
	}
	manifest, err := in.Manifest.Marshal()
	if err != nil {
		return err
	}
	if err := atomicfile.Write(p.Dir().Manifest(), manifest, 0o600, atomicfile.Renamed); err != nil {
		return err
	}
	if err := WriteOptions(p.Dir(), in.Options); err != nil {
		return err
	}
	return in.summarize(p, created)
}

func (in Input) fillApp(dir poddir.AppDir, img Image) error {
	if err := fault.Step("prepare.mkdir-app"); err != nil {
		return err
	}
	if err := os.MkdirAll(string(dir), 0o700); err != nil {
		return err
	}
	return in.writeImage(dir.Image(), img)
}

func (in Input) fillVolume(record string, img Image) error {
	if err := fault.Step("prepare.mkdir-volume"); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(record), 0o700); err != nil {
		return err
	}
	return in.writeImage(record, img)
}

func (in Input) writeImage(path string, img Image) error {
	rec := poddir.AppImage{
		ID: img.Record.ID, Name: img.Manifest.Name, Labels: img.Manifest.Labels,
		Layers: img.Record.Layers, Verified: img.Record.Trust.By,
		Original: img.Manifest.App, Notes: img.Manifest.Annotations,
	}
	for _, key := range img.Record.Layers {
		rec.Lowers = append(rec.Lowers, in.Layers.LayerFS(key))
	}
	return atomicfile.WriteJSON(path, rec, 0o600, atomicfile.Renamed)
}

// WriteOptions replaces the pod's run options. That is allowed as long as it
// has not been started.
func WriteOptions(dir poddir.Dir, o poddir.RunOptions) error {
	return atomicfile.WriteJSON(dir.Run(), o, 0o600, atomicfile.Renamed)
}

// MakeRunDir makes the pod's run folder, under a name of the store that is this
// data folder's alone.
func MakeRunDir(pods pod.Pods, uuid string) error {
	if _, err := poddir.MakeRunDir(pods.StoreID, uuid); err != nil {
		return err
	}
	return poddir.Claim(pods.StoreID, pods.Data)
}

// summarize writes what ordinary users may know: no environment, no arguments.
func (in Input) summarize(p *pod.PreparingPod, created time.Time) error {
	uuid := p.UUID()
	ids, err := p.Dir().ReadIDs()
	if err != nil {
		return err
	}
	if err := MakeRunDir(in.Pods, uuid); err != nil {
		return err
	}
	s := poddir.Summary{UUID: uuid, CreatedAt: created, State: string(pod.Prepared), IDs: ids, Labels: in.Manifest.UserLabels}
	s.Name, _ = in.Manifest.Annotations.Get(podspec.AnnPodName)
	for _, a := range in.Manifest.Apps {
		s.Apps = append(s.Apps, poddir.SummaryApp{Name: a.Name, ImageID: a.Image.ID, ImageName: image.Reference(a.Image.Name, a.Image.Labels)})
	}
	return poddir.WriteSummary(in.Pods.StoreID, s)
}
