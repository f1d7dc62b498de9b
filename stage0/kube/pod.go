package kube

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/idrange"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

// Kubernetes' defaults.
const (
	defaultGrace = 30 * time.Second
	always       = "Always"
	onFailure    = "OnFailure"
	never        = "Never"
)

// The limits of names.
const (
	maxLabel     = 63
	maxSubdomain = 253
	maxHostname  = 64 // the kernel's
)

// isLabel knows a DNS label, which is what most names are.
func isLabel(s string) bool {
	return s != "" && len(s) <= maxLabel && strings.Trim(s, "-") == s &&
		!strings.ContainsFunc(s, func(c rune) bool { return c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') })
}

func isSubdomain(s string) bool {
	if len(s) > maxSubdomain {
		return false
	}
	for part := range strings.SplitSeq(s, ".") {
		if !isLabel(part) {
			return false
		}
	}
	return true
}

func (r *reader) metadata(m metadata) {
	switch {
	case m.Name == "":
		r.bad("metadata.name", "missing")
	case !isSubdomain(m.Name):
		r.bad("metadata.name", "%q: not a name: lower-case letters, digits, - and . between them", m.Name)
	default:
		if err := podspec.CheckPodName(m.Name); err != nil {
			r.unsupported("metadata.name", "%v", err)
		} else {
			r.out.Name = m.Name
		}
	}
	if m.Namespace != "" && m.Namespace != "default" {
		r.unsupported("metadata.namespace", "%q: there are no namespaces", m.Namespace)
	}
	r.out.Labels, r.out.Annotations = m.Labels, m.Annotations
	// The host's name is the Pod's, cut where a label of DNS ends.
	r.out.Options.Hostname = strings.TrimRight(m.Name[:min(len(m.Name), maxLabel)], "-.")
}

func (r *reader) pod(s *spec) {
	r.spec = s
	if !r.oneOf("spec.restartPolicy", s.RestartPolicy, "", always, onFailure, never) || s.RestartPolicy == "" {
		s.RestartPolicy = always
	}
	r.grace = defaultGrace
	if s.GracePeriod != nil {
		if *s.GracePeriod < 0 || *s.GracePeriod > maxSeconds {
			r.bad("spec.terminationGracePeriodSeconds", "%d: not a number of seconds", *s.GracePeriod)
		}
		r.grace = time.Duration(*s.GracePeriod) * time.Second
	}
	r.hostname(s)
	r.resolver(s)
	r.hosts(s)
	r.namespaces(s)
	r.podSecurity(s.SecurityContext)
	r.out.Isolators = append(r.out.Isolators, r.resources("spec.resources", s.Resources)...)
	r.volumeList(s)
	r.containers(s)
	r.propagation(s)
}

// maxSeconds keeps a number of seconds a duration.
const maxSeconds = 1 << 31

// oneOf says whether the value is among those that Kubernetes knows.
func (r *reader) oneOf(path, value string, known ...string) bool {
	for _, k := range known {
		if value == k {
			return true
		}
	}
	r.bad(path, "%q: none of %s", value, strings.TrimPrefix(strings.Join(known, ", "), ", "))
	return false
}

func (r *reader) hostname(s *spec) {
	switch {
	case s.Hostname == "":
	case !isLabel(s.Hostname):
		r.bad("spec.hostname", "%q: not a host name of one label", s.Hostname)
	default:
		r.out.Options.Hostname = s.Hostname
	}
	switch name := s.HostnameOverride; {
	case name == "":
	case !isSubdomain(name) || len(name) > maxHostname:
		r.bad("spec.hostnameOverride", "%q: not a host name of %d characters at most", name, maxHostname)
	case s.HostNetwork:
		r.bad("spec.hostnameOverride", "not with hostNetwork")
	default:
		r.out.Options.Hostname = name
	}
	if s.HostnameAsFQDN {
		r.unsupported("spec.setHostnameAsFQDN", "not supported: there is no cluster domain")
	}
}

// resolver: without a cluster's name server ClusterFirst is what the kubelet
// makes of it then, which is the host's resolver.
func (r *reader) resolver(s *spec) {
	o := &r.out.Options
	if !r.oneOf("spec.dnsPolicy", s.DNSPolicy, "", "ClusterFirst", "ClusterFirstWithHostNet", "Default", "None") {
		return
	}
	c := s.DNSConfig
	empty := c == nil || len(c.Nameservers)+len(c.Searches)+len(c.Options) == 0
	switch {
	case s.DNSPolicy != "None" && !empty:
		r.unsupported("spec.dnsConfig", "not supported with the host's resolver: only with dnsPolicy: None")
		return
	case s.DNSPolicy != "None":
		o.DNS = []string{"host"}
		return
	case c == nil || len(c.Nameservers) == 0:
		r.bad("spec.dnsConfig.nameservers", "missing: dnsPolicy: None leaves none")
		return
	}
	for i, text := range c.Nameservers {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			r.bad(fmt.Sprintf("spec.dnsConfig.nameservers[%d]", i), "%q: not an IP address", text)
			continue
		}
		o.DNS = append(o.DNS, addr.String())
	}
	for i, text := range c.Searches {
		if text == "" || strings.ContainsAny(text, " \t\r\n\x00") {
			r.bad(fmt.Sprintf("spec.dnsConfig.searches[%d]", i), "%q: not a domain", text)
		}
	}
	o.DNSSearch = c.Searches
	for i, opt := range c.Options {
		text := opt.Name
		if opt.Value != nil {
			text += ":" + *opt.Value
		}
		if opt.Name == "" || strings.ContainsAny(text, " \t\r\n\x00") {
			r.bad(fmt.Sprintf("spec.dnsConfig.options[%d]", i), "%q: not an option", text)
		}
		o.DNSOptions = append(o.DNSOptions, text)
	}
}

func (r *reader) hosts(s *spec) {
	for i, a := range s.HostAliases {
		at := fmt.Sprintf("spec.hostAliases[%d]", i)
		addr, err := netip.ParseAddr(a.IP)
		if err != nil {
			r.bad(at+".ip", "%q: not an IP address", a.IP)
		}
		if len(a.Hostnames) == 0 {
			r.bad(at+".hostnames", "missing")
		}
		for j, name := range a.Hostnames {
			if !isSubdomain(name) {
				r.bad(fmt.Sprintf("%s.hostnames[%d]", at, j), "%q: not a host name", name)
			}
		}
		r.out.Options.Hosts = append(r.out.Options.Hosts, poddir.HostEntry{IP: addr.String(), Names: a.Hostnames})
	}
}

func (r *reader) namespaces(s *spec) {
	if s.HostNetwork {
		r.out.Options.Net = []string{"host"}
	}
	for at, on := range map[string]bool{"spec.hostPID": s.HostPID, "spec.hostIPC": s.HostIPC} {
		if on {
			r.unsupported(at, "not supported: a pod has its own")
		}
	}
	if s.ShareProcesses != nil && !*s.ShareProcesses {
		r.unsupported("spec.shareProcessNamespace", "false is not supported: the apps of a pod share it")
	}
	if s.HostUsers != nil && !*s.HostUsers {
		r.out.Users = idrange.Auto
	}
	if s.AutomountToken {
		r.unsupported("spec.automountServiceAccountToken", "not supported: there is no cluster to ask")
	}
	if s.OS != nil && s.OS.Name != "linux" {
		r.bad("spec.os.name", "%q: this is Linux", s.OS.Name)
	}
}

// volumeList reads the volumes. The group that owns empty ones is fsGroup.
func (r *reader) volumeList(s *spec) {
	r.volumes = map[string]bool{}
	for i, v := range s.Volumes {
		at := fmt.Sprintf("spec.volumes[%d]", i)
		switch {
		case !isLabel(v.Name):
			r.bad(at+".name", "%q: not a name of lower-case letters, digits and -", v.Name)
		case isKey(r.volumes, v.Name):
			r.bad(at+".name", "%q: given twice", v.Name)
		}
		r.volumes[v.Name] = true
		r.source(at, v, s)
	}
}

// source reads what the volume is; one that says nothing is empty.
func (r *reader) source(at string, v volume, s *spec) {
	given := 0
	for _, is := range []bool{v.EmptyDir != nil, v.HostPath != nil, v.Image != nil} {
		if is {
			given++
		}
	}
	switch {
	case given > 1:
		r.bad(at, "emptyDir, hostPath and image exclude each other")
	case v.HostPath != nil:
		r.hostPath(at+".hostPath", v)
	case v.Image != nil:
		r.imageVolume(at+".image", v)
	case v.EmptyDir != nil:
		r.emptyDir(at+".emptyDir", v, s.SecurityContext)
	case r.reported(at):
		r.volumes[v.Name] = false // its source was refused
	default:
		r.emptyDir(at, volume{Name: v.Name, EmptyDir: &emptyDir{}}, s.SecurityContext)
	}
}

// imageVolume has a reference for a source, which whoever plans the pod has to
// turn into an id.
func (r *reader) imageVolume(at string, v volume) {
	if r.oneOf(at+".pullPolicy", v.Image.PullPolicy, "", string(PullAlways), string(PullIfNotPresent), string(PullNever)) &&
		v.Image.PullPolicy != "" && v.Image.PullPolicy != string(PullIfNotPresent) {
		r.unsupported(at+".pullPolicy", "%s is not supported for a volume: --pull-policy is for all", v.Image.PullPolicy)
	}
	r.out.Volumes = append(r.out.Volumes, podspec.Volume{
		Name: v.Name, Kind: podspec.VolumeImage, Source: r.image(at+".reference", v.Image.Reference),
	})
}

func isKey[V any](m map[string]V, key string) bool {
	_, ok := m[key]
	return ok
}

// reported says whether there is a problem at a field below the path.
func (r *reader) reported(at string) bool {
	for _, p := range r.problems {
		if strings.HasPrefix(p.Path, at+".") {
			return true
		}
	}
	return false
}

// emptyDir is open to everyone, as the kubelet makes it.
func (r *reader) emptyDir(at string, v volume, security *podSecurity) {
	out := podspec.Volume{Name: v.Name, Kind: podspec.VolumeEmpty, Mode: "0777"}
	limit := string(v.EmptyDir.SizeLimit)
	r.amount(at+".sizeLimit", v.EmptyDir.SizeLimit)
	switch {
	case !r.oneOf(at+".medium", v.EmptyDir.Medium, "", "Memory", "HugePages"):
	case v.EmptyDir.Medium == "Memory":
		out.Kind, out.Size = podspec.VolumeTmpfs, limit
	case v.EmptyDir.Medium == "HugePages":
		r.unsupported(at+".medium", "HugePages is not supported")
	case limit != "":
		r.unsupported(at+".sizeLimit", "not supported but for medium: Memory")
	}
	if mode := v.EmptyDir.Mode; mode != nil {
		if *mode < 0 || *mode > 0o1777 {
			r.bad(at+".mode", "%#o: not from 0 to 01777", *mode)
		}
		out.Mode = fmt.Sprintf("%04o", *mode)
	}
	if security != nil && security.FSGroup != nil {
		gid := int(*security.FSGroup)
		out.GID, out.Mode = &gid, "2777"
	}
	r.out.Volumes = append(r.out.Volumes, out)
}

func (r *reader) hostPath(at string, v volume) {
	typ := HostPathType(v.HostPath.Type)
	switch typ {
	case AnyPath, DirectoryOrCreate, Directory, FileOrCreate, File, Socket, CharDevice, BlockDevice:
	default:
		r.bad(at+".type", "%q: none of DirectoryOrCreate, Directory, FileOrCreate, File, Socket, CharDevice, BlockDevice", v.HostPath.Type)
	}
	if err := appc.CheckAbs(v.HostPath.Path); err != nil {
		r.bad(at+".path", "%v", err)
		return
	}
	for part := range strings.SplitSeq(v.HostPath.Path, "/") {
		if part == ".." {
			r.bad(at+".path", "%q: contains ..", v.HostPath.Path)
		}
	}
	clean := path.Clean(v.HostPath.Path)
	if typ != AnyPath {
		r.out.HostPaths = append(r.out.HostPaths, HostPath{Field: at, Path: clean, Type: typ})
	}
	out := podspec.Volume{
		Name: v.Name, Kind: podspec.VolumeHost, Source: clean, FollowSymlinks: true, Propagation: podspec.PropagationPrivate,
	}
	if r.spec.HostUsers != nil && !*r.spec.HostUsers {
		out.IDMap = new(true) // as the kubelet has it
	}
	r.out.Volumes = append(r.out.Volumes, out)
}

// propagation is a matter of each mount in Kubernetes, and of the volume in
// rkt.
func (r *reader) propagation(s *spec) {
	for at, c := range r.all(s) {
		for i, m := range c.VolumeMounts {
			at := fmt.Sprintf("%s.volumeMounts[%d].mountPropagation", at, i)
			n := slices.IndexFunc(r.out.Volumes, func(v podspec.Volume) bool { return v.Name == m.Name && v.Kind == podspec.VolumeHost })
			switch {
			case !r.oneOf(at, m.Propagation, "", "None", "HostToContainer", "Bidirectional") || n < 0:
			case m.Propagation == "Bidirectional":
				r.unsupported(at, "Bidirectional is not supported: no mount of a pod reaches the host")
			case m.Propagation == "HostToContainer":
				r.out.Volumes[n].Propagation = podspec.PropagationSlave
			case r.slave(s, m.Name):
				r.unsupported(at, "None is not supported beside HostToContainer of the same volume")
			}
		}
	}
}

// slave says whether a mount of the volume wants to see the host's mounts.
func (r *reader) slave(s *spec, volume string) bool {
	for _, c := range r.all(s) {
		if slices.ContainsFunc(c.VolumeMounts, func(m volumeMount) bool { return m.Name == volume && m.Propagation == "HostToContainer" }) {
			return true
		}
	}
	return false
}
