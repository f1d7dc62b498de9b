package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rkt-pods/rkt/pkg/activation"
	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/lock"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/pkg/userfile"
	"github.com/rkt-pods/rkt/stage0/pod"
	"github.com/rkt-pods/rkt/stage0/podplan"
	"github.com/rkt-pods/rkt/stage0/prepare"
	"github.com/rkt-pods/rkt/stage0/volume"
)

// preparePod goes the whole way from the words to a filled pod, which the
// caller owns: find or import the images, plan, create, fill.
func (g *globals) preparePod(ctx context.Context, cmd *cobra.Command, o *podFlags, run *runFlags, quiet bool) (*pod.PreparingPod, error) {
	if err := checkRefused(g); err != nil {
		return nil, err
	}
	if err := o.readKube(ctx, g, cmd, run); err != nil {
		return nil, err
	}
	manifest, err := o.readManifest(ctx, o.fetch.pullGiven)
	if err != nil {
		return nil, err
	}
	if err := o.readEnvFiles(ctx); err != nil {
		return nil, err
	}
	apps := len(o.apps.list)
	if manifest != nil {
		apps = len(manifest.Apps)
	}
	if apps == 0 {
		return nil, errs.WithHint(errs.Newf(errs.Usage, "must provide at least one image or specify the pod manifest"), "\"rkt help %s\" shows how", commandName(cmd))
	}
	options, err := run.finish(g, apps)
	if err != nil {
		return nil, err
	}
	for _, w := range run.warnings {
		g.warn(cmd, "%s", w)
	}
	h, err := g.open()
	if err != nil {
		return nil, err
	}
	ids, hold, err := g.hold(ctx, cmd, h, o, manifest, quiet)
	if err != nil {
		return nil, err
	}
	plan, images, err := h.plan(o, manifest, ids[:apps])
	var volumeImages map[string]prepare.Image
	if err == nil {
		volumeImages, err = h.volumeImages(plan.Pod)
	}
	if err != nil {
		return nil, errors.Join(err, hold.Close())
	}
	for _, w := range plan.Warnings {
		if !quiet {
			g.warn(cmd, "%s", w)
		}
	}
	if o.dryRun != nil {
		return nil, errors.Join(o.dryRun(plan.Pod, images), hold.Close())
	}
	p, err := prepare.Fill(ctx, hold, prepare.Input{
		Pods: h.pods, Layers: h.store, Manifest: plan.Pod, Images: images, Options: options, Created: saveUUID(ctx, o.uuidFile),
		VolumeImages: volumeImages, Volumes: volume.Of(h.store), HostPaths: o.kube.hostPaths(),
	})
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		// Only the order in which images are dropped one day depends on it.
		_ = h.store.Touch(id)
	}
	return p, nil
}

// holdTries is how often an image may be removed right after it was found.
const holdTries = 20

// hold finds the images and keeps them in the store: until the lock is held what
// was found may be removed, and then the search starts over.
func (g *globals) hold(ctx context.Context, cmd *cobra.Command, h host, o *podFlags, manifest *podspec.Pod, quiet bool) ([]string, *lock.Lock, error) {
	f := g.finder(cmd, h, o.fetch, g.progress(cmd, quiet))
	defer f.close()
	for try := 1; ; try++ {
		ids, err := g.resolveAll(ctx, cmd, h, o, manifest, quiet)
		if err != nil {
			return nil, nil, err
		}
		hold, err := h.store.Hold(ctx)
		if err != nil {
			return nil, nil, err
		}
		for _, id := range ids {
			var rec image.Record
			if err == nil {
				rec, err = h.store.Image(id)
			}
			if err == nil {
				// A pod manifest names it by its id, and nobody has asked yet.
				_, err = f.Judge(ctx, rec)
			}
		}
		if err == nil {
			return ids, hold, nil
		}
		if err = errors.Join(err, hold.Close()); !errs.Is(err, errs.NotFound) || try == holdTries {
			return nil, nil, err
		}
	}
}

func (o *podFlags) readManifest(ctx context.Context, policyGiven bool) (*podspec.Pod, error) {
	if o.manifest == "" {
		return nil, nil
	}
	if o.conflicts(policyGiven) {
		return nil, errs.WithHint(errs.Newf(errs.Usage, "conflicting flags set with --pod-manifest (see --help)"),
			"write into the manifest what the other flags say")
	}
	data, err := userfile.Read(ctx, o.manifest, userfile.MaxText)
	if err != nil {
		return nil, errs.WithHint(errs.Newf(errs.ClassOf(err), "--pod-manifest: %w", err), "it names a file with a pod manifest")
	}
	m, err := podspec.Parse(data)
	if err != nil {
		err = errs.WithClass(errs.Usage, fmt.Errorf("--pod-manifest: %s: %w", o.manifest, err))
		return nil, errs.WithHint(err, "a pod manifest is JSON as \"rkt cat-manifest UUID\" prints it")
	}
	return m, nil
}

