package kube

import (
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/lifecycle"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// app writes one container. What the image says itself is left out.
func (w *writer) app(at string, a *podspec.App) {
	img := w.Images[a.Name]
	own := img.Original
	if own == nil {
		own = &appc.App{}
	}
	c := container{Name: a.Name, WorkingDir: differs(a.App.WorkingDirectory, own.WorkingDirectory)}
	c.Image = reference(a.Image)
	if !slices.Equal(a.App.Exec, own.Exec) {
		c.Command = escapeAll(a.App.Exec)
	}
	for _, e := range a.App.Environment {
		if !slices.Contains(own.Environment, e) {
			c.Env = append(c.Env, envVar{Name: e.Name, Value: escape(e.Value)})
		}
	}
	w.ports(at, a, own, &c)
	w.mounts(at, a, &c)
	s := &containerSecurity{ReadOnlyRootFS: a.ReadOnlyRootFS}
	w.user(at, a, own, s)
	w.limits(at, a, own, &c, s)
	if *s != (containerSecurity{}) {
		c.SecurityContext = s
	}
	if !reflect.DeepEqual(a.App.EventHandlers, own.EventHandlers) {
		w.lost(at+".app.eventHandlers", "a Pod can't say it")
	}
	if !maps.Equal(a.App.UserLabels, own.UserLabels) || !maps.Equal(a.App.UserAnnotations, own.UserAnnotations) {
		w.lost(at+".app.userLabels", "labels and annotations are a Pod's as a whole")
	}
	r := w.life(at+".annotations", a, &c)
	w.rules = append(w.rules, r)
	if r.role == lifecycle.RoleApp {
		w.doc.Spec.Containers = append(w.doc.Spec.Containers, c)
	} else {
		w.doc.Spec.InitContainers = append(w.doc.Spec.InitContainers, c)
	}
}

func differs(have, own string) string {
	if have == own {
		return ""
	}
	return have
}

// reference names the image as a registry would, if it has a version; the id
// is good on this host only.
func reference(i podspec.Image) string {
	version, ok := i.Labels.Get("version")
	if i.Name == "" || !ok {
		return i.ID
	}
	return i.Name + ":" + version
}

func (w *writer) ports(at string, a *podspec.App, own *appc.App, c *container) {
	for i, p := range a.App.Ports {
		exposed := w.exposed(p)
		if slices.Contains(own.Ports, p) && exposed == nil {
			continue
		}
		if p.Count > 1 || p.SocketActivated {
			w.lost(fmt.Sprintf("%s.app.ports[%d]", at, i), "%s: a Pod has single ports, and no activation", p.Name)
			continue
		}
		out := port{Name: p.Name, ContainerPort: int64(p.Port)}
		if p.Protocol != "tcp" {
			out.Protocol = strings.ToUpper(p.Protocol)
		}
		if exposed != nil {
			out.HostPort, out.HostIP = int64(exposed.HostPort), exposed.HostIP
		}
		if out.Name == fmt.Sprintf("%d-%s", p.Port, p.Protocol) {
			out.Name = ""
		}
		c.Ports = append(c.Ports, out)
	}
}

// exposed finds the port of the pod that leads to the app's, and takes it off
// those that are left to be told of.
func (w *writer) exposed(p appc.Port) *podspec.ExposedPort {
	for i, e := range w.unexposed {
		if e.PodPort == nil && e.Name == p.Name || e.PodPort != nil && *e.PodPort == p {
			w.unexposed = slices.Delete(w.unexposed, i, i+1)
			return &e
		}
	}
	return nil
}

func (w *writer) mounts(at string, a *podspec.App, c *container) {
	for i, m := range a.Mounts {
		at := fmt.Sprintf("%s.mounts[%d]", at, i)
		if m.AppVolume != nil {
			w.lost(at+".appVolume", "a Pod's volumes are its own as a whole")
			continue
		}
		if w.hidden[m.Volume] {
			continue // it comes with the image, or was told of already
		}
		out := volumeMount{Name: m.Volume, MountPath: m.Path, SubPath: m.SubPath, ReadOnly: m.ReadOnly || w.readOnly(a, m)}
		if v := w.volumeOf(m.Volume); v != nil && v.Kind == podspec.VolumeHost && v.Propagation != podspec.PropagationPrivate && !(out.ReadOnly && v.Propagation == "") {
			out.Propagation = "HostToContainer"
		}
		c.VolumeMounts = append(c.VolumeMounts, out)
	}
}

func (w *writer) volumeOf(name string) *podspec.Volume {
	for i := range w.Manifest.Volumes {
		if w.Manifest.Volumes[i].Name == name {
			return &w.Manifest.Volumes[i]
		}
	}
	return nil
}

// readOnly is what volume and mount point say: the volume first.
func (w *writer) readOnly(a *podspec.App, m podspec.Mount) bool {
	if v := w.volumeOf(m.Volume); v != nil && v.ReadOnly != nil {
		return *v.ReadOnly
	}
	return slices.ContainsFunc(a.App.MountPoints, func(p appc.MountPoint) bool { return path.Clean(p.Path) == m.Path && p.ReadOnly })
}

// user: names are the image's business, and numbers can be said.
func (w *writer) user(at string, a *podspec.App, own *appc.App, s *containerSecurity) {
	groups, _ := a.Annotations.Get(podspec.AnnGroups)
	if groups != "" || a.App.User != own.User || a.App.Group != own.Group {
		if s.RunAsUser = id(a.App.User); s.RunAsUser == nil && a.App.User != own.User {
			w.lost(at+".app.user", "%q: a Pod names users by number", a.App.User)
		}
		if groups != string(podspec.OwnGroups) {
			if s.RunAsGroup = id(a.App.Group); s.RunAsGroup == nil {
				w.lost(at+".app.group", "%q: a Pod names groups by number", a.App.Group)
			}
		}
	}
	gids := slices.Clone(a.App.SupplementaryGIDs)
	if slices.Equal(gids, own.SupplementaryGIDs) {
		gids = nil
	}
	if fs := w.security().FSGroup; fs != nil {
		gids = slices.DeleteFunc(gids, func(g int) bool { return int64(g) == *fs })
	}
	if w.groups == nil {
		w.groups = &gids
		for _, g := range gids {
			w.security().Groups = append(w.security().Groups, int64(g))
		}
	}
	if !slices.Equal(*w.groups, gids) {
		w.lost(at+".app.supplementaryGIDs", "a Pod has the same for all containers")
	}
}

// limits writes the app's isolators.
func (w *writer) limits(at string, a *podspec.App, own *appc.App, c *container, s *containerSecurity) {
	for i, iso := range a.App.Isolators {
		if slices.ContainsFunc(own.Isolators, func(o appc.Isolator) bool { return reflect.DeepEqual(o, iso) }) {
			continue
		}
		if !w.isolator(iso, c, s) {
			w.lost(fmt.Sprintf("%s.app.isolators[%d]", at, i), "%s: a Pod can't say it", iso.Name)
		}
	}
}

func (w *writer) isolator(iso appc.Isolator, c *container, s *containerSecurity) bool {
	var set appc.StringSet
	switch iso.Name {
	case appc.IsoCPU, appc.IsoMemory, appc.IsoHugetlb:
		return amounts(iso, &c.Resources)
	case appc.IsoNoNewPrivs:
		var on bool
		if iso.Decode(&on) != nil {
			return false
		}
		if on = !on; !on {
			s.Escalation = &on
		}
		return true
	case appc.IsoCapsRetain, appc.IsoCapsRemove:
		if iso.Decode(&set) != nil {
			return false
		}
		s.Capabilities = addAndDrop(set.Set, iso.Name == appc.IsoCapsRetain)
		return true
	case appc.IsoSeccompRetain:
		if iso.Decode(&set) != nil || !slices.Equal(set.Set, []string{noFilter}) {
			return false
		}
		s.Seccomp = &seccompProfile{Type: "Unconfined"}
		return true
	}
	return false
}

// addAndDrop says a set in the shorter of the two ways: by what it has more and
// less than the default one, or by all that it has.
func addAndDrop(names []string, retain bool) *capabilities {
	short := func(list []string, without []string) (out []string) {
		for _, name := range list {
			if name = capName(name); !slices.Contains(without, name) {
				out = append(out, strings.TrimPrefix(name, "CAP_"))
			}
		}
		return out
	}
	def := appc.DefaultCapabilities()
	if !retain {
		kept := short(def, names)
		if len(kept)+1 < len(names) {
			return &capabilities{Add: kept, Drop: []string{allCaps}}
		}
		return &capabilities{Drop: short(names, nil)}
	}
	by := &capabilities{Add: short(names, def), Drop: short(def, names)}
	if len(by.Add)+len(by.Drop) > len(names) {
		return &capabilities{Add: short(names, nil), Drop: []string{allCaps}}
	}
	return by
}

func amounts(iso appc.Isolator, res **resources) bool {
	values := map[string]appc.Text{}
	if iso.Decode(&values) != nil {
		return false
	}
	if *res == nil {
		*res = &resources{Limits: map[string]quantity{}, Requests: map[string]quantity{}}
	}
	limits, requests := (*res).Limits, (*res).Requests
	if iso.Name == appc.IsoHugetlb {
		for size, q := range values {
			limits["hugepages-"+strings.TrimSuffix(size, "B")+"i"] = quantity(q)
		}
		return true
	}
	name := path.Base(iso.Name)
	for key, to := range map[string]map[string]quantity{"limit": limits, "request": requests} {
		if q := values[key]; q != "" {
			to[name] = quantity(q)
		}
	}
	if requests[name] == limits[name] {
		delete(requests, name)
	}
	return true
}

// life writes what the app's annotations say.
func (w *writer) life(at string, a *podspec.App, c *container) rules {
	r := rules{role: lifecycle.RoleApp}
	_, apps, err := lifecycle.Of(w.Manifest)
	n := slices.IndexFunc(apps, func(l lifecycle.App) bool { return l.Name == a.Name })
	if err != nil || n < 0 {
		return r // told already
	}
	l := apps[n]
	if r.role = l.Role; r.role == "" {
		r.role = lifecycle.RoleApp
	}
	r.set = codesOf(l.Restart)
	if l.Restart.Max > 0 {
		w.lost(at+"["+podspec.AnnRestart+"]", "a Pod has no maximum of restarts")
	}
	w.order(at, r.role, l)
	for _, ann := range a.Annotations {
		at := at + "[" + ann.Name + "]"
		switch ann.Name {
		case podspec.AnnReady:
			p, err := podspec.ParseReady(ann.Value)
			c.Readiness = w.probe(at, p, err)
		case podspec.AnnLive:
			p, err := podspec.ParseLive(ann.Value)
			c.Liveness = w.probe(at, p, err)
		case podspec.AnnStartup:
			p, err := podspec.ParseLive(ann.Value)
			c.Startup = w.probe(at, p, err)
		case podspec.AnnPostStart:
			w.hook(at, ann.Value, hookTime, &c.hooks().PostStart)
		case podspec.AnnPreStop:
			w.hook(at, ann.Value, w.stopTimeout(a), &c.hooks().PreStop)
		case podspec.AnnStopSignal:
			if image, _ := w.Images[a.Name].Notes.Get(podspec.AnnStopSignal); image != ann.Value {
				c.hooks().StopSignal = ann.Value
			}
		case podspec.AnnRole, podspec.AnnRestart, podspec.AnnRestartOn, podspec.AnnAfter, podspec.AnnBefore,
			podspec.AnnStopTimeout, podspec.AnnSeed, podspec.AnnGroups:
		default:
			w.lost(at, "a Pod can't say it")
		}
	}
	if c.Lifecycle != nil && *c.Lifecycle == (lifecycleHooks{}) {
		c.Lifecycle = nil
	}
	w.gracePeriod(at, a)
	hook := c.Lifecycle != nil && c.Lifecycle.PostStart != nil
	if r.role == lifecycle.RoleSidecar && (hook || c.Startup != nil) && c.Readiness == nil {
		w.awaited = append(w.awaited, lifecycle.After{App: a.Name, Condition: lifecycle.OnReady})
	}
	return r
}

// order: that of the roles, and nothing else.
func (w *writer) order(at string, role lifecycle.Role, l lifecycle.App) {
	if len(l.Before) > 0 {
		w.lost(at+"["+podspec.AnnBefore+"]", "a Pod's order is that of its containers")
	}
	if !slices.Equal(l.After, w.awaited) {
		w.lost(at+"["+podspec.AnnAfter+"]", "a Pod's order is that of its containers")
	}
	if role == lifecycle.RoleSidecar && l.Restart.Mode != lifecycle.Always {
		w.lost(at+"["+podspec.AnnRestart+"]", "%s: a sidecar is always restarted", l.Restart.Mode)
	}
}

func (c *container) hooks() *lifecycleHooks {
	if c.Lifecycle == nil {
		c.Lifecycle = &lifecycleHooks{}
	}
	return c.Lifecycle
}

func (w *writer) probe(at string, p podspec.Probe, err error) *probe {
	out := &probe{}
	if err != nil || !out.action(p.Check) {
		w.lost(at, "a Pod can't say it")
		return nil
	}
	if out.Exec != nil {
		out.Exec.Command = escapeAll(out.Exec.Command)
	}
	for _, d := range []struct {
		to        **int64
		d         time.Duration
		otherwise int64
	}{
		{&out.InitialDelay, p.Delay, 0}, {&out.Period, p.Period, probePeriod}, {&out.Timeout, p.Timeout, probeTimeout},
	} {
		n := int64(d.d / time.Second)
		if d.d%time.Second != 0 {
			w.lost(at, "%s: a Pod has whole seconds", d.d)
			n++
		}
		if n != d.otherwise {
			*d.to = &n
		}
	}
	if n := int64(p.Successes); n != 1 {
		out.SuccessThreshold = &n
	}
	if n := int64(p.Failures); n != probeFailures {
		out.FailureThreshold = &n
	}
	return out
}

func (p *probe) action(c podspec.Check) bool {
	switch c.Kind {
	case podspec.CheckExec:
		p.Exec = &execAction{Command: c.Argv}
	case podspec.CheckHTTP:
		p.HTTPGet = &httpAction{Path: c.Path, Port: intOrString(strconv.Itoa(c.Port))}
	case podspec.CheckTCP:
		p.TCPSocket = &tcpAction{Port: intOrString(strconv.Itoa(c.Port))}
	case podspec.CheckNotify:
		return false
	}
	return true
}

func (w *writer) hook(at, value string, timeout time.Duration, to **hook) {
	h, err := podspec.ParseHook(value)
	var p probe
	if err != nil || !p.action(h.Check) {
		w.lost(at, "a Pod can't say it")
		return
	}
	if h.Timeout != timeout {
		w.lost(at, "timeout %s: it would be %s in a Pod", h.Timeout, timeout)
	}
	*to = &hook{Exec: p.Exec, HTTPGet: p.HTTPGet}
}

// defaultStop is the stop timeout of an app that says none.
const defaultStop = 10 * time.Second

func (w *writer) stopTimeout(a *podspec.App) time.Duration {
	text, given := a.Annotations.Get(podspec.AnnStopTimeout)
	d, err := time.ParseDuration(text)
	if !given || err != nil {
		return defaultStop
	}
	return d
}

// gracePeriod is the same for all containers of a Pod.
func (w *writer) gracePeriod(at string, a *podspec.App) {
	d := w.stopTimeout(a)
	at += "[" + podspec.AnnStopTimeout + "]"
	if w.grace == nil {
		w.grace = &d
		n := int64((d + time.Second - 1) / time.Second)
		w.doc.Spec.GracePeriod = &n
	}
	switch {
	case *w.grace != d:
		w.lost(at, "%s: a Pod has one grace period, %s", d, *w.grace)
	case d%time.Second != 0:
		w.lost(at, "%s: a Pod has whole seconds", d)
	}
}
