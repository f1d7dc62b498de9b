// Package podplan turns images and options into a pod manifest in which
// nothing is left open: every app has its program, every mount point its
// volume. It is pure: no file is touched and no image fetched.
package podplan

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/lifecycle"
	"github.com/rkt-pods/rkt/pkg/limits"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

// Options is what the command line says of a pod.
type Options struct {
	Apps       []App
	Volumes    []podspec.Volume
	Mounts     []Mount       // for every app
	ParentEnv  []appc.EnvVar // of the caller, with --inherit-env
	EnvFile    []appc.EnvVar
	Env        []appc.EnvVar
	ExitPolicy string
	Name       string            // of the pod
	Users      string            // as podspec.AnnUsers has it; "": no user namespace
	Labels     map[string]string // of the pod
	// UserAnnotations and Isolators are of the pod.
	UserAnnotations map[string]string
	Isolators       []appc.Isolator
	Ports           []podspec.ExposedPort
	// StopTimeout is for apps that have none of their own; nil: the default.
	StopTimeout *time.Duration
}

// App is one app of the command line with its image.
type App struct {
	Image    image.Record
	Manifest *image.Manifest

	Name            string   // "" means from the image
	Exec            string   // "" means the image's
	Args            []string // after "--"
	User, Group     string
	Groups          podspec.Groups // which groups besides
	GIDs            []int          // nil means the image's
	NonRoot         bool           // refuse a user that is root, or may be
	Ports           []appc.Port
	WorkingDir      string
	ReadOnlyRootFS  bool
	Env             []appc.EnvVar
	Annotations     appc.Annotations
	UserAnnotations map[string]string
	UserLabels      map[string]string
	Mounts          []Mount
	Isolators       []appc.Isolator // each replaces the image's of its kind
	StopTimeout     *time.Duration
}

// Mount puts a volume at a path.
type Mount struct {
	Volume, Path string
	SubPath      string
	ReadOnly     bool
	Nested       bool            // that it lies inside another volume is meant
	AppVolume    *podspec.Volume // a volume of this mount alone, instead of Volume's
}

func (m Mount) manifest(clean string) podspec.Mount {
	return podspec.Mount{Volume: m.Volume, Path: clean, SubPath: m.SubPath, ReadOnly: m.ReadOnly, Nested: m.Nested, AppVolume: m.AppVolume}
}

// Result is a plan with what the user should know about it.
type Result struct {
	Pod      *podspec.Pod
	Warnings []string
}

// Plan makes the manifest of a pod that is described by options.
func Plan(o Options) (Result, error) {
	if len(o.Apps) == 0 {
		return Result{}, errs.Newf(errs.Usage, "must provide at least one image or specify the pod manifest")
	}
	pod := &podspec.Pod{ACVersion: appc.SpecVersion, ACKind: podspec.Kind, Volumes: o.Volumes}
	if o.ExitPolicy != "" {
		if err := podspec.CheckExitPolicy(o.ExitPolicy); err != nil {
			return Result{}, fmt.Errorf("--exit-policy: %w", err)
		}
		pod.Annotations.Set(podspec.AnnExitPolicy, o.ExitPolicy)
	}
	if o.Name != "" {
		pod.Annotations.Set(podspec.AnnPodName, o.Name)
	}
	if o.Users != "" {
		pod.Annotations.Set(podspec.AnnUsers, o.Users)
	}
	pod.UserLabels, pod.UserAnnotations, pod.Isolators, pod.Ports = o.Labels, o.UserAnnotations, o.Isolators, o.Ports
	if err := checkVolumeNames(o.Volumes); err != nil {
		return Result{}, err
	}
	images := map[string]*image.Manifest{}
	for _, a := range o.Apps {
		app, err := o.app(a)
		if err != nil {
			return Result{}, err
		}
		if images[app.Name] != nil {
			return Result{}, errs.WithHint(errs.Newf(errs.Usage, "error: multiple apps with name %s", app.Name),
				"name one of them with --name after its image")
		}
		images[app.Name] = a.Manifest
		pod.Apps = append(pod.Apps, app)
	}
	return finish(pod, images)
}

// Reify completes a manifest that was given as a file: images resolves the id
// of each app's image, in the order of the apps.
func Reify(pod *podspec.Pod, images []App) (Result, error) {
	byName := map[string]*image.Manifest{}
	for i := range pod.Apps {
		a := &pod.Apps[i]
		img := images[i]
		a.Image = podspec.Image{Name: img.Manifest.Name, ID: img.Image.ID, Labels: img.Manifest.Labels}
		if a.App == nil {
			if img.Manifest.App == nil {
				return Result{}, noProgram(img)
			}
			app := *img.Manifest.App
			a.App = &app
		}
		if len(a.App.Exec) == 0 {
			return Result{}, noProgram(img)
		}
		inheritStopSignal(a, img.Manifest)
		byName[a.Name] = img.Manifest
	}
	return finish(pod, byName)
}

