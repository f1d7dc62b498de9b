// Package appc has the types that image and pod manifests share, as the appc
// specification v0.8.11 defines them (spec/types.md, spec/aci.md). It is
// liberal in what it reads and strict in what it writes; unknown fields are
// ignored, as the specification is silent on them.
package appc

import "encoding/json"

// SpecVersion is the version of the specification that rkt writes.
const SpecVersion = "0.8.11"

// Label is one name and value of an image's identity, such as os=linux.
type Label struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Labels are unique by name.
type Labels []Label

// Annotation is one remark that may affect the executor.
type Annotation struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Annotations are unique by name.
type Annotations []Annotation

// App is how one program is run: the `app` section of an image manifest, and
// of an app in a pod manifest, where it replaces the image's as a whole.
type App struct {
	Exec              []string          `json:"exec,omitempty"`
	EventHandlers     []EventHandler    `json:"eventHandlers,omitempty"`
	User              string            `json:"user"`
	Group             string            `json:"group"`
	SupplementaryGIDs []int             `json:"supplementaryGIDs,omitempty"`
	WorkingDirectory  string            `json:"workingDirectory,omitempty"`
	Environment       []EnvVar          `json:"environment,omitempty"`
	MountPoints       []MountPoint      `json:"mountPoints,omitempty"`
	Ports             []Port            `json:"ports,omitempty"`
	Isolators         []Isolator        `json:"isolators,omitempty"`
	UserAnnotations   map[string]string `json:"userAnnotations,omitempty"`
	UserLabels        map[string]string `json:"userLabels,omitempty"`
}

// EventHandler is a program that runs before or after the main one.
type EventHandler struct {
	Name string   `json:"name"` // PreStart or PostStop
	Exec []string `json:"exec"`
}

// The two event handlers of the specification.
const (
	PreStart = "pre-start"
	PostStop = "post-stop"
)

// EnvVar is one variable; the value is literal.
type EnvVar struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// MountPoint is a place where the app wants a volume.
type MountPoint struct {
	Name     string `json:"name"`
	Path     string `json:"path"`
	ReadOnly bool   `json:"readOnly,omitempty"`
}

// Port is a port that the app listens on.
type Port struct {
	Name            string `json:"name"`
	Protocol        string `json:"protocol"`
	Port            uint   `json:"port"`
	Count           uint   `json:"count,omitempty"` // 0 means 1
	SocketActivated bool   `json:"socketActivated,omitempty"`
}

// Isolator is one limit or restriction; what Value means depends on Name.
type Isolator struct {
	Name  string          `json:"name"`
	Value json.RawMessage `json:"value"`
}

// Get returns the value of the label, and whether there is one.
func (l Labels) Get(name string) (string, bool) {
	for _, x := range l {
		if x.Name == name {
			return x.Value, true
		}
	}
	return "", false
}

// Get returns the value of the annotation, and whether there is one.
func (a Annotations) Get(name string) (string, bool) {
	for _, x := range a {
		if x.Name == name {
			return x.Value, true
		}
	}
	return "", false
}

// Set replaces the annotation's value or adds the annotation.
func (a *Annotations) Set(name, value string) {
	for i := range *a {
		if (*a)[i].Name == name {
			(*a)[i].Value = value
			return
		}
	}
	*a = append(*a, Annotation{name, value})
}