// resolveAll returns the id of each app's image, and then those of volumes,
// fetching what the store lacks.
func (g *globals) resolveAll(ctx context.Context, cmd *cobra.Command, h host, o *podFlags, manifest *podspec.Pod, quiet bool) ([]string, error) {
	var ids []string
	if manifest != nil {
		for i, a := range manifest.Apps {
			rec, err := h.store.Lookup(a.Image.ID)
			if err != nil {
				return nil, fmt.Errorf("apps[%d].image.id: %w", i, err)
			}
			ids = append(ids, rec.ID)
		}
		volumes, err := h.volumesOf(manifest)
		return append(ids, volumes...), err
	}
	bars := g.progress(cmd, quiet)
	bars.local = true
	f := g.finder(cmd, h, o.fetch, bars)
	defer f.close()
	for _, a := range o.apps.list {
		f.Pull = cmp.Or(a.pull, o.fetch.pull)
		rec, err := f.resolve(ctx, a.image, a.signature)
		if err != nil {
			return nil, err
		}
		ids = append(ids, rec.ID)
	}
	f.Pull = o.fetch.pull
	volumes, err := o.resolveVolumes(func(arg string) (image.Record, error) { return f.resolve(ctx, arg, "") })
	return append(ids, volumes...), err
}

// plan makes the manifest from images that the store's lock holds.
func (h host) plan(o *podFlags, manifest *podspec.Pod, ids []string) (podplan.Result, map[string]prepare.Image, error) {
	apps := make([]podplan.App, len(ids))
	for i, id := range ids {
		if manifest == nil {
			apps[i] = o.apps.list[i].plan
		}
		rec, err := h.store.Image(id)
		if err == nil {
			apps[i].Image = rec
			apps[i].Manifest, err = h.store.Manifest(rec)
		}
		if err == nil {
			err = image.CheckHost(rec.Labels)
		}
		if err != nil {
			return podplan.Result{}, nil, err
		}
	}
	var result podplan.Result
	var err error
	if manifest != nil {
		result, err = podplan.Reify(manifest, apps)
	} else {
		result, err = podplan.Plan(o.plan(apps))
	}
	if err != nil {
		return result, nil, err
	}
	images := map[string]prepare.Image{}
	for i, a := range result.Pod.Apps {
		images[a.Name] = prepare.Image{Record: apps[i].Image, Manifest: apps[i].Manifest}
	}
	return result, images, nil
}

func (o *podFlags) plan(apps []podplan.App) podplan.Options {
	if o.kube.pod != nil {
		p := o.kube.pod.Plan()
		p.Apps, p.Volumes = apps, o.volumes
		return p
	}
	p := podplan.Options{
		Apps: apps, Volumes: o.volumes, Mounts: o.apps.mounts, EnvFile: o.envFile, Env: o.env,
		ExitPolicy: o.exitPolicy, StopTimeout: o.stopTimeout, Name: o.name, Users: o.users, Labels: o.labels, Isolators: o.isolators(), Ports: o.ports,
	}
	if !o.inheritEnv {
		return p
	}
	for _, e := range os.Environ() {
		name, val, _ := strings.Cut(e, "=")
		if activation.Variable(name) || name == poddir.RunRootEnv {
			continue // about this process alone
		}
		// A shell function that was exported is no variable to us.
		known := slices.ContainsFunc(p.ParentEnv, func(v appc.EnvVar) bool { return v.Name == name })
		if appc.CheckEnvName(name) == nil && !known {
			p.ParentEnv = append(p.ParentEnv, appc.EnvVar{Name: name, Value: val})
		}
	}
	return p
}

func checkRefused(g *globals) error { return g.refused.err() }

// isFile says whether the word names an image on disk: a file, or a folder with
// an OCI image layout.
func isFile(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	if info.IsDir() {
		_, err = os.Stat(filepath.Join(path, "oci-layout"))
		return err == nil
	}
	return info.Mode().IsRegular()
}

// joinDiscard removes a pod that was made in vain.
func joinDiscard(ctx context.Context, p *pod.PreparingPod, err error) error {
	return errors.Join(err, p.Discard(context.WithoutCancel(ctx)))
}

func trimmed(data []byte) string { return strings.TrimSpace(string(data)) }

// writeOptions is what run-prepared adds to a prepared pod.
func writeOptions(p *pod.PreparedPod, o poddir.RunOptions) error {
	return prepare.WriteOptions(p.Dir(), o)
}
