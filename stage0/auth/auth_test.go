package auth

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/testkit"
	"github.com/rkt-pods/rkt/stage0/config"
)

// place is a host of the test's own.
type place struct {
	t   *testing.T
	dir string
	env map[string]string
	*Chain
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{t: t, dir: t.TempDir(), env: map[string]string{}}
	p.Chain = &Chain{
		config: &config.Config{Auth: map[string]config.Auth{}, DockerAuth: map[string]config.Basic{}}, env: func(k string) string { return p.env[k] },
		home: filepath.Join(p.dir, "home"), run: filepath.Join(p.dir, "run"), uid: 7, path: []string{filepath.Join(p.dir, "bin")}, helper: 20 * time.Second,
	}
	return p
}

func (p *place) write(name, text string) string {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return path
}

func (p *place) program(name, script string) {
	p.t.Helper()
	p.write("bin/README", "")
	testkit.Program(p.t, filepath.Join(p.dir, "bin", name), []byte("#!/bin/sh\n"+script))
}

// entries is an auth file with a user of that name for each key.
func entries(keys ...string) string {
	var all []string
	for _, k := range keys {
		key, user, _ := strings.Cut(k, " ")
		all = append(all, fmt.Sprintf("%q:{\"auth\":%q}", key, base64.StdEncoding.EncodeToString([]byte(user+":secret:with:colons"))))
	}
	return `{"auths":{` + strings.Join(all, ",") + `}}`
}

func (p *place) user(host, repository string) string {
	p.t.Helper()
	cred, _, err := p.Find(p.t.Context(), Request{Host: host, Repository: repository})
	if err != nil {
		p.t.Errorf("%s/%s: %v", host, repository, err)
	}
	if cred.User != "" && cred.Password != "secret:with:colons" {
		p.t.Errorf("%s/%s: password %q", host, repository, cred.Password)
	}
	return cred.User
}

// TestOrder takes away one source after the other, and each time the next one
// counts.
func TestOrder(t *testing.T) {
	p := newPlace(t)
	p.config.DockerAuth["r.example"] = config.Basic{User: "dockerAuth", Password: "secret:with:colons"}
	p.config.Auth["r.example"] = config.Auth{Type: "basic", Credentials: json.RawMessage(`{"user":"auth","password":"secret:with:colons"}`)}
	p.env["REGISTRY_AUTH_FILE"] = p.write("x/auth.json", entries("r.example registry-auth-file"))
	p.write("run/containers/7/auth.json", entries("r.example run-containers"))
	p.write("run/user/7/containers/auth.json", entries("r.example run-user"))
	p.write("home/.config/containers/auth.json", entries("r.example config-containers"))
	p.env["DOCKER_CONFIG"] = filepath.Dir(p.write("d/config.json", entries("r.example docker-config")))
	p.write("home/.docker/config.json", entries("r.example home-docker"))
	p.env["CREDENTIALS_DIRECTORY"] = filepath.Dir(p.write("c/rkt.auth.json", entries("r.example systemd")))
	gone := func(path string) func() { return func() { _ = os.Remove(filepath.Join(p.dir, path)) } }
	for _, step := range []struct {
		user string
		next func()
	}{
		{"dockerAuth", func() { delete(p.config.DockerAuth, "r.example") }},
		{"auth", func() { delete(p.config.Auth, "r.example") }},
		{"registry-auth-file", func() { delete(p.env, "REGISTRY_AUTH_FILE") }},
		{"run-containers", gone("run/containers/7/auth.json")},
		{"run-user", gone("run/user/7/containers/auth.json")},
		{"config-containers", gone("home/.config/containers/auth.json")},
		{"docker-config", func() { delete(p.env, "DOCKER_CONFIG") }},
		{"home-docker", gone("home/.docker/config.json")},
		{"systemd", func() { delete(p.env, "CREDENTIALS_DIRECTORY") }},
		{"", func() {}},
	} {
		if got := p.user("r.example", "team/app"); got != step.user {
			t.Errorf("%q, want %q", got, step.user)
		}
		step.next()
	}
}

// TestHomeIsThePasswdFiles: neither sudo nor cron nor systemd changes what is
// found.
func TestHomeIsThePasswdFiles(t *testing.T) {
	p := newPlace(t)
	passwd := p.write("passwd", "root:x:0:0:root:/root:/bin/sh\nbroken\nseven:x:7:7::"+p.dir+"/seven:/bin/sh\n")
	if got := home(passwd, 7); got != p.dir+"/seven" {
		t.Errorf("home %q", got)
	}
	if got := home(passwd, 8); got != "" {
		t.Errorf("home of nobody %q", got)
	}
	before := New(p.config)
	for _, name := range []string{"HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "PATH"} {
		t.Setenv(name, p.dir)
	}
	after := New(p.config)
	a, err := before.Explain(t.Context(), Request{Host: "r.example", Repository: "x"})
	b, berr := after.Explain(t.Context(), Request{Host: "r.example", Repository: "x"})
	if fmt.Sprint(a, err) != fmt.Sprint(b, berr) || len(a) < 4 {
		t.Errorf("%v became %v", a, b)
	}
}

