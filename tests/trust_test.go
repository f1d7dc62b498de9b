package tests

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/tests/images"
	"github.com/rkt-pods/rkt/tests/registry"
	"github.com/rkt-pods/rkt/tests/signer"
)

// publisher is a host with images, signatures and keys on the web, and rkt's
// configuration on the host that fetches them.
type publisher struct {
	*host
	*httptest.Server
	config, system string
	env            []string

	mu    sync.Mutex
	files map[string][]byte
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func newPublisher(t *testing.T) *publisher {
	t.Helper()
	return publishAt(t, must(net.Listen("tcp", "127.0.0.1:0")))
}

func publishAt(t *testing.T, l net.Listener) *publisher {
	t.Helper()
	p := &publisher{host: newHost(t), config: t.TempDir(), system: t.TempDir(), files: map[string][]byte{}}
	p.Server = &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(p.serve), ErrorLog: log.New(io.Discard, "", 0)}}
	p.StartTLS()
	t.Cleanup(p.Server.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	p.writeFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw}))
	p.env = []string{"SSL_CERT_FILE=" + ca}
	return p
}

func (p *publisher) writeFile(path string, data []byte) {
	p.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// publish puts a file on the web; nil cuts the connection of whoever asks.
func (p *publisher) publish(path string, data []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.files[path] = data
}

func (p *publisher) serve(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	data, ok := p.files[r.URL.Path]
	p.mu.Unlock()
	switch {
	case !ok:
		http.NotFound(w, r)
	case data == nil:
		panic(http.ErrAbortHandler)
	default:
		_, _ = w.Write(data) // the client may be gone
	}
}

// name is what images of this publisher may be called: its host and port.
func (p *publisher) name() string { return strings.TrimPrefix(p.URL, "https://") }

func (p *publisher) rktCommand(args ...string) *exec.Cmd {
	cmd := p.command(append([]string{"--local-config=" + p.config, "--system-config=" + p.system}, args...)...)
	cmd.Env = append(cmd.Env, p.env...)
	return cmd
}

func (p *publisher) run(args ...string) result {
	p.t.Helper()
	cmd := p.rktCommand(args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	return p.finish(cmd, args, cmd.Run(), &stdout, &stderr)
}

func (p *publisher) ok(args ...string) string {
	p.t.Helper()
	res := p.run(args...)
	if res.code != 0 {
		p.t.Fatal(res)
	}
	return strings.TrimSpace(res.stdout)
}

// refused runs a fetch that must fail with these words, and leave nothing.
func (p *publisher) refused(args []string, parts ...string) {
	p.t.Helper()
	res := p.run(append([]string{"fetch"}, args...)...)
	if res.code != 254 {
		p.t.Errorf("not refused: %s", res)
	}
	for _, part := range parts {
		if !strings.Contains(res.stderr, part) {
			p.t.Errorf("%q lacks %q", res.stderr, part)
		}
	}
	p.empty()
}

// empty checks that no image, blob or name is in the store. Layers that were
// verified may wait there without a name.
func (p *publisher) empty() {
	p.t.Helper()
	for _, folder := range []string{"images", "names", "blobs/*", "tmp"} {
		if found, _ := filepath.Glob(filepath.Join(p.dir, "store", folder, "*")); len(found) > 0 && folder != "blobs/*" {
			p.t.Errorf("in the store: %q", found)
		} else if folder == "blobs/*" && len(found) > 0 {
			p.t.Errorf("blobs in the store: %q", found)
		}
	}
}

func (p *publisher) key(file string, data []byte) string {
	p.t.Helper()
	path := filepath.Join(p.config, "..", "keys-"+filepath.Base(p.config), file)
	p.writeFile(path, data)
	return path
}

func (p *publisher) trust(prefix, file string, data []byte) {
	p.t.Helper()
	flag := "--root"
	if prefix != "" {
		flag = "--prefix=" + prefix
	}
	p.ok("trust", "--skip-fingerprint-review", flag, p.key(file, data))
}

const signedName = "example.com/team/app"

// TestSignedACI: each way in which a signature can be wrong is told by name, and
// leaves nothing in the store; the right one is recorded, listed, and checked
// again.
func TestSignedACI(t *testing.T) {
	p := newPublisher(t)
	alice, bob, eve := must(signer.NewPGP("alice", packet.Config{})), must(signer.NewPGP("bob", packet.Config{})), must(signer.NewPGP("eve", packet.Config{}))
	aci := must(images.ACI(images.Manifest(signedName, "1", []string{"/x"}), []images.Entry{images.File("x", 0o755, "x")}))
	other := must(images.ACI(images.Manifest("example.com/team/other", "1", []string{"/x"}), []images.Entry{images.File("x", 0o755, "y")}))
	url := p.URL + "/app.aci"
	p.publish("/app.aci", aci)
	p.trust("example.com/team", "alice.asc", must(alice.Public()))
	p.trust("example.org", "bob.asc", must(bob.Public()))

	p.refused([]string{url}, "not signed", "app.aci.asc", "hint")
	p.publish("/app.aci.asc", must(eve.Sign(aci)))
	p.refused([]string{url}, "openpgp: signature made by unknown entity", eve.Fingerprint(), p.config)
	p.publish("/app.aci.asc", must(bob.Sign(aci)))
	p.refused([]string{url}, bob.Fingerprint(), "example.org", signedName)
	p.publish("/app.aci.asc", must(alice.Sign(other)))
	p.refused([]string{url}, "is of other bytes", alice.Fingerprint())
	p.publish("/app.aci.asc", []byte("junk"))
	p.refused([]string{url}, "not a detached OpenPGP signature")
	p.publish("/app.aci.asc", nil)
	p.refused([]string{url}, "error downloading the signature file", "app.aci.asc")

	p.publish("/app.aci.asc", must(alice.Sign(aci)))
	id := p.ok("fetch", "--full", url)
	var list []struct {
		ID    string
		Trust struct {
			Verified                      bool
			Method, Key, Identity, Prefix string
		}
	}
	if err := json.Unmarshal([]byte(p.ok("image", "list", "--format=json")), &list); err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	if got := list[0].Trust; list[0].ID != id || !got.Verified || got.Method != "openpgp" || got.Key != alice.Fingerprint() || got.Identity != signedName || got.Prefix != "example.com/team" {
		t.Errorf("%+v", list)
	}
	if got := p.ok("image", "list", "--fields=trust", "--no-legend"); got != "openpgp "+alice.Fingerprint()[:16] {
		t.Errorf("%q", got)
	}

	// The kept signature is as good as the keys of today.
	p.ok("image", "verify", "--trust", id)
	p.ok("trust", "--remove", alice.Fingerprint())
	res := p.run("image", "verify", "--trust", id)
	if res.code != 12 || !strings.Contains(res.stdout, "unknown entity") || !strings.Contains(res.stdout, alice.Fingerprint()) {
		t.Error(res)
	}
	p.ok("image", "verify", id)
	p.trust("", "alice.asc", must(alice.Public()))
	p.ok("image", "verify", "--trust", "--all")
	if err := alice.RevokeKey(packet.KeyCompromised, "stolen", nil); err != nil {
		t.Fatal(err)
	}
	p.writeFile(filepath.Join(p.config, "trustedkeys/root.d", alice.Fingerprint()), must(alice.Public()))
	if res := p.run("image", "verify", "--trust", id); res.code != 12 || !strings.Contains(res.stdout, "revoked") {
		t.Error(res)
	}
	p.ok("image", "rm", id)
	p.refused([]string{url}, "the key is revoked", "stolen")
	// A file with its signature beside it, or named.
	p.trust("", "bob.asc", must(bob.Public()))
	file := p.key("app.aci", aci)
	p.refused([]string{file}, "not signed")
	p.ok("fetch", file, "--signature="+p.key("sig", must(bob.Sign(aci))))
	// What the policy lets in is noted as such.
	p.ok("image", "rm", id)
	p.ok("fetch", "--insecure-options=image", file)
	if got := p.ok("image", "list", "--fields=trust", "--no-legend"); got != "insecure-options=image" {
		t.Errorf("%q", got)
	}
	if res := p.run("image", "verify", "--trust", id); res.code != 12 || !strings.Contains(res.stdout, "not signed") {
		t.Error(res)
	}
	p.writeFile(filepath.Join(p.config, "trust.d/a.json"), []byte(`{"rktKind":"trust","rktVersion":"v1","prefixes":["example.com/team"],"require":"insecure"}`))
	p.ok("image", "verify", "--trust", id)
}

// TestKeyDiscovery finds the keys that the pages of a name tell of.
func TestKeyDiscovery(t *testing.T) {
	p := newPublisher(t)
	alice := must(signer.NewPGP("alice", packet.Config{}))
	page := fmt.Sprintf(`<html><head><meta name="ac-discovery-pubkeys" content="%s/team %s/keys.asc"></head></html>`, p.name(), p.URL)
	p.publish("/team", []byte(page))
	p.publish("/keys.asc", must(alice.Public()))
	res := p.run("trust", "--prefix="+p.name()+"/team")
	if res.code != 254 || !strings.Contains(res.stderr, "stdin is no terminal") || !strings.Contains(res.stderr, strings.ToUpper(alice.Fingerprint()[:4])) {
		t.Error(res)
	}
	res = p.run("trust", "--trust-keys-from-https", "--prefix="+p.name()+"/team")
	if res.code != 0 || !strings.Contains(res.stderr, `Added key for prefix "`+p.name()+`/team"`) {
		t.Error(res)
	}
	if _, err := os.Stat(filepath.Join(p.config, "trustedkeys/prefix.d", p.name(), "team", alice.Fingerprint())); err != nil {
		t.Error(err)
	}
	res = p.run("trust", "--skip-fingerprint-review", "--root", p.URL+"/missing.asc")
	if res.code != 254 || !strings.Contains(res.stderr, "404") {
		t.Error(res)
	}
}

// TestFingerprintReview: on a terminal the user is asked until there is an answer.
func TestFingerprintReview(t *testing.T) {
	p := newPublisher(t)
	alice := must(signer.NewPGP("alice", packet.Config{}))
	file := p.key("alice.asc", must(alice.Public()))
	added := filepath.Join(p.config, "trustedkeys/prefix.d/example.com", alice.Fingerprint())
	for _, c := range []struct {
		typed string
		code  int
		added bool
	}{{"no\n", 0, false}, {"\x04", 254, false}, {"maybe\nyes\n", 0, true}} {
		user, tty := openPTY(t)
		cmd := p.rktCommand("trust", "--prefix=example.com", file)
		var shown bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, &shown, &shown
		if _, err := user.WriteString(c.typed); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Run() // the code is looked at
		_, err := os.Stat(added)
		if cmd.ProcessState.ExitCode() != c.code || (err == nil) != c.added || !strings.Contains(shown.String(), "Are you sure you want to trust this key (yes/no)?") {
			t.Errorf("%q: %d, %v\n%s", c.typed, cmd.ProcessState.ExitCode(), err, shown.String())
		}
		if strings.Contains(c.typed, "maybe") != strings.Contains(shown.String(), `Please enter "yes" or "no"`) {
			t.Errorf("%q: %s", c.typed, shown.String())
		}
	}
}

// ownNetwork puts the test into a network of its own, where every port is free.
// The thread ends with the test.
func ownNetwork(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	fd := must(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))
	defer unix.Close(fd)
	lo := must(unix.NewIfreq("lo"))
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		t.Fatal(err)
	}
}

