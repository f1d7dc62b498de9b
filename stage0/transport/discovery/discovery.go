// Package discovery finds where an appc image is published: by the meta tags of
// the page that the image's name leads to, or of a page above it.
package discovery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
	"github.com/rkt-pods/rkt/stage0/transport/web"
)

const (
	imageTag = "ac-discovery"
	keyTag   = "ac-discovery-pubkeys"

	// maxTags bounds what is taken of one page.
	maxTags = 256
	// maxToken bounds one piece of HTML.
	maxToken = 64 << 10
)

// placeholder is what is replaced in a template.
var placeholder = regexp.MustCompile(`\{[^{}]*\}`)

// Client discovers.
type Client struct {
	web          *web.Client
	ask          web.Ask
	insecureHTTP bool
}

// New makes a client.
func New(w *web.Client, insecureHTTP bool, ask web.Ask) *Client {
	return &Client{web: w, ask: ask, insecureHTTP: insecureHTTP}
}

// tag is a meta tag: whatever has the prefix is at the address.
type tag struct {
	name, prefix, address string
}

// Discover walks up from the image's name until it has found both the image's
// places and the places of keys, or is at the host. Where only
// images are asked for, the first page that has them is the last.
func (c *Client) Discover(ctx context.Context, r fetchwire.DiscoverRequest) (fetchwire.Discovery, error) {
	ctx, cancel := context.WithTimeout(ctx, c.web.Limits().Total)
	defer cancel()
	var d fetchwire.Discovery
	var causes []string
	var last error
	for page := r.Name; page != ""; page = parent(page) {
		tags, err := c.tags(ctx, page)
		if ctx.Err() != nil {
			return d, errs.WithClass(errs.Unavailable, fmt.Errorf("discover %s: %w", r.Name, ctx.Err()))
		}
		if err != nil {
			causes, last = append(causes, err.Error()), err
			continue
		}
		if len(d.Images) == 0 {
			if d.Images = c.images(tags, r); len(d.Images) > 0 {
				d.Page = page
			}
		}
		if len(d.Keys) == 0 && !r.ImagesOnly {
			if d.Keys = c.keys(tags, r.Name); len(d.Keys) > 0 {
				d.KeyPage = page
			}
		}
		if len(d.Images) > 0 && (len(d.Keys) > 0 || r.ImagesOnly) {
			return d, nil
		}
		if len(tags) == 0 {
			causes = append(causes, "page "+page+": no tag "+imageTag)
		} else {
			causes = append(causes, "page "+page+": no tag that fits")
		}
	}
	if len(d.Images) > 0 || len(d.Keys) > 0 {
		return d, nil
	}
	class := errs.NotFound
	if last != nil {
		class = errs.ClassOf(last)
	}
	err := errs.Newf(class, "discover %s: %s", r.Name, strings.Join(causes, "; "))
	for _, hint := range errs.Hints(last) {
		err = errs.WithHint(err, "%s", hint)
	}
	return d, err
}

func parent(name string) string {
	i := strings.LastIndexByte(name, '/')
	return name[:max(i, 0)]
}

// tags gets a page by https, or by http if that is allowed and https fails.
func (c *Client) tags(ctx context.Context, page string) ([]tag, error) {
	tags, err := c.page(ctx, "https://"+page+"?"+imageTag+"=1")
	if err != nil && c.insecureHTTP && ctx.Err() == nil {
		if plain, perr := c.page(ctx, "http://"+page+"?"+imageTag+"=1"); perr == nil {
			return plain, nil
		}
	}
	return tags, err
}

func (c *Client) page(ctx context.Context, address string) ([]tag, error) {
	_, d, err := c.web.Get(ctx, fetchwire.HTTPRequest{URL: address, Accept: "text/html, */*"}, c.ask)
	if err != nil {
		return nil, err
	}
	if d == nil {
		return nil, errs.Newf(errs.NotFound, "get %s: no content", address)
	}
	defer d.Close()
	data, err := io.ReadAll(d) // bounded by the request
	if err != nil {
		return nil, err
	}
	return parse(data)
}

// parse collects the meta tags of discovery.
func parse(page []byte) ([]tag, error) {
	var tags []tag
	z := html.NewTokenizer(bytes.NewReader(page))
	z.SetMaxBuf(maxToken)
	for len(tags) < maxTags {
		kind := z.Next()
		if kind == html.ErrorToken && errors.Is(z.Err(), io.EOF) {
			break
		}
		if kind == html.ErrorToken {
			return nil, errs.Newf(errs.Corrupt, "page: %w", z.Err())
		}
		if t, ok := meta(z.Token()); ok && kind != html.EndTagToken {
			tags = append(tags, t)
		}
	}
	return tags, nil
}

func meta(t html.Token) (tag, bool) {
	if t.Data != "meta" {
		return tag{}, false
	}
	attributes := map[string]string{}
	for _, a := range t.Attr {
		attributes[a.Key] = a.Val
	}
	fields := strings.Fields(attributes["content"])
	name := attributes["name"]
	if name != imageTag && name != keyTag || len(fields) != 2 {
		return tag{}, false
	}
	return tag{name, fields[0], fields[1]}, true
}

// images fills the templates that fit the name. One whose labels are not all
// known is for other images.
func (c *Client) images(tags []tag, r fetchwire.DiscoverRequest) []fetchwire.ImageURL {
	labels := maps.Clone(r.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	if labels["version"] == "" {
		labels["version"] = "latest"
	}
	labels["name"] = r.Name
	fill := func(template, ext string) string {
		labels["ext"] = ext
		return placeholder.ReplaceAllStringFunc(template, func(word string) string {
			if value, ok := labels[strings.Trim(word, "{}")]; ok {
				return value
			}
			return word
		})
	}
	var found []fetchwire.ImageURL
	for _, t := range tags {
		if t.name != imageTag || !strings.HasPrefix(r.Name, t.prefix) || !strings.Contains(t.address, "{ext}") {
			continue
		}
		u := fetchwire.ImageURL{ACI: fill(t.address, "aci"), Asc: fill(t.address, "aci.asc")}
		if c.allowed(u.ACI) && !slices.Contains(found, u) {
			found = append(found, u)
		}
	}
	return found
}

func (c *Client) keys(tags []tag, name string) []string {
	var found []string
	for _, t := range tags {
		if t.name == keyTag && strings.HasPrefix(name, t.prefix) && c.allowed(t.address) && !slices.Contains(found, t.address) {
			found = append(found, t.address)
		}
	}
	return found
}

// allowed says whether an address that a stranger wrote may be used.
func (c *Client) allowed(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || placeholder.MatchString(address) {
		return false
	}
	return u.Scheme == "https" || u.Scheme == "http" && c.insecureHTTP
}
