package sigcheck

import (
	"bytes"
	"crypto"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/rkt-pods/rkt/stage0/trust/sigwire"
)

// weakHashes are the hash functions that signatures of files may not be made
// with, by the numbers that the library names where it knows no more of them.
var weakHashes = map[string]string{"hash function 1": "MD5", "hash function 2": "SHA-1", "hash function 3": "RIPEMD-160"}

// dearmor returns the binary form, and refuses armour of another type.
func dearmor(data []byte, types ...string) (io.Reader, *sigwire.Refusal) {
	text := bytes.TrimLeft(data, " \t\r\n")
	if !bytes.HasPrefix(text, []byte("-----BEGIN ")) {
		return bytes.NewReader(data), nil
	}
	block, err := armor.Decode(bytes.NewReader(text))
	if err != nil {
		return nil, refuse(sigwire.Malformed, "armour: %v", err)
	}
	if block.Type == openpgp.PrivateKeyType {
		return nil, refuse(sigwire.SecretKey, "%s", block.Type)
	}
	if !slices.Contains(types, block.Type) {
		return nil, refuse(sigwire.Malformed, "is a %s", block.Type)
	}
	return block.Body, nil
}

// signature is one packet of a signature file.
type signature struct {
	*packet.Signature
	refused *sigwire.Refusal
}

func readSignatures(data []byte) ([]signature, *sigwire.Refusal) {
	r, no := dearmor(data, openpgp.SignatureType)
	if no != nil {
		return nil, no
	}
	var list []signature
	for len(list) < sigwire.MaxSignatures {
		p, err := packet.Read(r)
		switch s, isSignature := p.(*packet.Signature); {
		case errors.Is(err, io.EOF):
			if len(list) == 0 {
				return nil, refuse(sigwire.Malformed, "empty")
			}
			return list, nil
		case err != nil:
			if unsupported, ok := errors.AsType[pgperrors.UnsupportedError](err); ok {
				list = append(list, signature{refused: unsupportedSignature(string(unsupported))})
				continue
			}
			return nil, refuse(sigwire.Malformed, "%v", err)
		case !isSignature:
			return nil, refuse(sigwire.Malformed, "holds a packet that is no signature")
		default:
			list = append(list, signature{s, checkSignature(s)})
		}
	}
	return list, nil
}

func unsupportedSignature(what string) *sigwire.Refusal {
	if name, weak := weakHashes[what]; weak {
		return refuse(sigwire.WeakHash, "%s", name)
	}
	return refuse(sigwire.Malformed, "%s", what)
}

// checkSignature looks at what a signature says of itself.
func checkSignature(s *packet.Signature) *sigwire.Refusal {
	switch {
	case s.Hash == crypto.SHA1:
		return refuse(sigwire.WeakHash, "SHA-1")
	case s.SigType != packet.SigTypeBinary:
		return refuse(sigwire.Malformed, "not a signature of a binary file (type %#x)", int(s.SigType))
	case s.IssuerKeyId == nil && len(s.IssuerFingerprint) == 0:
		return refuse(sigwire.Malformed, "does not say by which key it was made")
	case !s.Hash.Available():
		return refuse(sigwire.Malformed, "hash function %v", s.Hash)
	}
	for _, n := range s.Notations {
		if n.IsCritical {
			return refuse(sigwire.Malformed, "unknown critical notation %q", n.Name)
		}
	}
	return nil
}

func issuer(s *packet.Signature) string {
	switch {
	case s == nil:
		return "unknown"
	case len(s.IssuerFingerprint) > 0:
		return hex.EncodeToString(s.IssuerFingerprint)
	case s.IssuerKeyId != nil:
		return fmt.Sprintf("%016x", *s.IssuerKeyId)
	}
	return "unknown"
}

// madeBy is a key that may have made a signature: the primary key of an entity
// or one of its subkeys.
type madeBy struct {
	entity *openpgp.Entity
	subkey *openpgp.Subkey // nil: the primary key
}

func (k madeBy) public() *packet.PublicKey {
	if k.subkey != nil {
		return k.subkey.PublicKey
	}
	return k.entity.PrimaryKey
}

// find looks for the key that a signature names.
func find(list openpgp.EntityList, s *packet.Signature) (madeBy, bool) {
	for _, e := range list {
		if s.CheckKeyIdOrFingerprint(e.PrimaryKey) {
			return madeBy{entity: e}, true
		}
		for i := range e.Subkeys {
			if s.CheckKeyIdOrFingerprint(e.Subkeys[i].PublicKey) {
				return madeBy{e, &e.Subkeys[i]}, true
			}
		}
	}
	return madeBy{}, false
}

