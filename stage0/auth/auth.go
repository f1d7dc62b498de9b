// Package auth finds the credential for a registry or a host: in one fixed order
// of sources, the same whoever starts the program and from where. It can also
// say where it looked.
package auth

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/ref"
	"github.com/rkt-pods/rkt/pkg/userfile"
	"github.com/rkt-pods/rkt/stage0/config"
)

// Credential is what a host is shown: user and password, or one of two kinds of
// tokens. The zero Credential is none.
type Credential struct {
	User, Password string
	Token          string // a bearer token, sent as it is
	Identity       string // an identity token, to be changed for a bearer token
}

// IsZero says whether there is nothing to show.
func (c Credential) IsZero() bool { return c == Credential{} }

// kind says in a word what the credential is, without its secret.
func (c Credential) kind() string {
	switch {
	case c.Token != "":
		return "bearer token"
	case c.Identity != "":
		return "identity token"
	}
	return "user and password"
}

// Request is what a credential is wanted for.
type Request struct {
	Host       string // with its port, as references name it
	Repository string // of a registry; "" for a URL, of which only auth.d knows
}

// The states of a source, as Step has them.
const (
	Used    = "used"     // the credential is from here
	NoEntry = "no entry" // there, but says nothing of the host
	Absent  = "absent"   // not there
	Failed  = "failed"   // can't be read, or a helper failed: no other source is asked
	Skipped = "not asked"
)

// Step is one source and what it gave.
type Step struct {
	Source string `json:"source"`
	Place  string `json:"place"`
	State  string `json:"state"`
	Key    string `json:"key,omitempty"`    // the entry's name
	Kind   string `json:"kind,omitempty"`   // of the credential
	User   string `json:"user,omitempty"`   //
	Helper string `json:"helper,omitempty"` // program that was asked
	Error  string `json:"error,omitempty"`
}

// String names the source in a message.
func (s Step) String() string {
	text := s.Source
	if s.Place != s.Source {
		text += " " + s.Place
	}
	if s.Key != "" {
		text += fmt.Sprintf(" (entry %q)", s.Key)
	}
	if s.Helper != "" {
		text += " by " + s.Helper
	}
	return text
}

// Chain is the order of sources on this host.
type Chain struct {
	config *config.Config
	env    func(string) string
	home   string // the effective user's, by the passwd file
	run    string // /run, but for tests
	uid    int
	path   []string // where helpers are looked for
	helper time.Duration
}

// New makes the chain. $HOME, $XDG_RUNTIME_DIR and $PATH have no say: they
// differ between a login, sudo, cron and a unit of systemd.
func New(c *config.Config) *Chain {
	return &Chain{
		config: c, env: os.Getenv, home: home("/etc/passwd", os.Geteuid()), run: "/run", uid: os.Geteuid(),
		path: []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}, helper: helperDeadline,
	}
}

// source is a place that may have a credential.
type source struct {
	name  string
	place string
	must  bool // it was named by the user, so it has to be there
	find  func(ctx context.Context, s source, r Request, step *Step) (Credential, error)
}

// sources lists them all, the one that counts most first.
func (c *Chain) sources(r Request) []source {
	list := []source{{name: "auth.d", place: "auth.d", find: c.configured}}
	if r.Repository == "" {
		return list
	}
	file := func(name, path string, must bool) {
		list = append(list, source{name: name, place: path, must: must, find: c.inFile})
	}
	if path := c.env("REGISTRY_AUTH_FILE"); path != "" {
		file("$REGISTRY_AUTH_FILE", path, true)
	}
	uid := strconv.Itoa(c.uid)
	file("containers auth file", filepath.Join(c.run, "containers", uid, "auth.json"), false)
	file("containers auth file", filepath.Join(c.run, "user", uid, "containers/auth.json"), false)
	if c.home != "" {
		file("containers auth file", filepath.Join(c.home, ".config/containers/auth.json"), false)
	}
	switch dir := c.env("DOCKER_CONFIG"); {
	case dir != "":
		file("$DOCKER_CONFIG", filepath.Join(dir, "config.json"), true)
	case c.home != "":
		file("docker config", filepath.Join(c.home, ".docker/config.json"), false)
	}
	if dir := c.env("CREDENTIALS_DIRECTORY"); dir != "" {
		file("$CREDENTIALS_DIRECTORY", filepath.Join(dir, CredentialName), false)
	}
	return list
}

// CredentialName is the name of the credential that a unit of systemd passes
// (LoadCredential=), a file as docker's config.json.
const CredentialName = "rkt.auth.json"

