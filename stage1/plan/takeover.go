package plan

import (
	"slices"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/idrange"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

// takeover are the capabilities with which a process can read, write or steer
// another one in its pid namespace that has more rights than itself. A process
// that a launcher sends into a pod has the host's root until it has dropped
// it, and no way to hide: being undumpable keeps out those without
// CAP_SYS_PTRACE only.
func takeover() []string {
	return []string{
		"CAP_SYS_PTRACE", "CAP_SYS_ADMIN",
		"CAP_BPF", "CAP_PERFMON", // programs and samples that see any process
		"CAP_SYS_MODULE", "CAP_SYS_RAWIO", // the kernel's memory
	}
}

// Takeover names a capability of the app by which it could take over what rkt
// starts beside it, "" if it has none. In a user namespace no capability has an
// effect on a process that comes from outside of it.
func (a *App) Takeover() string {
	if a.IDs != nil {
		return ""
	}
	return firstTakeover(a.Capabilities)
}

func firstTakeover(caps []string) string {
	for _, c := range takeover() {
		if slices.Contains(caps, c) {
			return c
		}
	}
	return ""
}

// CheckJoin refuses to send a process into the pod if an app of it could take
// that over. The manifest tells, which never changes: what an app's processes
// have now says nothing of others that it has started.
func CheckJoin(pod *podspec.Pod, images map[string]poddir.AppImage, options poddir.RunOptions, ids *idrange.Range) error {
	if options.InsecureCaps || ids != nil {
		return nil
	}
	for i := range pod.Apps {
		app := &pod.Apps[i]
		spec := app.App
		if spec == nil {
			spec = images[app.Name].Original
		}
		if spec == nil {
			return errs.Newf(errs.Corrupt, "app %s: image record: no app in it", app.Name)
		}
		for _, iso := range spec.Isolators {
			if iso.Name != isoRetain { // the default set, and parts of it, have none
				continue
			}
			set, err := capSet(isoRetain, iso.Value)
			if err != nil {
				return wrap("app "+app.Name, err)
			}
			if c := firstTakeover(set); c != "" {
				return errs.WithHint(errs.Newf(errs.Unsupported, "app %s: %s: no process can be sent into its pod", app.Name, c),
					"with it the app could take over that process, which has the host's rights at first; "+
						"only a pod started with --private-users or --insecure-options=capabilities can be entered then")
			}
		}
	}
	return nil
}
