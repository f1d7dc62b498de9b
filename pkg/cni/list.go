// Package cni speaks the Container Network Interface, versions 0.1.0 to 1.1.0,
// with the plugins that make networks: it reads their configurations, runs them
// in order with a deadline, and understands their results. It knows nothing of
// pods and keeps nothing.
package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// Versions of the protocol that this package speaks, the oldest first.
var Versions = []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// List is one network: plugins that are run one after the other.
type List struct {
	Version      string
	Name         string
	DisableCheck bool
	DisableGC    bool
	Plugins      []Plugin
}

// Plugin is one plugin of a list with its configuration.
type Plugin struct {
	Type   string
	Config map[string]json.RawMessage
}

// Parse reads a list, or the configuration of a single plugin as a list of one.
func Parse(data []byte) (*List, error) {
	var raw struct {
		Version      string            `json:"cniVersion"`
		Versions     []string          `json:"cniVersions"`
		Name         string            `json:"name"`
		Type         string            `json:"type"`
		DisableCheck loose             `json:"disableCheck"`
		DisableGC    loose             `json:"disableGC"`
		Plugins      []json.RawMessage `json:"plugins"`
	}
	if err := Unmarshal(data, &raw); err != nil {
		return nil, err
	}
	l := &List{Name: raw.Name, DisableCheck: bool(raw.DisableCheck), DisableGC: bool(raw.DisableGC)}
	var err error
	if l.Version, err = choose(raw.Version, raw.Versions); err != nil {
		return nil, err
	}
	if err := checkName(raw.Name); err != nil {
		return nil, err
	}
	if raw.Plugins == nil && raw.Type != "" {
		raw.Plugins = []json.RawMessage{data}
	}
	if len(raw.Plugins) == 0 {
		return nil, errs.Newf(errs.Corrupt, "neither type nor plugins is there")
	}
	for i, conf := range raw.Plugins {
		p, err := parsePlugin(conf)
		if err != nil {
			return nil, fmt.Errorf("plugin %d: %w", i+1, err)
		}
		l.Plugins = append(l.Plugins, p)
	}
	return l, nil
}

// Unmarshal says what is wrong with a value in the words of JSON, not of Go.
func Unmarshal(data []byte, to any) error {
	err := json.Unmarshal(data, to)
	if t, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		where := ""
		if t.Field != "" {
			where = t.Field + ": "
		}
		return errs.Newf(errs.Corrupt, "%scan't be %s %s", where, article(t.Value), t.Value)
	}
	if err != nil {
		return errs.WithClass(errs.Corrupt, err)
	}
	return nil
}

func article(noun string) string {
	if strings.HasPrefix(noun, "array") || strings.HasPrefix(noun, "object") {
		return "an"
	}
	return "a"
}

// loose is a boolean that may be written as a string: the specification had it
// both ways.
type loose bool

// UnmarshalJSON implements json.Unmarshaler.
func (l *loose) UnmarshalJSON(data []byte) error {
	switch string(data) {
	case "true", `"true"`:
		*l = true
	case "false", `"false"`, "null":
	default:
		return fmt.Errorf("%s: neither true nor false", data)
	}
	return nil
}

func parsePlugin(data []byte) (Plugin, error) {
	var p Plugin
	if err := Unmarshal(data, &p.Config); err != nil {
		return p, err
	}
	if err := json.Unmarshal(p.Config["type"], &p.Type); err != nil || p.Type == "" {
		return p, errs.Newf(errs.Corrupt, "type: missing or no string")
	}
	// It becomes a file's name in the plugin folders.
	if strings.ContainsAny(p.Type, "/\x00") || p.Type == "." || p.Type == ".." {
		return p, errs.Newf(errs.Corrupt, "type %q: not the name of a program", p.Type)
	}
	return p, nil
}

// choose returns the newest version that the configuration allows.
func choose(version string, versions []string) (string, error) {
	if version == "" && len(versions) == 0 {
		return Versions[0], nil // so says the specification
	}
	for _, v := range slices.Backward(Versions) {
		if v == version || slices.Contains(versions, v) {
			return v, nil
		}
	}
	if version == "" {
		version = strings.Join(versions, ", ")
	}
	return "", errs.Newf(errs.Unsupported, "cniVersion %q: only %s to %s are known", version, Versions[0], Versions[len(Versions)-1])
}

// since says whether the list's version is at least v, which is a known one.
func (l *List) since(v string) bool {
	return slices.Index(Versions, l.Version) >= slices.Index(Versions, v)
}

func checkName(name string) error {
	if name == "" {
		return errs.Newf(errs.Corrupt, "name: missing")
	}
	for i, c := range name {
		alnum := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !alnum && (i == 0 || !strings.ContainsRune("_.-", c)) {
			return errs.Newf(errs.Corrupt, "name %q: only letters, digits and _.- after the first", name)
		}
	}
	return nil
}
