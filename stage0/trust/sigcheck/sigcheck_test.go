package sigcheck

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/rkt-pods/rkt/stage0/trust/sigwire"
	"github.com/rkt-pods/rkt/tests/signer"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func describeAt(t *testing.T, data []byte, now time.Time) sigwire.Answer {
	t.Helper()
	in := must(json.Marshal(sigwire.Request{Now: now, Keys: &sigwire.Keys{Data: data}}))
	var out bytes.Buffer
	if err := Serve(bytes.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	var a sigwire.Answer
	if err := json.Unmarshal(out.Bytes(), &a); err != nil {
		t.Fatal(err)
	}
	return a
}

func TestDescribe(t *testing.T) {
	alice := must(signer.NewPGP("alice", packet.Config{KeyLifetimeSecs: 3600}))
	six := must(signer.NewPGP("six", packet.Config{V6Keys: true}))
	a := describeAt(t, must(alice.Public()), time.Now())
	if len(a.Keys) != 1 {
		t.Fatalf("%+v", a)
	}
	k := a.Keys[0]
	if k.Kind != sigwire.KindOpenPGP || k.Fingerprint != alice.Fingerprint() || len(k.Fingerprint) != 40 || k.Algorithm != "EdDSA" || k.Expires == nil || k.Refused != nil ||
		len(k.Subkeys) != 1 || len(k.Identities) != 1 || !strings.Contains(k.Identities[0], "alice@") {
		t.Errorf("%+v", k)
	}
	// What is kept of it is the same key.
	if again := describeAt(t, k.Data, time.Now()); len(again.Keys) != 1 || again.Keys[0].Fingerprint != k.Fingerprint {
		t.Errorf("kept: %+v", again)
	}
	if late := describeAt(t, k.Data, time.Now().Add(2*time.Hour)); late.Keys[0].Refused == nil || late.Keys[0].Refused.Reason != sigwire.KeyExpired {
		t.Errorf("late: %+v", late.Keys[0])
	}
	if a := describeAt(t, must(six.Public()), time.Now()); len(a.Keys) != 1 || len(a.Keys[0].Fingerprint) != 64 || a.Keys[0].Algorithm != "Ed25519" {
		t.Errorf("version 6: %+v", a)
	}
	var both bytes.Buffer
	for _, key := range []*signer.PGP{alice, six} {
		if err := key.Serialize(&both); err != nil {
			t.Fatal(err)
		}
	}
	if a := describeAt(t, both.Bytes(), time.Now()); len(a.Keys) != 2 {
		t.Errorf("two keys: %+v", a)
	}
	for kind, algorithm := range map[string]string{"ecdsa": "ECDSA P-256", "ed25519": "Ed25519", "rsa": "RSA 2048"} {
		p := must(signer.NewPlain(kind))
		a := describeAt(t, must(p.Public()), time.Now())
		if len(a.Keys) != 1 || a.Keys[0].Kind != sigwire.KindPEM || a.Keys[0].Algorithm != algorithm || a.Keys[0].Fingerprint != must(p.Fingerprint()) {
			t.Errorf("%s: %+v", kind, a)
		}
	}
}

func TestBadKeys(t *testing.T) {
	alice := must(signer.NewPGP("alice", packet.Config{}))
	var secret bytes.Buffer
	if err := alice.SerializePrivate(&secret, nil); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		data   []byte
		reason sigwire.Reason
	}{
		"nothing":       {nil, sigwire.Malformed},
		"junk":          {[]byte("junk"), sigwire.Malformed},
		"signature":     {must(alice.Sign([]byte("x"))), sigwire.Malformed},
		"secret":        {secret.Bytes(), sigwire.SecretKey},
		"secret, PEM":   {[]byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), sigwire.SecretKey},
		"secret, PGP":   {[]byte("-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nAAAA\n-----END PGP PRIVATE KEY BLOCK-----\n"), sigwire.SecretKey},
		"certificate":   {[]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), sigwire.Malformed},
		"curve":         {must(must(signer.NewPlain("p384")).Public()), sigwire.WeakKey},
		"text behind":   {append(must(must(signer.NewPlain("ecdsa")).Public()), "x"...), sigwire.Malformed},
		"cut, PEM":      {must(must(signer.NewPlain("ecdsa")).Public())[:60], sigwire.Malformed},
		"wrong content": {[]byte("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"), sigwire.Malformed},
	} {
		a := describeAt(t, c.data, time.Now())
		if a.Refused == nil || a.Refused.Reason != c.reason {
			t.Errorf("%s: %+v, want %s", what, a, c.reason)
		}
	}
}

