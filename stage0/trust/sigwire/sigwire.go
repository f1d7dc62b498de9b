// Package sigwire has what rkt and rkt-verify say to each other. rkt-verify
// knows signature formats and nothing of names, policies and folders: it gets
// one Request on its standard input, with all the bytes that it needs, writes
// one Answer to its standard output and ends.
package sigwire

import "time"

// MaxRequest is the size that no request exceeds: all trusted keys of a host
// and one signature.
const MaxRequest = 64 << 20

// MaxSignatures is how many signatures of one file are looked at.
const MaxSignatures = 16

// Request asks exactly one of these things.
type Request struct {
	Now     time.Time `json:"now"` // by which keys are expired
	Keys    *Keys     `json:"keys,omitempty"`
	Inspect *Inspect  `json:"inspect,omitempty"`
	OpenPGP *OpenPGP  `json:"openpgp,omitempty"`
	Plain   *Plain    `json:"plain,omitempty"`
}

// Keys asks what public keys are in a file: armored or binary OpenPGP, or PEM.
type Keys struct {
	Data []byte `json:"data"`
}

// Inspect asks what a detached OpenPGP signature needs to be checked.
type Inspect struct {
	Signature []byte   `json:"signature"`
	Keyring   [][]byte `json:"keyring"` // files of trusted keys
}

// OpenPGP asks whether a signature of the file is good: the Index-th, over the
// bytes whose hash, with what Inspect said is to be hashed before and after
// them, is Digest.
type OpenPGP struct {
	Signature []byte `json:"signature"`
	Index     int    `json:"index"`
	Digest    []byte `json:"digest"`
	Key       []byte `json:"key"` // the file of the key
}

// Plain asks which of some PEM public keys made a signature without a format.
type Plain struct {
	Keyring   [][]byte `json:"keyring"`
	Message   []byte   `json:"message"`
	Signature []byte   `json:"signature"`
}

// Answer is what was asked for, or Refused.
type Answer struct {
	Refused    *Refusal    `json:"refused,omitempty"`
	Keys       []Key       `json:"keys,omitempty"`
	Signatures []Signature `json:"signatures,omitempty"`
	By         int         `json:"by,omitempty"` // Plain: index of the key in the keyring
	Of         string      `json:"of,omitempty"` // Plain: its fingerprint
}

// Reason says why something is refused.
type Reason string

// The reasons.
const (
	Malformed     Reason = "malformed"      // not a signature or a key of a known format
	WeakHash      Reason = "weak-hash"      // made with MD5, SHA-1 or RIPEMD-160
	WeakKey       Reason = "weak-key"       // an algorithm or a size that is not accepted
	Mismatch      Reason = "mismatch"       // the signature is not of these bytes, or not by this key
	KeyExpired    Reason = "key-expired"    //
	KeyRevoked    Reason = "key-revoked"    //
	KeyUsage      Reason = "key-usage"      // the key is not for signing
	Expired       Reason = "expired"        // the signature is
	NotYet        Reason = "not-yet"        // the signature is dated in the future, or older than its key
	SecretKey     Reason = "secret-key"     // a private key where a public one belongs
	NotApplicable Reason = "not-applicable" // what was asked can't be answered for this key
)

// Refusal is why the answer is no. It is made of bytes that strangers wrote.
type Refusal struct {
	Reason Reason `json:"reason"`
	Detail string `json:"detail,omitempty"`
}

// The kinds of keys.
const (
	KindOpenPGP = "openpgp"
	KindPEM     = "pem"
)

// Key describes a public key.
type Key struct {
	Kind        string     `json:"kind"`
	Fingerprint string     `json:"fingerprint"` // lower-case hexadecimal; of a PEM key the SHA-256 of its DER form
	Algorithm   string     `json:"algorithm"`
	Identities  []string   `json:"identities,omitempty"`
	Subkeys     []string   `json:"subkeys,omitempty"` // fingerprints
	Created     *time.Time `json:"created,omitempty"`
	Expires     *time.Time `json:"expires,omitempty"`
	Refused     *Refusal   `json:"refused,omitempty"` // why it is no good today
	Data        []byte     `json:"data"`              // this key alone, to be kept
}

// Signature describes one signature of a file.
type Signature struct {
	Refused *Refusal  `json:"refused,omitempty"`
	Issuer  string    `json:"issuer"` // fingerprint or key id of the key that made it, as it says
	Hash    string    `json:"hash"`   // Go's name of the hash function
	Before  []byte    `json:"before,omitempty"`
	After   []byte    `json:"after,omitempty"`
	Created time.Time `json:"created"`
	Key     int       `json:"key"`            // index of the file in the keyring that has the key, -1 if none has
	Of      string    `json:"of,omitempty"`   // fingerprint of the primary key
	Name    string    `json:"name,omitempty"` // its user id
}
