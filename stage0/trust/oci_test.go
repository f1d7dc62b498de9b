package trust

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/stage0/config"
	"github.com/rkt-pods/rkt/tests/signer"
)

const busybox = "docker.io/library/busybox"

func simple(t *testing.T, key *signer.Plain, ref, sum string) Signature {
	t.Helper()
	payload, annotation, err := key.SimpleSigning(ref, "sha256:"+sum)
	if err != nil {
		t.Fatal(err)
	}
	return Signature{From: "tag", MediaType: MediaSimpleSigning, Payload: payload, Annotations: map[string]string{AnnSignature: annotation}}
}

func bundled(payload []byte, err error) Signature {
	return Signature{From: "referrer", MediaType: signer.Bundle, Payload: must(payload, err)}
}

func TestCosign(t *testing.T) {
	index, indexSum := oneManifest(`{"index":1}`)
	manifest, sum := oneManifest(`{"manifest":1}`)
	o := OCI{Name: busybox, Tag: "1", Manifests: [][]byte{index, manifest}}
	for _, kind := range []string{"ecdsa", "ed25519", "rsa", "rsa-pss"} {
		k := newKeys(t)
		key := must(signer.NewPlain(kind))
		f := k.plain("docker.io/library", key)
		p := k.policy(nil)
		for what, s := range map[string]Signature{
			"tag":              simple(t, key, busybox, sum),
			"tag, of index":    simple(t, key, "index.docker.io/library/busybox", indexSum),
			"short":            simple(t, key, "busybox", sum),
			"same tag":         simple(t, key, "busybox:1", sum),
			"message":          bundled(key.MessageBundle(manifest)),
			"message of index": bundled(key.MessageBundle(index)),
			"envelope":         bundled(key.EnvelopeBundle(signer.Statement{SHA256: sum})),
			"named envelope":   bundled(key.EnvelopeBundle(signer.Statement{SHA256: indexSum, Name: "docker.io/library/busybox"})),
		} {
			o.Signatures = []Signature{s}
			got, err := p.OCI(t.Context(), o)
			want := "sha256-" + sum
			if strings.Contains(what, "index") || what == "named envelope" {
				want = "sha256-" + indexSum
			}
			if err != nil || !got.Verified || got.Key != f || got.Method != image.ByCosign || got.Prefix != "docker.io/library" || got.Signed != want {
				t.Errorf("%s, %s: %+v, %v", kind, what, got, err)
			}
			// What the store keeps of it is as good.
			again, err := ParseBlob(must(s.Blob()))
			if err != nil {
				t.Fatal(err)
			}
			o.Signatures = []Signature{again}
			if _, err := p.OCI(t.Context(), o); err != nil {
				t.Errorf("%s, %s, kept: %v", kind, what, err)
			}
		}
	}
}