// finish gives every mount point its volume and checks the whole.
func finish(pod *podspec.Pod, images map[string]*image.Manifest) (Result, error) {
	r := Result{Pod: pod}
	given := slices.Clone(pod.Volumes)
	used := map[string]bool{}
	for i := range pod.Apps {
		a := &pod.Apps[i]
		for _, m := range a.Mounts {
			used[m.Volume] = true
		}
		for _, mp := range a.App.MountPoints {
			if mountedAt(a.Mounts, mp.Path) {
				continue
			}
			name := mp.Name
			if !slices.ContainsFunc(given, func(v podspec.Volume) bool { return v.Name == name }) {
				name = implicit(pod, a, mp)
				if _, _, oci := images[a.Name].Split(); oci {
					addSeed(a, mp.Name)
				} else {
					r.Warnings = append(r.Warnings, fmt.Sprintf("app %s: no volume specified for mount point %q, implicitly creating an empty one", a.Name, mp.Name))
				}
			}
			used[name] = true
			a.Mounts = append(a.Mounts, podspec.Mount{Volume: name, Path: mp.Path})
		}
	}
	for _, v := range given {
		if !used[v.Name] {
			r.Warnings = append(r.Warnings, fmt.Sprintf("volume %s: no app mounts it, ignoring", v.Name))
		}
	}
	if err := pod.Validate(); err != nil {
		return r, err
	}
	if err := checkLimits(pod); err != nil {
		return r, err
	}
	_, _, err := lifecycle.Of(pod)
	return r, err
}

// checkLimits refuses limits that make no sense, before anything is prepared.
func checkLimits(pod *podspec.Pod) error {
	if _, err := limits.Parse(pod.Isolators); err != nil {
		return err
	}
	for i := range pod.Apps {
		if _, err := limits.Parse(pod.Apps[i].App.Isolators); err != nil {
			return fmt.Errorf("app %s: %w", pod.Apps[i].Name, err)
		}
	}
	return nil
}

// implicit adds an empty volume for a mount point that has none, and returns
// its name.
func implicit(pod *podspec.Pod, a *podspec.App, mp appc.MountPoint) string {
	base := a.Name + "-" + mp.Name
	name := base
	for n := 2; slices.ContainsFunc(pod.Volumes, func(v podspec.Volume) bool { return v.Name == name }); n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	v := podspec.Volume{Name: name, Kind: podspec.VolumeEmpty}
	if mp.ReadOnly {
		readOnly := true
		v.ReadOnly = &readOnly
	}
	pod.Volumes = append(pod.Volumes, v)
	return name
}

func addSeed(a *podspec.App, mountPoint string) {
	if seeds, ok := a.Annotations.Get(podspec.AnnSeed); ok {
		mountPoint = seeds + "," + mountPoint
	}
	a.Annotations.Set(podspec.AnnSeed, mountPoint)
}

// app makes one app of the manifest.
func (o Options) app(a App) (podspec.App, error) {
	out := podspec.App{
		Image:          podspec.Image{Name: a.Manifest.Name, ID: a.Image.ID, Labels: a.Manifest.Labels},
		ReadOnlyRootFS: a.ReadOnlyRootFS,
		Annotations:    slices.Clone(a.Annotations),
	}
	var err error
	if out.Name, err = appName(a); err != nil {
		return out, err
	}
	app := appc.App{User: "0", Group: "0"}
	if a.Manifest.App != nil {
		app = *a.Manifest.App
	}
	app.Exec = program(a)
	if len(app.Exec) == 0 {
		return out, noProgram(a)
	}
	overrideUser(&app, a)
	if a.NonRoot {
		if err := checkNonRoot(out.Name, app.User); err != nil {
			return out, err
		}
	}
	if a.Groups != "" {
		out.Annotations.Set(podspec.AnnGroups, string(a.Groups))
	}
	app.Environment = mergeEnv(o.ParentEnv, app.Environment, o.EnvFile, o.Env, a.Env)
	app.Isolators = mergeIsolators(app.Isolators, a.Isolators)
	app.Ports = mergePorts(app.Ports, a.Ports)
	app.UserAnnotations = mergeMap(app.UserAnnotations, a.UserAnnotations)
	app.UserLabels = mergeMap(app.UserLabels, a.UserLabels)
	out.App = &app
	inheritStopSignal(&out, a.Manifest)
	if timeout := firstOf(a.StopTimeout, o.StopTimeout); timeout != nil {
		out.Annotations.Set(podspec.AnnStopTimeout, timeout.String())
	}
	out.Mounts, err = o.mounts(a)
	if err != nil {
		return out, fmt.Errorf("app %s: %w", out.Name, err)
	}
	return out, nil
}

func appName(a App) (string, error) {
	if a.Name != "" {
		if err := appc.StrictName(a.Name); err != nil {
			return "", fmt.Errorf("--name: %w", err)
		}
		return a.Name, nil
	}
	name := appc.SanitizeName(a.Manifest.Name)
	if name == "" {
		return "", errs.WithHint(errs.Newf(errs.Usage, "image %s: no app name can be made of it", a.Manifest.Name), "give one with --name after the image")
	}
	return name, nil
}

