package trust

import (
	"context"
	"crypto/sha256"
	"crypto/sha3"
	"crypto/sha512"
	"encoding/hex"
	"hash"
	"slices"
	"strings"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/stage0/config"
	"github.com/rkt-pods/rkt/stage0/trust/sigwire"
)

// ACI is an App Container Image that asks to get in, with the detached OpenPGP
// signature of its published file.
type ACI struct {
	Source       string // URL or file, for messages
	Name         string // that was asked for; "" for a file or a URL, whose manifest says it
	Pinned       bool   // the reference names the image id
	Signature    []byte // the file; nil: there is none
	SignatureAt  string // where it was looked for
	SignatureErr error  // why it can't be had, nil if there just is none
}

// hashes are the hash functions of signatures, by Go's names.
var hashes = map[string]func() hash.Hash{
	"SHA-224": sha256.New224, "SHA-256": sha256.New, "SHA-384": sha512.New384, "SHA-512": sha512.New,
	"SHA3-256": func() hash.Hash { return sha3.New256() }, "SHA3-512": func() hash.Hash { return sha3.New512() },
}

// Verifier checks one signed file while its bytes, as they were published, are
// written to it.
type Verifier struct {
	ctx    context.Context
	policy Policy
	aci    ACI
	hashes []candidate
	none   error // why there is no signature to check
}

// candidate is a signature that may turn out to be good.
type candidate struct {
	sigwire.Signature
	index int
	keys  []TrustedKey // the files with its key: one may be trusted for several prefixes
	hash  hash.Hash
}

// ACI prepares the check of an image. It fails at once, before a byte of the
// image is fetched, if the signature can't be good.
func (p Policy) ACI(ctx context.Context, a ACI) (*Verifier, error) {
	v := &Verifier{ctx: ctx, policy: p, aci: a}
	if p.AllowUnsigned {
		return v, nil
	}
	if len(a.Signature) == 0 {
		v.none = p.unsigned("image "+a.Source, a.Name, a.SignatureAt, a.SignatureErr)
	} else if err := v.inspect(); err != nil {
		return nil, err
	}
	if v.none != nil && !p.mayDoWithout(a.Name, a.Pinned) {
		return nil, v.none
	}
	return v, nil
}

// mayDoWithout says whether an image of the name, or where it is not known yet of
// any, may get in without a signature.
func (p Policy) mayDoWithout(name string, pinned bool) bool {
	if name != "" {
		return !p.NeedsSignature(name, pinned)
	}
	for _, r := range p.rules {
		if r.Require == config.RequireInsecure || r.Require == config.RequireDigest && pinned {
			return true
		}
	}
	return false
}

// inspect finds out which of the file's signatures are worth hashing for.
func (v *Verifier) inspect() error {
	keys, data := v.policy.choose(func(k TrustedKey) bool { return !k.PEM })
	answer, err := v.policy.ask(v.ctx, sigwire.Request{Inspect: &sigwire.Inspect{Signature: v.aci.Signature, Keyring: data}})
	if err != nil {
		return v.bad(err)
	}
	var no refusals
	if r := answer.Refused; r != nil {
		no.add(rankForm, errs.Newf(errs.Denied, "not a detached OpenPGP signature: %s", r.Detail))
	}
	for i, s := range answer.Signatures {
		c := candidate{Signature: s, index: i}
		switch {
		case s.Refused != nil:
			no.add(rankBroken, refused("signature by key "+s.Issuer, s.Refused))
		case s.Key < 0 || s.Key >= len(keys):
			no.add(rankUnknown, v.policy.trustHint(errs.Newf(errs.Denied, "openpgp: signature made by unknown entity: no trusted key is %s", s.Issuer), v.aci.Name))
		case hashes[s.Hash] == nil:
			no.add(rankBroken, errs.Newf(errs.Denied, "signature by key %s: its hash %q is not supported", s.Of, s.Hash))
		case keys[s.Key].Fingerprint != s.Of:
			no.add(rankUnknown, misnamed(keys[s.Key], s.Of))
		default:
			c.keys, _ = v.policy.choose(func(k TrustedKey) bool { return !k.PEM && k.Fingerprint == s.Of })
			c.hash = v.hasher(c)
			v.hashes = append(v.hashes, c)
		}
	}
	// A name that was asked for tells now what the manifest would tell at the
	// end of the image.
	if v.aci.Name != "" {
		v.hashes = slices.DeleteFunc(v.hashes, func(c candidate) bool {
			_, err := v.policy.pick(c.keys, v.aci.Name)
			no.add(rankPrefix, err)
			return err != nil
		})
	}
	if len(v.hashes) == 0 {
		v.none = v.bad(no.err)
	}
	return nil
}

