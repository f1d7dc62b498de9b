// Package config reads rkt's configuration: small JSON files of a kind and a
// version, in a folder for each kind, in up to three places of rising weight:
// the vendor's, the administrator's and the user's.
package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/userfile"
)

// DefaultData is the data folder where nothing else is configured.
const DefaultData = "/var/lib/rkt"

// Dirs are the places; "" means that there is none.
type Dirs struct{ System, Local, User string }

// Config is the merged configuration.
type Config struct {
	Auth       map[string]Auth  // by domain
	DockerAuth map[string]Basic // by registry
	Paths      Paths
	Registries map[string]Registry // by HOST[:PORT]
	Stage1     Stage1
	Trust      map[string]Trust // by prefix of names, or AnyName
}

func empty() Config {
	return Config{Auth: map[string]Auth{}, DockerAuth: map[string]Basic{}, Registries: map[string]Registry{}, Trust: map[string]Trust{}}
}

// Auth says how requests to a domain are authorized.
type Auth struct {
	Type        string          `json:"type"` // basic, oauth, aws
	Credentials json.RawMessage `json:"credentials"`
}

// Basic is a user and a password.
type Basic struct {
	User     string `json:"user"`
	Password string `json:"password"`
}

// Paths are folders of the host.
type Paths struct {
	Data         string `json:"data,omitempty"`
	Stage1Images string `json:"stage1-images,omitempty"`
	// Stores are frozen stores, which images are used out of in place.
	Stores []string `json:"stores,omitempty"`
}

// Stage1 is the stage1 that is used where none is named.
type Stage1 struct {
	Name     string `json:"name,omitempty"`
	Version  string `json:"version,omitempty"`
	Location string `json:"location,omitempty"`
}

// kinds lists the folder of each kind and who reads it.
var kinds = []struct {
	kind, folder string
	read         func(c *place, data []byte) error
}{
	{"auth", "auth.d", (*place).auth},
	{"dockerAuth", "auth.d", (*place).dockerAuth},
	{"paths", "paths.d", (*place).paths},
	{"registry", "registries.d", (*place).registry},
	{"stage1", "stage1.d", (*place).stage1},
	{"trust", "trust.d", (*place).trust},
}

// place collects what the files of one place say: there no key may be said
// twice, while a later place may say it again.
type place struct {
	Config
	seen map[string]bool
}

// Load reads and merges all places. A missing folder is empty. With
// skipUnreadable, files that this user may not read are left out: secrets of
// root are no reason for others not to see the rest.
func Load(dirs Dirs, skipUnreadable bool) (*Config, error) {
	return load(dirs, []string{"auth.d", "paths.d", "registries.d", "stage1.d", "trust.d"}, skipUnreadable)
}

// LoadPaths reads only the kind that says where the data is.
func LoadPaths(dirs Dirs) (*Config, error) { return load(dirs, []string{"paths.d"}, true) }

func load(dirs Dirs, folders []string, skipUnreadable bool) (*Config, error) {
	merged := empty()
	for _, dir := range []string{dirs.System, dirs.Local, dirs.User} {
		if dir == "" {
			continue
		}
		p := &place{Config: empty(), seen: map[string]bool{}}
		for _, folder := range folders {
			if err := p.readFolder(filepath.Join(dir, folder), folder, skipUnreadable); err != nil {
				return nil, fmt.Errorf("configuration: %w", err)
			}
		}
		merged.override(p.Config)
	}
	return &merged, nil
}

func (c *Config) override(by Config) {
	maps.Copy(c.Auth, by.Auth)
	maps.Copy(c.DockerAuth, by.DockerAuth)
	maps.Copy(c.Registries, by.Registries)
	maps.Copy(c.Trust, by.Trust)
	set := func(to *string, v string) {
		if v != "" {
			*to = v
		}
	}
	set(&c.Paths.Data, by.Paths.Data)
	set(&c.Paths.Stage1Images, by.Paths.Stage1Images)
	if by.Paths.Stores != nil {
		c.Paths.Stores = by.Paths.Stores
	}
	if by.Stage1.Name != "" {
		c.Stage1.Name, c.Stage1.Version = by.Stage1.Name, by.Stage1.Version
	}
	set(&c.Stage1.Location, by.Stage1.Location)
}

