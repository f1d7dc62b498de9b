// Package podspec has the pod manifest of the appc specification v0.8.11
// (spec/pods.md) and the annotations by which rkt says in it what the
// specification leaves open.
package podspec

import "github.com/rkt-pods/rkt/pkg/appc"

// Kind is the acKind of a pod manifest.
const Kind = "PodManifest"

// Pod is a pod manifest. Once the pod is prepared it never changes.
type Pod struct {
	ACVersion       string            `json:"acVersion"`
	ACKind          string            `json:"acKind"`
	Apps            []App             `json:"apps"`
	Volumes         []Volume          `json:"volumes,omitempty"`
	Isolators       []appc.Isolator   `json:"isolators,omitempty"`
	Annotations     appc.Annotations  `json:"annotations,omitempty"`
	Ports           []ExposedPort     `json:"ports,omitempty"`
	UserAnnotations map[string]string `json:"userAnnotations,omitempty"`
	UserLabels      map[string]string `json:"userLabels,omitempty"`
}

// App is one app of the pod. App is always present in a reified manifest.
type App struct {
	Name           string           `json:"name"`
	Image          Image            `json:"image"`
	App            *appc.App        `json:"app,omitempty"`
	ReadOnlyRootFS bool             `json:"readOnlyRootFS,omitempty"`
	Mounts         []Mount          `json:"mounts,omitempty"`
	Annotations    appc.Annotations `json:"annotations,omitempty"`
}

// Image names the image of an app; ID is always there.
type Image struct {
	Name   string      `json:"name,omitempty"`
	ID     string      `json:"id"`
	Labels appc.Labels `json:"labels,omitempty"`
}

// ExposedPort publishes a port of an app on the host.
type ExposedPort struct {
	Name     string     `json:"name"`
	HostPort uint       `json:"hostPort"`
	HostIP   string     `json:"hostIP,omitempty"`
	PodPort  *appc.Port `json:"podPort,omitempty"`
}

// lifecyclePrefix is that of the annotations which steer the pod's life.
const lifecyclePrefix = "rkt/lifecycle/"

// Annotations of the pod.
const (
	AnnExitPolicy = "rkt/lifecycle/exit-policy" // all, any, anyOnFailure
	AnnPodName    = "rkt/pod-name"              // as CheckPodName wants it
	AnnUsers      = "rkt/private-users"         // auto, START:COUNT: the pod has a user namespace
)

// Annotations of an app.
const (
	AnnStopSignal  = "rkt/lifecycle/stop-signal"         // a name or number, from the image by default
	AnnStopTimeout = "rkt/lifecycle/stop-timeout"        // a Go duration
	AnnRole        = "rkt/lifecycle/role"                // app, init, sidecar
	AnnRestart     = "rkt/lifecycle/restart"             // never, on-failure[:max], always
	AnnRestartOn   = "rkt/lifecycle/restart-on"          // exit codes, comma separated
	AnnKeepRootFS  = "rkt/lifecycle/restart-keep-rootfs" // true: a restart finds what was written
	AnnAfter       = "rkt/lifecycle/after"               // app[:condition],…
	AnnBefore      = "rkt/lifecycle/before"              // the same, of those that wait for this app
	AnnReady       = "rkt/lifecycle/ready"               // ParseReady
	AnnLive        = "rkt/lifecycle/live"                // ParseLive
	AnnStartup     = "rkt/lifecycle/startup"             // ParseLive
	AnnPostStart   = "rkt/lifecycle/post-start"          // ParseHook
	AnnPreStop     = "rkt/lifecycle/pre-stop"            // ParseHook
	AnnSeed        = "rkt/volumes/seed"                  // mount points whose implicit volume starts with the image's content, comma separated
	AnnStdin       = "rkt/stdio/stdin"                   // null or inherit
)

// Find returns the app of the name, nil if there is none.
func (p *Pod) Find(name string) *App {
	for i := range p.Apps {
		if p.Apps[i].Name == name {
			return &p.Apps[i]
		}
	}
	return nil
}