// TestKeysFromHTTPS fetches an image by its name alone: the pages of the name say
// where image and keys are.
func TestKeysFromHTTPS(t *testing.T) {
	ownNetwork(t)
	p := publishAt(t, must(net.Listen("tcp", "127.0.0.1:443")))
	const name = "127.0.0.1/team/app"
	alice := must(signer.NewPGP("alice", packet.Config{}))
	aci := must(images.ACI(images.Manifest(name, "1", []string{"/x"}), []images.Entry{images.File("x", 0o755, "x")}))
	p.publish("/team/app", []byte(`<meta name="ac-discovery" content="127.0.0.1/team https://127.0.0.1/files/{name}-{version}.{ext}">
		<meta name="ac-discovery-pubkeys" content="127.0.0.1/team https://127.0.0.1/keys.asc">`))
	p.publish("/files/"+name+"-1.aci", aci)
	p.publish("/files/"+name+"-1.aci.asc", must(alice.Sign(aci)))
	p.publish("/keys.asc", must(alice.Public()))
	p.refused([]string{name + ":1"}, "unknown entity", alice.Fingerprint())
	id := p.ok("fetch", "--full", "--trust-keys-from-https", name+":1")
	if _, err := os.Stat(filepath.Join(p.config, "trustedkeys/prefix.d", name, alice.Fingerprint())); err != nil {
		t.Error(err)
	}
	p.ok("image", "verify", "--trust", id)
}

