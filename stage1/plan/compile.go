package plan

import (
	"path"
	"slices"
	"strings"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/idrange"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

// Input is all that a plan depends on.
type Input struct {
	UUID    string
	Pod     *podspec.Pod
	Images  map[string]poddir.AppImage // by the app's name
	Options poddir.RunOptions
	IDs     *idrange.Range // of the pod's user namespace, nil if it has none
	Host    Host
	Term    string // value of TERM for apps that get a terminal; "" if none does
	Sockets []Socket
}

// Host is what the plan needs to know of the host.
type Host struct {
	Arch         string            // as GOARCH
	Bounding     []string          // capabilities that this process can give
	SysResource  bool              // CAP_SYS_RESOURCE is among the effective ones
	OOMScoreAdj  int               // of this process
	Nice         int               // of this process
	SysNice      bool              // CAP_SYS_NICE is among the effective ones
	Hybrid       bool              // cgroup v1 controllers, and the cgroup2 hierarchy beside
	SELinux      bool              // a policy is loaded
	AppArmor     bool              // it is enabled
	Rlimits      map[string]uint64 // this process's hard limits by name, such as RLIMIT_NOFILE
	MachineHosts bool              // the host has an /etc/hosts
	ResolvConf   *string           // the host's /etc/resolv.conf, nil if there is none
	// KnowsCall says whether a filter can have a rule for the system call,
	// whatever architecture has it; nil if this program has no filters.
	KnowsCall func(name string) bool `json:"-"`
}

// Compile makes the plan. Errors name the app and what it asked for.
func Compile(in Input) (Pod, error) {
	if in.Pod == nil || len(in.Pod.Apps) == 0 {
		return Pod{}, errs.Newf(errs.Usage, "pod %s: no apps", in.UUID)
	}
	pod := Pod{UUID: in.UUID, Durable: in.Options.DurableRootFS, Copy: in.Options.NoOverlay, IDs: in.IDs}
	pod.Hostname = in.Options.Hostname
	if pod.Hostname == "" {
		pod.Hostname = "rkt-" + in.UUID
	}
	if err := checkHostname(pod.Hostname); err != nil {
		return Pod{}, err
	}
	var err error
	if pod.Network, err = network(in, pod.Hostname); err != nil {
		return Pod{}, err
	}
	if pod.Files, err = files(in, pod); err != nil {
		return Pod{}, err
	}
	if err := boundPod(&pod, in); err != nil {
		return Pod{}, err
	}
	if pod.Sysctls, err = sysctls(in.Pod.Isolators, pod.Network.Host); err != nil {
		return Pod{}, err
	}
	set, err := newVolumeSet(in.Pod.Volumes, in.IDs)
	if err != nil {
		return Pod{}, err
	}
	seen := map[string]bool{}
	for i := range in.Pod.Apps {
		name := in.Pod.Apps[i].Name
		if seen[name] {
			return Pod{}, errs.Newf(errs.Usage, "app %q: named twice", name)
		}
		seen[name] = true
		app, err := compileApp(in, &in.Pod.Apps[i], set)
		if err != nil {
			return Pod{}, errs.WithClass(errs.ClassOf(err), wrap("app "+name, err))
		}
		pod.Apps = append(pod.Apps, app)
	}
	if err := set.label(pod.Apps, in.Host); err != nil {
		return Pod{}, err
	}
	pod.Volumes = set.used()
	if err := checkExecs(in, pod.Apps); err != nil {
		return Pod{}, err
	}
	if err := finishLimits(&pod, in); err != nil {
		return Pod{}, err
	}
	return pod, checkTogether(pod.Apps, in.Options.InsecureCaps)
}

// checkTogether refuses capabilities by which one app of a pod could reach
// what rkt does for another: a launcher's process that joined the pod's pid
// namespace still has the host's root for a moment, and an app that may trace
// it, or join its namespaces, could take that.
func checkTogether(apps []App, insecure bool) error {
	if len(apps) < 2 {
		return nil
	}
	for i := range apps {
		c := apps[i].Takeover()
		if c == "" {
			continue
		}
		if !insecure {
			return errs.WithHint(errs.Newf(errs.Denied, "app %s: %s: not in a pod of several apps", apps[i].Name, c),
				"it could get out of the pod while another app is started; run the app in a pod of its own, or the pod with --private-users")
		}
		apps[i].Notes = append(apps[i].Notes, "changed: "+c+" in a pod of several apps can reach the host")
	}
	return nil
}

func compileApp(in Input, ra *podspec.App, set *volumeSet) (App, error) {
	img, ok := in.Images[ra.Name]
	if !ok {
		return App{}, errs.Newf(errs.NotFound, "image record: not there")
	}
	spec := ra.App
	if spec == nil {
		spec = img.Original
	}
	if spec == nil || len(spec.Exec) == 0 || spec.Exec[0] == "" {
		return App{}, errs.WithHint(errs.Newf(errs.Usage, "no program to run"),
			"name one with --exec")
	}
	app := App{
		Name: ra.Name, IDs: in.IDs, Argv: slices.Clone(spec.Exec), Cwd: spec.WorkingDirectory,
		User: spec.User, Group: spec.Group, Groups: slices.Clone(spec.SupplementaryGIDs),
		GroupsFromFile: spec.Group == "",
		ReadOnlyRootFS: ra.ReadOnlyRootFS, Lowers: slices.Clone(img.Lowers),
		Env: environment(ra.Name, spec.Environment, in.Term),
	}
	// An OCI image that names no group means the user's own ones, as its
	// /etc/passwd and /etc/group tell; appc knows only what is listed.
	if v, _ := img.Notes.Get(image.AnnUserGroups); v == "true" && img.Original != nil && spec.Group == img.Original.Group {
		app.GroupIsUser, app.GroupsFromFile = true, true
	}
	switch g, _ := ra.Annotations.Get(podspec.AnnGroups); podspec.Groups(g) {
	case podspec.OwnGroups:
		app.Group, app.GroupIsUser, app.GroupsFromFile = app.User, true, true
	case podspec.MoreGroups:
		app.GroupIsUser, app.GroupsFromFile = false, true
	}
	if app.Cwd == "" {
		app.Cwd = "/"
	}
	if !path.IsAbs(app.Cwd) {
		return App{}, errs.Newf(errs.Usage, "working directory %q: not absolute", app.Cwd)
	}
	// A ".." behind a symlink would lead elsewhere than what is checked.
	app.Cwd = path.Clean(app.Cwd)
	if len(app.Lowers) == 0 {
		return App{}, errs.Newf(errs.Corrupt, "image %s: no layers", img.ID)
	}
	for _, f := range []func() error{
		func() error { return handlers(&app, spec.EventHandlers) },
		func() error { return stopRules(&app, ra.Annotations, img.Notes) },
		func() error { return checks(&app, ra.Annotations) },
		func() error { return isolate(&app, in, spec.Isolators, img.Original) },
		func() error { return mounts(&app, in, ra, spec, set) },
		func() error { return ownRequests(&app, ra) },
	} {
		if err := f(); err != nil {
			return App{}, err
		}
	}
	paths(&app, in.Options.InsecurePaths)
	return app, nil
}

func handlers(app *App, list []appc.EventHandler) error {
	for _, h := range list {
		var dst *[]string
		switch h.Name {
		case appc.PreStart:
			dst = &app.PreStart
		case appc.PostStop:
			dst = &app.PostStop
		default:
			return errs.Newf(errs.Usage, "event handler %q: unknown", h.Name)
		}
		if *dst != nil {
			return errs.Newf(errs.Usage, "event handler %q: given twice", h.Name)
		}
		if len(h.Exec) == 0 || h.Exec[0] == "" {
			return errs.Newf(errs.Usage, "event handler %q: no program", h.Name)
		}
		*dst = slices.Clone(h.Exec)
	}
	return nil
}

// checkHostname refuses what sethostname or a line of /etc/hosts can't hold.
func checkHostname(name string) error {
	if len(name) > 64 {
		return errs.Newf(errs.Usage, "hostname %q: longer than 64 bytes", name)
	}
	for _, c := range name {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.", c) {
			return errs.Newf(errs.Usage, "hostname %q: character %q", name, c)
		}
	}
	return nil
}