func (p *place) readFolder(path, folder string, skipUnreadable bool) error {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) || skipUnreadable && errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") || e.IsDir() {
			continue
		}
		file := filepath.Join(path, e.Name())
		data, err := userfile.ReadRegular(file, userfile.MaxText)
		if skipUnreadable && errors.Is(err, fs.ErrPermission) {
			continue
		}
		if err == nil {
			err = p.readFile(data, folder)
		}
		if err != nil {
			return errs.Newf(errs.Usage, "%s: %w", file, err)
		}
	}
	return nil
}

func (p *place) readFile(data []byte, folder string) error {
	var head struct {
		Kind    string `json:"rktKind"`
		Version string `json:"rktVersion"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return err
	}
	if head.Kind == "" {
		return fmt.Errorf("rktKind: missing")
	}
	if head.Version == "" {
		return fmt.Errorf("rktVersion: missing")
	}
	for _, k := range kinds {
		if k.kind != head.Kind {
			continue
		}
		if k.folder != folder {
			return fmt.Errorf("rktKind: %s belongs into %s", head.Kind, k.folder)
		}
		if head.Version != "v1" {
			return errs.Newf(errs.Corrupt, "rktVersion: %q: only v1 is known", head.Version)
		}
		return k.read(p, data)
	}
	return errs.Newf(errs.Corrupt, "rktKind: %q: unknown", head.Kind)
}

// once refuses a key that this place has said already.
func (p *place) once(kind, key string) error {
	if p.seen[kind+" "+key] {
		return fmt.Errorf("%s: %s: configured twice in one place", kind, key)
	}
	p.seen[kind+" "+key] = true
	return nil
}

func (p *place) auth(data []byte) error {
	var f struct {
		Domains []string `json:"domains"`
		Auth
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	if len(f.Domains) == 0 || slices.Contains(f.Domains, "") {
		return fmt.Errorf("domains: missing or empty")
	}
	needed, ok := map[string][]string{
		"basic": {"user", "password"}, "oauth": {"token"}, "aws": {"accessKeyID", "secretAccessKey"},
	}[f.Type]
	if !ok {
		return errs.Newf(errs.Corrupt, "type: %q: not basic, oauth or aws", f.Type)
	}
	var fields map[string]string
	if err := json.Unmarshal(f.Credentials, &fields); err != nil {
		return fmt.Errorf("credentials: %w", err)
	}
	for _, name := range needed {
		if fields[name] == "" {
			return fmt.Errorf("credentials.%s: missing", name)
		}
	}
	for _, d := range f.Domains {
		if err := p.once("auth", d); err != nil {
			return err
		}
		p.Auth[d] = f.Auth
	}
	return nil
}

func (p *place) dockerAuth(data []byte) error {
	var f struct {
		Registries  []string `json:"registries"`
		Credentials Basic    `json:"credentials"`
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	if len(f.Registries) == 0 || slices.Contains(f.Registries, "") {
		return fmt.Errorf("registries: missing or empty")
	}
	if f.Credentials.User == "" || f.Credentials.Password == "" {
		return fmt.Errorf("credentials: user or password missing")
	}
	for _, r := range f.Registries {
		if err := p.once("dockerAuth", r); err != nil {
			return err
		}
		p.DockerAuth[r] = f.Credentials
	}
	return nil
}

func (p *place) paths(data []byte) error {
	var f Paths
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	for _, field := range []struct {
		name, value string
		to          *string
	}{{"data", f.Data, &p.Paths.Data}, {"stage1-images", f.Stage1Images, &p.Paths.Stage1Images}} {
		if field.value == "" {
			continue
		}
		if !filepath.IsAbs(field.value) {
			return errs.Newf(errs.Corrupt, "%s: %q: not an absolute path", field.name, field.value)
		}
		if err := p.once("paths", field.name); err != nil {
			return err
		}
		*field.to = field.value
	}
	if f.Stores == nil {
		return nil
	}
	for i, dir := range f.Stores {
		if !filepath.IsAbs(dir) {
			return errs.Newf(errs.Corrupt, "stores[%d]: %q: not an absolute path", i, dir)
		}
	}
	p.Paths.Stores = f.Stores
	return p.once("paths", "stores")
}

func (p *place) stage1(data []byte) error {
	var f Stage1
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	if (f.Name == "") != (f.Version == "") {
		return fmt.Errorf("name and version go together")
	}
	if f.Name != "" {
		if err := p.once("stage1", "name"); err != nil {
			return err
		}
		p.Stage1.Name, p.Stage1.Version = f.Name, f.Version
	}
	if f.Location == "" {
		return nil
	}
	scheme, _, isURL := strings.Cut(f.Location, "://")
	if !filepath.IsAbs(f.Location) && !(isURL && slices.Contains([]string{"file", "http", "https", "docker"}, scheme)) {
		return fmt.Errorf("default stage1 image location is either a relative path or a URL without scheme")
	}
	if err := p.once("stage1", "location"); err != nil {
		return err
	}
	p.Stage1.Location = f.Location
	return nil
}

// DataDir is the data folder: the flag's, the configured or the default one,
// absolute and with symlinks resolved, so that every record names one path.
func (c *Config) DataDir(flag string) (string, error) {
	dir := flag
	if dir == "" {
		dir = c.Paths.Data
	}
	if dir == "" {
		dir = DefaultData
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("data folder: %w", err)
	}
	resolved, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		// Not made yet: what exists of its path decides.
		parent, perr := filepath.EvalSymlinks(filepath.Dir(dir))
		if perr != nil {
			return dir, nil
		}
		return filepath.Join(parent, filepath.Base(dir)), nil
	}
	if errors.Is(err, fs.ErrPermission) {
		return dir, nil
	}
	if err != nil {
		return "", errs.Newf(errs.Usage, "data folder: %w", err)
	}
	return resolved, nil
}

// Entries is the merged configuration as files of the same meaning, one for
// each domain and registry.
func (c *Config) Entries() []map[string]any {
	entries := []map[string]any{}
	add := func(kind string, fields map[string]any) {
		fields["rktKind"], fields["rktVersion"] = kind, "v1"
		entries = append(entries, fields)
	}
	for _, d := range sortedKeys(c.Auth) {
		a := c.Auth[d]
		add("auth", map[string]any{"domains": []string{d}, "type": a.Type, "credentials": a.Credentials})
	}
	for _, r := range sortedKeys(c.DockerAuth) {
		add("dockerAuth", map[string]any{"registries": []string{r}, "credentials": c.DockerAuth[r]})
	}
	if p := c.Paths; p.Data != "" || p.Stage1Images != "" || p.Stores != nil {
		fields := map[string]any{"data": p.Data, "stage1-images": p.Stage1Images}
		if p.Stores != nil {
			fields["stores"] = p.Stores
		}
		add("paths", fields)
	}
	for _, name := range sortedKeys(c.Registries) {
		r := c.Registries[name]
		add("registry", map[string]any{"registries": []string{name}, "mirrors": append([]string{}, r.Mirrors...), "plainHTTP": r.PlainHTTP})
	}
	if c.Stage1 != (Stage1{}) {
		add("stage1", map[string]any{"name": c.Stage1.Name, "version": c.Stage1.Version, "location": c.Stage1.Location})
	}
	for _, prefix := range sortedKeys(c.Trust) {
		t := c.Trust[prefix]
		fields := map[string]any{"prefixes": []string{prefix}, "require": t.Require}
		if len(t.Keys) > 0 {
			fields["keys"] = t.Keys
		}
		add("trust", fields)
	}
	return entries
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
