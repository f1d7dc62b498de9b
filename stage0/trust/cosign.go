package trust

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage0/trust/sigwire"
)

// What registries keep signatures as.
const (
	MediaSimpleSigning = "application/vnd.dev.cosign.simplesigning.v1+json" // a layer of the manifest under the tag <alg>-<hex>.sig
	MediaBundle        = "application/vnd.dev.sigstore.bundle"              // with a version and +json; artifact type and layer of a referrer
	AnnSignature       = "dev.cosignproject.cosign/signature"               // of such a layer: the signature, in base64
	annCertificate     = "dev.sigstore.cosign/certificate"

	mediaKept = "application/vnd.rkt.image.signature.v1+json"
)

// MaxSignature is the size beyond which no signature, payload or bundle is read.
const MaxSignature = 1 << 20

// Signature is one of an OCI image, as it was found.
type Signature struct {
	From        string            `json:"from"` // for messages
	MediaType   string            `json:"mediaType"`
	Payload     []byte            `json:"payload"`               // the blob
	Annotations map[string]string `json:"annotations,omitempty"` // of its descriptor
}

// SignatureTag is the tag under which the signatures of a manifest are, in a
// registry without referrers.
func SignatureTag(d digest.Digest) string { return d.String() + ".sig" }

// IsBundle says whether an artifact or media type is that of a bundle.
func IsBundle(mediaType string) bool { return strings.HasPrefix(mediaType, MediaBundle) }

// kept is a signature as the store keeps it: in the simple-signing layout the
// signature itself stands in an annotation, beside the blob.
type kept struct {
	MediaType string    `json:"mediaType"`
	Signature Signature `json:"signature"`
}

// Blob is the signature as one blob that holds all of it.
func (s Signature) Blob() ([]byte, error) {
	return json.Marshal(kept{MediaType: mediaKept, Signature: s})
}

// ParseBlob reads what Blob made, or a bundle as it was published.
func ParseBlob(data []byte) (Signature, error) {
	var k kept
	if err := one(data, &k); err != nil {
		return Signature{}, fmt.Errorf("kept signature: %w", err)
	}
	if IsBundle(k.MediaType) {
		return Signature{MediaType: k.MediaType, Payload: data}, nil
	}
	if k.MediaType != mediaKept {
		return Signature{}, errs.Newf(errs.Corrupt, "kept signature: media type %q: unknown", k.MediaType)
	}
	return k.Signature, nil
}

