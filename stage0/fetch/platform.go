package fetch

import (
	"runtime"
	"strings"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/stage0/oci"
)

// Platform is what images are wanted for, in Go's and OCI's words. The zero
// Platform is this host.
type Platform oci.Platform

// ParsePlatform reads OS/ARCH[/VARIANT].
func ParsePlatform(s string) (Platform, error) {
	parts := strings.Split(s, "/")
	if len(parts) < 2 || len(parts) > 3 || strings.Contains("/"+s+"/", "//") {
		return Platform{}, errs.WithHint(errs.Newf(errs.Usage, "%q: not OS/ARCH[/VARIANT]", s), "for example linux/arm64")
	}
	p := Platform{OS: parts[0], Architecture: parts[1]}
	if len(parts) == 3 {
		p.Variant = parts[2]
	}
	return p, nil
}

// String writes what ParsePlatform reads.
func (p Platform) String() string {
	s := p.OS + "/" + p.Architecture
	if p.Variant != "" {
		s += "/" + p.Variant
	}
	return s
}

func (p Platform) filled() Platform {
	if p == (Platform{}) {
		return Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}
	}
	return p
}

// fit is how well an image suits a platform.
type fit int

const (
	fitsNot fit = iota
	fitsMaybe
	fitsWell
)

// fits says whether an index's entry is for the platform. Of several variants
// of the architecture the plain one is taken where none is asked for.
func (p Platform) fits(have oci.Platform) fit {
	same := p.OS == have.OS && image.ArchFromGo(p.Architecture, p.Variant) == image.ArchFromGo(have.Architecture, have.Variant)
	switch {
	case !same && (p.OS != have.OS || p.Architecture != have.Architecture || p.Variant != ""):
		return fitsNot
	case p.Variant == have.Variant || p.Variant == "" && plainVariant[have.Architecture] == have.Variant:
		return fitsWell
	case p.Variant == "" || have.Variant == "":
		return fitsMaybe
	}
	return fitsNot
}

// plainVariant are the variants that mean the same as none.
var plainVariant = map[string]string{"amd64": "v1", "arm64": "v8", "arm": "v7"}

// check compares an image's labels with the platform.
func (p Platform) check(labels appc.Labels) error {
	if p == (Platform{}) {
		return image.CheckHost(labels)
	}
	want := appc.Labels{{Name: "os", Value: p.OS}, {Name: "arch", Value: image.ArchFromGo(p.Architecture, p.Variant)}}
	for _, l := range want {
		if have, ok := labels.Get(l.Name); ok && have != l.Value {
			return errs.Newf(errs.Unsupported, "image is for %s %s, not for %s", l.Name, have, p)
		}
	}
	return nil
}
