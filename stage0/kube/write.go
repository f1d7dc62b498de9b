package kube

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/idrange"
	"github.com/rkt-pods/rkt/pkg/lifecycle"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

// Source is a pod of rkt.
type Source struct {
	UUID     string
	Manifest *podspec.Pod
	Options  poddir.RunOptions
	Images   map[string]poddir.AppImage // by app
}

// Write says as a Kubernetes Pod what the pod is. What such a Pod can't say is
// a problem, with its path in the pod's manifest or options; without it the Pod
// is what is returned.
func Write(s Source) ([]byte, []Problem, error) {
	w := &writer{Source: s}
	w.doc.APIVersion, w.doc.Kind = "v1", "Pod"
	w.metadata()
	w.network()
	w.exitPolicy()
	w.volumes()
	w.isolators()
	w.unexposed = slices.Clone(s.Manifest.Ports)
	for i := range s.Manifest.Apps {
		w.app(fmt.Sprintf("apps[%d]", i), &s.Manifest.Apps[i])
	}
	for _, e := range w.unexposed {
		w.lost("ports", "%s: leads to no port of an app", e.Name)
	}
	w.restartPolicy()
	if reflect.ValueOf(w.security()).Elem().IsZero() {
		w.doc.Spec.SecurityContext = nil
	}
	data, err := encode(&w.doc)
	return data, w.problems, err
}

// writer is the reader's inverse.
type writer struct {
	Source
	doc       document
	problems  []Problem
	unexposed []podspec.ExposedPort // so far
	rules     []rules               // of the containers, in the order of the apps
	hidden    map[string]bool       // volumes that the image itself asks for
	awaited   []lifecycle.After     // what a Pod says by its order
	grace     *time.Duration        // of the first app
	groups    *[]int                // of the first app
}

// rules are an app's role and what restarts it.
type rules struct {
	role lifecycle.Role
	set  codes
}

func (w *writer) lost(path, format string, args ...any) {
	w.problems = append(w.problems, Problem{Path: path, Text: fmt.Sprintf(format, args...), Ignorable: true})
}

func (w *writer) metadata() {
	m := w.Manifest
	name, _ := m.Annotations.Get(podspec.AnnPodName)
	w.doc.Metadata = metadata{Name: cmp.Or(name, w.UUID), Labels: m.UserLabels, Annotations: m.UserAnnotations}
	for _, a := range m.Annotations {
		switch {
		case a.Name == podspec.AnnPodName, a.Name == podspec.AnnExitPolicy:
		case a.Name == podspec.AnnUsers && a.Value == idrange.Auto:
			w.doc.Spec.HostUsers = new(false)
		default:
			w.lost("annotations["+a.Name+"]", "a Pod can't say it")
		}
	}
}

// network and files: without the host's network, where the Pod runs decides.
func (w *writer) network() {
	o, s := w.Options, &w.doc.Spec
	s.HostNetwork = slices.Equal(o.Net, []string{"host"})
	if len(o.Net) > 1 || len(o.Net) == 1 && o.Net[0] != "host" && o.Net[0] != "default" {
		w.lost("net", "%s: a Pod has the network that its host gives it", strings.Join(o.Net, ","))
	}
	switch {
	case o.Hostname == "" || o.Hostname == w.doc.Metadata.Name:
	case isLabel(o.Hostname):
		s.Hostname = o.Hostname
	case isSubdomain(o.Hostname) && !s.HostNetwork:
		s.HostnameOverride = o.Hostname
	default:
		w.lost("hostname", "%q: that of a Pod is of small letters, and one label on the host's network", o.Hostname)
	}
	switch {
	case slices.Equal(o.DNS, []string{"host"}):
		s.DNSPolicy = "Default"
	case len(o.DNS) > 0 && o.DNS[0] != "none":
		s.DNSPolicy = "None"
		s.DNSConfig = &dnsConfig{Nameservers: o.DNS, Searches: o.DNSSearch}
		for _, text := range o.DNSOptions {
			name, value, given := strings.Cut(text, ":")
			option := dnsOption{Name: name}
			if given {
				option.Value = &value
			}
			s.DNSConfig.Options = append(s.DNSConfig.Options, option)
		}
	case len(o.DNS)+len(o.DNSSearch)+len(o.DNSOptions) > 0:
		w.lost("dns", "a Pod can't say it without a name server")
	}
	if o.DNSDomain != "" {
		w.lost("dnsDomain", "a Pod can't say it")
	}
	if o.HostsFromHost {
		w.lost("hostsFromHost", "a Pod can't say it")
	}
	for _, h := range o.Hosts {
		s.HostAliases = append(s.HostAliases, hostAlias{IP: h.IP, Hostnames: h.Names})
	}
	for name, on := range map[string]bool{"insecureCapabilities": o.InsecureCaps, "insecurePaths": o.InsecurePaths, "insecureSeccomp": o.InsecureSeccmp, "interactive": o.Interactive} {
		if on {
			w.lost(name, "a Pod can't say it")
		}
	}
}

