// Package image has the image manifest of the appc specification, what an OCI
// image becomes in its terms, and the record that the store keeps of an image.
package image

import (
	"time"

	"github.com/rkt-pods/rkt/pkg/appc"
)

// Kind is the format that an image came in.
type Kind string

// The formats.
const (
	ACI Kind = "aci"
	OCI Kind = "oci"
)

// Record is store/images/<id>.json: one verified image of the store.
type Record struct {
	Version    int         `json:"version"`
	Store      string      `json:"-"`  // folder of the frozen store that has it, "" for the host's own
	ID         string      `json:"id"` // sha512-<128 hex>
	Kind       Kind        `json:"kind"`
	Name       string      `json:"name"`
	Names      []string    `json:"names,omitempty"` // references that were given for it
	Labels     appc.Labels `json:"labels,omitempty"`
	Manifest   string      `json:"manifest"`         // blob of the manifest as it came, "<alg>-<hex>"; "" for docker-archive
	Index      string      `json:"index,omitempty"`  // blob of the OCI index that led to the manifest: a signature may be of it
	Config     string      `json:"config,omitempty"` // blob of the OCI config
	Layers     []string    `json:"layers"`           // keys, the lowest first, as overlay stacks them: dependencies, fix-up and derived layers included
	Own        []string    `json:"own"`              // keys of the layers that the image's own tars make, in the image's order
	Signatures []string    `json:"signatures,omitempty"`
	Trust      Trust       `json:"trust"`
	ImportedAt time.Time   `json:"importedAt"`
	Size       int64       `json:"size"` // bytes of the image's layers, unpacked
	Depends    []string    `json:"depends,omitempty"`
	Kept       *Kept       `json:"kept,omitempty"`
	Sources    []Source    `json:"sources,omitempty"` // where it was fetched from, the newest first
}

// Source is a place on the network that gave the image, and what is needed to
// ask there whether it still would.
type Source struct {
	Ref       string    `json:"ref"`              // one of the record's names, or the name that was discovered
	Digest    string    `json:"digest,omitempty"` // of what a registry has under the reference: the manifest, or the index that led to it
	URL       string    `json:"url,omitempty"`    // of an ACI
	ETag      string    `json:"etag,omitempty"`
	MaxAge    int64     `json:"maxAge,omitempty"` // seconds during which nobody need ask
	FetchedAt time.Time `json:"fetchedAt"`        // or last found to be the same
}

// Fresh says whether the source's answer still holds without asking.
func (s Source) Fresh(now time.Time) bool {
	return now.Before(s.FetchedAt.Add(time.Duration(s.MaxAge) * time.Second))
}

// Source returns what is known of a place.
func (r *Record) Source(ref string) (Source, bool) {
	for _, s := range r.Sources {
		if s.Ref == ref {
			return s, true
		}
	}
	return Source{}, false
}

// Kept is what of an OCI layout is kept as it came, so that its export is the
// same byte by byte. All are names of blobs.
type Kept struct {
	Blobs  []string `json:"blobs"`           // the layers' blobs, packed or not, in the manifest's order
	Layout string   `json:"layout"`          // the file oci-layout
	Index  string   `json:"index,omitempty"` // the file index.json, if it lists this image only
}

// Method is how an image came to be accepted.
type Method string

// The methods.
const (
	ByOpenPGP Method = "openpgp" // a detached OpenPGP signature of the published file
	ByCosign  Method = "cosign"  // a signature of the manifest by a plain public key
	ByDigest  Method = "digest"  // the reference pins the content, and the policy is content with that
	ByPolicy  Method = "policy"  // the policy demands nothing of the name
	ByOption  Method = "option"  // --insecure-options=image
)

// Trust says why the image was accepted, and who vouched for it.
type Trust struct {
	Verified bool       `json:"verified"`
	By       string     `json:"by"` // in words: "key <fingerprint>", or what it was that skipped the check
	Method   Method     `json:"method,omitempty"`
	Key      string     `json:"key,omitempty"`      // fingerprint, of an OpenPGP key or of a PEM file's public key
	Signer   string     `json:"signer,omitempty"`   // user id in the key
	Identity string     `json:"identity,omitempty"` // the name that the signature was accepted for
	Prefix   string     `json:"prefix,omitempty"`   // that the key is trusted for; "" is a root key's
	Rule     string     `json:"rule,omitempty"`     // prefix of the policy's rule, if there is one
	Signed   string     `json:"signed,omitempty"`   // "<alg>-<hex>": cosign: the manifest's; openpgp: the hash that the signature is of
	SignedAt *time.Time `json:"signedAt,omitempty"` // as the signature says
	At       *time.Time `json:"at,omitempty"`       // when it was checked
}
