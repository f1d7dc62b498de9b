// Package cdi reads specifications of the Container Device Interface: files in
// which the vendors of devices say what a container needs for each of them.
// Only what a device asks for that rkt can give is given; all else is refused
// by name.
package cdi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// Dirs are the folders of specifications; what is said of a device in a later
// one counts.
func Dirs() []string { return []string{"/etc/cdi", "/var/run/cdi"} }

// maxSpec bounds one file. Those of a machine with many GPUs have some 100 KiB.
const maxSpec = 8 << 20

// Edits are what containers that use a device get.
type Edits struct {
	Env            []string `json:"env"`
	DeviceNodes    []Node   `json:"deviceNodes"`
	Mounts         []Mount  `json:"mounts"`
	AdditionalGIDs []uint32 `json:"additionalGids"`

	Hooks      []json.RawMessage `json:"hooks"`
	IntelRDT   json.RawMessage   `json:"intelRdt"`
	NetDevices []json.RawMessage `json:"netDevices"`
}

// Node is a device node. What is not given is as the host's node is.
type Node struct {
	Path        string  `json:"path"`
	HostPath    string  `json:"hostPath"` // "" means Path
	Type        string  `json:"type"`
	Major       *int64  `json:"major"`
	Minor       *int64  `json:"minor"`
	FileMode    *uint32 `json:"fileMode"`
	Permissions string  `json:"permissions"` // "" means rw
	UID         *int    `json:"uid"`
	GID         *int    `json:"gid"`
}

// Mount is a file or folder of the host.
type Mount struct {
	HostPath      string   `json:"hostPath"`
	ContainerPath string   `json:"containerPath"`
	Type          string   `json:"type"`
	Options       []string `json:"options"`
}

type spec struct {
	Version string `json:"cdiVersion"`
	Kind    string `json:"kind"`
	Devices []struct {
		Name  string `json:"name"`
		Edits Edits  `json:"containerEdits"`
	} `json:"devices"`
	Edits Edits `json:"containerEdits"`

	path string
}

// Registry is what the specifications of the host say.
type Registry struct {
	specs [][]spec // by folder, the one that counts most first
	other []string // files in formats that are not read
	bad   error    // files that can't be read
}

// Load reads all specifications. A file that is no good hinders only who asks
// for a device that is not in the others.
func Load(dirs []string) (*Registry, error) {
	r := &Registry{}
	for _, dir := range slices.Backward(dirs) {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var list []spec
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			switch filepath.Ext(path) {
			case ".json":
				s, err := read(path)
				if err != nil {
					r.bad = errors.Join(r.bad, err)
					continue
				}
				list = append(list, s)
			case ".yaml", ".yml":
				r.other = append(r.other, path)
			}
		}
		r.specs = append(r.specs, list)
	}
	return r, nil
}

func read(path string) (spec, error) {
	s := spec{path: path}
	info, err := os.Stat(path)
	if err != nil {
		return s, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxSpec {
		return s, errs.Newf(errs.Corrupt, "%s: not a file of at most %d bytes", path, maxSpec)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, errs.Newf(errs.Corrupt, "%s: %w", path, err)
	}
	if s.Version == "" || !strings.Contains(s.Kind, "/") {
		return s, errs.Newf(errs.Corrupt, "%s: no cdiVersion, or a kind that is not VENDOR/CLASS", path)
	}
	return s, nil
}

// Find returns the edits for a device that is named VENDOR/CLASS=NAME: those
// of all devices of its specification, then its own.
func (r *Registry) Find(name string) ([]Edits, error) {
	kind, device, _ := strings.Cut(name, "=")
	for _, folder := range r.specs {
		var found []Edits
		var in []string
		for _, s := range folder {
			if s.Kind != kind {
				continue
			}
			for _, d := range s.Devices {
				if d.Name == device {
					found, in = []Edits{s.Edits, d.Edits}, append(in, s.path)
				}
			}
		}
		if len(in) > 1 {
			return nil, errs.Newf(errs.Usage, "device %s: both %s", name, strings.Join(in, " and "))
		}
		if len(in) == 1 {
			return found, check(name, found)
		}
	}
	return nil, r.missing(name)
}

func (r *Registry) missing(name string) error {
	err := errs.Newf(errs.NotFound, "device %s: in no file *.json of %s", name, strings.Join(Dirs(), ", "))
	if r.bad != nil {
		err = errs.WithClass(errs.NotFound, fmt.Errorf("%w: %w", err, r.bad))
	}
	if len(r.other) > 0 {
		return errs.WithHint(err, "rkt reads JSON, not %s: convert it, for example with \"nvidia-ctk cdi generate --format=json\"", strings.Join(r.other, ", "))
	}
	return errs.WithHint(err, "the vendor's tool writes it")
}

// check refuses what rkt does not do.
func check(name string, list []Edits) error {
	for _, e := range list {
		switch {
		case len(e.Hooks) > 0:
			return errs.WithHint(errs.Newf(errs.Unsupported, "device %s: wants programs of the host run for it (hooks)", name),
				"most vendors' tools can leave hooks out of what they write")
		case len(e.IntelRDT) > 0 && string(e.IntelRDT) != "null":
			return errs.Newf(errs.Unsupported, "device %s: wants a class of Intel RDT", name)
		case len(e.NetDevices) > 0:
			return errs.Newf(errs.Unsupported, "device %s: wants network devices", name)
		}
		for _, m := range e.Mounts {
			if !filepath.IsAbs(m.ContainerPath) || m.Type != "" && m.Type != "bind" && m.Type != "none" || !filepath.IsAbs(m.HostPath) {
				return errs.Newf(errs.Unsupported, "device %s: mount of %q at %q (type %q): only paths of the host can be mounted", name, m.HostPath, m.ContainerPath, m.Type)
			}
		}
		for _, n := range e.DeviceNodes {
			if !strings.HasPrefix(filepath.Clean(n.Path), "/dev/") {
				return errs.Newf(errs.Unsupported, "device %s: node %q: not below /dev", name, n.Path)
			}
		}
		for _, v := range e.Env {
			if !strings.Contains(v, "=") {
				return errs.Newf(errs.Corrupt, "device %s: environment %q: not NAME=VALUE", name, v)
			}
		}
	}
	return nil
}
