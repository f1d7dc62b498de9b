package image

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

// Annotations of a manifest that was made of an OCI image. The first two are
// JSON arrays, so that --exec can replace both and `-- args` the second.
const (
	AnnEntrypoint = "appc.io/docker/entrypoint"
	AnnCmd        = "appc.io/docker/cmd"
	// AnnFormat is there, and "oci", in each such manifest and in no other.
	AnnFormat = "rkt/image/format"
	// AnnUserGroups is "true" if the image leaves its group, or its
	// supplementary groups, to /etc/passwd and /etc/group of its root file
	// system: the manifest's group is then the user's name again.
	AnnUserGroups = "rkt/image/user-groups"
	// AnnIgnored lists what of the image's config appc can't say.
	AnnIgnored = "rkt/image/ignored"
)

// Config is what rkt reads of an OCI image config; Docker's is the same.
type Config struct {
	Created      *time.Time    `json:"created"`
	Author       string        `json:"author"`
	Architecture string        `json:"architecture"`
	Variant      string        `json:"variant"`
	OS           string        `json:"os"`
	Config       *ConfigConfig `json:"config"`
	RootFS       struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

// ConfigConfig is how the image is run by default.
type ConfigConfig struct {
	User         string              `json:"User"`
	ExposedPorts map[string]struct{} `json:"ExposedPorts"`
	Env          []string            `json:"Env"`
	Entrypoint   []string            `json:"Entrypoint"`
	Cmd          []string            `json:"Cmd"`
	Volumes      map[string]struct{} `json:"Volumes"`
	WorkingDir   string              `json:"WorkingDir"`
	Labels       map[string]string   `json:"Labels"`
	StopSignal   string              `json:"StopSignal"`
}

// ParseConfig reads an OCI image config. Both its "config" and all in there
// may be missing.
func ParseConfig(data []byte) (*Config, error) {
	if len(data) > MaxManifest {
		return nil, errs.Newf(errs.Corrupt, "image config: larger than %d bytes", MaxManifest)
	}
	var c Config
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, errs.Newf(errs.Corrupt, "image config: not valid JSON: %w", err)
	}
	if c.Config == nil {
		c.Config = &ConfigConfig{}
	}
	if t := c.RootFS.Type; t != "" && t != "layers" {
		return nil, errs.Newf(errs.Corrupt, "image config: rootfs.type %q is not \"layers\"", t)
	}
	return &c, nil
}

// Labels are the appc labels that the config implies.
func (c *Config) Labels() appc.Labels {
	var l appc.Labels
	if c.OS != "" {
		l = append(l, appc.Label{Name: "os", Value: c.OS})
		if c.Architecture != "" {
			l = append(l, appc.Label{Name: "arch", Value: ArchFromGo(c.Architecture, c.Variant)})
		}
	}
	return l
}

// FromOCI says in appc's terms what an OCI image is. The name and labels are
// those of the store's record; annotations are the OCI manifest's.
func FromOCI(c *Config, name string, labels appc.Labels, annotations map[string]string) (*Manifest, error) {
	m := &Manifest{
		ACKind: ManifestKind, ACVersion: appc.SpecVersion,
		Name: SanitizeIdentifier(name), Labels: slices.Clone(labels),
	}
	cc := c.Config
	if cc == nil {
		cc = &ConfigConfig{}
	}
	app := &appc.App{
		WorkingDirectory: path.Join("/", cc.WorkingDir),
		UserLabels:       maps.Clone(cc.Labels),
		UserAnnotations:  maps.Clone(annotations),
	}
	var ignored []string
	note := func(what string) { ignored = append(ignored, what) }
	entrypoint := cc.Entrypoint
	if len(entrypoint) == 1 && entrypoint[0] == "" {
		entrypoint = nil // how a Dockerfile takes an inherited one away
	}
	app.Exec = slices.Concat(entrypoint, cc.Cmd)
	app.Environment = environment(cc.Env, note)
	app.Ports = ports(cc.ExposedPorts, note)
	app.MountPoints = mountPoints(cc.Volumes, note)
	fromFiles := userGroup(app, cc.User)
	m.App = app

	m.Annotations.Set(AnnFormat, "oci")
	m.Annotations.Set(AnnEntrypoint, jsonArray(entrypoint))
	m.Annotations.Set(AnnCmd, jsonArray(cc.Cmd))
	if fromFiles {
		m.Annotations.Set(AnnUserGroups, "true")
	}
	if cc.StopSignal != "" {
		m.Annotations.Set(podspec.AnnStopSignal, cc.StopSignal)
	}
	if c.Created != nil {
		m.Annotations.Set("created", c.Created.UTC().Format(time.RFC3339))
	}
	if c.Author != "" {
		m.Annotations.Set("authors", c.Author)
	}
	if len(ignored) > 0 {
		m.Annotations.Set(AnnIgnored, strings.Join(ignored, ", "))
	}
	if err := m.Validate(); err != nil {
		return nil, errs.WithClass(errs.Corrupt, fmt.Errorf("image config: %w", err))
	}
	return m, nil
}