func inspect(q sigwire.Inspect) sigwire.Answer {
	list, no := readSignatures(q.Signature)
	if no != nil {
		return sigwire.Answer{Refused: no}
	}
	rings := make([]openpgp.EntityList, len(q.Keyring))
	for i, data := range q.Keyring {
		// A file that can't be read has no key; rkt trust refuses such ones.
		rings[i], _ = readKeys(data)
	}
	var a sigwire.Answer
	for _, s := range list {
		out := sigwire.Signature{Refused: s.refused, Issuer: issuer(s.Signature), Key: -1}
		if s.Signature != nil {
			out.Created, out.Hash, out.After = s.CreationTime, s.Hash.String(), s.HashSuffix
			out.Before = s.Salt() // of version 6; else nothing
		}
		for i := range rings {
			if s.refused != nil || out.Key >= 0 {
				break
			}
			if k, ok := find(rings[i], s.Signature); ok {
				out.Key, out.Of, out.Name = i, fingerprint(k.entity), name(k.entity)
			}
		}
		a.Signatures = append(a.Signatures, out)
	}
	return a
}

// sum stands for a hash function that has seen everything already.
type sum []byte

func (s sum) Write(p []byte) (int, error) { return len(p), nil }

// Sum returns the hash that was computed elsewhere.
func (s sum) Sum(b []byte) []byte { return append(b, s...) }
func (s sum) Reset()              {}

// Size is that of the hash.
func (s sum) Size() int { return len(s) }

// BlockSize has no meaning here.
func (s sum) BlockSize() int { return 1 }

func verifyOpenPGP(q sigwire.OpenPGP, now time.Time) sigwire.Answer {
	list, no := readSignatures(q.Signature)
	if no != nil {
		return sigwire.Answer{Refused: no}
	}
	if q.Index < 0 || q.Index >= len(list) {
		return sigwire.Answer{Refused: refuse(sigwire.NotApplicable, "%d signatures", len(list))}
	}
	s := list[q.Index]
	if s.refused != nil {
		return sigwire.Answer{Refused: s.refused}
	}
	ring, no := readKeys(q.Key)
	if no != nil {
		return sigwire.Answer{Refused: no}
	}
	k, ok := find(ring, s.Signature)
	if !ok {
		return sigwire.Answer{Refused: refuse(sigwire.NotApplicable, "not the key %s", issuer(s.Signature))}
	}
	if len(q.Digest) != s.Hash.Size() {
		return sigwire.Answer{Refused: refuse(sigwire.Mismatch, "")}
	}
	// First whether the key made it at all: what it says else is true only then.
	if err := k.public().VerifySignature(sum(q.Digest), s.Signature); err != nil {
		return sigwire.Answer{Refused: refuse(sigwire.Mismatch, "%v", err)}
	}
	// An image may be signed and fetched within a second, by clocks that differ.
	if ahead := s.CreationTime.Sub(now); ahead > 0 && ahead <= skew {
		now = s.CreationTime
	}
	if no := k.check(s.Signature, now); no != nil {
		return sigwire.Answer{Refused: no}
	}
	return sigwire.Answer{}
}

// skew is how far the signer's clock may be ahead of this host's.
const skew = 5 * time.Minute

// check says whether the key counts today, and did when it signed.
func (k madeBy) check(s *packet.Signature, now time.Time) *sigwire.Refusal {
	if no := checkEntity(k.entity, now); no != nil {
		return no
	}
	pk := k.public()
	if k.subkey != nil {
		switch {
		case k.subkey.Revoked(now):
			return refuse(sigwire.KeyRevoked, "subkey %x", pk.Fingerprint)
		case pk.KeyExpired(k.subkey.Sig, now) || k.subkey.Sig.SigExpired(now):
			return refuse(sigwire.KeyExpired, "subkey %x", pk.Fingerprint)
		case !k.subkey.Sig.FlagsValid || !k.subkey.Sig.FlagSign:
			return refuse(sigwire.KeyUsage, "subkey %x", pk.Fingerprint)
		}
		if no := checkAlgorithm(pk); no != nil {
			return no
		}
	} else if self, _ := k.entity.PrimarySelfSignature(); self.FlagsValid && !self.FlagSign {
		return refuse(sigwire.KeyUsage, "")
	}
	switch {
	case s.CreationTime.After(now), s.CreationTime.Before(pk.CreationTime):
		return refuse(sigwire.NotYet, "%s", s.CreationTime.UTC().Format(time.RFC3339))
	case s.SigExpired(now):
		return refuse(sigwire.Expired, "")
	}
	return nil
}

// checkEntity says whether the key as a whole counts today.
func checkEntity(e *openpgp.Entity, now time.Time) *sigwire.Refusal {
	if no := checkAlgorithm(e.PrimaryKey); no != nil {
		return no
	}
	self, identity := e.PrimarySelfSignature()
	switch {
	case self == nil:
		return refuse(sigwire.Malformed, "no valid self-signature")
	case e.Revoked(now), identity != nil && identity.Revoked(now):
		return refuse(sigwire.KeyRevoked, "%s", revocation(e))
	case e.PrimaryKey.KeyExpired(self, now) || self.SigExpired(now):
		return refuse(sigwire.KeyExpired, "%s", expiry(e))
	}
	return nil
}

