package fetch

import (
	"fmt"
	"strings"

	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
	"github.com/rkt-pods/rkt/stage0/oci"
	"github.com/rkt-pods/rkt/stage0/trust"
)

// maxSignatures bounds how many are looked at: whoever may write to a repository
// can put any number there.
const maxSignatures = 32

// signatures looks for those of the manifests in both places where they are
// published, as a tag and as referrers. That there are none is for the policy to
// judge; that it can't be found out, too.
func (p *repository) signatures(ask *trust.OCI, manifests ...oci.Descriptor) {
	at := p.at.Registry + "/" + p.at.Name
	var looked []string
	for i, desc := range manifests {
		if i > 0 && desc.Digest == manifests[0].Digest {
			continue
		}
		d, err := digest.ParseOCI(desc.Digest)
		if err != nil {
			continue // it was parsed before
		}
		looked = append(looked, at+":"+trust.SignatureTag(d), "the referrers of "+desc.Digest)
		for _, look := range []func(digest.Digest) ([]trust.Signature, error){p.tagged, p.referring} {
			found, err := look(d)
			if err != nil && ask.LookErr == nil {
				ask.LookErr = err
			}
			ask.Signatures = append(ask.Signatures, found...)
		}
	}
	ask.Signatures = ask.Signatures[:min(len(ask.Signatures), maxSignatures)]
	ask.Looked = strings.Join(looked, " and ")
}

// tagged are the signatures under the tag that is made of the digest.
func (p *repository) tagged(d digest.Digest) ([]trust.Signature, error) {
	tag := trust.SignatureTag(d)
	_, raw, err := p.client.Manifest(p.ctx, fetchwire.ManifestRequest{Repository: p.at, Reference: tag})
	if errs.Is(err, errs.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return p.inside(tag, raw)
}

// referring are the bundles whose subject is the digest.
func (p *repository) referring(d digest.Digest) ([]trust.Signature, error) {
	raw, err := p.client.Referrers(p.ctx, fetchwire.ReferrersRequest{Repository: p.at, Digest: d.OCI()})
	if errs.Is(err, errs.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var index oci.Index
	if err := oci.Parse(raw, &index); err != nil {
		return nil, fmt.Errorf("referrers of %s: %w", d.OCI(), err)
	}
	var all []trust.Signature
	for _, m := range index.Manifests {
		if !trust.IsBundle(m.ArtifactType) || len(all) >= maxSignatures {
			continue
		}
		_, raw, err := p.client.Manifest(p.ctx, fetchwire.ManifestRequest{Repository: p.at, Reference: m.Digest})
		if err != nil {
			return all, err
		}
		found, err := p.inside(m.Digest, raw)
		if err != nil {
			return all, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// inside reads the signatures that an artifact's manifest lists. One that is no
// signature is none; the verifier says what is wrong with the others.
func (p *repository) inside(where string, raw []byte) ([]trust.Signature, error) {
	var m oci.Manifest
	if err := oci.Parse(raw, &m); err != nil {
		return nil, fmt.Errorf("signatures at %s: %w", where, err)
	}
	var all []trust.Signature
	for _, desc := range m.Layers {
		if desc.Size > trust.MaxSignature || len(all) >= maxSignatures {
			continue
		}
		payload, err := whole(p.open(p.ctx, desc))
		if err != nil {
			return all, fmt.Errorf("signatures at %s: %w", where, err)
		}
		all = append(all, trust.Signature{
			From: p.at.Registry + "/" + p.at.Name + " at " + where, MediaType: desc.MediaType, Payload: payload, Annotations: desc.Annotations,
		})
	}
	return all, nil
}
