package auth

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/ref"
)

// file is what docker's config.json and containers' auth.json have in common.
type file struct {
	Auths   map[string]entry  `json:"auths"`
	Helpers map[string]string `json:"credHelpers"`
	Store   string            `json:"credsStore"`
}

// entry is one registry's, or one namespace's of a registry.
type entry struct {
	Auth     string `json:"auth"` // base64 of user:password
	User     string `json:"username"`
	Password string `json:"password"`
	Identity string `json:"identitytoken"`
	Token    string `json:"registrytoken"`
}

func parseFile(data []byte) (*file, error) {
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, errs.Newf(errs.Usage, "not valid JSON: %w", err)
	}
	return &f, nil
}

// helperFor returns the helper that is configured for the registry.
func (f *file) helperFor(host string) (string, bool) {
	for _, key := range slices.Sorted(maps.Keys(f.Helpers)) {
		if registryOf(key) == registryOf(host) && f.Helpers[key] != "" {
			return f.Helpers[key], true
		}
	}
	return "", false
}

// find returns the entry with the longest key that host/repository begins with,
// element by element, and that key. Entries without a secret, which docker
// writes beside a credential store, are none.
func (f *file) find(r Request) (Credential, string, error) {
	want := registryOf(r.Host) + "/" + r.Repository
	best, length := "", -1
	for _, key := range slices.Sorted(maps.Keys(f.Auths)) {
		have := registryOf(key)
		rest, ok := strings.CutPrefix(want, have)
		if ok && rest[:min(1, len(rest))] != "/" && rest != "" {
			ok = false
		}
		if !ok || f.Auths[key] == (entry{}) || len(have) < length {
			continue
		}
		// Of two spellings of one key the plain one counts.
		if len(have) > length || key == have {
			best, length = key, len(have)
		}
	}
	if length < 0 {
		return Credential{}, "", nil
	}
	cred, err := f.Auths[best].credential()
	if err != nil {
		err = errs.Newf(errs.Usage, "auths: %q: %w", best, err)
	}
	return cred, best, err
}

func (e entry) credential() (Credential, error) {
	c := Credential{User: e.User, Password: e.Password}
	if e.Auth != "" {
		plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(e.Auth))
		if err != nil {
			// The error would show a piece of the secret.
			return Credential{}, errs.Newf(errs.Usage, "auth: not base64")
		}
		user, password, ok := strings.Cut(strings.TrimRight(string(plain), "\x00"), ":")
		if !ok {
			return Credential{}, errs.Newf(errs.Usage, "auth: not user:password")
		}
		c.User, c.Password = user, password
	}
	switch {
	case e.Token != "":
		return Credential{Token: e.Token}, nil
	case e.Identity != "":
		return Credential{User: c.User, Identity: e.Identity}, nil
	case c.User == "" && c.Password == "":
		return Credential{}, nil
	case c.User == "" || c.Password == "":
		return Credential{}, errs.Newf(errs.Usage, "a user without a password, or the other way round")
	}
	return c, nil
}

// registryOf brings the spellings of a registry's key to one: docker writes a
// URL with the version of an API that is long gone, and its own registry has
// three names.
func registryOf(key string) string {
	for _, scheme := range []string{"https://", "http://"} {
		key = strings.TrimPrefix(key, scheme)
	}
	key = strings.TrimSuffix(key, "/")
	for _, version := range []string{"/v1", "/v2"} {
		if host, ok := strings.CutSuffix(key, version); ok && !strings.Contains(host, "/") {
			key = host
		}
	}
	host, rest, nested := strings.Cut(key, "/")
	host = strings.ToLower(host)
	if slices.Contains(dockerNames, host) {
		host = ref.DockerHost
	}
	if nested {
		return host + "/" + rest
	}
	return host
}

// home returns the home folder of a user by the passwd file: $HOME is the
// caller's under sudo, and not set under systemd.
func home(passwd string, uid int) string {
	data, err := os.ReadFile(passwd)
	if err != nil {
		return "" // a host without users has no files of users
	}
	for line := range strings.Lines(string(data)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) >= 6 && fields[2] == strconv.Itoa(uid) && strings.HasPrefix(fields[5], "/") {
			return fields[5]
		}
	}
	return ""
}
