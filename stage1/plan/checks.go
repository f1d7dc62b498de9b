package plan

import (
	"slices"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

// NotifyPath is where an app finds the socket on which it says that it is
// ready: in /dev, a file system of the app's own that no image is written to.
const NotifyPath = "/dev/rkt-notify"

// NotifyVolume names the socket's mount, as ShmVolume does.
const NotifyVolume = ".notify"

// checks reads the app's probes and hooks.
func checks(app *App, own appc.Annotations) error {
	if v, ok := own.Get(podspec.AnnReady); ok {
		p, err := podspec.ParseReady(v)
		if err != nil {
			return wrap("ready", err)
		}
		app.Ready = &p
		if p.Kind == podspec.CheckNotify {
			app.notify()
		}
	}
	for name, to := range map[string]**podspec.Probe{podspec.AnnLive: &app.Live, podspec.AnnStartup: &app.Startup} {
		v, ok := own.Get(name)
		if !ok {
			continue
		}
		p, err := podspec.ParseLive(v)
		if err != nil {
			return wrap(name, err)
		}
		*to = &p
	}
	for name, to := range map[string]**podspec.Hook{podspec.AnnPostStart: &app.PostStart, podspec.AnnPreStop: &app.PreStop} {
		v, ok := own.Get(name)
		if !ok {
			continue
		}
		h, err := podspec.ParseHook(v)
		if err != nil {
			return wrap(name, err)
		}
		*to = &h
	}
	v, _ := own.Get(podspec.AnnKeepRootFS)
	app.KeepRootFS = v == "true"
	return nil
}

// notify gives the app its socket; mounts adds the place of it.
func (a *App) notify() {
	a.Env = slices.DeleteFunc(a.Env, func(kv string) bool { return Getenv([]string{kv}, "NOTIFY_SOCKET") != "" })
	a.Env = append(a.Env, "NOTIFY_SOCKET="+NotifyPath)
	slices.Sort(a.Env)
}

// Notifies says whether the app tells itself that it is ready.
func (a *App) Notifies() bool { return a.Ready != nil && a.Ready.Kind == podspec.CheckNotify }

// execs says whether a program is sent into the running app.
func (a *App) execs() bool {
	for _, c := range []*podspec.Check{checkOf(a.Ready), checkOf(a.Live), checkOf(a.Startup), actionOf(a.PostStart), actionOf(a.PreStop)} {
		if c != nil && c.Kind == podspec.CheckExec {
			return true
		}
	}
	return false
}

func checkOf(p *podspec.Probe) *podspec.Check {
	if p == nil {
		return nil
	}
	return &p.Check
}

func actionOf(h *podspec.Hook) *podspec.Check {
	if h == nil {
		return nil
	}
	return &h.Check
}

// checkExecs refuses programs in probes and hooks where none may be sent into
// the pod.
func checkExecs(in Input, apps []App) error {
	i := slices.IndexFunc(apps, func(a App) bool { return a.execs() })
	if i < 0 {
		return nil
	}
	if err := CheckJoin(in.Pod, in.Images, in.Options, in.IDs); err != nil {
		return errs.WithClass(errs.ClassOf(err), wrap("app "+apps[i].Name+": a probe or hook that runs a program", err))
	}
	return nil
}