// Split returns the two halves of an OCI image's command, and false for an
// image that has none because it is an ACI.
func (m *Manifest) Split() (entrypoint, cmd []string, oci bool) {
	e, ok := m.Annotations.Get(AnnEntrypoint)
	if !ok {
		return nil, nil, false
	}
	c, _ := m.Annotations.Get(AnnCmd)
	if json.Unmarshal([]byte(e), &entrypoint) != nil || (c != "" && json.Unmarshal([]byte(c), &cmd) != nil) {
		return nil, nil, false
	}
	return entrypoint, cmd, true
}

// SanitizeIdentifier makes an AC Identifier of any text, "image" if nothing of
// it can stand in one.
func SanitizeIdentifier(s string) string {
	var b strings.Builder
	sep := true // no separator at the start and never two in a row
	for _, c := range strings.ToLower(s) {
		switch {
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
			b.WriteRune(c)
			sep = false
		case !sep && strings.ContainsRune("-._~/", c):
			b.WriteRune(c)
			sep = true
		case !sep:
			b.WriteByte('-')
			sep = true
		}
	}
	name := strings.TrimRight(b.String(), "-._~/")
	if name == "" {
		return "image"
	}
	return name
}

func jsonArray(list []string) string {
	if list == nil {
		list = []string{}
	}
	data, err := json.Marshal(list)
	if err != nil {
		panic(err) // strings always marshal
	}
	return string(data)
}

// environment keeps the last value of a name, as the shell would.
func environment(env []string, note func(string)) []appc.EnvVar {
	var vars []appc.EnvVar
	at := map[string]int{}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		if appc.CheckEnvName(name) != nil || strings.ContainsRune(value, 0) {
			note(fmt.Sprintf("environment %q", name))
			continue
		}
		if i, ok := at[name]; ok {
			vars[i].Value = value
			continue
		}
		at[name] = len(vars)
		vars = append(vars, appc.EnvVar{Name: name, Value: value})
	}
	return vars
}

func ports(exposed map[string]struct{}, note func(string)) []appc.Port {
	var list []appc.Port
	for _, text := range slices.Sorted(maps.Keys(exposed)) {
		number, protocol, ok := strings.Cut(text, "/")
		if !ok {
			protocol = "tcp"
		}
		first, last, isRange := strings.Cut(number, "-")
		lo, err := strconv.ParseUint(first, 10, 16)
		hi := lo
		if err == nil && isRange {
			hi, err = strconv.ParseUint(last, 10, 16)
		}
		p := appc.Port{Name: number + "-" + strings.ToLower(protocol), Protocol: strings.ToLower(protocol), Port: uint(lo)}
		if hi > lo {
			p.Count = uint(hi-lo) + 1
		}
		if err != nil || hi < lo || p.Validate() != nil || slices.ContainsFunc(list, func(q appc.Port) bool { return q.Name == p.Name }) {
			note(fmt.Sprintf("port %q", text))
			continue
		}
		list = append(list, p)
	}
	return list
}

func mountPoints(volumes map[string]struct{}, note func(string)) []appc.MountPoint {
	var list []appc.MountPoint
	for _, p := range slices.Sorted(maps.Keys(volumes)) {
		clean := path.Join("/", p)
		if p == "" || clean == "/" || strings.ContainsRune(p, 0) {
			note(fmt.Sprintf("volume %q", p))
			continue
		}
		if slices.ContainsFunc(list, func(m appc.MountPoint) bool { return m.Path == clean }) {
			continue
		}
		// Paths that differ in case or punctuation only come out the same.
		base := "volume-" + appc.SanitizeName(strings.ReplaceAll(strings.Trim(clean, "/"), "/", "-"))
		base = strings.TrimRight(base, "-")
		name := base
		for n := 2; slices.ContainsFunc(list, func(m appc.MountPoint) bool { return m.Name == name }); n++ {
			name = fmt.Sprintf("%s-%d", base, n)
		}
		list = append(list, appc.MountPoint{Name: name, Path: clean})
	}
	return list
}

// userGroup sets user and group, and says whether the image's own files decide
// about the groups.
func userGroup(app *appc.App, spec string) bool {
	user, group, ok := strings.Cut(spec, ":")
	if user == "" {
		user = "0"
	}
	app.User, app.Group = user, group
	if ok && group != "" {
		return false
	}
	if app.Group = user; user == "root" {
		app.Group = "0"
	}
	return true
}