func TestKeys(t *testing.T) {
	p := newPlace(t)
	p.write("home/.docker/config.json", entries("r.example host", "r.example/team team", "r.example/team/app app", "https://port.example:5000/v2/ port", "http://old.example/ old",
		"https://index.docker.io/v1/ docker", "docker.io/me me", "plain.example plain", "https://plain.example url"))
	for image, want := range map[string]string{
		"r.example other": "host", "r.example team/x": "team", "r.example team/app": "app", "r.example team/app/y": "app", "r.example team/apple": "team", "r.example teams": "host",
		"port.example:5000 x": "port", "port.example x": "", "old.example x": "old", "docker.io library/busybox": "docker", "docker.io me/app": "me",
		"index.docker.io library/x": "docker", "registry-1.docker.io me/app": "me", "plain.example x": "plain", "evil-r.example x": "", "R.Example x": "host",
	} {
		host, repository, _ := strings.Cut(image, " ")
		if got := p.user(host, repository); got != want {
			t.Errorf("%s: %q, want %q", image, got, want)
		}
	}
}

func TestKindsOfCredentials(t *testing.T) {
	p := newPlace(t)
	p.write("home/.docker/config.json", `{"auths":{
		"identity.example":{"auth":"PHRva2VuPjo=","identitytoken":"id"},"token.example":{"registrytoken":"tok"},"plain.example":{"username":"u","password":"p"},
		"empty.example":{},"half.example":{"username":"u"},"junk.example":{"auth":"%%%"},"nocolon.example":{"auth":"dXNlcg=="}}}`)
	p.config.Auth["oauth.example"] = config.Auth{Type: "oauth", Credentials: json.RawMessage(`{"token":"t"}`)}
	p.config.Auth["aws.example"] = config.Auth{Type: "aws", Credentials: json.RawMessage(`{"accessKeyID":"a","secretAccessKey":"topsecret"}`)}
	for host, want := range map[string]Credential{
		"identity.example": {User: "<token>", Identity: "id"}, "token.example": {Token: "tok"}, "plain.example": {User: "u", Password: "p"}, "empty.example": {}, "oauth.example": {Token: "t"},
	} {
		got, _, err := p.Find(t.Context(), Request{Host: host, Repository: "x"})
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", host, got, err, want)
		}
	}
	for host, want := range map[string]string{
		"half.example": "without a password", "junk.example": "not base64", "nocolon.example": "not user:password", "aws.example": `type "aws" is not supported`,
	} {
		_, _, err := p.Find(t.Context(), Request{Host: host, Repository: "x"})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "topsecret") || strings.Contains(err.Error(), "%%%") {
			t.Errorf("%s: %v, want %q", host, err, want)
		}
	}
	// A URL's host is asked for in auth.d alone.
	if got, _, err := p.Find(t.Context(), Request{Host: "plain.example"}); err != nil || !got.IsZero() {
		t.Errorf("URL: %+v, %v", got, err)
	}
	if got, _, err := p.Find(t.Context(), Request{Host: "oauth.example"}); err != nil || got.Token != "t" {
		t.Errorf("URL: %+v, %v", got, err)
	}
}

// TestBrokenSource: a source that is there and can't be read ends the search.
func TestBrokenSource(t *testing.T) {
	p := newPlace(t)
	p.write("run/containers/7/auth.json", "not JSON")
	p.write("home/.docker/config.json", entries("r.example later"))
	_, _, err := p.Find(t.Context(), Request{Host: "r.example", Repository: "x"})
	if err == nil || !strings.Contains(err.Error(), "run/containers/7/auth.json") || len(errs.Hints(err)) == 0 {
		t.Errorf("%v", err)
	}
	p = newPlace(t)
	p.env["REGISTRY_AUTH_FILE"] = filepath.Join(p.dir, "missing")
	if _, _, err := p.Find(t.Context(), Request{Host: "r.example", Repository: "x"}); !errs.Is(err, errs.NotFound) {
		t.Errorf("%v", err)
	}
}