func (v *Verifier) hasher(c candidate) hash.Hash {
	h := hashes[c.Hash]()
	h.Write(c.Before) // never fails, says package hash
	return h
}

// bad says of which file the signature is and where it came from.
func (v *Verifier) bad(err error) error {
	if err == nil {
		return nil
	}
	what := "image " + v.aci.Source
	if v.aci.SignatureAt != "" {
		what += ": " + v.aci.SignatureAt
	}
	return errs.WithClass(errs.ClassOf(err), wrapped{what, err})
}

type wrapped struct {
	what string
	err  error
}

func (w wrapped) Error() string {
	if w.what == "" {
		return w.err.Error()
	}
	return w.what + ": " + w.err.Error()
}

func (w wrapped) Unwrap() error { return w.err }

// Write takes the next bytes of the file as it was published, packed or not. It
// never fails.
func (v *Verifier) Write(p []byte) (int, error) {
	for _, c := range v.hashes {
		c.hash.Write(p)
	}
	return len(p), nil
}

// Finish is called when all bytes were written and the image's own manifest has
// been read, whose name decides which keys count. The error is of class Denied
// if the image may not get in.
func (v *Verifier) Finish(name string) (image.Trust, error) {
	if v.policy.AllowUnsigned {
		return v.policy.settle(name, v.aci.Pinned, image.Trust{}, nil)
	}
	t, err := v.check(name)
	return v.policy.settle(name, v.aci.Pinned, t, err)
}

func (v *Verifier) check(name string) (image.Trust, error) {
	if v.aci.Name != "" && name != v.aci.Name {
		return image.Trust{}, errs.Newf(errs.Denied, "image %s: its manifest names it %s, not %s as was asked for", v.aci.Source, name, v.aci.Name)
	}
	var no refusals
	for _, c := range v.hashes {
		c.hash.Write(c.After)
		sum := c.hash.Sum(nil)
		t, rank, err := v.policy.openpgp(v.ctx, v.aci.Signature, c, sum, name)
		if err == nil {
			t.Signed = hashName(c.Hash) + "-" + hex.EncodeToString(sum)
			return t, nil
		}
		if rank == 0 {
			return t, v.bad(err)
		}
		no.add(rank, err)
	}
	if no.err == nil {
		return image.Trust{}, v.none
	}
	return image.Trust{}, v.bad(no.err)
}

// openpgp checks one signature of which all but the arithmetic is known. A rank
// of 0 is an error of the check itself.
func (p Policy) openpgp(ctx context.Context, signature []byte, c candidate, sum []byte, name string) (image.Trust, int, error) {
	key, err := p.pick(c.keys, name)
	if err != nil {
		return image.Trust{}, rankPrefix, err
	}
	q := sigwire.OpenPGP{Signature: signature, Index: c.index, Digest: sum, Key: key.data}
	answer, err := p.ask(ctx, sigwire.Request{OpenPGP: &q})
	if err != nil {
		return image.Trust{}, 0, err
	}
	if r := answer.Refused; r != nil {
		err := refused("signature by key "+key.Fingerprint+user(c.Name)+" ("+key.Path+")", r)
		if r.Reason == sigwire.Mismatch {
			return image.Trust{}, rankOther, err
		}
		return image.Trust{}, rankKey, err
	}
	created := c.Created.UTC()
	return image.Trust{Method: image.ByOpenPGP, Key: key.Fingerprint, Signer: c.Name, Prefix: key.Prefix, SignedAt: &created}, 0, nil
}

// pick returns the first of several files with one key that counts for the name.
func (p Policy) pick(keys []TrustedKey, name string) (TrustedKey, error) {
	var no error
	for _, k := range keys {
		err := p.allows(k, name)
		if err == nil {
			return k, nil
		}
		if no == nil {
			no = err
		}
	}
	return TrustedKey{}, no
}

// misnamed is the error for a file of trusted keys whose name says another key
// than its content: rules and people go by the name.
func misnamed(k TrustedKey, holds string) error {
	return errs.WithHint(errs.Newf(errs.Denied, "trusted key %s: the file holds another key, %s", k.Path, holds),
		"\"rkt trust\" writes keys under their fingerprints")
}

func user(name string) string {
	if name == "" {
		return ""
	}
	return " of " + name
}

// hashName spells a hash function as digests do.
func hashName(goName string) string { return strings.ToLower(strings.ReplaceAll(goName, "-", "")) }