// exitPolicy: a Pod ends when all its containers have ended for good. With one
// app every policy comes to that.
func (w *writer) exitPolicy() {
	policy, apps, err := lifecycle.Of(w.Manifest)
	if err != nil {
		w.lost("apps", "%v", err)
		return
	}
	counted, ends := 0, false
	for _, a := range apps {
		if a.Role == lifecycle.RoleApp {
			counted++
			ends = ends || a.Restart.Mode != lifecycle.Always
		}
	}
	if policy != lifecycle.All && counted > 1 && ends {
		w.lost("annotations["+podspec.AnnExitPolicy+"]", "%s: a Pod of several containers ends when all have ended", policy)
	}
}

// volumes: one that the image asks for and that is seeded from it comes again
// with the image.
func (w *writer) volumes() {
	w.hidden = map[string]bool{}
	for i := range w.Manifest.Apps {
		a := &w.Manifest.Apps[i]
		for _, m := range a.Mounts {
			if w.implicit(a, m) {
				w.hidden[m.Volume] = true
			}
		}
	}
	fsGroup := w.fsGroup()
	for i, v := range w.Manifest.Volumes {
		if !w.hidden[v.Name] {
			w.volume(fmt.Sprintf("volumes[%d]", i), v, fsGroup)
		}
	}
	if fsGroup != nil {
		gid := int64(*fsGroup)
		w.security().FSGroup = &gid
	}
}

// implicit says whether the mount is one that rkt made for a mount point of the
// image.
func (w *writer) implicit(a *podspec.App, m podspec.Mount) bool {
	for _, p := range a.App.MountPoints {
		if p.Path == m.Path && m.Volume == a.Name+"-"+p.Name {
			return true
		}
	}
	return false
}

func (w *writer) security() *podSecurity {
	if w.doc.Spec.SecurityContext == nil {
		w.doc.Spec.SecurityContext = &podSecurity{}
	}
	return w.doc.Spec.SecurityContext
}

// fsGroup is the group of all volumes that are made for the pod, if they are
// as fsGroup makes them.
func (w *writer) fsGroup() *int {
	var group *int
	for _, v := range w.Manifest.Volumes {
		switch {
		case w.hidden[v.Name] || v.Kind != podspec.VolumeEmpty && v.Kind != podspec.VolumeTmpfs:
		case v.Mode != "2777" || v.GID == nil || group != nil && *group != *v.GID:
			return nil
		default:
			group = v.GID
		}
	}
	return group
}

func (w *writer) volume(at string, v podspec.Volume, fsGroup *int) {
	out := volume{Name: v.Name}
	switch v.Kind {
	case podspec.VolumeHost:
		out.HostPath = &hostPath{Path: v.Source}
		if v.Recursive != nil && !*v.Recursive {
			w.lost(at+".recursive", "false: a Pod can't say it")
		}
		if own := w.doc.Spec.HostUsers != nil; own != (v.IDMap != nil && *v.IDMap) {
			w.lost(at+".idmap", "%t: in a Pod with hostUsers: false each volume is mapped, in others none", !own)
		}
	case podspec.VolumeEmpty, podspec.VolumeTmpfs:
		out.EmptyDir = &emptyDir{}
		if v.Kind == podspec.VolumeTmpfs {
			out.EmptyDir.Medium, out.EmptyDir.SizeLimit = "Memory", quantity(v.Size)
		}
		if v.UID != nil || fsGroup == nil && v.GID != nil {
			w.lost(at+".uid", "an emptyDir is root's, or its group fsGroup")
		}
		if fsGroup == nil {
			w.mode(at, v, out.EmptyDir)
		}
	case podspec.VolumeImage:
		out.Image = &imageVolume{Reference: v.Source}
	default:
		w.lost(at+".kind", "%s: a Pod has no such volume", v.Kind)
		w.hidden[v.Name] = true
		return
	}
	w.doc.Spec.Volumes = append(w.doc.Spec.Volumes, out)
}