func TestBadRequests(t *testing.T) {
	for _, in := range []string{"", "{}", "[]", `{"keys":1}`} {
		if err := Serve(strings.NewReader(in), &bytes.Buffer{}); err == nil {
			t.Errorf("%q: answered", in)
		}
	}
}

// TestPlainKeys: the key that made the signature is found among others, and a
// signature that is changed in any byte is nobody's.
func TestPlainKeys(t *testing.T) {
	message := []byte("message")
	for _, kind := range []string{"ecdsa", "ed25519", "rsa", "rsa-pss"} {
		key := must(signer.NewPlain(kind))
		sig := must(key.Sign(message))
		q := sigwire.Plain{Keyring: [][]byte{[]byte("junk"), must(must(signer.NewPlain("ecdsa")).Public()), must(key.Public())}, Message: message, Signature: sig}
		if a := verifyPlain(q); a.Refused != nil || a.By != 2 {
			t.Errorf("%s: %+v", kind, a)
		}
		for i := range sig {
			q.Signature = bytes.Clone(sig)
			q.Signature[i] ^= 1
			if a := verifyPlain(q); a.Refused == nil {
				t.Errorf("%s: accepted with byte %d changed", kind, i)
			}
		}
		q.Signature, q.Message = sig, []byte("massage")
		if a := verifyPlain(q); a.Refused == nil {
			t.Errorf("%s: accepted for another message", kind)
		}
	}
}

// FuzzKeys reads what people are given as keys.
func FuzzKeys(f *testing.F) {
	alice := must(signer.NewPGP("alice", packet.Config{}))
	var binary bytes.Buffer
	if err := alice.Serialize(&binary); err != nil {
		f.Fatal(err)
	}
	f.Add(must(alice.Public()))
	f.Add(binary.Bytes())
	f.Add(must(must(signer.NewPlain("ecdsa")).Public()))
	f.Fuzz(func(t *testing.T, data []byte) {
		a := describe(data, time.Now())
		if (a.Refused == nil) == (len(a.Keys) == 0) {
			t.Errorf("%+v", a)
		}
		for _, k := range a.Keys {
			again := describe(k.Data, time.Now())
			if len(again.Keys) != 1 || again.Keys[0].Fingerprint != k.Fingerprint {
				t.Errorf("key %s is kept as %+v", k.Fingerprint, again)
			}
		}
	})
}

// FuzzSignature reads what servers give as signatures; none that is not the
// key's is good.
func FuzzSignature(f *testing.F) {
	alice := must(signer.NewPGP("alice", packet.Config{}))
	public := must(alice.Public())
	f.Add(must(alice.Sign([]byte("x"))))
	f.Add(must(alice.SignAt([]byte("x"), time.Now(), 0)))
	f.Fuzz(func(t *testing.T, data []byte) {
		a := inspect(sigwire.Inspect{Signature: data, Keyring: [][]byte{public}})
		if (a.Refused == nil) == (len(a.Signatures) == 0) {
			t.Errorf("%+v", a)
		}
		for i, s := range a.Signatures {
			if s.Refused != nil || s.Key < 0 {
				continue
			}
			got := verifyOpenPGP(sigwire.OpenPGP{Signature: data, Index: i, Digest: make([]byte, 64), Key: public}, time.Now())
			if got.Refused == nil {
				t.Errorf("a signature of nothing is good")
			}
		}
	})
}