// program applies --exec and the arguments after "--": for an ACI they are
// appended to what the image says, for an OCI image they stand in for its Cmd.
func program(a App) []string {
	if a.Exec != "" {
		return append([]string{a.Exec}, a.Args...)
	}
	if entrypoint, _, oci := a.Manifest.Split(); oci && len(a.Args) > 0 {
		return slices.Concat(entrypoint, a.Args)
	}
	if a.Manifest.App == nil {
		return nil
	}
	return slices.Concat(a.Manifest.App.Exec, a.Args)
}

func overrideUser(app *appc.App, a App) {
	if a.User != "" {
		app.User = a.User
	}
	if a.Groups == podspec.OwnGroups {
		app.Group = app.User
	}
	if a.Group != "" {
		app.Group = a.Group
	}
	if a.GIDs != nil {
		app.SupplementaryGIDs = a.GIDs
	}
	if a.WorkingDir != "" {
		app.WorkingDirectory = a.WorkingDir
	}
}

// mounts joins the mounts for every app with the app's own, which win where
// the cleaned paths are equal.
func (o Options) mounts(a App) ([]podspec.Mount, error) {
	var out []podspec.Mount
	for i, list := range [][]Mount{o.Mounts, a.Mounts} {
		from := len(out)
		for _, m := range list {
			if err := o.checkMount(m); err != nil {
				return nil, err
			}
			clean := path.Clean(m.Path)
			at := slices.IndexFunc(out, func(x podspec.Mount) bool { return x.Path == clean })
			switch {
			case at < 0:
				out = append(out, m.manifest(clean))
			case i == 1 && at < from:
				out[at] = m.manifest(clean)
			default:
				return nil, errs.Newf(errs.Usage, "--mount: %s: two volumes at one path", clean)
			}
		}
	}
	return out, nil
}

func (o Options) checkMount(m Mount) error {
	if err := appc.CheckAbs(m.Path); err != nil {
		return fmt.Errorf("--mount: target: %w", err)
	}
	if m.AppVolume == nil && !slices.ContainsFunc(o.Volumes, func(v podspec.Volume) bool { return v.Name == m.Volume }) {
		return errs.WithHint(errs.Newf(errs.Usage, "--mount: %q: no such volume", m.Volume), "declare it with --volume=%s,kind=…", m.Volume)
	}
	return nil
}

func checkVolumeNames(volumes []podspec.Volume) error {
	seen := map[string]bool{}
	for _, v := range volumes {
		if seen[v.Name] {
			return errs.Newf(errs.Usage, "duplicate volume name %q", v.Name)
		}
		seen[v.Name] = true
	}
	return nil
}

// inheritStopSignal takes over the image's stop signal, which the image can
// only say in an annotation of its own.
func inheritStopSignal(a *podspec.App, m *image.Manifest) {
	if _, ok := a.Annotations.Get(podspec.AnnStopSignal); ok {
		return
	}
	if sig, ok := m.Annotations.Get(podspec.AnnStopSignal); ok {
		a.Annotations.Set(podspec.AnnStopSignal, sig)
	}
}

// mergeEnv joins lists of variables of rising weight, each variable at the
// place where it first occurred.
func mergeEnv(lists ...[]appc.EnvVar) []appc.EnvVar {
	var out []appc.EnvVar
	at := map[string]int{}
	for _, list := range lists {
		for _, e := range list {
			if i, ok := at[e.Name]; ok {
				out[i].Value = e.Value
				continue
			}
			at[e.Name] = len(out)
			out = append(out, e)
		}
	}
	return out
}

// mergeIsolators lets each isolator of the command line take the place of all
// of its kind: the retain and the remove set of one thing are one kind.
func mergeIsolators(image, given []appc.Isolator) []appc.Isolator {
	kind := func(name string) string {
		return strings.TrimSuffix(strings.TrimSuffix(name, "-retain-set"), "-remove-set")
	}
	var out []appc.Isolator
	for _, iso := range image {
		if !slices.ContainsFunc(given, func(g appc.Isolator) bool { return kind(g.Name) == kind(iso.Name) }) {
			out = append(out, iso)
		}
	}
	return append(out, given...)
}

func mergeMap(low, high map[string]string) map[string]string {
	if len(high) == 0 {
		return low
	}
	out := map[string]string{}
	for _, m := range []map[string]string{low, high} {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}

func mountedAt(mounts []podspec.Mount, p string) bool {
	return slices.ContainsFunc(mounts, func(m podspec.Mount) bool { return path.Clean(m.Path) == path.Clean(p) })
}

func firstOf(list ...*time.Duration) *time.Duration {
	for _, d := range list {
		if d != nil {
			return d
		}
	}
	return nil
}

func noProgram(a App) error {
	err := errs.Newf(errs.Usage, "image %s: says no program to run", image.Reference(a.Manifest.Name, a.Manifest.Labels))
	return errs.WithHint(err, "give one with --exec=PATH after the image")
}
