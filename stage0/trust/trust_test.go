package trust

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/stage0/config"
	"github.com/rkt-pods/rkt/stage0/trust/sigcheck"
	"github.com/rkt-pods/rkt/tests/signer"
)

// children are what this program may be instead of the tests.
var children []func() bool

// TestMain is rkt-verify too: as root it runs without rights as the real one.
func TestMain(m *testing.M) {
	for _, child := range children {
		if child() {
			os.Exit(0)
		}
	}
	if os.Args[0] == Program {
		if err := sigcheck.Serve(os.Stdin, os.Stdout); err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// keys is a configuration folder with trusted keys.
type keys struct {
	t   *testing.T
	dir string
}

func newKeys(t *testing.T) keys { return keys{t, t.TempDir()} }

func (k keys) add(prefix, name string, data []byte) {
	k.t.Helper()
	dir := filepath.Join(k.dir, "trustedkeys/root.d")
	if prefix != "" {
		dir = filepath.Join(k.dir, "trustedkeys/prefix.d", prefix)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		k.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
		k.t.Fatal(err)
	}
}

func (k keys) pgp(prefix string, key *signer.PGP) {
	k.t.Helper()
	k.add(prefix, key.Fingerprint(), must(key.Public()))
}

func (k keys) plain(prefix string, key *signer.Plain) string {
	k.t.Helper()
	f := must(key.Fingerprint())
	k.add(prefix, f+".pub", must(key.Public()))
	return f
}

func (k keys) policy(rules map[string]config.Trust) Policy {
	k.t.Helper()
	return must(Load(Options{Local: k.dir, Rules: rules, Program: must(os.Executable())}))
}

func (p Policy) at(now time.Time) Policy {
	p.now = func() time.Time { return now }
	return p
}

// check runs the whole check of a file.
func check(t *testing.T, p Policy, a ACI, data []byte, name string) (image.Trust, error) {
	t.Helper()
	v, err := p.ACI(t.Context(), a)
	if err != nil {
		return image.Trust{}, err
	}
	for chunk := data; len(chunk) > 0; {
		n := min(len(chunk), 7)
		if _, err := v.Write(chunk[:n]); err != nil {
			t.Fatal(err)
		}
		chunk = chunk[n:]
	}
	return v.Finish(name)
}

func refusedWith(t *testing.T, err error, class errs.Class, parts ...string) {
	t.Helper()
	if !errs.Is(err, class) {
		t.Errorf("%v: class %s, want %s", err, errs.ClassOf(err), class)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v: lacks %q", err, part)
		}
	}
}

var file = bytes.Repeat([]byte("an image, as it was published\r\n"), 100)

const app = "example.com/team/app"

func TestOpenPGP(t *testing.T) {
	for what, c := range map[string]packet.Config{
		"v4": {}, "v6": {V6Keys: true}, "rsa": {Algorithm: packet.PubKeyAlgoRSA, RSABits: 2048}, "ecdsa": {Algorithm: packet.PubKeyAlgoECDSA, Curve: packet.CurveNistP256},
	} {
		k := newKeys(t)
		key := must(signer.NewPGP("alice", c))
		k.pgp("example.com/team", key)
		got, err := check(t, k.policy(nil), ACI{Source: "x.aci", Signature: must(key.Sign(file))}, file, app)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if !got.Verified || got.By != "key "+key.Fingerprint() || got.Method != image.ByOpenPGP || got.Prefix != "example.com/team" || got.Identity != app ||
			got.SignedAt == nil || got.At == nil || !strings.HasPrefix(got.Signed, "sha") || what != "v6" && !strings.Contains(got.Signer, "alice@") {
			t.Errorf("%s: %+v", what, got)
		}
		// Binary, and dated some time ago.
		if _, err := check(t, k.policy(nil).at(time.Now().Add(time.Hour)), ACI{Signature: must(key.SignAt(file, time.Now().Add(time.Minute), 0))}, file, app); err != nil {
			t.Errorf("%s, binary: %v", what, err)
		}
	}
}

// TestRefusals: each reason has its own words.
func TestRefusals(t *testing.T) {
	k := newKeys(t)
	alice, bob, eve := must(signer.NewPGP("alice", packet.Config{})), must(signer.NewPGP("bob", packet.Config{})), must(signer.NewPGP("eve", packet.Config{}))
	k.pgp("example.com/team", alice)
	k.pgp("example.org", bob)
	p := k.policy(nil)
	aci := func(sig []byte) ACI {
		return ACI{Source: "x.aci", Signature: sig, SignatureAt: "https://example.com/x.aci.asc"}
	}
	_, err := check(t, p, aci(must(eve.Sign(file))), file, app)
	refusedWith(t, err, errs.Denied, "openpgp: signature made by unknown entity", eve.Fingerprint(), "x.aci.asc")
	if hints := strings.Join(errs.Hints(err), "\n"); !strings.Contains(hints, k.dir) {
		t.Errorf("hints %q do not say where it looked", hints)
	}
	_, err = check(t, p, aci(must(bob.Sign(file))), file, app)
	refusedWith(t, err, errs.Denied, bob.Fingerprint(), "trusted for names below example.org", app)
	_, err = check(t, p, aci(must(alice.Sign(file))), file, "example.com/teamster")
	refusedWith(t, err, errs.Denied, "trusted for names below example.com/team ")
	named := aci(must(bob.Sign(file)))
	named.Name = app
	_, err = p.ACI(t.Context(), named)
	refusedWith(t, err, errs.Denied, "trusted for names below example.org")
	_, err = check(t, p, aci(must(alice.Sign(file))), file[1:], app)
	refusedWith(t, err, errs.Denied, "is of other bytes", alice.Fingerprint(), "alice@example.com")
	named = aci(must(alice.Sign(file)))
	named.Name = app
	_, err = check(t, p, named, file, "example.com/team/other")
	refusedWith(t, err, errs.Denied, "names it example.com/team/other", app)
	_, err = check(t, p, aci(nil), file, app)
	refusedWith(t, err, errs.Denied, "not signed", "x.aci.asc")
	down := aci(nil)
	down.SignatureErr = errors.New("connection refused")
	_, err = check(t, p, down, file, app)
	refusedWith(t, err, errs.Unavailable, "connection refused", "x.aci.asc")
	for _, bad := range [][]byte{[]byte("junk"), []byte("-----BEGIN PGP SIGNATURE-----\n\nAAAA\n-----END PGP SIGNATURE-----\n"), must(alice.Public())} {
		_, err = check(t, p, aci(bad), file, app)
		refusedWith(t, err, errs.Denied, "x.aci.asc", "not a detached OpenPGP signature")
	}
	_, err = check(t, p, aci(must(alice.SignAt(file, time.Now().Add(48*time.Hour), 0))), file, app)
	refusedWith(t, err, errs.Denied, "dated in the future")
	_, err = check(t, p.at(time.Now().Add(2*time.Hour)), aci(must(alice.SignAt(file, time.Now(), 60))), file, app)
	refusedWith(t, err, errs.Denied, "the signature has expired")
	if _, err = check(t, p, aci(must(alice.SignAt(file, time.Now().Add(time.Minute), 0))), file, app); err != nil {
		t.Errorf("a clock that is a minute ahead: %v", err)
	}
	// One of two signatures is enough.
	both := append(must(eve.SignAt(file, time.Now(), 0)), must(alice.SignAt(file, time.Now(), 0))...)
	if _, err = check(t, p.at(time.Now().Add(time.Minute)), aci(both), file, app); err != nil {
		t.Error(err)
	}
}

func TestKeysThatNoLongerCount(t *testing.T) {
	k := newKeys(t)
	day := uint32(24 * 60 * 60)
	old := must(signer.NewPGP("old", packet.Config{KeyLifetimeSecs: day}))
	k.pgp("", old)
	sig := must(old.Sign(file))
	if _, err := check(t, k.policy(nil), ACI{Signature: sig}, file, app); err != nil {
		t.Fatal(err)
	}
	_, err := check(t, k.policy(nil).at(time.Now().Add(48*time.Hour)), ACI{Signature: sig}, file, app)
	refusedWith(t, err, errs.Denied, "the key has expired", old.Fingerprint())

	gone := must(signer.NewPGP("gone", packet.Config{}))
	sig = must(gone.Sign(file))
	if err := gone.RevokeKey(packet.KeyCompromised, "stolen", nil); err != nil {
		t.Fatal(err)
	}
	k.pgp("", gone)
	_, err = check(t, k.policy(nil), ACI{Signature: sig}, file, app)
	refusedWith(t, err, errs.Denied, "the key is revoked", "stolen", gone.Fingerprint())

	weak := must(signer.NewPGP("weak", packet.Config{Algorithm: packet.PubKeyAlgoRSA, RSABits: 1024, MinRSABits: 1024}))
	k.pgp("", weak)
	_, err = check(t, k.policy(nil), ACI{Signature: must(weak.Sign(file))}, file, app)
	refusedWith(t, err, errs.Denied, "size of the key is not accepted", "RSA 1024")
}

// TestGnuPG has signatures made by another program, among them such as the
// library would not make.
func TestGnuPG(t *testing.T) {
	gpg, err := exec.LookPath("gpg")
	if err != nil {
		t.Fatal("gpg is needed: dist/host-setup installs it")
	}
	home := t.TempDir()
	run := func(args ...string) []byte {
		t.Helper()
		cmd := exec.Command(gpg, append([]string{"--homedir", home, "--batch", "--no-tty", "--pinentry-mode", "loopback", "--passphrase", ""}, args...)...)
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		var out, bad bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &bad
		cmd.Stdin = bytes.NewReader(file)
		if err := cmd.Run(); err != nil {
			t.Fatalf("gpg %q: %v: %s", args, err, bad.String())
		}
		return out.Bytes()
	}
	t.Cleanup(func() {
		// The agent would outlive the test.
		_ = exec.Command("gpgconf", "--homedir", home, "--kill", "all").Run()
	})
	run("--quick-gen-key", "gnu <gnu@example.com>", "rsa2048", "cert", "never")
	fpr := ""
	for l := range strings.Lines(string(run("--with-colons", "--list-keys"))) {
		if f := strings.Split(l, ":"); f[0] == "fpr" && fpr == "" {
			fpr = f[9]
		}
	}
	run("--quick-add-key", fpr, "rsa2048", "sign", "never")
	k := newKeys(t)
	k.add("example.com", strings.ToLower(fpr), run("--export", fpr))
	p := k.policy(nil)
	for _, flags := range [][]string{{"--armor"}, {}, {"--digest-algo", "SHA256"}} {
		got, err := check(t, p, ACI{Source: "x.aci", Signature: run(append(flags, "--detach-sign")...)}, file, app)
		if err != nil || got.Key != strings.ToLower(fpr) || !strings.Contains(got.Signer, "gnu@example.com") {
			t.Errorf("%q: %+v, %v", flags, got, err)
		}
	}
	for _, hash := range []string{"SHA1", "MD5", "RIPEMD160"} {
		_, err := check(t, p, ACI{Source: "x.aci", Signature: run("--allow-weak-digest-algos", "--digest-algo", hash, "--detach-sign")}, file, app)
		refusedWith(t, err, errs.Denied, "broken hash function", strings.TrimSuffix(strings.TrimSuffix(hash, "1"), "160"))
	}
	_, err = check(t, p, ACI{Source: "x.aci", Signature: run("--textmode", "--detach-sign")}, file, app)
	refusedWith(t, err, errs.Denied, "not a signature of a binary file")
	_, err = check(t, p, ACI{Source: "x.aci", Signature: run("--clear-sign")}, file, app)
	refusedWith(t, err, errs.Denied, "not a detached OpenPGP signature")
}

// TestMaskedKey: an empty file in the local place takes the system's key away.
func TestMaskedKey(t *testing.T) {
	system, local := newKeys(t), newKeys(t)
	key := must(signer.NewPGP("alice", packet.Config{}))
	system.pgp("example.com", key)
	sig := ACI{Signature: must(key.Sign(file))}
	o := Options{System: system.dir, Local: local.dir, Program: must(os.Executable())}
	if _, err := check(t, must(Load(o)), sig, file, app); err != nil {
		t.Fatal(err)
	}
	local.add("example.com", key.Fingerprint(), nil)
	_, err := check(t, must(Load(o)), sig, file, app)
	refusedWith(t, err, errs.Denied, "unknown entity")
	local.add("example.com", "README", []byte("not a key"))
	if n := len(must(Load(o)).Keys()); n != 0 {
		t.Errorf("%d keys", n)
	}
}

// TestOneKeyForTwoPrefixes: whichever of its files fits counts.
func TestOneKeyForTwoPrefixes(t *testing.T) {
	k := newKeys(t)
	key, plain := must(signer.NewPGP("alice", packet.Config{})), must(signer.NewPlain("ecdsa"))
	manifest, sum := oneManifest("{}")
	for _, prefix := range []string{"aaa.example", "example.com", "zzz.example"} {
		k.pgp(prefix, key)
		k.plain(prefix, plain)
	}
	for _, name := range []string{"aaa.example/x", "example.com/x", "zzz.example/x"} {
		if got, err := check(t, k.policy(nil), ACI{Signature: must(key.Sign(file)), Name: name}, file, name); err != nil || !strings.HasPrefix(name, got.Prefix+"/") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		o := OCI{Name: name, Manifests: [][]byte{manifest}, Signatures: []Signature{simple(t, plain, name, sum)}}
		if got, err := k.policy(nil).OCI(t.Context(), o); err != nil || !strings.HasPrefix(name, got.Prefix+"/") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestMisnamedKeys: a rule goes by the fingerprint, and so must the file.
func TestMisnamedKeys(t *testing.T) {
	k := newKeys(t)
	key, plain := must(signer.NewPGP("alice", packet.Config{})), must(signer.NewPlain("ecdsa"))
	k.add("", strings.Repeat("ab", 20), must(key.Public()))
	k.add("", strings.Repeat("ab", 32)+".pub", must(plain.Public()))
	_, err := check(t, k.policy(nil), ACI{Signature: must(key.Sign(file))}, file, app)
	refusedWith(t, err, errs.Denied, "holds another key", key.Fingerprint())
	manifest, sum := oneManifest("{}")
	_, err = k.policy(nil).OCI(t.Context(), OCI{Name: app, Manifests: [][]byte{manifest}, Signatures: []Signature{simple(t, plain, app, sum)}})
	refusedWith(t, err, errs.Denied, "holds another key", must(plain.Fingerprint()))
}

// TestLinkedFolder: the folder of keys may be a link.
func TestLinkedFolder(t *testing.T) {
	k, other := newKeys(t), newKeys(t)
	key := must(signer.NewPGP("alice", packet.Config{}))
	other.pgp("example.com/team", key)
	if err := os.Mkdir(filepath.Join(k.dir, "trustedkeys"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(other.dir, "trustedkeys/prefix.d"), filepath.Join(k.dir, "trustedkeys/prefix.d")); err != nil {
		t.Fatal(err)
	}
	if got := k.policy(nil).Keys(); len(got) != 1 || got[0].Prefix != "example.com/team" {
		t.Errorf("%+v", got)
	}
}

// TestAddAndRemove: what is added is trusted, and what is removed is not, also if
// the vendor trusts it.
func TestAddAndRemove(t *testing.T) {
	system, local := newKeys(t), newKeys(t)
	key, plain := must(signer.NewPGP("alice", packet.Config{})), must(signer.NewPlain("ecdsa"))
	system.pgp("example.com", key)
	load := func() Policy {
		return must(Load(Options{System: system.dir, Local: local.dir, Program: must(os.Executable())}))
	}
	for prefix, data := range map[string][]byte{"": must(key.Public()), "host:5000/team": must(plain.Public())} {
		for _, d := range must(load().Describe(t.Context(), data)) {
			if path, err := Add(local.dir, prefix, d); err != nil || !strings.HasPrefix(path, local.dir) {
				t.Errorf("%s, %v", path, err)
			}
		}
	}
	if got := load().Keys(); len(got) != 3 {
		t.Fatalf("%+v", got)
	}
	root := ""
	if gone, err := load().Remove(key.Fingerprint(), &root); err != nil || len(gone) != 1 {
		t.Errorf("%+v, %v", gone, err)
	}
	if gone, err := load().Remove(key.Fingerprint(), nil); err != nil || len(gone) != 1 || gone[0].Prefix != "example.com" {
		t.Errorf("%+v, %v", gone, err)
	}
	if got := load().Keys(); len(got) != 1 || got[0].Prefix != "host:5000/team" || !got[0].PEM {
		t.Errorf("%+v", got)
	}
	if _, err := load().Remove(key.Fingerprint(), nil); !errs.Is(err, errs.NotFound) {
		t.Errorf("%v", err)
	}
	for _, bad := range []string{"https://x", "../x", "a//b", "a b"} {
		if _, err := Add(local.dir, bad, must(load().Describe(t.Context(), must(key.Public())))[0]); !errs.Is(err, errs.Usage) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, bad := range [][]byte{nil, []byte("junk"), must(must(signer.NewPlain("p384")).Public()), must(must(signer.NewPlain("rsa-1024")).Public())} {
		if _, err := load().Describe(t.Context(), bad); !errs.Is(err, errs.Denied) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	// As one again, the vendor's key is trusted.
	for _, d := range must(load().Describe(t.Context(), must(key.Public()))) {
		must(Add(local.dir, "example.com", d))
	}
	if !load().HasKeyFor("example.com/x") || load().HasKeyFor("host:5000/team/x") {
		t.Error("keys for names")
	}
}

func TestRules(t *testing.T) {
	k := newKeys(t)
	alice, bob := must(signer.NewPGP("alice", packet.Config{})), must(signer.NewPGP("bob", packet.Config{}))
	k.pgp("", alice)
	k.pgp("", bob)
	p := k.policy(map[string]config.Trust{
		"example.com":           {Require: "signed", Keys: []string{alice.Fingerprint()}},
		"example.com/open":      {Require: "insecure"},
		"example.com/open/shut": {Require: "signed"},
		"*":                     {Require: "digest"},
	})
	for name, want := range map[string]string{
		"example.com": "signed example.com", "example.com/x": "signed example.com", "example.com/open": "insecure example.com/open", "example.com/opener": "signed example.com",
		"example.com/open/a/b": "insecure example.com/open", "example.com/open/shut/x": "signed example.com/open/shut", "other": "digest *",
	} {
		if r := p.For(name); r.Require+" "+r.Rule != want {
			t.Errorf("%s: %+v, want %s", name, r, want)
		}
	}
	if r := k.policy(nil).For("x"); r.Require != "signed" || r.Rule != "" {
		t.Errorf("default %+v", r)
	}
	signed := func(key *signer.PGP) ACI { return ACI{Source: "x.aci", Signature: must(key.Sign(file))} }
	if _, err := check(t, p, signed(alice), file, "example.com/x"); err != nil {
		t.Error(err)
	}
	_, err := check(t, p, signed(bob), file, "example.com/x")
	refusedWith(t, err, errs.Denied, bob.Fingerprint(), "does not list")
	got, err := check(t, p, ACI{Source: "x.aci"}, file, "example.com/open/x")
	if err != nil || got.Verified || got.Method != image.ByPolicy || got.Rule != "example.com/open" {
		t.Errorf("insecure: %+v, %v", got, err)
	}
	// A good signature is noted where none is needed.
	if got, err = check(t, p, signed(bob), file, "example.com/open/x"); err != nil || !got.Verified {
		t.Errorf("signed without need: %+v, %v", got, err)
	}
	_, err = check(t, p, ACI{Source: "x.aci"}, file, "example.com/x")
	refusedWith(t, err, errs.Denied, "not signed")
	got, err = check(t, p, ACI{Source: "x.aci", Pinned: true}, file, "other")
	if err != nil || got.Verified || got.Method != image.ByDigest {
		t.Errorf("digest: %+v, %v", got, err)
	}
	_, err = check(t, p, signed(alice), file, "other")
	refusedWith(t, err, errs.Denied, "only references that pin a digest")
	got, err = check(t, Policy{AllowUnsigned: true}, ACI{Source: "x.aci", Signature: []byte("junk")}, file, "x")
	if err != nil || got.Verified || got.By != "insecure-options=image" || got.Method != image.ByOption {
		t.Errorf("option: %+v, %v", got, err)
	}
}

func oneManifest(text string) ([]byte, string) {
	sum := sha256.Sum256([]byte(text))
	return []byte(text), hex.EncodeToString(sum[:])
}