func revocation(e *openpgp.Entity) string {
	for _, r := range e.Revocations {
		if r.RevocationReasonText != "" {
			return r.RevocationReasonText
		}
	}
	return ""
}

func expiry(e *openpgp.Entity) string {
	if at := expires(e); at != nil {
		return "on " + at.Format(time.RFC3339)
	}
	return ""
}

func expires(e *openpgp.Entity) *time.Time {
	self, _ := e.PrimarySelfSignature()
	if self == nil || self.KeyLifetimeSecs == nil || *self.KeyLifetimeSecs == 0 {
		return nil
	}
	at := e.PrimaryKey.CreationTime.Add(time.Duration(*self.KeyLifetimeSecs) * time.Second).UTC()
	return &at
}

// minRSA is the least number of bits that an RSA key may have. A key of 2048
// may come out one bit shorter.
const minRSA = 2047

func checkAlgorithm(pk *packet.PublicKey) *sigwire.Refusal {
	name := algorithm(pk)
	bits, err := pk.BitLength()
	weak := strings.HasPrefix(name, "RSA") && (err != nil || bits < minRSA)
	if weak || pk.PubKeyAlgo == packet.PubKeyAlgoDSA || pk.PubKeyAlgo == packet.PubKeyAlgoElGamal {
		return refuse(sigwire.WeakKey, "%s", name)
	}
	return nil
}

func algorithm(pk *packet.PublicKey) string {
	name := map[packet.PublicKeyAlgorithm]string{
		packet.PubKeyAlgoRSA: "RSA", packet.PubKeyAlgoRSASignOnly: "RSA", packet.PubKeyAlgoRSAEncryptOnly: "RSA",
		packet.PubKeyAlgoDSA: "DSA", packet.PubKeyAlgoElGamal: "ElGamal", packet.PubKeyAlgoECDSA: "ECDSA",
		packet.PubKeyAlgoEdDSA: "EdDSA", packet.PubKeyAlgoEd25519: "Ed25519", packet.PubKeyAlgoEd448: "Ed448",
	}[pk.PubKeyAlgo]
	if name == "" {
		name = fmt.Sprintf("algorithm %d", pk.PubKeyAlgo)
	}
	if bits, err := pk.BitLength(); err == nil && strings.HasSuffix(name, "A") && name != "EdDSA" {
		name += fmt.Sprintf(" %d", bits)
	}
	return name
}

func fingerprint(e *openpgp.Entity) string { return hex.EncodeToString(e.PrimaryKey.Fingerprint) }

// name is the user id that the key shows first.
func name(e *openpgp.Entity) string {
	if id := e.PrimaryIdentity(); id != nil {
		return id.Name
	}
	for _, n := range slices.Sorted(maps.Keys(e.Identities)) {
		return n
	}
	return ""
}

func readKeys(data []byte) (openpgp.EntityList, *sigwire.Refusal) {
	r, no := dearmor(data, openpgp.PublicKeyType)
	if no != nil {
		return nil, no
	}
	list, err := openpgp.ReadKeyRing(r)
	if err != nil {
		return nil, refuse(sigwire.Malformed, "%v", err)
	}
	for _, e := range list {
		if e.PrivateKey != nil {
			return nil, refuse(sigwire.SecretKey, "")
		}
	}
	return list, nil
}

func describeOpenPGP(data []byte, now time.Time) sigwire.Answer {
	list, no := readKeys(data)
	if no != nil {
		return sigwire.Answer{Refused: no}
	}
	if len(list) == 0 {
		return sigwire.Answer{Refused: refuse(sigwire.Malformed, "no key in it")}
	}
	var a sigwire.Answer
	for _, e := range list {
		created := e.PrimaryKey.CreationTime.UTC()
		k := sigwire.Key{
			Kind: sigwire.KindOpenPGP, Fingerprint: fingerprint(e), Algorithm: algorithm(e.PrimaryKey),
			Identities: slices.Sorted(maps.Keys(e.Identities)), Created: &created, Expires: expires(e), Refused: checkEntity(e, now),
		}
		for _, sub := range e.Subkeys {
			k.Subkeys = append(k.Subkeys, hex.EncodeToString(sub.PublicKey.Fingerprint))
		}
		text, err := armored(e)
		if err != nil {
			return sigwire.Answer{Refused: refuse(sigwire.Malformed, "key %s: %v", k.Fingerprint, err)}
		}
		k.Data = text
		a.Keys = append(a.Keys, k)
	}
	return a
}

// armored writes one key alone, with all its signatures and revocations.
func armored(e *openpgp.Entity) ([]byte, error) {
	var b bytes.Buffer
	w, err := armor.Encode(&b, openpgp.PublicKeyType, nil)
	if err == nil {
		err = e.Serialize(w)
	}
	if err == nil {
		err = w.Close()
	}
	b.WriteByte('\n')
	return b.Bytes(), err
}
