package trust

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/stage0/config"
	"github.com/rkt-pods/rkt/stage0/trust/sigwire"
)

// MaxKeys is the size beyond which no file with public keys is read.
const MaxKeys = 1 << 20

// Describe reads the public keys of a file: OpenPGP, armored or not, or one in
// PEM. A key that does not count today is an error: to trust it would be in
// vain.
func (p Policy) Describe(ctx context.Context, data []byte) ([]sigwire.Key, error) {
	answer, err := p.ask(ctx, sigwire.Request{Keys: &sigwire.Keys{Data: data}})
	if err != nil {
		return nil, err
	}
	if answer.Refused != nil {
		return nil, refused("public key", answer.Refused)
	}
	for _, k := range answer.Keys {
		if !isKeyFile(k.Fingerprint) {
			return nil, errs.Newf(errs.Internal, "%s: answers with a fingerprint that is none", Program)
		}
		if k.Refused != nil {
			return nil, refused("key "+k.Fingerprint, k.Refused)
		}
	}
	return answer.Keys, nil
}

// keyPath is where a trusted key is below a configuration folder.
func keyPath(dir, prefix, name string) string {
	if prefix == "" {
		return filepath.Join(dir, keysFolder, rootFolder, name)
	}
	return filepath.Join(dir, keysFolder, prefixFolder, prefix, name)
}

// Add writes a key that the operator trusts for images whose names have the
// prefix, "" for all, into the local configuration, and returns its path. An
// empty file that took the key away before is replaced.
func Add(local, prefix string, k sigwire.Key) (string, error) {
	if prefix != "" {
		if err := config.CheckPrefix(prefix); err != nil {
			return "", err
		}
	}
	name := k.Fingerprint
	if k.Kind == sigwire.KindPEM {
		name += pemSuffix
	}
	path := keyPath(local, prefix, name)
	if err := fault.Step("trust.mkdir"); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", denied(err)
	}
	return path, denied(atomicfile.Write(path, k.Data, 0o644, atomicfile.Synced))
}

// Remove takes trust from keys with the fingerprint: for one prefix, or with a
// nil prefix wherever the key is. A local key is deleted; one of the system is
// masked by an empty local file. It returns the keys that are not trusted any
// more.
func (p Policy) Remove(fingerprint string, prefix *string) ([]TrustedKey, error) {
	var gone []TrustedKey
	for _, k := range p.keys {
		if k.Fingerprint != fingerprint || prefix != nil && k.Prefix != *prefix {
			continue
		}
		if err := p.remove(k); err != nil {
			return gone, err
		}
		gone = append(gone, k)
	}
	if len(gone) == 0 {
		return nil, errs.WithHint(errs.Newf(errs.NotFound, "key %q: not trusted", fingerprint), "\"rkt trust --list\" shows the trusted keys")
	}
	return gone, nil
}

func (p Policy) remove(k TrustedKey) error {
	name := filepath.Base(k.Path)
	mine := keyPath(p.local, k.Prefix, name)
	if _, err := os.Stat(keyPath(p.system, k.Prefix, name)); err == nil && p.system != "" {
		if err := fault.Step("trust.mkdir"); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(mine), 0o755); err != nil {
			return denied(err)
		}
		return denied(atomicfile.Write(mine, nil, 0o644, atomicfile.Synced))
	}
	if err := fault.Step("trust.remove"); err != nil {
		return err
	}
	if err := os.Remove(mine); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return denied(err)
	}
	return atomicfile.SyncDir(filepath.Dir(mine))
}

func denied(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return errs.WithHint(errs.WithClass(errs.Denied, err), "trusted keys are the administrator's: run it as root")
	}
	return err
}
