// Package trust decides whether an image may get into the store. What is
// demanded of an image depends on its name: a signature by a key that is
// trusted for that name, a reference that pins the content, or nothing. It is
// asked before anything of the image gets a name.
//
// Names and policies are judged here. The formats and the mathematics of
// signatures are rkt-verify's, a program without rights, so that a command that
// verifies nothing does not carry them along.
package trust

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/stage0/config"
)

// Policy is what the operator demands of images, and the keys that are trusted.
// The zero Policy demands a signature and trusts no key.
type Policy struct {
	// AllowUnsigned skips the check: --insecure-options=image.
	AllowUnsigned bool

	rules         map[string]config.Trust
	keys          []TrustedKey
	system, local string
	program       string
	now           func() time.Time // nil: time.Now
}

// Options say where the policy is.
type Options struct {
	System, Local string                  // configuration folders with trustedkeys
	Rules         map[string]config.Trust // as package config reads them
	Program       string                  // rkt-verify; "": beside this program, or in libexec
	AllowUnsigned bool
}

// Load reads the trusted keys. With AllowUnsigned it reads nothing.
func Load(o Options) (Policy, error) {
	p := Policy{AllowUnsigned: o.AllowUnsigned, rules: o.Rules, system: o.System, local: o.Local, program: o.Program}
	if o.AllowUnsigned {
		return p, nil
	}
	keys, err := readKeys(o.System, o.Local)
	p.keys = keys
	return p, err
}

// Requirement is what the policy demands of images of one name.
type Requirement struct {
	Require string   `json:"require"`          // one of config's words
	Rule    string   `json:"rule,omitempty"`   // prefix of the rule that says so; "": no rule, and the default holds
	Keys    []string `json:"keys,omitempty"`   // fingerprints of the only keys that count
	Option  bool     `json:"option,omitempty"` // --insecure-options=image says so
}

// For returns what is demanded of images of that name. The rule with the longest
// prefix counts; without one a signature by a key that is trusted for the name.
func (p Policy) For(name string) Requirement {
	if p.AllowUnsigned {
		return Requirement{Require: config.RequireInsecure, Option: true}
	}
	best, found := "", false
	for prefix := range p.rules {
		if prefix != config.AnyName && hasPrefix(name, prefix) && len(prefix) > len(best) {
			best, found = prefix, true
		}
	}
	if !found {
		best = config.AnyName
	}
	if rule, ok := p.rules[best]; ok {
		return Requirement{Require: rule.Require, Rule: best, Keys: rule.Keys}
	}
	return Requirement{Require: config.RequireSigned}
}

// NeedsSignature says whether an image of the name can't get in without a
// signature: then one is worth looking for, and its absence is an error before
// the image is fetched. pinned says that the reference names the content.
func (p Policy) NeedsSignature(name string, pinned bool) bool {
	switch p.For(name).Require {
	case config.RequireInsecure:
		return false
	case config.RequireDigest:
		return !pinned
	}
	return true
}

// settle turns what the signatures gave, an identity or an error, into a
// decision.
func (p Policy) settle(name string, pinned bool, t image.Trust, err error) (image.Trust, error) {
	at := p.time().UTC().Round(0)
	req := p.For(name)
	switch {
	case req.Option:
		return image.Trust{By: "insecure-options=image", Method: image.ByOption, At: &at}, nil
	case req.Require == config.RequireDigest && !pinned:
		return t, errs.WithHint(errs.Newf(errs.Denied, "%s: the trust rule for %q allows only references that pin a digest", name, req.Rule),
			"give the image as NAME@sha256:…, or change the rule in trust.d")
	case err == nil:
		t.Verified, t.Identity, t.Rule, t.At = true, name, req.Rule, &at
		t.By = "key " + t.Key
		return t, nil
	case req.Require == config.RequireInsecure:
		return image.Trust{By: fmt.Sprintf("policy %s: insecure", req.Rule), Method: image.ByPolicy, Identity: name, Rule: req.Rule, At: &at}, nil
	case req.Require == config.RequireDigest:
		return image.Trust{By: fmt.Sprintf("policy %s: digest", req.Rule), Method: image.ByDigest, Identity: name, Rule: req.Rule, At: &at}, nil
	}
	return t, err
}

func (p Policy) time() time.Time {
	if p.now != nil {
		return p.now()
	}
	return time.Now()
}

// allows says whether a key counts for images of that name.
func (p Policy) allows(k TrustedKey, name string) error {
	if !k.trustedFor(name) {
		return errs.WithHint(
			errs.Newf(errs.Denied, "signed by key %s, which is trusted for names below %s (%s) and not for %s", k.Fingerprint, k.Prefix, k.Path, name),
			"\"rkt trust --prefix=%s KEYFILE\" trusts it for this name too", name)
	}
	req := p.For(name)
	if len(req.Keys) == 0 {
		return nil
	}
	for _, f := range req.Keys {
		if f == k.Fingerprint {
			return nil
		}
	}
	return errs.WithHint(
		errs.Newf(errs.Denied, "signed by key %s (%s), which the trust rule for %q does not list", k.Fingerprint, k.Path, req.Rule),
		"the rule's field keys, in trust.d, names the only keys that count")
}

// trustHint is the hint where no trusted key fits.
func (p Policy) trustHint(err error, name string) error {
	var dirs []string
	for _, dir := range []string{p.local, p.system} {
		if dir != "" {
			dirs = append(dirs, filepath.Join(dir, keysFolder))
		}
	}
	looked := strings.Join(dirs, " and ")
	if looked == "" {
		looked = "no folder"
	}
	return errs.WithHint(errs.WithHint(err, "keys were looked for in %s", looked),
		"\"rkt trust --prefix=%s KEYFILE\" trusts a key, once its fingerprint is known to be right", orPrefix(name))
}

func orPrefix(name string) string {
	if name == "" {
		return "PREFIX"
	}
	return name
}

// unsigned is the error where there is no signature: because there is none
// where it would be, or because that could not be found out.
func (p Policy) unsigned(what, name, looked string, cause error) error {
	if cause != nil {
		return errs.WithHint(errs.Newf(errs.Unavailable, "%s: its signature can't be had from %s: %w", what, looked, cause),
			"an image is refused as long as nobody can say who made it; try again later")
	}
	err := errs.Newf(errs.Denied, "%s: not signed", what)
	if looked != "" {
		err = errs.Newf(errs.Denied, "%s: not signed: no signature at %s", what, looked)
	}
	err = errs.WithHint(err, "--insecure-options=image accepts unsigned images")
	return errs.WithHint(err, "a rule in trust.d allows unsigned images of %s for good", orPrefix(name))
}

// refusals collects why each of several signatures does not count, and keeps the
// one that got farthest: it says best what is wrong.
type refusals struct {
	err  error
	rank int
}

// The ranks, from signatures that nothing is known about to one that is good but
// for one thing.
const (
	rankForm = iota + 1
	rankUnknown
	rankBroken
	rankKey
	rankPrefix
	rankOther
)

func (r *refusals) add(rank int, err error) {
	if err != nil && rank > r.rank {
		r.rank, r.err = rank, err
	}
}

// Candidate is an image that asks to get in with no more than its file.
type Candidate struct {
	Path string // for messages
	Kind image.Kind
}

// Verify decides on a file without a name and a signature.
func (p Policy) Verify(c Candidate) (image.Trust, error) {
	return p.settle("", false, image.Trust{}, p.unsigned("image "+c.Path, "", "", nil))
}
