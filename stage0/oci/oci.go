// Package oci has the JSON files of an OCI image layout, as far as imports read
// and exports write them. The module of the specification has the same types,
// but none of the checks that its reader needs.
package oci

import "github.com/rkt-pods/rkt/pkg/digest"

// The files of a layout, and of what docker save writes.
const (
	LayoutFile = "oci-layout"
	IndexFile  = "index.json"
	DockerFile = "manifest.json"
)

// Media types.
const (
	MediaManifest       = "application/vnd.oci.image.manifest.v1+json"
	MediaIndex          = "application/vnd.oci.image.index.v1+json"
	MediaConfig         = "application/vnd.oci.image.config.v1+json"
	MediaDockerConfig   = "application/vnd.docker.container.image.v1+json"
	MediaLayer          = "application/vnd.oci.image.layer.v1.tar"
	MediaEmpty          = "application/vnd.oci.empty.v1+json"
	MediaDockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	MediaDockerList     = "application/vnd.docker.distribution.manifest.list.v2+json"
)

// Artifacts that an export carries along, with the image as their subject, and
// the media types of what is in them. The original manifest is not announced as
// one, since tools would look for the layers it names.
const (
	ArtifactOriginal   = "application/vnd.rkt.image.original.v1"
	ArtifactSignatures = "application/vnd.rkt.image.signatures.v1"
	MediaOriginal      = "application/vnd.rkt.image.original.manifest.v1"
	MediaSignature     = "application/vnd.rkt.image.signature.v1"
)

// Annotations with the names of an image.
const (
	AnnRefName  = "org.opencontainers.image.ref.name"
	AnnFullName = "io.containerd.image.name" // in a layout, where ref.name is the tag only
)

// AnnOriginal names the original manifest in the one that an export made.
const AnnOriginal = "vnd.rkt.image.original"

// Layout is the file oci-layout.
type Layout struct {
	Version string `json:"imageLayoutVersion"`
}

// Index is index.json, and what an image for several platforms is.
type Index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType,omitempty"`
	Manifests     []Descriptor `json:"manifests"`
}

// Manifest is an image's, or an artifact's.
type Manifest struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType,omitempty"`
	ArtifactType  string            `json:"artifactType,omitempty"`
	Config        Descriptor        `json:"config"`
	Layers        []Descriptor      `json:"layers"`
	Subject       *Descriptor       `json:"subject,omitempty"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

// Descriptor names a blob.
type Descriptor struct {
	MediaType    string            `json:"mediaType"`
	ArtifactType string            `json:"artifactType,omitempty"`
	Digest       string            `json:"digest"`
	Size         int64             `json:"size"`
	Annotations  map[string]string `json:"annotations,omitempty"`
	Platform     *Platform         `json:"platform,omitempty"`
}

// Platform is what an image of an index is for.
type Platform struct {
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
	Variant      string `json:"variant,omitempty"`
}

// Saved is one image of manifest.json, which docker save writes.
type Saved struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// Alg is the algorithm of a digest that was parsed before.
func (d Descriptor) Alg() digest.Alg {
	parsed, err := digest.Parse(d.Digest)
	if err != nil {
		return digest.SHA256
	}
	return parsed.Alg
}

// BlobName is where a layout has a blob.
func BlobName(d digest.Digest) string { return "blobs/" + string(d.Alg) + "/" + d.Hex }
