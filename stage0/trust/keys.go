package trust

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rkt-pods/rkt/pkg/userfile"
)

// The folders of trusted keys, below trustedkeys in a configuration folder.
const (
	keysFolder   = "trustedkeys"
	rootFolder   = "root.d"
	prefixFolder = "prefix.d"
)

// pemSuffix ends the names of files with a PEM public key; OpenPGP keys have
// none.
const pemSuffix = ".pub"

// TrustedKey is a file with a public key that the operator trusts.
type TrustedKey struct {
	Path        string `json:"path"`
	Prefix      string `json:"prefix"` // of the image names that it is trusted for; "": all
	Fingerprint string `json:"fingerprint"`
	PEM         bool   `json:"-"` // else OpenPGP
	data        []byte
}

// trustedFor says whether the key counts for images of that name.
func (k TrustedKey) trustedFor(name string) bool { return k.Prefix == "" || hasPrefix(name, k.Prefix) }

// hasPrefix says whether prefix is name or a beginning of it that ends before a
// slash: example.com is no prefix of example.com.evil.org.
func hasPrefix(name, prefix string) bool {
	rest, ok := strings.CutPrefix(name, prefix)
	return ok && (rest == "" || rest[0] == '/')
}

// readKeys reads the trusted keys of both places. An empty file of the same
// name in the local place takes the system's key away.
func readKeys(system, local string) ([]TrustedKey, error) {
	var keys []TrustedKey
	type place struct{ prefix, name string }
	seen := map[place]bool{}
	for _, dir := range []string{local, system} {
		if dir == "" {
			continue
		}
		base := filepath.Join(dir, keysFolder)
		for _, sub := range []string{rootFolder, prefixFolder} {
			found, err := readKeyFolder(base, sub)
			if err != nil {
				return nil, fmt.Errorf("trusted keys: %w", err)
			}
			for _, k := range found {
				at := place{k.Prefix, filepath.Base(k.Path)}
				if !seen[at] && len(k.data) > 0 {
					keys = append(keys, k)
				}
				seen[at] = true
			}
		}
	}
	return keys, nil
}

func readKeyFolder(base, sub string) ([]TrustedKey, error) {
	var keys []TrustedKey
	// A link is followed where it is the folder itself: below, only files may be
	// links.
	root, err := filepath.EvalSymlinks(filepath.Join(base, sub))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // removed meanwhile, or never there
		case err != nil:
			return err
		case d.IsDir() && sub == rootFolder && path != root:
			return fs.SkipDir
		case d.IsDir(), !isKeyFile(d.Name()):
			return nil
		}
		k := TrustedKey{Path: path}
		k.Fingerprint, k.PEM = strings.CutSuffix(d.Name(), pemSuffix)
		if sub == prefixFolder {
			if k.Prefix, err = filepath.Rel(root, filepath.Dir(path)); err != nil || k.Prefix == "." {
				return err // beside the folders of prefixes: of none
			}
		}
		if k.data, err = userfile.ReadRegular(path, userfile.MaxText); err != nil {
			return err
		}
		keys = append(keys, k)
		return nil
	})
	return keys, err
}

// isKeyFile says whether the name is a fingerprint, with or without the suffix.
// Editors and package managers leave other files beside.
func isKeyFile(name string) bool {
	hex := strings.TrimSuffix(name, pemSuffix)
	return (len(hex) == 40 || len(hex) == 64) && strings.Trim(hex, "0123456789abcdef") == ""
}

// choose returns some of the keys, and their data.
func (p Policy) choose(ok func(TrustedKey) bool) (keys []TrustedKey, data [][]byte) {
	for _, k := range p.keys {
		if ok(k) {
			keys, data = append(keys, k), append(data, k.data)
		}
	}
	return keys, data
}

// HasKeyFor says whether an OpenPGP key is trusted for images of that name.
func (p Policy) HasKeyFor(name string) bool {
	return slices.ContainsFunc(p.keys, func(k TrustedKey) bool { return !k.PEM && k.trustedFor(name) })
}

// Keys lists the trusted keys, root keys first.
func (p Policy) Keys() []TrustedKey {
	keys := slices.Clone(p.keys)
	slices.SortStableFunc(keys, func(a, b TrustedKey) int { return strings.Compare(a.Prefix, b.Prefix) })
	return keys
}
