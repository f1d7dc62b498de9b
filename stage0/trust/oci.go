package trust

import (
	"context"
	"strings"

	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/ref"
	"github.com/rkt-pods/rkt/stage0/trust/sigwire"
)

// OCI is an image of a registry that asks to get in.
type OCI struct {
	Name       string      // registry and repository in full: docker.io/library/busybox
	Tag        string      // "" if none was asked for
	Pinned     bool        // the reference has a digest
	Manifests  [][]byte    // as they came: the index, if there is one, and the platform's manifest
	Signatures []Signature // that were found
	Looked     string      // where, for messages
	LookErr    error       // why none could be looked for, nil if there just are none
}

// OCI decides on an image whose manifests are known and nothing else. A
// signature of the index is as good as one of the manifest that it leads to.
func (p Policy) OCI(ctx context.Context, o OCI) (image.Trust, error) {
	if p.AllowUnsigned {
		return p.settle(o.Name, o.Pinned, image.Trust{}, nil)
	}
	t, err := p.signatures(ctx, o)
	return p.settle(o.Name, o.Pinned, t, err)
}

func (p Policy) signatures(ctx context.Context, o OCI) (image.Trust, error) {
	if len(o.Signatures) == 0 {
		return image.Trust{}, p.unsigned("image "+o.Name, o.Name, o.Looked, o.LookErr)
	}
	var no refusals
	for _, s := range o.Signatures[:min(len(o.Signatures), sigwire.MaxSignatures)] {
		claims, err := s.claims()
		if err != nil {
			no.add(rankForm, errs.WithClass(errs.Denied, wrapped{s.From, err}))
			continue
		}
		for _, c := range claims {
			t, rank, err := p.claim(ctx, o, c)
			if err == nil {
				return t, nil
			}
			err = errs.WithClass(errs.ClassOf(err), wrapped{s.From, err})
			if rank == 0 {
				return t, err
			}
			no.add(rank, err)
		}
	}
	return image.Trust{}, errs.WithClass(errs.ClassOf(no.err), wrapped{"image " + o.Name, no.err})
}

// claim is one signature and what it says.
type claim struct {
	message   []byte   // what was signed; nil: the manifest itself
	signature []byte   //
	digests   []string // of manifests that it vouches for, "<alg>:<hex>"; none: the manifest itself
	name      string   // reference that it names; "": none
}

// claim checks one signature: by whom, then of what. Only what is signed by a
// trusted key is believed, also in messages.
func (p Policy) claim(ctx context.Context, o OCI, c claim) (image.Trust, int, error) {
	manifests := o.Manifests
	if c.message != nil {
		manifests = manifests[:min(1, len(manifests))] // the message is the same for all
	}
	keys, _ := p.choose(func(k TrustedKey) bool { return k.PEM && p.allows(k, o.Name) == nil })
	others, _ := p.choose(func(k TrustedKey) bool { return k.PEM && p.allows(k, o.Name) != nil })
	for _, m := range manifests {
		key, found, err := p.plain(ctx, c, m, keys)
		if err != nil {
			return image.Trust{}, 0, err
		}
		if !found {
			if key, found, err = p.plain(ctx, c, m, others); err != nil {
				return image.Trust{}, 0, err
			}
			if found {
				return image.Trust{}, rankPrefix, p.allows(key, o.Name)
			}
			continue
		}
		signed, err := c.binds(o, m)
		if err != nil {
			return image.Trust{}, rankOther, errs.Newf(errs.Denied, "signature by key %s: %w", key.Fingerprint, err)
		}
		return image.Trust{Method: image.ByCosign, Key: key.Fingerprint, Prefix: key.Prefix, Signed: signed}, 0, nil
	}
	return image.Trust{}, rankUnknown, p.noKey(keys, o.Name)
}

// noKey says which keys were tried in vain.
func (p Policy) noKey(keys []TrustedKey, name string) error {
	if len(keys) == 0 {
		return p.trustHint(errs.Newf(errs.Denied, "signed, but no public key is trusted for %s", name), name)
	}
	var tried []string
	for _, k := range keys {
		tried = append(tried, k.Fingerprint+" ("+k.Path+")")
	}
	return p.trustHint(errs.Newf(errs.Denied, "signed by none of the keys that are trusted for %s: %s", name, strings.Join(tried, ", ")), name)
}

// plain asks which of the keys made the signature, if any did.
func (p Policy) plain(ctx context.Context, c claim, manifest []byte, keys []TrustedKey) (key TrustedKey, found bool, err error) {
	if len(keys) == 0 {
		return key, false, nil
	}
	var ring [][]byte
	for _, k := range keys {
		ring = append(ring, k.data)
	}
	message := c.message
	if message == nil {
		message = manifest
	}
	answer, err := p.ask(ctx, sigwire.Request{Plain: &sigwire.Plain{Keyring: ring, Message: message, Signature: c.signature}})
	if err != nil || answer.Refused != nil {
		return key, false, err
	}
	if answer.By < 0 || answer.By >= len(keys) {
		return key, false, errs.Newf(errs.Internal, "%s: answers with a key that it was not given", Program)
	}
	if key = keys[answer.By]; key.Fingerprint != answer.Of {
		return key, false, misnamed(key, answer.Of)
	}
	return key, true, nil
}

// binds says whether the signature is of one of the image's manifests, and of
// the name that was asked for. It returns which manifest.
func (c claim) binds(o OCI, manifest []byte) (string, error) {
	if c.message == nil {
		return digest.Of(digest.SHA256, manifest).String(), nil
	}
	var have []string
	bound := ""
	for _, m := range o.Manifests {
		for _, alg := range []digest.Alg{digest.SHA256, digest.SHA512} {
			d := digest.Of(alg, m)
			for _, want := range c.digests {
				if want == d.OCI() {
					bound = d.String()
				}
			}
		}
		have = append(have, digest.Of(digest.SHA256, m).OCI())
	}
	if bound == "" {
		err := errs.Newf(errs.Denied, "is for another image: for %s, while this one is %s", strings.Join(c.digests, ", "), strings.Join(have, " and "))
		return "", errs.WithHint(err, "the publisher has to sign what stands under this reference now")
	}
	if err := sameName(c.name, o); err != nil {
		return "", err
	}
	return bound, nil
}

// sameName is the rule by which a signature fits a reference: the repository
// must be the same, written out in full; a tag counts if both have one and the
// reference pins no digest. A signature without a name is bound by the digest
// and by the prefix that its key is trusted for.
func sameName(signed string, o OCI) error {
	if signed == "" {
		return nil
	}
	name, _, _ := strings.Cut(signed, "@")
	tag := ""
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		name, tag = name[:colon], name[colon+1:]
	}
	if ref.FullName(name) != ref.FullName(o.Name) {
		err := errs.Newf(errs.Denied, "is for another name: for %q, not for %s", signed, o.Name)
		return errs.WithHint(err, "fetch the image by the name that it was signed for; mirrors are configured in registries.d")
	}
	if tag != "" && o.Tag != "" && !o.Pinned && tag != o.Tag {
		return errs.Newf(errs.Denied, "is for another name: for the tag %q, not for %q", tag, o.Tag)
	}
	return nil
}
