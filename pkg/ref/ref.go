// Package ref reads the arguments that name an image: an id, a file, a name
// of the store, a registry's reference or a URL, told apart by rules that
// scripts of rkt rely on. It decides by the text and by one question to the
// file system, which the caller answers.
package ref

import (
	"net/url"
	"path"
	"regexp"
	"strings"
	"sync"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
)

// Kind says what sort of place a reference points to.
type Kind string

// The kinds.
const (
	ID   Kind = "id"   // an image id or a prefix of one, or an OCI digest
	File Kind = "file" // a path of the host
	Name Kind = "name" // a name, version and labels: the store, else discovery
	OCI  Kind = "oci"  // docker://…: a registry
	URL  Kind = "url"  // http(s)://….aci
)

// Ref is a parsed image argument. The fields beside Kind and Text belong to
// the kind.
type Ref struct {
	Kind   Kind
	Text   string // as given
	ID     string
	Path   string // of a File; what follows a colon may be a reference in there
	Form   Form   // of a File: what it has to be
	Name   string // of a Name, without version; of OCI: registry and repository
	Labels appc.Labels
	URL    string
	Registry
}

// Form is what the scheme of a reference says that a file or folder is.
type Form string

// The forms. AnyForm is of a path without a scheme: its content tells.
const (
	AnyForm       Form = ""
	Layout        Form = "oci"
	OCIArchive    Form = "oci-archive"
	DockerArchive Form = "docker-archive"
)

var (
	imageID   = pattern(`^sha512-[0-9a-f]{2,128}$`)
	ociDigest = pattern(`^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$`)
)

// pattern compiles at the first use, as most commands name no image.
func pattern(s string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(s) })
}

// Parse tells what kind of image the argument names. isFile answers whether a
// regular file of that relative name exists.
func Parse(s string, isFile func(string) bool) (Ref, error) {
	r := Ref{Text: s}
	switch {
	case s == "":
		return r, invalid(s, "empty")
	case strings.ContainsRune(s, 0):
		return r, invalid(s, "contains a NUL byte")
	case strings.HasPrefix(s, "sha512-"):
		return parseID(r, s)
	case ociDigest().MatchString(s):
		r.Kind, r.ID = ID, s
		return r, nil
	}
	if scheme, rest, ok := cutScheme(s); ok {
		return parseScheme(r, scheme, rest)
	}
	switch {
	case strings.HasPrefix(s, "/"), isFile(s):
		return file(r, s), nil
	case strings.Contains(s, ":"):
		return parseName(r, s)
	case strings.Contains(s, "./"), strings.HasSuffix(s, ".aci"):
		return file(r, s), nil
	}
	return parseName(r, s)
}

// String is the argument as it was given.
func (r Ref) String() string { return r.Text }

// parseID takes what begins as an id for nothing else: a mistyped id must not
// become a name that is looked up elsewhere.
func parseID(r Ref, s string) (Ref, error) {
	r.Kind, r.ID = ID, s
	if len(s) < len("sha512-")+2 {
		return r, errs.Newf(errs.Usage, "image ID too short: %q", s)
	}
	if !imageID().MatchString(s) {
		return r, invalid(s, "an image ID is sha512- and at most 128 hex digits")
	}
	return r, nil
}

func cutScheme(s string) (scheme, rest string, ok bool) {
	if scheme, rest, ok = strings.Cut(s, "://"); ok && !strings.ContainsAny(scheme, "/:") {
		return scheme, rest, true
	}
	for _, scheme := range []string{"docker", "cimd", string(Layout), string(OCIArchive), string(DockerArchive)} {
		if rest, ok := strings.CutPrefix(s, scheme+":"); ok {
			return scheme, rest, true
		}
	}
	return "", "", false
}

func parseScheme(r Ref, scheme, rest string) (Ref, error) {
	switch scheme {
	case "docker":
		return parseRegistry(r, strings.TrimLeft(rest, "/"))
	case string(Layout), string(OCIArchive), string(DockerArchive):
		if rest == "" {
			return r, invalid(r.Text, "no path after the scheme")
		}
		r.Form = Form(scheme)
		return file(r, rest), nil
	case "file":
		u, err := url.Parse(r.Text)
		if err != nil || u.Host != "" || !path.IsAbs(u.Path) || strings.ContainsRune(u.Path, 0) {
			return r, invalid(r.Text, "a file URL has three slashes and an absolute path")
		}
		return file(r, u.Path), nil
	case "http", "https":
		u, err := url.Parse(r.Text)
		if err != nil || u.Host == "" || !strings.HasSuffix(u.Path, ".aci") {
			return r, errs.WithHint(invalid(r.Text, "a URL must end in .aci"), "docker://NAME names an image of a registry")
		}
		r.Kind, r.URL = URL, r.Text
		return r, nil
	case "cimd":
		return r, errs.Newf(errs.Unsupported, "image %s: not supported yet: cimd references", r.Text)
	}
	return r, invalid(r.Text, "unknown scheme "+scheme)
}

func file(r Ref, p string) Ref {
	r.Kind, r.Path = File, p
	return r
}

// parseName reads NAME[:VERSION][,LABEL=VALUE]….
func parseName(r Ref, s string) (Ref, error) {
	parts := strings.Split(s, ",")
	r.Kind = Name
	r.Name, r.Labels = split(parts[0])
	// A registry's port is the one colon that may stand in the name itself.
	if err := appc.CheckIdentifier(strings.Replace(r.Name, ":", "-", 1)); err != nil {
		return r, errs.WithHint(invalid(s, err.Error()), "a file in the current folder is given as ./NAME")
	}
	for _, p := range parts[1:] {
		k, v, ok := strings.Cut(p, "=")
		if !ok || v == "" {
			return r, invalid(s, "after the name come LABEL=VALUE")
		}
		r.Labels = append(r.Labels, appc.Label{Name: k, Value: v})
	}
	if err := r.Labels.Validate(); err != nil {
		return r, invalid(s, err.Error())
	}
	return r, nil
}

// split takes the version off: what follows the last colon after the last
// slash.
func split(s string) (string, appc.Labels) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 || i < strings.LastIndexByte(s, '/') || i == len(s)-1 {
		return strings.TrimSuffix(s, ":"), nil
	}
	return s[:i], appc.Labels{{Name: "version", Value: s[i+1:]}}
}

func invalid(s, why string) error {
	return errs.Newf(errs.Usage, "invalid image string %q: %s", s, why)
}