// TestRefusedCredentials: a registry that does not let somebody in is no riddle.
func TestRefusedCredentials(t *testing.T) {
	p := newPublisher(t)
	dir := t.TempDir()
	r := registry.New(dir)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if user, password, _ := req.BasicAuth(); user != "alice" || password != "right" {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			http.Error(w, "{}", http.StatusUnauthorized)
			return
		}
		r.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	at := strings.TrimPrefix(server.URL, "http://")
	p.writeFile(filepath.Join(p.config, "registries.d/a.json"), fmt.Appendf(nil, `{"rktKind":"registry","rktVersion":"v1","registries":[%q],"plainHTTP":true}`, at))
	layer := must(images.Tar([]images.Entry{images.File("x", 0o755, "x")}))
	f := must(images.OCI(images.Image{Name: "1", Layers: [][]byte{layer}, Config: map[string]any{"Cmd": []string{"/x"}}}))
	if err := f.WriteDir(filepath.Join(dir, "team/app")); err != nil {
		t.Fatal(err)
	}
	ref := "docker://" + at + "/team/app:1"
	auths := filepath.Join(t.TempDir(), "auth.json")
	login := func(key, password string) {
		secret := base64.StdEncoding.EncodeToString([]byte("alice:" + password))
		p.writeFile(auths, fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, key, secret))
	}
	fetch := []string{"--insecure-options=image", ref}
	p.refused(fetch, "no credentials were found", "rkt auth explain")
	p.env = append(p.env, "REGISTRY_AUTH_FILE="+auths)
	login(at, "wrong")
	p.refused(fetch, "refuses the credentials from $REGISTRY_AUTH_FILE "+auths, at)
	login(at+"/team", "right")
	var explained struct {
		Used    bool
		Sources []struct{ Source, State, Key, User string }
	}
	out := p.ok("auth", "explain", "--format=json", ref)
	if err := json.Unmarshal([]byte(out), &explained); err != nil || !explained.Used || explained.Sources[1].State != "used" || explained.Sources[1].User != "alice" || explained.Sources[1].Key != at+"/team" {
		t.Errorf("%s, %v", out, err)
	}
	if text := p.ok("auth", "explain", ref); strings.Contains(out+text, "right") || !strings.Contains(text, "used: user and password of") {
		t.Errorf("%s\n%s", out, text)
	}
	p.ok("fetch", fetch[0], fetch[1])
}

