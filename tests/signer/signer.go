// Package signer makes keys and signatures for tests, in the forms that
// publishers use: detached OpenPGP signatures, and cosign's two layouts.
package signer

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// PGP is an OpenPGP key pair.
type PGP struct {
	*openpgp.Entity
	config packet.Config
}

// NewPGP makes a key pair. The config's zero value makes a key of version 4 with
// EdDSA; times, versions and lifetimes are its to set.
func NewPGP(name string, config packet.Config) (*PGP, error) {
	if config.Algorithm == 0 {
		config.Algorithm = packet.PubKeyAlgoEdDSA
	}
	if config.V6Keys {
		config.Algorithm = packet.PubKeyAlgoEd25519
	}
	e, err := openpgp.NewEntity(name, "", name+"@example.com", &config)
	return &PGP{e, config}, err
}

// Fingerprint is how the key's file is named.
func (k *PGP) Fingerprint() string { return hex.EncodeToString(k.PrimaryKey.Fingerprint) }

// Public is the armored public key.
func (k *PGP) Public() ([]byte, error) {
	var b bytes.Buffer
	w, err := armor.Encode(&b, openpgp.PublicKeyType, nil)
	if err == nil {
		err = k.Serialize(w)
	}
	if err == nil {
		err = w.Close()
	}
	return b.Bytes(), err
}

// Sign makes an armored detached signature.
func (k *PGP) Sign(data []byte) ([]byte, error) {
	var b bytes.Buffer
	err := openpgp.ArmoredDetachSign(&b, k.Entity, bytes.NewReader(data), &k.config)
	return b.Bytes(), err
}

// SignAt is Sign at another time, in binary.
func (k *PGP) SignAt(data []byte, at time.Time, lifetime uint32) ([]byte, error) {
	var b bytes.Buffer
	c := k.config
	c.Time = func() time.Time { return at }
	c.SigLifetimeSecs = lifetime
	err := openpgp.DetachSign(&b, k.Entity, bytes.NewReader(data), &c)
	return b.Bytes(), err
}

// Plain is a key pair as cosign has them.
type Plain struct {
	crypto.Signer
	pss bool
}

// NewPlain makes a key pair: "ecdsa", "ed25519", "rsa", "rsa-pss", or one that
// is not to be accepted, "p384" and "rsa-1024".
func NewPlain(kind string) (*Plain, error) {
	var s crypto.Signer
	var err error
	switch kind {
	case "ecdsa":
		s, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "p384":
		s, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "ed25519":
		_, s, err = ed25519.GenerateKey(rand.Reader)
	case "rsa", "rsa-pss":
		s, err = rsa.GenerateKey(rand.Reader, 2048)
	case "rsa-1024":
		s, err = rsa.GenerateKey(rand.Reader, 1024)
	default:
		err = fmt.Errorf("kind of key %q: unknown", kind)
	}
	return &Plain{Signer: s, pss: kind == "rsa-pss"}, err
}

// Public is the public key in PEM.
func (k *Plain) Public() ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(k.Signer.Public())
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), err
}

// Fingerprint is how the key's file is named, without the suffix.
func (k *Plain) Fingerprint() (string, error) {
	der, err := x509.MarshalPKIXPublicKey(k.Signer.Public())
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:]), err
}

// Sign signs a message.
func (k *Plain) Sign(message []byte) ([]byte, error) {
	if _, ok := k.Signer.(ed25519.PrivateKey); ok {
		return k.Signer.Sign(rand.Reader, message, crypto.Hash(0))
	}
	sum := sha256.Sum256(message)
	if k.pss {
		return k.Signer.Sign(rand.Reader, sum[:], &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256})
	}
	return k.Signer.Sign(rand.Reader, sum[:], crypto.SHA256)
}

// SimpleSigning makes the blob and the annotation of the tag layout, for a
// reference and the digest of a manifest as OCI writes it.
func (k *Plain) SimpleSigning(reference, digest string) (payload []byte, annotation string, err error) {
	payload, err = json.Marshal(map[string]any{
		"critical": map[string]any{
			"identity": map[string]any{"docker-reference": reference},
			"image":    map[string]any{"docker-manifest-digest": digest},
			"type":     "cosign container image signature",
		},
		"optional": nil,
	})
	if err != nil {
		return nil, "", err
	}
	sig, err := k.Sign(payload)
	return payload, base64.StdEncoding.EncodeToString(sig), err
}

// Bundle is the type of a bundle, as artifact and as blob.
const Bundle = "application/vnd.dev.sigstore.bundle.v0.3+json"

// MessageBundle makes a bundle with a signature of the manifest itself.
func (k *Plain) MessageBundle(manifest []byte) ([]byte, error) {
	sig, err := k.Sign(manifest)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(manifest)
	return json.Marshal(map[string]any{
		"mediaType":            Bundle,
		"verificationMaterial": map[string]any{"publicKey": map[string]any{"hint": "test"}},
		"messageSignature": map[string]any{
			"messageDigest": map[string]any{"algorithm": "SHA2_256", "digest": sum[:]}, "signature": sig,
		},
	})
}

// Statement is what an envelope's bundle says; its zero value is a signature of
// no image.
type Statement struct {
	SHA256    string // hexadecimal, of the manifest
	Name      string // of the subject
	Predicate string // "": that of a signature
}

// EnvelopeBundle makes a bundle with a signed statement.
func (k *Plain) EnvelopeBundle(s Statement) ([]byte, error) {
	if s.Predicate == "" {
		s.Predicate = "https://sigstore.dev/cosign/sign/v1"
	}
	subject := map[string]any{"digest": map[string]string{"sha256": s.SHA256}}
	if s.Name != "" {
		subject["name"] = s.Name
	}
	payload, err := json.Marshal(map[string]any{
		"_type": "https://in-toto.io/Statement/v1", "subject": []any{subject}, "predicateType": s.Predicate, "predicate": map[string]any{},
	})
	if err != nil {
		return nil, err
	}
	const payloadType = "application/vnd.in-toto+json"
	sig, err := k.Sign(fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(payload), payload))
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{
		"mediaType":            Bundle,
		"verificationMaterial": map[string]any{"publicKey": map[string]any{"hint": "test"}},
		"dsseEnvelope": map[string]any{
			"payload": payload, "payloadType": payloadType, "signatures": []any{map[string]any{"sig": sig}},
		},
	})
}
