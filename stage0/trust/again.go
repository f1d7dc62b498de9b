package trust

import (
	"context"
	"encoding/hex"
	"strings"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/ref"
	"github.com/rkt-pods/rkt/stage0/trust/sigwire"
)

// Again repeats the check of an image that is in the store, by the keys and the
// rules of today, from what is kept of it: the signatures, the manifests, and of
// an ACI the hash that its signature is of, since its published form is not kept.
// blob reads a blob of the store.
func (p Policy) Again(ctx context.Context, rec image.Record, blob func(name string) ([]byte, error)) (image.Trust, error) {
	name := rec.Trust.Identity
	pinned := rec.Trust.Method == image.ByDigest
	if rec.Kind == image.ACI {
		if name == "" {
			name = rec.Name
		}
		t, err := p.aciAgain(ctx, rec, name, blob)
		return p.settle(name, pinned, t, err)
	}
	if name == "" {
		name = ref.FullName(rec.Name)
	}
	o := OCI{Name: name, Pinned: pinned, Looked: "the store"}
	if p.AllowUnsigned {
		return p.OCI(ctx, o)
	}
	for _, full := range rec.Names {
		o.Pinned = o.Pinned || strings.Contains(full, "@")
	}
	o.Tag, _ = rec.Labels.Get("version")
	for _, b := range []string{rec.Index, rec.Manifest} {
		if b == "" {
			continue
		}
		data, err := blob(b)
		if err != nil {
			return image.Trust{}, err
		}
		o.Manifests = append(o.Manifests, data)
	}
	for _, b := range rec.Signatures {
		data, err := blob(b)
		if err != nil {
			return image.Trust{}, err
		}
		s, err := ParseBlob(data)
		if err != nil {
			return image.Trust{}, err
		}
		o.Signatures = append(o.Signatures, s)
	}
	return p.OCI(ctx, o)
}

func (p Policy) aciAgain(ctx context.Context, rec image.Record, name string, blob func(name string) ([]byte, error)) (image.Trust, error) {
	if p.AllowUnsigned {
		return image.Trust{}, nil
	}
	if len(rec.Signatures) == 0 {
		return image.Trust{}, p.unsigned("image "+rec.Name, name, "the store", nil)
	}
	alg, sum, err := parseSigned(rec.Trust.Signed)
	if err != nil {
		return image.Trust{}, err
	}
	var no refusals
	for _, b := range rec.Signatures {
		data, err := blob(b)
		if err != nil {
			return image.Trust{}, err
		}
		v := &Verifier{ctx: ctx, policy: p, aci: ACI{Source: rec.Name, Name: name, Signature: data}}
		if err := v.inspect(); err != nil {
			return image.Trust{}, err
		}
		no.add(rankForm, v.none)
		for _, c := range v.hashes {
			if hashName(c.Hash) != alg {
				continue
			}
			t, rank, err := p.openpgp(ctx, data, c, sum, name)
			if err == nil {
				t.Signed = rec.Trust.Signed
				return t, nil
			}
			if rank == 0 {
				return t, err
			}
			no.add(rank, v.bad(err))
		}
	}
	if no.err == nil {
		no.err = refused("kept signature", &sigwire.Refusal{Reason: sigwire.Mismatch})
	}
	return image.Trust{}, no.err
}

func parseSigned(s string) (alg string, sum []byte, err error) {
	alg, text, _ := strings.Cut(s, "-")
	if sum, err = hex.DecodeString(text); err != nil || len(sum) == 0 {
		return "", nil, errs.Newf(errs.Corrupt, "record: what was signed is not known: %q", s)
	}
	return alg, sum, nil
}