func TestCosignRefusals(t *testing.T) {
	manifest, sum := oneManifest(`{"manifest":1}`)
	_, otherSum := oneManifest(`{"manifest":2}`)
	k := newKeys(t)
	good, other, unknown := must(signer.NewPlain("ecdsa")), must(signer.NewPlain("ecdsa")), must(signer.NewPlain("ecdsa"))
	f := k.plain("docker.io/library", good)
	otherF := k.plain("example.org", other)
	k.plain("docker.io/library", must(signer.NewPlain("p384")))
	p := k.policy(nil)
	changed := simple(t, good, busybox, otherSum)
	changed.Payload = []byte(strings.Replace(string(changed.Payload), otherSum, sum, 1))
	certified := simple(t, good, busybox, sum)
	certified.Annotations[annCertificate] = "-----BEGIN CERTIFICATE-----"
	keylessBundle := bundled(good.EnvelopeBundle(signer.Statement{SHA256: sum}))
	keylessBundle.Payload = []byte(strings.Replace(string(keylessBundle.Payload), `"publicKey"`, `"certificate"`, 1))
	future := bundled(good.MessageBundle(manifest))
	future.Payload = []byte(strings.Replace(string(future.Payload), "v0.3", "v0.9", 1))
	cases := map[string]struct {
		s     []Signature
		parts []string
	}{
		"no key":       {[]Signature{simple(t, unknown, busybox, sum)}, []string{"signed by none of the keys", f, k.dir}},
		"other prefix": {[]Signature{simple(t, other, busybox, sum)}, []string{otherF, "trusted for names below example.org", busybox}},
		"other digest": {[]Signature{simple(t, good, busybox, otherSum)}, []string{"for another image", otherSum, sum, f}},
		"other name":   {[]Signature{simple(t, good, "docker.io/library/alpine", sum)}, []string{"for another name", "docker.io/library/alpine", busybox}},
		"other tag":    {[]Signature{simple(t, good, "busybox:2", sum)}, []string{"for another name", `"2"`}},
		"other host":   {[]Signature{simple(t, good, "evil.example/library/busybox", sum)}, []string{"for another name"}},
		"none":         {nil, []string{"not signed", "docker.io/x.sig"}},
		"changed":      {[]Signature{changed}, []string{"signed by none of the keys"}},
		"keyless":      {[]Signature{certified}, []string{"keyless"}},
		"keyless v3":   {[]Signature{keylessBundle}, []string{"keyless"}},
		"future":       {[]Signature{future}, []string{"unknown version"}},
		"report":       {[]Signature{bundled(good.EnvelopeBundle(signer.Statement{SHA256: sum, Predicate: "https://cosign.sigstore.dev/attestation/vuln/v1"}))}, []string{"no signature"}},
		"envelope":     {[]Signature{bundled(good.EnvelopeBundle(signer.Statement{SHA256: otherSum}))}, []string{"for another image"}},
		"subject":      {[]Signature{bundled(good.EnvelopeBundle(signer.Statement{SHA256: sum, Name: "alpine"}))}, []string{"for another name"}},
		"message":      {[]Signature{bundled(good.MessageBundle([]byte("another")))}, []string{"signed by none of the keys"}},
		"media type":   {[]Signature{{MediaType: "text/plain", Payload: []byte("x")}}, []string{"media type"}},
		"best of two":  {[]Signature{simple(t, good, busybox, otherSum), simple(t, unknown, busybox, sum)}, []string{"for another image"}},
	}
	for what, c := range cases {
		o := OCI{Name: busybox, Tag: "1", Manifests: [][]byte{manifest}, Signatures: c.s, Looked: "docker.io/x.sig"}
		_, err := p.OCI(t.Context(), o)
		if err == nil {
			t.Errorf("%s: accepted", what)
			continue
		}
		t.Logf("%s: %v %q", what, err, errs.Hints(err))
		refusedWith(t, err, errs.Denied, c.parts...)
	}
	_, err := p.OCI(t.Context(), OCI{Name: busybox, Manifests: [][]byte{manifest}, Looked: "docker.io/x.sig", LookErr: errors.New("connection refused")})
	refusedWith(t, err, errs.Unavailable, "connection refused", "docker.io/x.sig")
	// A tag of the signature does not matter where the reference pins a digest.
	o := OCI{Name: busybox, Tag: "1", Pinned: true, Manifests: [][]byte{manifest}, Signatures: []Signature{simple(t, good, "busybox:2", sum)}}
	if _, err := p.OCI(t.Context(), o); err != nil {
		t.Error(err)
	}
	o = OCI{Name: "r.example:5000/a", Manifests: [][]byte{manifest}}
	p = k.policy(map[string]config.Trust{"r.example:5000": {Require: "digest"}})
	_, err = p.OCI(t.Context(), o)
	refusedWith(t, err, errs.Denied, "pin a digest")
	o.Pinned = true
	got, err := p.OCI(t.Context(), o)
	if err != nil || got.Method != image.ByDigest {
		t.Errorf("%+v, %v", got, err)
	}
}

// FuzzClaims reads what registries serve as signatures.
func FuzzClaims(f *testing.F) {
	key := must(signer.NewPlain("ecdsa"))
	_, sum := oneManifest("x")
	payload, annotation, err := key.SimpleSigning("a/b:c", "sha256:"+sum)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(payload, annotation, MediaSimpleSigning)
	f.Add(must(key.MessageBundle([]byte("x"))), "", signer.Bundle)
	f.Add(must(key.EnvelopeBundle(signer.Statement{SHA256: sum, Name: "x"})), "", signer.Bundle)
	f.Fuzz(func(t *testing.T, payload []byte, annotation, mediaType string) {
		claims, err := (Signature{MediaType: mediaType, Payload: payload, Annotations: map[string]string{AnnSignature: annotation}}).claims()
		if (err == nil) == (len(claims) == 0) {
			t.Errorf("%d claims and %v", len(claims), err)
		}
		for _, c := range claims {
			// Whatever it says, it is not about this image.
			if _, err := c.binds(OCI{Name: "other/name", Manifests: [][]byte{[]byte("other")}}, []byte("other")); err == nil && c.message != nil {
				t.Errorf("%+v is bound to another image", c)
			}
		}
	})
}

// FuzzKept: what the store kept is read again as the same, or refused.
func FuzzKept(f *testing.F) {
	f.Add(must(Signature{From: "x", MediaType: MediaSimpleSigning, Payload: []byte("{}"), Annotations: map[string]string{"a": "b"}}.Blob()))
	f.Add([]byte(`{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseBlob(data)
		if err != nil || IsBundle(s.MediaType) {
			return
		}
		again, err := ParseBlob(must(s.Blob()))
		if a, b := must(json.Marshal(s)), must(json.Marshal(again)); err != nil || string(a) != string(b) {
			t.Errorf("%s became %s, %v", a, b, err)
		}
	})
}
