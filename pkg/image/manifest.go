package image

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"runtime"
	"strings"
	"time"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
)

// ManifestKind is the acKind of an image manifest.
const ManifestKind = "ImageManifest"

// MaxManifest is the size beyond which no manifest or config is read.
const MaxManifest = 4 << 20

// Manifest is an appc image manifest (spec/aci.md).
type Manifest struct {
	ACKind        string           `json:"acKind"`
	ACVersion     string           `json:"acVersion"`
	Name          string           `json:"name"`
	Labels        appc.Labels      `json:"labels,omitempty"`
	App           *appc.App        `json:"app,omitempty"`
	Annotations   appc.Annotations `json:"annotations,omitempty"`
	Dependencies  []Dependency     `json:"dependencies,omitempty"`
	PathWhitelist []string         `json:"pathWhitelist,omitempty"`
}

// Dependency is an image whose files lie below those of the one that names it.
type Dependency struct {
	ImageName string      `json:"imageName"`
	ImageID   string      `json:"imageID,omitempty"` // may be cut short
	Labels    appc.Labels `json:"labels,omitempty"`
	Size      int64       `json:"size,omitempty"`
}

// Parse reads an image manifest and checks all that the specification demands.
// Unknown fields and isolators are no errors. The error is of class Corrupt and
// names the field.
func Parse(data []byte) (*Manifest, error) {
	if len(data) > MaxManifest {
		return nil, errs.Newf(errs.Corrupt, "image manifest: larger than %d bytes", MaxManifest)
	}
	var m Manifest
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&m); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errs.Newf(errs.Corrupt, "image manifest: empty")
		}
		return nil, errs.Newf(errs.Corrupt, "image manifest: not valid JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errs.Newf(errs.Corrupt, "image manifest: more text after the manifest")
	}
	if err := m.Validate(); err != nil {
		return nil, errs.WithClass(errs.Corrupt, fmt.Errorf("image manifest: %w", err))
	}
	return &m, nil
}

// Marshal writes the manifest as JSON. It refuses what Parse would.
func (m *Manifest) Marshal() ([]byte, error) {
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("image manifest: %w", err)
	}
	return json.Marshal(m)
}

// Validate checks the manifest; the error begins with the field's name.
func (m *Manifest) Validate() error {
	if m.ACKind != ManifestKind {
		return errs.Newf(errs.Usage, "acKind: %q is not %q", m.ACKind, ManifestKind)
	}
	if err := appc.CheckVersion(m.ACVersion); err != nil {
		return fmt.Errorf("acVersion: %w", err)
	}
	if err := appc.CheckIdentifier(m.Name); err != nil {
		return fmt.Errorf("name: %w", err)
	}
	if err := checkLabels(m.Labels); err != nil {
		return err
	}
	if err := m.Annotations.Validate(); err != nil {
		return err
	}
	if created, ok := m.Annotations.Get("created"); ok {
		if _, err := time.Parse(time.RFC3339, created); err != nil {
			return errs.Newf(errs.Usage, "annotations: created: %q is not a time as RFC 3339 has it", created)
		}
	}
	if m.App != nil {
		if err := m.App.Validate(); err != nil {
			return fmt.Errorf("app.%w", err)
		}
	}
	for i, d := range m.Dependencies {
		if err := d.validate(); err != nil {
			return fmt.Errorf("dependencies[%d].%w", i, err)
		}
	}
	for i, p := range m.PathWhitelist {
		if err := appc.CheckAbs(p); err != nil {
			return fmt.Errorf("pathWhitelist[%d]: %w", i, err)
		}
	}
	return nil
}

func (d *Dependency) validate() error {
	if err := appc.CheckIdentifier(d.ImageName); err != nil {
		return fmt.Errorf("imageName: %w", err)
	}
	if d.ImageID != "" {
		if err := appc.CheckImageID(d.ImageID); err != nil {
			return fmt.Errorf("imageID: %w", err)
		}
	}
	if d.Size < 0 {
		return errs.Newf(errs.Usage, "size: %d is negative", d.Size)
	}
	return d.Labels.Validate()
}

func checkLabels(l appc.Labels) error {
	if err := l.Validate(); err != nil {
		return err
	}
	_, hasOS := l.Get("os")
	if arch, ok := l.Get("arch"); ok && !hasOS {
		return errs.Newf(errs.Usage, "labels: arch %q without os", arch)
	}
	return nil
}

// Version is the label of that name, "" if there is none.
func (m *Manifest) Version() string {
	v, _ := m.Labels.Get("version")
	return v
}

// Reference is how an image of that name and labels is written: name:version.
func Reference(name string, labels appc.Labels) string {
	if v, ok := labels.Get("version"); ok && v != "" {
		return name + ":" + v
	}
	return name
}

// Matches says whether an image of the name and labels is what the dependency
// asks for. A label that is not asked for may have any value.
func (d *Dependency) Matches(name string, labels appc.Labels) bool {
	if name != d.ImageName {
		return false
	}
	for _, want := range d.Labels {
		if got, ok := labels.Get(want.Name); !ok || got != want.Value {
			return false
		}
	}
	return true
}

// String names the dependency as a user would.
func (d *Dependency) String() string {
	s := Reference(d.ImageName, d.Labels)
	for _, l := range d.Labels {
		if l.Name != "version" {
			s += "," + l.Name + "=" + l.Value
		}
	}
	return s
}

// ArchFromGo returns appc's name for an architecture as Go and OCI call it;
// variant is OCI's, for arm.
func ArchFromGo(goarch, variant string) string {
	switch goarch {
	case "386":
		return "i386"
	case "arm64":
		return "aarch64"
	case "arm":
		if variant == "v6" || variant == "6" {
			return "armv6l"
		}
		return "armv7l"
	default:
		return goarch
	}
}

// CheckHost returns an error of class Unsupported if the labels name another
// operating system or architecture than this host's. Missing ones fit anywhere.
func CheckHost(labels appc.Labels) error {
	wantOS, wantArch := runtime.GOOS, ArchFromGo(runtime.GOARCH, "")
	imageOS, hasOS := labels.Get("os")
	arch, hasArch := labels.Get("arch")
	// x86_64 is not in the specification's list, yet images carry it.
	if arch == "x86_64" {
		arch = "amd64"
	}
	if (!hasOS || imageOS == wantOS) && (!hasArch || arch == wantArch) {
		return nil
	}
	err := errs.Newf(errs.Unsupported, "image is for %s, this host is %s/%s",
		strings.Trim(path.Join(imageOS, arch), "/"), wantOS, wantArch)
	return errs.WithHint(err, "get the image that was built for %s/%s", wantOS, wantArch)
}