// one decodes one JSON value of bounded size and nothing behind it.
func one(data []byte, to any) error {
	if len(data) > 2*MaxSignature {
		return errs.Newf(errs.Corrupt, "larger than %d KiB", MaxSignature>>10)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(to); err != nil {
		return errs.Newf(errs.Corrupt, "not valid JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errs.Newf(errs.Corrupt, "more text after the JSON")
	}
	return nil
}

// claims reads the signature. Nothing that it returns is to be believed yet.
func (s Signature) claims() ([]claim, error) {
	if len(s.Payload) > MaxSignature {
		return nil, errs.Newf(errs.Corrupt, "signature: larger than %d KiB", MaxSignature>>10)
	}
	switch {
	case s.MediaType == MediaSimpleSigning:
		return s.simpleSigning()
	case IsBundle(s.MediaType):
		return s.bundle()
	}
	return nil, errs.Newf(errs.Unsupported, "signature: media type %q: unknown", s.MediaType)
}

func (s Signature) simpleSigning() ([]claim, error) {
	if s.Annotations[annCertificate] != "" {
		return nil, keyless()
	}
	sig, err := base64.StdEncoding.DecodeString(s.Annotations[AnnSignature])
	if err != nil || len(sig) == 0 {
		return nil, errs.Newf(errs.Corrupt, "signature: annotation %s: missing or not base64", AnnSignature)
	}
	var p struct {
		Critical struct {
			Type     string `json:"type"`
			Identity struct {
				Reference string `json:"docker-reference"`
			} `json:"identity"`
			Image struct {
				Digest string `json:"docker-manifest-digest"`
			} `json:"image"`
		} `json:"critical"`
	}
	if err := one(s.Payload, &p); err != nil {
		return nil, fmt.Errorf("signature: payload: %w", err)
	}
	c := p.Critical
	if c.Type != "cosign container image signature" && c.Type != "atomic container signature" {
		return nil, errs.Newf(errs.Corrupt, "signature: payload: type %q: not an image signature", c.Type)
	}
	if c.Identity.Reference == "" {
		return nil, errs.Newf(errs.Corrupt, "signature: payload: names no image (docker-reference)")
	}
	d, err := digest.ParseOCI(c.Image.Digest)
	if err != nil {
		return nil, fmt.Errorf("signature: payload: docker-manifest-digest: %w", err)
	}
	return []claim{{message: s.Payload, signature: sig, digests: []string{d.OCI()}, name: c.Identity.Reference}}, nil
}

// keyless is the error for signatures that a certificate of hours is to be
// believed for.
func keyless() error {
	return errs.WithHint(errs.Newf(errs.Unsupported, "signature: made with a certificate (keyless), which is not supported"),
		"the publisher has to sign with a key: \"cosign sign --key\"")
}

// What a bundle's statement must be to be a signature, and not a report on the
// image that the same key has signed.
const (
	payloadInToto = "application/vnd.in-toto+json"
	predicateSign = "https://sigstore.dev/cosign/sign/v1"
)

// bundleVersions are those that differ in nothing that is read here.
var bundleVersions = []string{
	MediaBundle + "+json;version=0.1", MediaBundle + "+json;version=0.2", MediaBundle + "+json;version=0.3", MediaBundle + ".v0.3+json",
}

// bundle is what rkt reads of a sigstore bundle.
type bundle struct {
	MediaType string `json:"mediaType"`
	Material  struct {
		PublicKey   json.RawMessage `json:"publicKey"`
		Certificate json.RawMessage `json:"certificate"`
		Chain       json.RawMessage `json:"x509CertificateChain"`
	} `json:"verificationMaterial"`
	Message *struct {
		Digest *struct {
			Algorithm string `json:"algorithm"`
			Digest    []byte `json:"digest"`
		} `json:"messageDigest"`
		Signature []byte `json:"signature"`
	} `json:"messageSignature"`
	Envelope *struct {
		Payload     []byte `json:"payload"`
		PayloadType string `json:"payloadType"`
		Signatures  []struct {
			Sig []byte `json:"sig"`
		} `json:"signatures"`
	} `json:"dsseEnvelope"`
}

func (s Signature) bundle() ([]claim, error) {
	var b bundle
	if err := one(s.Payload, &b); err != nil {
		return nil, fmt.Errorf("bundle: %w", err)
	}
	switch {
	case !slices.Contains(bundleVersions, b.MediaType):
		return nil, errs.Newf(errs.Unsupported, "bundle: media type %q: unknown version", b.MediaType)
	case len(b.Material.Certificate) > 0 || len(b.Material.Chain) > 0:
		return nil, keyless()
	case (b.Message == nil) == (b.Envelope == nil):
		return nil, errs.Newf(errs.Corrupt, "bundle: needs a messageSignature or a dsseEnvelope")
	case b.Message != nil:
		if len(b.Message.Signature) == 0 {
			return nil, errs.Newf(errs.Corrupt, "bundle: messageSignature: empty")
		}
		return []claim{{signature: b.Message.Signature}}, nil
	}
	return b.envelope()
}

// envelope reads an in-toto statement in a DSSE envelope.
func (b bundle) envelope() ([]claim, error) {
	e := b.Envelope
	if e.PayloadType != payloadInToto {
		return nil, errs.Newf(errs.Unsupported, "bundle: payload type %q: not an in-toto statement", e.PayloadType)
	}
	var st struct {
		Type      string `json:"_type"`
		Predicate string `json:"predicateType"`
		Subject   []struct {
			Name   string            `json:"name"`
			Digest map[string]string `json:"digest"`
		} `json:"subject"`
	}
	if err := one(e.Payload, &st); err != nil {
		return nil, fmt.Errorf("bundle: statement: %w", err)
	}
	if st.Type != "https://in-toto.io/Statement/v1" && st.Type != "https://in-toto.io/Statement/v0.1" {
		return nil, errs.Newf(errs.Unsupported, "bundle: statement: type %q: unknown", st.Type)
	}
	if st.Predicate != predicateSign {
		return nil, errs.Newf(errs.Denied, "bundle: says %q of the image, which is no signature", st.Predicate)
	}
	if len(st.Subject) != 1 {
		return nil, errs.Newf(errs.Corrupt, "bundle: statement: %d subjects", len(st.Subject))
	}
	c := claim{message: preAuth(e.PayloadType, e.Payload), name: st.Subject[0].Name}
	for _, alg := range []digest.Alg{digest.SHA256, digest.SHA512} {
		if sum := st.Subject[0].Digest[string(alg)]; sum != "" {
			d, err := digest.ParseOCI(string(alg) + ":" + sum)
			if err != nil {
				return nil, fmt.Errorf("bundle: statement: subject: %w", err)
			}
			c.digests = append(c.digests, d.OCI())
		}
	}
	if len(c.digests) == 0 {
		return nil, errs.Newf(errs.Corrupt, "bundle: statement: subject: no sha256 or sha512")
	}
	var all []claim
	for _, sig := range e.Signatures[:min(len(e.Signatures), sigwire.MaxSignatures)] {
		c.signature = sig.Sig
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, errs.Newf(errs.Corrupt, "bundle: dsseEnvelope: no signatures")
	}
	return all, nil
}

// preAuth is what DSSE has signed: type and payload with their lengths, so that
// nothing of one can pass for the other.
func preAuth(payloadType string, payload []byte) []byte {
	head := fmt.Sprintf("DSSEv1 %d %s %d ", len(payloadType), payloadType, len(payload))
	return append([]byte(head), payload...)
}
