// Package registry gets manifests, blobs and lists of referrers from registries
// by the distribution API: from the mirrors that are configured, in order, then
// from the registry itself.
package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	oras "oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
	"github.com/rkt-pods/rkt/stage0/transport/web"
)

// Client talks to registries.
type Client struct {
	web   *web.Client
	setup fetchwire.Setup
	ask   web.Ask

	mu    sync.Mutex
	auths map[endpoint]*auth.Client // a token is for one repository
}

// New makes a client.
func New(w *web.Client, setup fetchwire.Setup, ask web.Ask) *Client {
	return &Client{web: w, setup: setup, ask: ask, auths: map[endpoint]*auth.Client{}}
}

// endpoint is one place that serves a repository.
type endpoint struct {
	scheme, host string // as in a URL
	name         string // of the registry or mirror, as credentials are kept for
	repository   string
	mirror       bool
	otherwise    bool // only if the one before it does not speak TLS
}

func (e endpoint) url(rest string) string {
	return e.scheme + "://" + e.host + "/v2/" + e.repository + rest
}

// endpoints lists where a repository may be, in the order in which it is asked.
func (c *Client) endpoints(r fetchwire.Repository) []endpoint {
	var all []endpoint
	add := func(e endpoint, plain bool) {
		e.host, e.scheme = web.APIHost(e.name), "https"
		if plain {
			e.scheme = "http"
		}
		all = append(all, e)
		if c.setup.InsecureHTTP && !plain {
			e.scheme, e.otherwise = "http", true
			all = append(all, e)
		}
	}
	own := false
	for _, known := range c.setup.Registries {
		if !strings.EqualFold(known.Name, r.Registry) {
			continue
		}
		for _, m := range known.Mirrors {
			add(endpoint{name: m.Host, repository: strings.Trim(m.Prefix+"/"+r.Name, "/"), mirror: true}, m.PlainHTTP)
		}
		own = known.PlainHTTP
	}
	add(endpoint{name: r.Registry, repository: r.Name}, own)
	return all
}

// each tries the endpoints from the first on, until one does it. The error is
// the registry's own, with those of the mirrors behind it.
func each(ctx context.Context, all []endpoint, first int, try func(int, endpoint) error) error {
	var last, before error
	var others []string
	for i := range all {
		n := (first + i) % len(all)
		e := all[n]
		switch {
		case e.otherwise && i > 0 && !web.SpeaksNoTLS(before):
			continue
		case i > 0 && i == len(all)-1 && all[first].otherwise:
			continue // the first one was this one, without TLS
		}
		err := try(n, e)
		if err == nil || ctx.Err() != nil {
			return err
		}
		before = err
		if e.mirror {
			others = append(others, fmt.Sprintf("mirror %s: %v", e.name, err))
			if last == nil {
				last = err
			}
			continue
		}
		last = err
	}
	if len(others) == 0 {
		return last
	}
	// The class, the hints and the status are those of the registry.
	return fmt.Errorf("%w (%s)", last, strings.Join(others, "; "))
}

// client returns the client that has an endpoint's tokens.
func (c *Client) client(e endpoint) *auth.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.auths[e]; known != nil {
		return known
	}
	made := &auth.Client{
		Client: c.web.HTTP(), Cache: auth.NewCache(), ClientID: "rkt",
		Credential: func(ctx context.Context, host string) (auth.Credential, error) {
			if host != e.host {
				return auth.EmptyCredential, nil
			}
			found, err := c.ask(ctx, fetchwire.CredentialRequest{Kind: fetchwire.ForRegistry, Host: e.name, Repository: e.repository})
			return auth.Credential{
				Username: found.User, Password: found.Password, AccessToken: found.Token, RefreshToken: found.Refresh,
			}, err
		},
	}
	c.auths[e] = made
	return made
}

// scoped asks for tokens that allow to pull from the repository.
func (e endpoint) scoped(ctx context.Context) context.Context {
	return auth.AppendScopesForHost(ctx, e.host, auth.ScopeRepository(e.repository, auth.ActionPull))
}

// do sends a request and explains why there is no answer. The caller judges the
// status.
func (c *Client) do(ctx context.Context, e endpoint, method, rest string, header http.Header, what string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(e.scoped(ctx), method, e.url(rest), nil)
	if err != nil {
		return nil, errs.Newf(errs.Usage, "%s: %w", what, err)
	}
	req.Header = header
	resp, err := c.client(e).Do(req)
	if err != nil {
		return nil, explain(err, e, what)
	}
	return resp, nil
}

// explain adds to web.Explain what can go wrong with credentials.
func explain(err error, e endpoint, what string) error {
	if errors.Is(err, auth.ErrBasicCredentialNotFound) {
		err = errs.Newf(errs.Denied, "%s: %s wants a user and a password, and none is known for it", what, e.name)
		return fetchwire.StatusError(http.StatusUnauthorized, err)
	}
	if answer, ok := errors.AsType[*errcode.ErrorResponse](err); ok {
		where := "the token server " + e.name + " names"
		if answer.URL != nil {
			where = answer.URL.Host
		}
		class := errs.Unavailable
		if answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden {
			class = errs.Denied
		}
		err = errs.Newf(class, "%s: %s answers %d %s", what, where, answer.StatusCode, http.StatusText(answer.StatusCode))
		return fetchwire.StatusError(answer.StatusCode, err)
	}
	return web.Explain(err, what)
}

// repository is the endpoint for what the library does by itself.
func (c *Client) repository(e endpoint) (*oras.Repository, error) {
	r, err := oras.NewRepository(e.name + "/" + e.repository)
	if err != nil {
		return nil, errs.Newf(errs.Usage, "repository %s: %w", e.repository, err)
	}
	r.Client = c.client(e)
	r.PlainHTTP = e.scheme == "http"
	r.MaxMetadataBytes = c.web.Limits().MaxManifest
	r.ReferrerListMaxPages = maxPages
	return r, nil
}
