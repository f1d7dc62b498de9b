package web

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
)

// Head is what the header of an answer says.
func Head(resp *http.Response) fetchwire.Head {
	return fetchwire.Head{
		Status: resp.StatusCode, MediaType: resp.Header.Get("Content-Type"), Size: resp.ContentLength,
		ETag: resp.Header.Get("ETag"), MaxAge: maxAge(resp.Header), URL: Where(resp.Request.URL),
	}
}

// maxAge is how many seconds an answer may be taken for current.
func maxAge(h http.Header) int64 {
	var age int64
	for _, word := range strings.Split(strings.Join(h.Values("Cache-Control"), ","), ",") {
		key, value, _ := strings.Cut(strings.ToLower(strings.TrimSpace(word)), "=")
		switch key {
		case "no-store", "no-cache":
			return 0
		case "max-age":
			if n, err := strconv.ParseInt(strings.Trim(value, `"`), 10, 64); err == nil && n > 0 {
				age = n
			}
		}
	}
	return age
}

// Ask asks rkt for a credential.
type Ask func(context.Context, fetchwire.CredentialRequest) (fetchwire.Credential, error)

// Get opens what a URL names. There is no download with an answer that has no
// content: not modified, or not ready yet.
func (c *Client) Get(ctx context.Context, r fetchwire.HTTPRequest, ask Ask) (fetchwire.Head, *Download, error) {
	u, err := url.Parse(r.URL)
	if err != nil || u.Host == "" {
		return fetchwire.Head{}, nil, errs.Newf(errs.Usage, "URL %q: it names no host", r.URL)
	}
	what := "get " + Where(u)
	authorization, err := authorize(ctx, u, ask)
	if err != nil {
		return fetchwire.Head{}, nil, err
	}
	client := c.HTTP()
	open := func(ctx context.Context, header http.Header) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
		if err != nil {
			return nil, errs.Newf(errs.Usage, "%s: %w", what, err)
		}
		req.Header = header
		for name, value := range map[string]string{"Accept": r.Accept, "Authorization": authorization} {
			if value != "" {
				req.Header.Set(name, value)
			}
		}
		if r.IfNoneMatch != "" && header.Get("Range") == "" {
			req.Header.Set("If-None-Match", r.IfNoneMatch)
		}
		resp, err := client.Do(req)
		return resp, Explain(err, what)
	}
	most := r.MaxBytes
	if most <= 0 {
		most = c.limits.MaxManifest
	}
	//nolint:bodyclose // the download closes it
	d, resp, err := c.Download(ctx, Want{What: what, Size: -1, Most: most, Open: open})
	if err != nil {
		return fetchwire.Head{}, nil, err
	}
	switch {
	case resp.StatusCode == http.StatusOK, resp.StatusCode == http.StatusAccepted,
		resp.StatusCode == http.StatusNotModified && r.IfNoneMatch != "":
		return Head(resp), d, nil
	}
	return fetchwire.Head{}, nil, StatusError(resp, what)
}

// authorize returns the header for a host, empty if there is no credential.
func authorize(ctx context.Context, u *url.URL, ask Ask) (string, error) {
	if u.User != nil {
		return "", nil // net/http makes it of the URL
	}
	found, err := ask(ctx, fetchwire.CredentialRequest{Kind: fetchwire.ForURL, Host: u.Host})
	switch {
	case err != nil:
		return "", err
	case found.Token != "":
		return "Bearer " + found.Token, nil
	case found.User != "" || found.Password != "":
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(found.User+":"+found.Password)), nil
	}
	return "", nil
}