// mode says with which permissions an empty volume begins.
func (w *writer) mode(at string, v podspec.Volume, out *emptyDir) {
	text := v.Mode
	switch {
	case text != "":
	case v.Kind == podspec.VolumeTmpfs:
		text = "1777"
	default:
		text = "0755"
	}
	mode, err := strconv.ParseInt(text, 8, 64)
	switch {
	case err != nil || mode > 0o1777:
		w.lost(at+".mode", "%s: that of an emptyDir is from 0 to 01777", text)
	case mode != 0o777:
		out.Mode = &mode
	}
}

// isolators of the pod.
func (w *writer) isolators() {
	for i, iso := range w.Manifest.Isolators {
		if slices.Contains([]string{appc.IsoCPU, appc.IsoMemory, appc.IsoHugetlb}, iso.Name) && amounts(iso, &w.doc.Spec.Resources) {
			continue
		}
		var values map[string]string
		if iso.Name != appc.IsoSysctl || iso.Decode(&values) != nil {
			w.lost(fmt.Sprintf("isolators[%d]", i), "%s: a Pod can't say it", iso.Name)
			continue
		}
		for _, name := range sortedKeys(values) {
			w.security().Sysctls = append(w.security().Sysctls, sysctl{name, values[name]})
		}
	}
}

// restartPolicy finds the one that fits the first container, and says for the
// others where they differ.
func (w *writer) restartPolicy() {
	s := &w.doc.Spec
	s.RestartPolicy = always
	for _, r := range w.rules {
		if r.role == lifecycle.RoleApp {
			if policy, ok := r.set.policy(); ok {
				s.RestartPolicy = policy
			}
			break
		}
	}
	i, j := 0, 0
	for _, r := range w.rules {
		if r.role == lifecycle.RoleApp {
			r.tell(&s.Containers[i], s.RestartPolicy)
			i++
			continue
		}
		r.tell(&s.InitContainers[j], s.RestartPolicy)
		j++
	}
}

// tell says what restarts the container where it is not what the pod says.
func (r rules) tell(c *container, pod string) {
	policy, plain := r.set.policy()
	switch {
	case r.role == lifecycle.RoleSidecar:
		c.RestartPolicy = always
		return
	case r.role == lifecycle.RoleInit && pod == always:
		pod = onFailure
	}
	if plain && policy == pod {
		return
	}
	if plain {
		c.RestartPolicy = policy
		return
	}
	c.RestartPolicy = never
	var values []int64
	for code, on := range r.set {
		if on {
			values = append(values, int64(code))
		}
	}
	c.RestartRules = []restartRule{{Action: "Restart", ExitCodes: &exitCodes{Operator: "In", Values: values}}}
}

// policy is the one of Kubernetes' that means the codes.
func (c *codes) policy() (string, bool) {
	name, value := c.annotation()
	if name == podspec.AnnRestartOn {
		return "", false
	}
	return map[string]string{string(lifecycle.Always): always, string(lifecycle.OnFailure): onFailure, string(lifecycle.Never): never}[value], true
}

// codesOf is the inverse of annotation.
func codesOf(r lifecycle.Restart) (set codes) {
	for code := range set {
		switch r.Mode {
		case lifecycle.Always:
			set[code] = true
		case lifecycle.OnFailure:
			set[code] = code != 0
		case lifecycle.OnCodes:
			set[code] = slices.Contains(r.Codes, code)
		case lifecycle.Never:
		}
	}
	return set
}

// id is the number that the text is, nil if it is none.
func id(text string) *int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > maxID {
		return nil
	}
	return &n
}
