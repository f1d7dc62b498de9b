// Package kube reads a Kubernetes Pod as YAML and says in rkt's terms what is
// to be run, and writes a pod of rkt back as such a Pod. It is strict: what it
// does not know or can't honour is a problem with its path and line, never left
// out in silence. Documentation/kubernetes.md lists the fields.
package kube

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/pkg/ref"
	"github.com/rkt-pods/rkt/stage0/podplan"
)

// Pod is what a Pod asks of rkt.
type Pod struct {
	Name        string
	Labels      map[string]string
	Annotations map[string]string
	Apps        []App
	Volumes     []podspec.Volume
	HostPaths   []HostPath
	Isolators   []appc.Isolator
	Ports       []podspec.ExposedPort
	ExitPolicy  string
	Users       string            // as podspec.AnnUsers has it; "" is the host's user namespace
	Options     poddir.RunOptions // network, host name, resolver and hosts
}

// App is one container.
type App struct {
	Image string      // as an argument of rkt run
	Pull  PullPolicy  // "" means what the image's tag says
	Plan  podplan.App // without its image and manifest
}

// PullPolicy is Kubernetes' imagePullPolicy.
type PullPolicy string

// The pull policies.
const (
	PullAlways       PullPolicy = "Always"
	PullIfNotPresent PullPolicy = "IfNotPresent"
	PullNever        PullPolicy = "Never"
)

// HostPath is something on the host that has to be of a type, or to be made,
// before the pod is run.
type HostPath struct {
	Field string // its path in the Pod
	Path  string
	Type  HostPathType
}

// HostPathType is Kubernetes' type of a hostPath volume.
type HostPathType string

// The types of a hostPath.
const (
	AnyPath           HostPathType = ""
	DirectoryOrCreate HostPathType = "DirectoryOrCreate"
	Directory         HostPathType = "Directory"
	FileOrCreate      HostPathType = "FileOrCreate"
	File              HostPathType = "File"
	Socket            HostPathType = "Socket"
	CharDevice        HostPathType = "CharDevice"
	BlockDevice       HostPathType = "BlockDevice"
)

// Read reads one Pod. It is complete if no problem is left that is not
// Ignorable.
func Read(data []byte) (*Pod, []Problem) {
	r := &reader{decoder: decoder{lines: map[string]int{}}, out: &Pod{ExitPolicy: "all"}}
	if node := r.parse(data); node != nil {
		var doc document
		if r.isPod(node) {
			r.into(node, reflect.ValueOf(&doc).Elem(), "")
			if !slices.ContainsFunc(r.problems, func(p Problem) bool { return !p.Ignorable }) {
				r.metadata(doc.Metadata)
				r.pod(&doc.Spec)
			}
		}
	}
	slices.SortStableFunc(r.problems, func(a, b Problem) int { return a.Line - b.Line })
	return r.out, r.problems
}

// reader turns a decoded document into a Pod.
type reader struct {
	decoder
	out      *Pod
	spec     *spec
	volumes  map[string]bool // false: it was refused
	grace    time.Duration
	awaited  []string // sidecars that those that follow have to wait for
	appNames map[string]bool
}

// kinds are Kubernetes' wrappers of Pods, which are often mistaken for one.
var kinds = []string{"CronJob", "DaemonSet", "Deployment", "Job", "PodTemplate", "ReplicaSet", "ReplicationController", "StatefulSet"}

// isPod looks at the kind before anything else: the fields of another one would
// all be wrong.
func (r *reader) isPod(n *yaml.Node) bool {
	var head struct {
		APIVersion string `kube:"apiVersion"`
		Kind       string `kube:"kind"`
	}
	if n.Kind != yaml.MappingNode {
		r.lines[""] = n.Line
		r.bad("", "is %s, not a Pod", kindOf(n))
		return false
	}
	probe := decoder{lines: r.lines}
	probe.into(n, reflect.ValueOf(&head).Elem(), "")
	switch {
	case head.Kind == "Pod" && head.APIVersion == "v1":
		return true
	case head.Kind == "Pod":
		r.bad("apiVersion", "%q: not v1", head.APIVersion)
	case head.Kind == "":
		r.bad("kind", "missing: a Pod is wanted")
	case head.Kind == "List" || strings.HasSuffix(head.Kind, "List"):
		r.bad("kind", "%s: one Pod is run at a time", head.Kind)
	case slices.Contains(kinds, head.Kind):
		r.bad("kind", "%s: not a Pod; its template is one, under apiVersion: v1 and kind: Pod", head.Kind)
	default:
		r.bad("kind", "%q: not a Pod", head.Kind)
	}
	return false
}

// Plan is what is to be planned; the images and their manifests are missing.
func (p *Pod) Plan() podplan.Options {
	o := podplan.Options{
		Name: p.Name, Labels: p.Labels, UserAnnotations: p.Annotations, Isolators: p.Isolators, Ports: p.Ports,
		Volumes: p.Volumes, ExitPolicy: p.ExitPolicy, Users: p.Users,
	}
	for _, a := range p.Apps {
		o.Apps = append(o.Apps, a.Plan)
	}
	return o
}

// DefaultPull is the policy of a container that says none: what has no tag, or
// latest, is asked for each time.
func (a App) DefaultPull() PullPolicy {
	if a.Pull != "" {
		return a.Pull
	}
	r, err := ref.Parse(a.Image, func(string) bool { return false })
	if err == nil && r.Kind == ref.OCI && r.Digest == "" && r.Tag == ref.DefaultTag {
		return PullAlways
	}
	return PullIfNotPresent
}
