package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// What a trust rule may require of images.
const (
	RequireSigned   = "signed"   // a signature by a trusted key
	RequireDigest   = "digest"   // a reference that pins the content by its digest
	RequireInsecure = "insecure" // nothing
)

// AnyName is the prefix of a rule for the names that no other rule is for.
const AnyName = "*"

// Trust is what is required of images whose names have a prefix.
type Trust struct {
	Require string   `json:"require"`
	Keys    []string `json:"keys,omitempty"` // fingerprints of the only keys that count; none: all that are trusted for the name
}

// Registry is how a registry is reached.
type Registry struct {
	Mirrors   []string `json:"mirrors,omitempty"`   // HOST[:PORT][/PATH], asked in this order before the registry itself
	PlainHTTP bool     `json:"plainHTTP,omitempty"` // http in place of https
}

// header is in each file, for readers that refuse fields they don't know.
type header struct {
	Kind    string `json:"rktKind"`
	Version string `json:"rktVersion"`
}

// strict reads what must not be misspelt: a key of a trust rule that nobody
// looks at would loosen the rule.
func strict(data []byte, to any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	return dec.Decode(to)
}

func (p *place) trust(data []byte) error {
	var f struct {
		header
		Prefixes []string `json:"prefixes"`
		Trust
	}
	if err := strict(data, &f); err != nil {
		return err
	}
	if len(f.Prefixes) == 0 || slices.Contains(f.Prefixes, "") {
		return fmt.Errorf("prefixes: missing or empty (%q is any name)", AnyName)
	}
	if !slices.Contains([]string{RequireSigned, RequireDigest, RequireInsecure}, f.Require) {
		return errs.Newf(errs.Corrupt, "require: %q: not %s, %s or %s", f.Require, RequireSigned, RequireDigest, RequireInsecure)
	}
	if len(f.Keys) > 0 && f.Require != RequireSigned {
		return fmt.Errorf("keys: only with require %q", RequireSigned)
	}
	for i, k := range f.Keys {
		f.Keys[i] = strings.ToLower(k)
		if len(k) < 40 || strings.Trim(f.Keys[i], "0123456789abcdef") != "" {
			return errs.Newf(errs.Corrupt, "keys: %q: not a whole fingerprint in hexadecimal", k)
		}
	}
	for _, prefix := range f.Prefixes {
		if prefix != AnyName {
			if err := CheckPrefix(prefix); err != nil {
				return fmt.Errorf("prefixes: %w", err)
			}
		}
		if err := p.once("trust", prefix); err != nil {
			return err
		}
		p.Trust[prefix] = f.Trust
	}
	return nil
}

// CheckPrefix says whether image names can begin with prefix: elements between
// slashes, the first of which may have a port. It is safe as a relative path.
func CheckPrefix(prefix string) error {
	if strings.Contains(prefix, "://") {
		return errs.Newf(errs.Usage, "prefix %q: has a scheme; a prefix is the beginning of an image's name", prefix)
	}
	host, _, _ := strings.Cut(prefix, "/")
	for i, element := range strings.Split(prefix, "/") {
		bad := strings.IndexFunc(element, func(c rune) bool {
			return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-._~", c) || i == 0 && strings.ContainsRune(":[]", c))
		})
		if bad >= 0 || strings.Trim(element, ".") == "" || len(element) > 255 {
			return errs.Newf(errs.Usage, "prefix %q: not the beginning of an image's name", prefix)
		}
	}
	if name, port, ok := strings.Cut(host, ":"); ok && host[0] != '[' && (name == "" || port == "" || strings.Trim(port, "0123456789") != "") {
		return errs.Newf(errs.Usage, "prefix %q: what follows the colon is no port", prefix)
	}
	return nil
}

func (p *place) registry(data []byte) error {
	var f struct {
		header
		Names []string `json:"registries"`
		Registry
	}
	if err := strict(data, &f); err != nil {
		return err
	}
	if len(f.Names) == 0 {
		return fmt.Errorf("registries: missing")
	}
	for _, m := range f.Mirrors {
		if err := CheckPrefix(m); err != nil {
			return fmt.Errorf("mirrors: %w", err)
		}
	}
	for _, name := range f.Names {
		if err := CheckPrefix(name); err != nil || strings.Contains(name, "/") {
			return errs.Newf(errs.Corrupt, "registries: %q: not HOST or HOST:PORT", name)
		}
		if err := p.once("registry", name); err != nil {
			return err
		}
		p.Registries[name] = f.Registry
	}
	return nil
}
