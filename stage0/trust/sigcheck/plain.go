package sigcheck

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"strings"

	"github.com/rkt-pods/rkt/stage0/trust/sigwire"
)

const pemPublicKey = "PUBLIC KEY"

// isPEM tells a PEM file from an armored OpenPGP one, which looks alike.
func isPEM(data []byte) bool {
	text := bytes.TrimLeft(data, " \t\r\n")
	return bytes.HasPrefix(text, []byte("-----BEGIN ")) && !bytes.HasPrefix(text, []byte("-----BEGIN PGP "))
}

// readPEM reads the one public key of a file.
func readPEM(data []byte) (key any, der []byte, no *sigwire.Refusal) {
	block, rest := pem.Decode(data)
	switch {
	case block == nil:
		return nil, nil, refuse(sigwire.Malformed, "not PEM")
	case strings.Contains(block.Type, "PRIVATE KEY"):
		return nil, nil, refuse(sigwire.SecretKey, "%s", block.Type)
	case block.Type != pemPublicKey:
		return nil, nil, refuse(sigwire.Malformed, "is a %s, not a %s", block.Type, pemPublicKey)
	case len(bytes.TrimSpace(rest)) > 0:
		return nil, nil, refuse(sigwire.Malformed, "more text after the key")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, nil, refuse(sigwire.Malformed, "%v", err)
	}
	return key, block.Bytes, checkPlain(key)
}

// checkPlain says whether the kind of key is accepted.
func checkPlain(key any) *sigwire.Refusal {
	switch k := key.(type) {
	case ed25519.PublicKey:
		return nil
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P256() {
			return nil
		}
	case *rsa.PublicKey:
		if k.N.BitLen() >= 2048 {
			return nil
		}
	}
	return refuse(sigwire.WeakKey, "%s", plainAlgorithm(key))
}

func plainAlgorithm(key any) string {
	switch k := key.(type) {
	case ed25519.PublicKey:
		return "Ed25519"
	case *ecdsa.PublicKey:
		return "ECDSA " + k.Curve.Params().Name
	case *rsa.PublicKey:
		return fmt.Sprintf("RSA %d", k.N.BitLen())
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", key), "*")
}

func describePEM(data []byte) sigwire.Answer {
	key, der, no := readPEM(data)
	if no != nil {
		return sigwire.Answer{Refused: no}
	}
	return sigwire.Answer{Keys: []sigwire.Key{{
		Kind: sigwire.KindPEM, Fingerprint: plainFingerprint(der), Algorithm: plainAlgorithm(key),
		Data: pem.EncodeToMemory(&pem.Block{Type: pemPublicKey, Bytes: der}),
	}}}
}

// plainFingerprint is of the key alone, whatever stands around it in the file.
func plainFingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}

// verifyPlain finds the key that made the signature.
func verifyPlain(q sigwire.Plain) sigwire.Answer {
	for i, data := range q.Keyring {
		key, der, no := readPEM(data)
		if no == nil && signedBy(key, q.Message, q.Signature) {
			return sigwire.Answer{By: i, Of: plainFingerprint(der)}
		}
	}
	return sigwire.Answer{Refused: refuse(sigwire.Mismatch, "")}
}

func signedBy(key any, message, signature []byte) bool {
	sum := sha256.Sum256(message)
	switch k := key.(type) {
	case ed25519.PublicKey:
		return ed25519.Verify(k, message, signature)
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(k, sum[:], signature)
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(k, crypto.SHA256, sum[:], signature) == nil ||
			rsa.VerifyPSS(k, crypto.SHA256, sum[:], signature, nil) == nil
	}
	return false
}
