package web

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// plainHint says who may allow plain http.
const plainHint = "\"plainHTTP\" in registries.d allows it for a registry, --insecure-options=http for one command"

// What a server does that answers a TLS handshake in plain text, and with what is
// no answer at all.
var (
	errPlain = errors.New("speaks plain http, not https")
	errNoTLS = errors.New("does not speak TLS")
)

// SpeaksNoTLS says whether what an error is about may be had by plain http.
func SpeaksNoTLS(err error) bool {
	return errors.Is(err, errPlain) || errors.Is(err, errNoTLS) || errors.Is(err, unix.ECONNREFUSED)
}

// Explain says what went wrong on the way to an answer.
func Explain(err error, what string) error {
	if err == nil {
		return nil
	}
	host := "the other side"
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
		if parsed, perr := url.Parse(u.URL); perr == nil {
			host = parsed.Host
		}
	}
	return fmt.Errorf("%s: %w", what, explain(err, host))
}

func explain(err error, host string) error {
	if cause := explainTLS(err, host); cause != nil {
		return cause
	}
	const proxyHint = "the proxy's settings come from the environment: HTTPS_PROXY, HTTP_PROXY, NO_PROXY"
	text := err.Error()
	var timeout net.Error
	var op *net.OpError
	var dns *net.DNSError
	switch {
	case errs.ClassOf(err) != errs.Internal:
		return err
	case errors.As(err, &op) && op.Op == "proxyconnect":
		return errs.WithHint(errs.Newf(errs.Unavailable, "connect to the proxy for %s: %w", host, innermost(err)), proxyHint)
	case errors.As(err, &dns) && dns.IsNotFound:
		return errs.WithHint(errs.Newf(errs.Unavailable, "%s: no such host", dns.Name), "see /etc/resolv.conf and /etc/hosts; "+proxyHint)
	case errors.As(err, &dns):
		return errs.WithHint(errs.Newf(errs.Unavailable, "look up %s: %s", dns.Name, dns.Err), "see /etc/resolv.conf")
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH):
		return errs.Newf(errs.Unavailable, "connect to %s: %w", host, innermost(err))
	case errors.As(err, &timeout) && timeout.Timeout():
		return errs.Newf(errs.Unavailable, "no answer from %s in time", host)
	case strings.Contains(text, "response headers exceeded"):
		return errs.Newf(errs.Corrupt, "%s sends a header of more than %d bytes", host, maxHeader)
	case isCut(err):
		return errs.Newf(errs.Unavailable, "%s cut the connection", host)
	case strings.Contains(text, "malformed"):
		return errs.Newf(errs.Corrupt, "%s does not speak HTTP: %w", host, err)
	case strings.HasPrefix(text, "Proxy "): // the status of an answer to CONNECT
		return errs.WithHint(errs.Newf(errs.Unavailable, "the proxy for %s: %w", host, err), proxyHint)
	default:
		return errs.WithClass(errs.Unavailable, err)
	}
}

// explainTLS names what is wrong with a certificate or a handshake. nil says
// that it is something else.
func explainTLS(err error, host string) error {
	const insecure = "; --insecure-options=tls does without the check"
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var op *net.OpError
	var record tls.RecordHeaderError
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return errs.WithHint(errs.Newf(errs.Denied, "%s %w", host, errPlain), plainHint)
	case errors.As(err, &authority):
		issuer := ""
		if authority.Cert != nil {
			issuer = fmt.Sprintf(" (issuer %q)", authority.Cert.Issuer.String())
		}
		err = errs.Newf(errs.Denied, "certificate of %s: signed by an authority that is not known here%s", host, issuer)
		return errs.WithHint(err, "put the authority's certificate into /etc/containers/certs.d/%s/ca.crt, or name it in SSL_CERT_FILE%s", host, insecure)
	case errors.As(err, &name):
		return errs.WithHint(errs.Newf(errs.Denied, "certificate of %s: it is for %s", host, names(name.Certificate)), "use a name that it is for"+insecure)
	case errors.As(err, &invalid):
		cause, hint := explainInvalid(invalid)
		return errs.WithHint(errs.Newf(errs.Denied, "certificate of %s: %s", host, cause), "%s%s", hint, insecure)
	case errors.As(err, &op) && op.Op == "remote error": // an alert of TLS
		return errs.WithHint(errs.Newf(errs.Denied, "TLS handshake with %s: it says %w", host, op.Err),
			"if it wants a client certificate, put NAME.cert and NAME.key into /etc/containers/certs.d/%s", host)
	case errors.As(err, &record):
		return errs.WithHint(errs.Newf(errs.Corrupt, "%s %w", host, errNoTLS), "if it speaks plain http: "+plainHint)
	}
	return nil
}

func explainInvalid(e x509.CertificateInvalidError) (cause, hint string) {
	switch {
	case e.Reason == x509.Expired && e.Cert != nil && time.Now().Before(e.Cert.NotBefore):
		return "it is not valid before " + e.Cert.NotBefore.UTC().Format(time.RFC3339), "is this host's clock right?"
	case e.Reason == x509.Expired && e.Cert != nil:
		return "it expired on " + e.Cert.NotAfter.UTC().Format(time.RFC3339), "its owner has to renew it, unless this host's clock is wrong"
	default:
		return strings.TrimPrefix(e.Error(), "x509: "), "its owner has to replace it"
	}
}

func names(c *x509.Certificate) string {
	var all []string
	if c != nil {
		all = append(all, c.DNSNames...)
		for _, ip := range c.IPAddresses {
			all = append(all, ip.String())
		}
	}
	switch {
	case len(all) == 0:
		return "no host at all"
	case len(all) > 5:
		return strings.Join(all[:5], ", ") + " and others, not for it"
	}
	return strings.Join(all, ", ") + ", not for it"
}

func innermost(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

// isCut says that a connection ended before what it carried.
func isCut(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) ||
		errors.Is(err, unix.EPIPE) || strings.Contains(err.Error(), "server closed idle connection")
}
