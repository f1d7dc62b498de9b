package fetch

import "github.com/rkt-pods/rkt/pkg/digest"

// The JSON files of an OCI image layout, as far as an import reads them. The
// module of the specification has the same types, but none of their checks.

const (
	layoutFile = "oci-layout"
	indexFile  = "index.json"

	ociManifest    = "application/vnd.oci.image.manifest.v1+json"
	ociIndex       = "application/vnd.oci.image.index.v1+json"
	dockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	dockerList     = "application/vnd.docker.distribution.manifest.list.v2+json"

	annRefName  = "org.opencontainers.image.ref.name"
	annFullName = "io.containerd.image.name" // in a layout, where ref.name is the tag only
)

type layoutVersion struct {
	Version string `json:"imageLayoutVersion"`
}

type index struct {
	Manifests []descriptor `json:"manifests"`
}

type manifest struct {
	Config descriptor   `json:"config"`
	Layers []descriptor `json:"layers"`
}

type descriptor struct {
	MediaType    string            `json:"mediaType"`
	ArtifactType string            `json:"artifactType"`
	Digest       string            `json:"digest"`
	Size         int64             `json:"size"`
	Annotations  map[string]string `json:"annotations"`
	Platform     *platform         `json:"platform"`
}

type platform struct {
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
	Variant      string `json:"variant"`
}

// alg is the algorithm of a digest that was parsed before.
func (d descriptor) alg() digest.Alg {
	parsed, err := digest.Parse(d.Digest)
	if err != nil {
		return digest.SHA256
	}
	return parsed.Alg
}