// Find returns the credential for a request and the source that gave it; without
// one, the zero Credential. A source that is there and can't be read is an
// error: to go on would mean to be refused with somebody else's name.
func (c *Chain) Find(ctx context.Context, r Request) (Credential, Step, error) {
	cred, steps, err := c.look(ctx, r)
	for _, s := range steps {
		if s.State == Used {
			return cred, s, nil
		}
	}
	return Credential{}, Step{}, err
}

// Explain lists all sources in their order. The error is Find's.
func (c *Chain) Explain(ctx context.Context, r Request) ([]Step, error) {
	_, steps, err := c.look(ctx, r)
	return steps, err
}

func (c *Chain) look(ctx context.Context, r Request) (cred Credential, steps []Step, err error) {
	done := false
	for _, s := range c.sources(r) {
		step := Step{Source: s.name, Place: s.place, State: Skipped}
		if !done {
			var found Credential
			found, err = s.find(ctx, s, r, &step)
			switch {
			case err != nil:
				step.State, step.Error, done = Failed, err.Error(), true
				err = errs.WithHint(fmt.Errorf("credentials for %s: %s: %w", r.Host, s.name, err), "\"rkt auth explain\" shows all sources")
			case !found.IsZero():
				step.State, step.Kind, step.User, done = Used, found.kind(), found.User, true
				cred = found
			}
		}
		steps = append(steps, step)
	}
	return cred, steps, err
}

// configured looks into rkt's own configuration: dockerAuth by registry, then
// auth by domain.
func (c *Chain) configured(_ context.Context, _ source, r Request, step *Step) (Credential, error) {
	step.State = NoEntry
	names := []string{r.Host}
	if r.Repository != "" {
		names = aliases(r.Host)
		for _, name := range names {
			if b, ok := c.config.DockerAuth[name]; ok {
				step.Key = name
				return Credential{User: b.User, Password: b.Password}, nil
			}
		}
	}
	for _, name := range names {
		a, ok := c.config.Auth[name]
		if !ok {
			continue
		}
		step.Key = name
		var fields struct{ User, Password, Token string }
		if err := json.Unmarshal(a.Credentials, &fields); err != nil {
			return Credential{}, errs.Newf(errs.Usage, "%s: not valid JSON: %w", name, err)
		}
		switch a.Type {
		case "basic":
			return Credential{User: fields.User, Password: fields.Password}, nil
		case "oauth":
			return Credential{Token: fields.Token}, nil
		}
		return Credential{}, errs.WithHint(errs.Newf(errs.Unsupported, "%s: type %q is not supported", name, a.Type),
			"give basic or oauth credentials, or make the object readable by a signed URL")
	}
	return Credential{}, nil
}

// aliases are the names that a registry goes by: Docker's has three.
func aliases(host string) []string {
	for _, name := range dockerNames {
		if host == name {
			return dockerNames
		}
	}
	return []string{host}
}

var dockerNames = []string{ref.DockerHost, "index." + ref.DockerHost, "registry-1." + ref.DockerHost}

// inFile looks into a file of docker's or containers' format.
func (c *Chain) inFile(ctx context.Context, s source, r Request, step *Step) (Credential, error) {
	step.State = Absent
	data, err := userfile.ReadRegular(s.place, userfile.MaxText)
	if errs.Is(err, errs.NotFound) && !s.must {
		return Credential{}, nil
	}
	if err != nil {
		return Credential{}, err
	}
	step.State = NoEntry
	f, err := parseFile(data)
	if err != nil {
		return Credential{}, fmt.Errorf("%s: %w", s.place, err)
	}
	if name, ok := f.helperFor(r.Host); ok {
		return c.ask(ctx, name, r.Host, step)
	}
	cred, key, err := f.find(r)
	if err != nil || !cred.IsZero() {
		step.Key = key
		return cred, err
	}
	if f.Store != "" {
		return c.ask(ctx, f.Store, r.Host, step)
	}
	return Credential{}, nil
}

// Refused is the error where a host does not let the credential in, or wants
// one and none was found.
func Refused(r Request, s Step, cause error) error {
	what := "no credentials were found"
	if s.State == Used {
		what = "refuses the credentials from " + s.String()
	}
	err := errs.Newf(errs.Denied, "%s: %s: %w", r.Host, what, cause)
	return errs.WithHint(err, "\"rkt auth explain\" shows where credentials for %s are looked for", r.Host)
}
