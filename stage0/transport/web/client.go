// Package web is HTTP to strangers: with the proxies, certificates and limits
// of the set-up, bounded redirects that take no credential to another host, no
// plain http where it isn't allowed, and errors that say by name what the other
// side did.
package web

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpproxy"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
)

// maxHeader bounds the header of an answer.
const maxHeader = 64 << 10

// idle is how long a connection is kept that nobody uses.
const idle = 30 * time.Second

// Client sends requests. It keeps connections.
type Client struct {
	setup  fetchwire.Setup
	limits fetchwire.Limits
	proxy  func(*url.URL) (*url.URL, error)
	roots  func() (*x509.CertPool, error)
	policy map[string]host // by host[:port] as in URLs

	mu         sync.Mutex
	transports map[string]*http.Transport
}

// host is what is configured for one.
type host struct {
	plainHTTP, insecureTLS bool
}

// New makes a client of the set-up.
func New(setup fetchwire.Setup) *Client {
	c := &Client{
		setup: setup, limits: setup.Limits.Fill(),
		proxy: (&httpproxy.Config{
			HTTPProxy: setup.Proxy.HTTP, HTTPSProxy: setup.Proxy.HTTPS, NoProxy: setup.Proxy.No,
		}).ProxyFunc(),
		policy: map[string]host{}, transports: map[string]*http.Transport{},
	}
	c.roots = sync.OnceValues(func() (*x509.CertPool, error) {
		if setup.Roots == "" {
			return x509.SystemCertPool()
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM([]byte(setup.Roots))
		return pool, nil
	})
	for _, r := range setup.Registries {
		c.policy[APIHost(r.Name)] = host{r.PlainHTTP, r.InsecureTLS}
	}
	for _, r := range setup.Registries {
		for _, m := range r.Mirrors {
			known := c.policy[APIHost(m.Host)]
			c.policy[APIHost(m.Host)] = host{known.plainHTTP || m.PlainHTTP, known.insecureTLS || m.InsecureTLS}
		}
	}
	return c
}

// APIHost is where the registry of that name is reached.
func APIHost(registry string) string {
	registry = strings.ToLower(registry)
	if registry == "docker.io" || registry == "index.docker.io" {
		return "registry-1.docker.io"
	}
	return registry
}

// Limits are the limits of the set-up.
func (c *Client) Limits() fetchwire.Limits { return c.limits }

// HTTP returns a client that follows redirects.
func (c *Client) HTTP() *http.Client {
	return &http.Client{Transport: c, CheckRedirect: c.redirect}
}

// redirect lets a request go where an answer sends it, without what is meant
// for the first host only.
func (c *Client) redirect(next *http.Request, via []*http.Request) error {
	if len(via) > c.limits.Redirects {
		return errs.Newf(errs.Corrupt, "more than %d redirects", c.limits.Redirects)
	}
	seen := 0
	left := false
	for _, r := range via {
		if *r.URL == *next.URL {
			seen++
		}
		left = left || !sameOrigin(via[0].URL, r.URL)
	}
	if seen > 1 {
		return errs.Newf(errs.Corrupt, "redirect loop: it comes back to %s", Where(next.URL))
	}
	next.Header.Del("Referer")
	if left || !sameOrigin(via[0].URL, next.URL) {
		next.Header.Del("Authorization")
		next.URL.User = nil
	}
	return nil
}

func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "http":
		return "80"
	default:
		return "443"
	}
}

// Where is a URL without what may be secret in it.
func Where(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// RoundTrip sends one request, again if the other side says that it is busy or
// can't be reached. It implements http.RoundTripper.
func (c *Client) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := c.mayAsk(req.URL); err != nil {
		return nil, err
	}
	transport, err := c.transport(req.URL.Host)
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.Header.Set("User-Agent", c.setup.UserAgent)
	return c.retry(req, transport)
}

// mayAsk refuses plain http to hosts that it isn't allowed for. Every request
// comes by here: of a redirect and for a token too.
func (c *Client) mayAsk(u *url.URL) error {
	switch {
	case u.Scheme == "https", u.Scheme == "http" && (c.setup.InsecureHTTP || c.policy[strings.ToLower(u.Host)].plainHTTP):
		return nil
	case u.Scheme == "http":
		return errs.WithHint(errs.Newf(errs.Denied, "plain http is not allowed for %s", u.Host), plainHint)
	default:
		return errs.Newf(errs.Denied, "%s: neither https nor http", Where(u))
	}
}

// transport returns the connections of a host: each host may have certificates
// of its own.
func (c *Client) transport(hostPort string) (*http.Transport, error) {
	key := strings.ToLower(hostPort)
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.transports[key]; t != nil {
		return t, nil
	}
	config, err := c.tls(key)
	if err != nil {
		return nil, err
	}
	// Blobs come faster over connections of their own, and a peer that is not
	// trusted gets the smaller protocol.
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	dialer := &net.Dialer{Timeout: c.limits.Connect}
	t := &http.Transport{
		Proxy:                  func(r *http.Request) (*url.URL, error) { return c.proxy(r.URL) },
		DialContext:            dialer.DialContext,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    c.limits.Connect,
		ResponseHeaderTimeout:  c.limits.Response,
		MaxResponseHeaderBytes: maxHeader,
		DisableCompression:     true,
		IdleConnTimeout:        idle,
		MaxIdleConnsPerHost:    4,
		Protocols:              &protocols,
		ReadBufferSize:         64 << 10,
	}
	c.transports[key] = t
	return t, nil
}

func (c *Client) tls(hostPort string) (*tls.Config, error) {
	config := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: c.setup.InsecureTLS || c.policy[hostPort].insecureTLS, // asked for by the operator
	}
	// Those of the host are read when a certificate has to be checked: it takes
	// longer than all else that a request in the clear costs.
	if c.setup.Roots != "" {
		roots, err := c.roots()
		if err != nil {
			return nil, err
		}
		config.RootCAs = roots
	}
	name, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		name = hostPort
	}
	for _, h := range c.setup.Hosts {
		if !strings.EqualFold(h.Host, hostPort) && !strings.EqualFold(h.Host, name) {
			continue
		}
		if h.CA != "" {
			roots, err := c.roots()
			if err != nil {
				return nil, errs.Newf(errs.Unavailable, "certificates of this host: %w", err)
			}
			if config.RootCAs != nil {
				roots = config.RootCAs // with those of another entry
			}
			config.RootCAs = roots.Clone()
			if !config.RootCAs.AppendCertsFromPEM([]byte(h.CA)) {
				return nil, errs.Newf(errs.Corrupt, "certificates for %s: no certificate of an authority in them", h.Host)
			}
		}
		if h.Cert != "" {
			pair, err := tls.X509KeyPair([]byte(h.Cert), []byte(h.Key))
			if err != nil {
				return nil, errs.Newf(errs.Corrupt, "client certificate for %s: %w", h.Host, err)
			}
			config.Certificates = append(config.Certificates, pair)
		}
	}
	return config, nil
}

// Wait waits, or returns why the wait was given up.
func Wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
