package trust

import (
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage0/trust/sigwire"
)

// refusalTexts say for each reason what is wrong, and what is to be done.
var refusalTexts = map[sigwire.Reason]struct{ text, hint string }{
	sigwire.Malformed:     {"can't be read", "was it published to the end, and in this form?"},
	sigwire.WeakHash:      {"made with a broken hash function, which proves nothing", "the publisher has to sign with SHA-256 or better"},
	sigwire.WeakKey:       {"the kind or size of the key is not accepted", "the publisher needs another key: RSA of 2048 bits or more, ECDSA P-256 or Ed25519"},
	sigwire.Mismatch:      {"is of other bytes than these", "either the image or its signature was changed, or belongs to another one"},
	sigwire.KeyExpired:    {"the key has expired", "\"rkt trust\" takes the publisher's renewed key"},
	sigwire.KeyRevoked:    {"the key is revoked", "its owner says that it is no longer to be trusted: \"rkt trust --remove\" drops it, and the publisher has a new one"},
	sigwire.KeyUsage:      {"the key is not meant for signing", "the publisher has to sign with a key that is"},
	sigwire.Expired:       {"the signature has expired", "the publisher has to sign anew"},
	sigwire.NotYet:        {"the signature is dated in the future, or before its key", "is this host's clock right?"},
	sigwire.SecretKey:     {"holds a private key", "only the public key belongs on this host"},
	sigwire.NotApplicable: {"can't be checked", "is the trusted key's file what it was?"},
}

// refused turns the program's answer into an error.
func refused(what string, r *sigwire.Refusal) error {
	t, ok := refusalTexts[r.Reason]
	if !ok {
		return errs.Newf(errs.Internal, "%s: %s: refuses for a reason that is none: %q", what, Program, string(r.Reason))
	}
	err := errs.Newf(errs.Denied, "%s: %s", what, t.text)
	if r.Detail != "" {
		err = errs.Newf(errs.Denied, "%s: %s: %q", what, t.text, r.Detail)
	}
	return errs.WithHint(err, "%s", t.hint)
}
