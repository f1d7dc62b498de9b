package ref

import (
	"strings"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/digest"
)

// Registry is where in a registry an image is.
type Registry struct {
	Host       string // with its port; docker.io for Docker's own
	Repository string
	Tag        string // DefaultTag if neither a tag nor a digest is given
	Digest     string // "" if none is given; it counts, and not the tag
}

// Docker's own registry, and where in there the images are that have no
// owner's name.
const (
	DockerHost  = "docker.io"
	DockerOwner = "library"
)

// DefaultTag is meant where neither a tag nor a digest is given.
const DefaultTag = "latest"

// maxRepository is how long registries let the name of a repository be.
const maxRepository = 255

var (
	hostPattern       = pattern(`^([a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?$`)
	repositoryPattern = pattern(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)
	tagPattern        = pattern(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
)

// parseRegistry reads NAME[:TAG][@DIGEST].
func parseRegistry(r Ref, s string) (Ref, error) {
	if s == "" {
		return r, invalid(r.Text, "no image after the scheme")
	}
	r.Kind, r.URL = OCI, "docker://"+s
	name, sum, hasDigest := strings.Cut(s, "@")
	if hasDigest {
		d, err := digest.ParseOCI(sum)
		if err != nil {
			return r, invalid(r.Text, err.Error())
		}
		r.Digest = d.OCI()
	}
	slash, colon := strings.LastIndexByte(name, '/'), strings.LastIndexByte(name, ':')
	if colon > slash {
		if name, r.Tag = name[:colon], name[colon+1:]; !tagPattern().MatchString(r.Tag) {
			return r, invalid(r.Text, "a tag has letters, digits, \"_\", \".\" and \"-\", 128 at most")
		}
	}
	r.Host, r.Repository, _ = strings.Cut(FullName(name), "/")
	switch {
	case !hostPattern().MatchString(r.Host):
		return r, invalid(r.Text, "no host's name before the first slash")
	case !repositoryPattern().MatchString(r.Repository):
		return r, invalid(r.Text, "a repository's name has lower-case letters and digits, with single \".\", \"_\", \"-\" and \"/\" in between")
	case len(r.Repository) > maxRepository:
		return r, invalid(r.Text, "the repository's name is too long")
	}
	if r.Tag == "" && r.Digest == "" {
		r.Tag = DefaultTag
	}
	r.Name = r.Host + "/" + r.Repository
	if r.Tag != "" && r.Digest == "" {
		r.Labels = appc.Labels{{Name: "version", Value: r.Tag}}
	}
	return r, nil
}

// FullName writes out what users of Docker leave off: a first element that has
// neither a dot nor a colon and is not localhost is no host, so that the name is
// one of docker.io; and a name of one element is in library there. Nothing else
// is ever tried.
func FullName(name string) string {
	first, rest, nested := strings.Cut(name, "/")
	switch {
	case !nested:
		return DockerHost + "/" + DockerOwner + "/" + name
	case first == "index."+DockerHost || first == "registry-1."+DockerHost:
		return FullName(DockerHost + "/" + rest)
	case first == DockerHost && !strings.Contains(rest, "/"):
		return DockerHost + "/" + DockerOwner + "/" + rest
	case !strings.ContainsAny(first, ".:") && first != "localhost":
		return DockerHost + "/" + name
	}
	return name
}

// Full is the reference in full, as the store keeps it: with the digest if there
// is one, else with the tag.
func (r Registry) Full() string {
	if r.Digest != "" {
		return r.Host + "/" + r.Repository + "@" + r.Digest
	}
	return r.Host + "/" + r.Repository + ":" + r.Tag
}

// Which is what a registry is asked for: the digest, else the tag.
func (r Registry) Which() string {
	if r.Digest != "" {
		return r.Digest
	}
	return r.Tag
}