func TestHelpers(t *testing.T) {
	p := newPlace(t)
	p.program("docker-credential-good", `read -r server; [ "$1" = get ] && [ "$HOME" = "`+p.home+`" ] || exit 1
echo "{\"ServerURL\":\"$server\",\"Username\":\"helped for $server\",\"Secret\":\"secret:with:colons\"}"`)
	p.program("docker-credential-identity", `echo '{"Username":"<token>","Secret":"id"}'`)
	p.program("docker-credential-none", `echo "credentials not found in native keychain"; exit 1`)
	p.program("docker-credential-mute", `exit 0`)
	p.program("docker-credential-bad", `echo "no bus" >&2; exit 3`)
	p.program("docker-credential-junk", `echo topsecret`)
	p.program("docker-credential-slow", `echo $$ >`+p.dir+`/slow; /bin/sleep 1000 & wait`)
	p.write("home/.docker/config.json", `{"credsStore":"none","credHelpers":{"good.example":"good","docker.io":"good","identity.example":"identity","bad.example":"bad","mute.example":"mute","junk.example":"junk",
		"slow.example":"slow","missing.example":"missing","path.example":"../bin/good","none.example":"none"},"auths":{"auths.example":{"auth":"YTpzZWNyZXQ6d2l0aDpjb2xvbnM="},"good.example":{"auth":"YTpi"}}}`)
	for image, want := range map[string]string{
		"good.example x": "helped for good.example", "docker.io library/x": "helped for https://index.docker.io/v1/", "none.example x": "", "auths.example x": "a", "unknown.example x": "",
	} {
		host, repository, _ := strings.Cut(image, " ")
		if got := p.user(host, repository); got != want {
			t.Errorf("%s: %q, want %q", image, got, want)
		}
	}
	if got, _, err := p.Find(t.Context(), Request{Host: "identity.example", Repository: "x"}); err != nil || got.Identity != "id" || got.Password != "" {
		t.Errorf("identity: %+v, %v", got, err)
	}
	for host, want := range map[string]string{
		"bad.example": "no bus", "mute.example": "not valid JSON", "junk.example": "not valid JSON", "slow.example": "no answer within", "missing.example": "not in " + p.dir, "path.example": "not the name of a helper",
	} {
		if p.helper = 20 * time.Second; host == "slow.example" {
			p.helper = 500 * time.Millisecond
		}
		_, _, err := p.Find(t.Context(), Request{Host: host, Repository: "x"})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "topsecret") {
			t.Errorf("%s: %v, want %q", host, err, want)
		}
	}
	// Nothing of the group that was killed is left.
	pid, err := os.ReadFile(filepath.Join(p.dir, "slow"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/proc/" + strings.TrimSpace(string(pid))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("process %s is left: %v", pid, err)
	}
}

func TestExplain(t *testing.T) {
	p := newPlace(t)
	p.write("home/.config/containers/auth.json", entries("other.example x"))
	p.write("home/.docker/config.json", entries("r.example alice"))
	p.env["CREDENTIALS_DIRECTORY"] = filepath.Dir(p.write("c/rkt.auth.json", entries("r.example systemd")))
	steps, err := p.Explain(t.Context(), Request{Host: "r.example", Repository: "x"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range steps {
		got = append(got, s.Source+": "+s.State)
	}
	want := "auth.d: no entry, containers auth file: absent, containers auth file: absent, containers auth file: no entry, docker config: used, $CREDENTIALS_DIRECTORY: not asked"
	if strings.Join(got, ", ") != want {
		t.Errorf("%q\nwant %q", got, want)
	}
	out, err := json.Marshal(steps)
	if err != nil || strings.Contains(string(out), "secret") || strings.Contains(string(out), base64.StdEncoding.EncodeToString([]byte("alice:"))[:6]) {
		t.Errorf("%s, %v", out, err)
	}
	err = Refused(Request{Host: "r.example", Repository: "x"}, steps[4], errors.New("401 Unauthorized"))
	if !errs.Is(err, errs.Denied) || !strings.Contains(err.Error(), "docker config "+p.home) || !strings.Contains(err.Error(), `"r.example"`) {
		t.Errorf("%v", err)
	}
	if err := Refused(Request{Host: "r.example"}, Step{}, errors.New("401")); !strings.Contains(err.Error(), "no credentials were found") {
		t.Errorf("%v", err)
	}
}

// FuzzAuthFile: whatever a file says, nothing is found in it for a host that it
// does not name, and no error shows what stands in it.
func FuzzAuthFile(f *testing.F) {
	f.Add([]byte(entries("r.example u", "https://index.docker.io/v1/ d")), "r.example", "team/app")
	f.Add([]byte(`{"credHelpers":{"a":"b"},"credsStore":"c","auths":{"a/b":{"identitytoken":"x"}}}`), "a", "b/c")
	f.Fuzz(func(t *testing.T, data []byte, host, repository string) {
		parsed, err := parseFile(data)
		if err != nil {
			return
		}
		if name, ok := parsed.helperFor(host); ok && name == "" {
			t.Errorf("a helper without a name")
		}
		cred, key, err := parsed.find(Request{Host: host, Repository: repository})
		if (err != nil || !cred.IsZero()) && !strings.HasPrefix(registryOf(host)+"/"+repository, registryOf(key)) {
			t.Errorf("%q is none of %s/%s", key, host, repository)
		}
	})
}