// TestSameCredentialsFromAnywhere: what sudo, cron, a unit of systemd and a login
// leave in the environment makes no difference.
func TestSameCredentialsFromAnywhere(t *testing.T) {
	p := newPublisher(t)
	explain := func(env ...string) string {
		t.Helper()
		cmd := p.rktCommand("auth", "explain", "docker://r.example/team/app")
		cmd.Env = env
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	want := explain("HOME=/root", "USER=root", "XDG_RUNTIME_DIR=/run/user/0", "PATH="+os.Getenv("PATH"))
	for what, env := range map[string][]string{
		"cron":    {"HOME=/root", "LOGNAME=root", "PATH=/usr/bin:/bin", "SHELL=/bin/sh"},
		"sudo":    {"HOME=/home/alice", "SUDO_USER=alice", "SUDO_UID=1000", "XDG_CONFIG_HOME=/home/alice/.config", "PATH=/usr/sbin:/usr/bin"},
		"systemd": {"INVOCATION_ID=0", "LANG=C"},
		"nothing": {},
	} {
		if got := explain(env...); got != want {
			t.Errorf("%s: %s\nlogin: %s", what, got, want)
		}
	}
	if got := explain("CREDENTIALS_DIRECTORY=/run/credentials/x"); !strings.Contains(got, "/run/credentials/x/rkt.auth.json") {
		t.Errorf("%s", got)
	}
}

// artifact adds a manifest with one blob to a layout: under a tag, or as the
// referrer of a digest.
func artifact(t *testing.T, f images.Files, tag, subject, mediaType string, blob []byte, annotations map[string]string) {
	t.Helper()
	put := func(data []byte) map[string]any {
		d := images.Digest(data)
		f["blobs/sha256/"+d[len("sha256:"):]] = data
		return map[string]any{"digest": d, "size": len(data)}
	}
	entry := put(blob)
	entry["mediaType"], entry["annotations"] = mediaType, annotations
	config := put([]byte("{}"))
	config["mediaType"] = "application/vnd.oci.empty.v1+json"
	m := map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": []any{entry}}
	if subject != "" {
		m["artifactType"] = mediaType
		m["subject"] = map[string]any{"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": subject, "size": 1}
	}
	desc := put(must(json.Marshal(m)))
	desc["mediaType"] = m["mediaType"]
	if tag != "" {
		desc["annotations"] = map[string]string{"org.opencontainers.image.ref.name": tag}
	}
	var index map[string]any
	if err := json.Unmarshal(f["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	index["manifests"] = append(index["manifests"].([]any), desc)
	f["index.json"] = must(json.Marshal(index))
}

// digestOf is the digest of a layout's first entry.
func digestOf(t *testing.T, f images.Files) string {
	t.Helper()
	var index struct{ Manifests []struct{ Digest string } }
	if err := json.Unmarshal(f["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	return index.Manifests[0].Digest
}

// TestSignedOCI does for images of a registry what TestSignedACI does for ACIs.
func TestSignedOCI(t *testing.T) {
	p := newPublisher(t)
	dir := t.TempDir()
	r := registry.New(dir)
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	at := strings.TrimPrefix(server.URL, "http://")
	p.writeFile(filepath.Join(p.config, "registries.d/a.json"), fmt.Appendf(nil, `{"rktKind":"registry","rktVersion":"v1","registries":[%q],"plainHTTP":true}`, at))
	good, foreign, unknown := must(signer.NewPlain("ecdsa")), must(signer.NewPlain("ed25519")), must(signer.NewPlain("rsa"))
	p.trust(at+"/team", "good.pub", must(good.Public()))
	p.trust("example.org", "foreign.pub", must(foreign.Public()))
	layer := must(images.Tar([]images.Entry{images.File("x", 0o755, "x")}))
	n := 0
	fresh := func() (images.Files, string) {
		f := must(images.OCI(images.Image{Name: "1", Layers: [][]byte{layer}, Pack: images.Gzip, Config: map[string]any{"Cmd": []string{"/x", fmt.Sprint(n)}}}))
		return f, digestOf(t, f)
	}
	// image publishes one in a repository of its own, with what sign adds.
	image := func(sign func(f images.Files, name, digest string)) string {
		n++
		repo := fmt.Sprintf("team/app%d", n)
		f, digest := fresh()
		sign(f, at+"/"+repo, digest)
		if err := f.WriteDir(filepath.Join(dir, repo)); err != nil {
			t.Fatal(err)
		}
		return "docker://" + at + "/" + repo + ":1"
	}
	tagged := func(key *signer.Plain, name, digest string) func(images.Files, string, string) {
		return func(f images.Files, own, sum string) {
			payload, annotation, err := key.SimpleSigning(cmp.Or(name, own), cmp.Or(digest, sum))
			if err != nil {
				t.Fatal(err)
			}
			artifact(t, f, strings.Replace(sum, ":", "-", 1)+".sig", "", "application/vnd.dev.cosign.simplesigning.v1+json", payload, map[string]string{"dev.cosignproject.cosign/signature": annotation})
		}
	}
	bundle := func(f images.Files, _, sum string) {
		artifact(t, f, "", sum, signer.Bundle, must(good.EnvelopeBundle(signer.Statement{SHA256: sum[len("sha256:"):]})), nil)
	}
	otherDigest := "sha256:" + strings.Repeat("0a", 32)
	for what, c := range map[string]struct {
		sign  func(images.Files, string, string)
		parts []string
	}{
		"no signature": {func(images.Files, string, string) {}, []string{"not signed", ".sig"}},
		"wrong key":    {tagged(unknown, "", ""), []string{"signed by none of the keys", must(good.Fingerprint()), p.config}},
		"other prefix": {tagged(foreign, "", ""), []string{must(foreign.Fingerprint()), "example.org"}},
		"other digest": {tagged(good, "", otherDigest), []string{"for another image", otherDigest}},
		"other name":   {tagged(good, "example.com/other", ""), []string{"for another name", "example.com/other"}},
	} {
		t.Logf("%s", what)
		p.refused([]string{image(c.sign)}, c.parts...)
	}
	ref := image(tagged(good, "", ""))
	r.Fail(".sig", http.StatusInternalServerError)
	p.refused([]string{ref}, "can't be had", ".sig")
	r.Fail(".sig", 0)
	for what, ref := range map[string]string{"tag": ref, "referrer": image(bundle)} {
		id := p.ok("fetch", "--full", ref)
		if got := p.ok("image", "list", "--fields=trust", "--no-legend"); got != "cosign "+must(good.Fingerprint())[:16] {
			t.Errorf("%s: %q", what, got)
		}
		p.ok("image", "verify", "--trust", id)
		p.ok("trust", "--remove", must(good.Fingerprint()))
		if res := p.run("image", "verify", "--trust", id); res.code != 12 || !strings.Contains(res.stdout, "no public key is trusted") {
			t.Errorf("%s: %s", what, res)
		}
		p.trust(at+"/team", "good.pub", must(good.Public()))
		// Exported, it brings its signature along.
		file := filepath.Join(t.TempDir(), "out.tar")
		p.ok("image", "export", id, file)
		p.ok("image", "rm", id)
		p.ok("fetch", file)
		p.ok("image", "verify", "--trust", id)
		p.ok("image", "rm", id)
	}
	p.movesTogether(ref, image(bundle), image(tagged(good, "", "")))
	// A policy that is content with a digest.
	p.writeFile(filepath.Join(p.config, "trust.d/a.json"), fmt.Appendf(nil, `{"rktKind":"trust","rktVersion":"v1","prefixes":[%q],"require":"digest"}`, at+"/team"))
	unsigned := image(func(images.Files, string, string) {})
	_, digest := fresh()
	p.refused([]string{unsigned}, "only references that pin a digest")
	p.ok("fetch", strings.TrimSuffix(unsigned, ":1")+"@"+digest)
}
