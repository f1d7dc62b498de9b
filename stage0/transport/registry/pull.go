package registry

import (
	"context"
	"encoding/json"
	"mime"
	"net/http"
	"slices"
	"strings"

	godigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
	"github.com/rkt-pods/rkt/stage0/transport/web"
)

// maxPages bounds a list of referrers, which comes in pages.
const maxPages = 32

// accepted are the manifests that rkt reads.
var accepted = []string{
	ocispec.MediaTypeImageIndex,
	ocispec.MediaTypeImageManifest,
	"application/vnd.docker.distribution.manifest.list.v2+json",
	"application/vnd.docker.distribution.manifest.v2+json",
}

// Manifest gets a manifest, an index, or the news that what is known still holds.
func (c *Client) Manifest(ctx context.Context, r fetchwire.ManifestRequest) (head fetchwire.Head, data []byte, err error) {
	what := "manifest " + reference(r.Repository, r.Reference)
	if len(r.Accept) == 0 {
		r.Accept = accepted
	}
	ctx, cancel := context.WithTimeout(ctx, c.web.Limits().Total)
	defer cancel()
	err = each(ctx, c.endpoints(r.Repository), 0, func(_ int, e endpoint) error {
		head, data, err = c.manifest(ctx, e, r, what)
		return err
	})
	return head, data, err
}

func reference(r fetchwire.Repository, ref string) string {
	separator := ":"
	if strings.Contains(ref, ":") {
		separator = "@"
	}
	return r.Registry + "/" + r.Name + separator + ref
}

func (c *Client) manifest(ctx context.Context, e endpoint, r fetchwire.ManifestRequest, what string) (fetchwire.Head, []byte, error) {
	header := http.Header{"Accept": {strings.Join(r.Accept, ", ")}}
	rest := "/manifests/" + r.Reference
	if r.KnownDigest != "" {
		resp, err := c.do(ctx, e, http.MethodHead, rest, header.Clone(), what)
		if err != nil {
			return fetchwire.Head{}, nil, err
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK && resp.Header.Get("Docker-Content-Digest") == r.KnownDigest {
			return fetchwire.Head{Status: http.StatusNotModified, Digest: r.KnownDigest}, nil, nil
		}
	}
	if r.IfNoneMatch != "" {
		header.Set("If-None-Match", r.IfNoneMatch)
	}
	resp, err := c.do(ctx, e, http.MethodGet, rest, header, what)
	if err != nil {
		return fetchwire.Head{}, nil, err
	}
	defer resp.Body.Close()
	head := web.Head(resp)
	switch {
	case resp.StatusCode == http.StatusNotModified && r.IfNoneMatch != "":
		return head, nil, nil
	case resp.StatusCode != http.StatusOK:
		return head, nil, web.StatusError(resp, what)
	}
	data, err := web.ReadAll(resp.Body, c.web.Limits().MaxManifest, what)
	if err != nil {
		return head, nil, err
	}
	return checked(head, data, resp.Header.Get("Docker-Content-Digest"), r, what)
}

// checked compares a manifest with what was asked for and what the registry
// says that it is.
func checked(head fetchwire.Head, data []byte, said string, r fetchwire.ManifestRequest, what string) (fetchwire.Head, []byte, error) {
	kind, _, err := mime.ParseMediaType(head.MediaType)
	switch {
	case strings.HasPrefix(kind, "application/vnd.docker.distribution.manifest.v1+"):
		return head, nil, errs.Newf(errs.Unsupported, "%s: it is of Docker's schema 1, which is not read", what)
	case err != nil || !slices.Contains(r.Accept, kind):
		return head, nil, errs.Newf(errs.Corrupt, "%s: wrong media type: %q", what, head.MediaType)
	}
	head.MediaType = kind
	want, err := digest.ParseOCI(r.Reference)
	if err != nil { // a tag
		want = digest.Of(digest.SHA256, data)
		if other, err := digest.ParseOCI(said); err == nil {
			want = other
		}
	}
	if got := digest.Of(want.Alg, data); got != want {
		return head, nil, errs.Newf(errs.Corrupt, "%s: wrong digest: it is %s in place of %s", what, got.OCI(), want.OCI())
	}
	head.Digest, head.Size = want.OCI(), int64(len(data))
	return head, data, nil
}

// Blob opens a blob. Its end is only reported if size and digest fit.
func (c *Client) Blob(ctx context.Context, r fetchwire.BlobRequest) (fetchwire.Head, *web.Download, error) {
	what := "blob " + r.Repository.Registry + "/" + r.Repository.Name + "@" + short(r.Descriptor.Digest)
	want, err := digest.ParseOCI(r.Descriptor.Digest)
	if err != nil {
		return fetchwire.Head{}, nil, err
	}
	if r.Descriptor.Size < 0 {
		return fetchwire.Head{}, nil, errs.Newf(errs.Corrupt, "%s: negative size", what)
	}
	all := c.endpoints(r.Repository)
	current := 0
	//nolint:bodyclose // the download closes it
	open := func(ctx context.Context, header http.Header) (resp *http.Response, err error) {
		err = each(ctx, all, current, func(n int, e endpoint) error {
			current = n
			resp, err = c.do(ctx, e, http.MethodGet, "/blobs/"+want.OCI(), header.Clone(), what)
			if err == nil && !brings(resp.StatusCode, header) {
				resp.Body.Close()
				err = web.StatusError(resp, what)
			}
			return err
		})
		return resp, err
	}
	//nolint:bodyclose // the download closes it
	d, resp, err := c.web.Download(ctx, web.Want{What: what, Size: r.Descriptor.Size, Digest: want, Open: open})
	if err != nil {
		return fetchwire.Head{}, nil, err
	}
	head := web.Head(resp)
	head.MediaType, head.Digest, head.Size = r.Descriptor.MediaType, want.OCI(), r.Descriptor.Size
	return head, d, nil
}

// brings says whether a download goes on with an answer: with all, a rest, or the
// news that there is no such rest.
func brings(status int, asked http.Header) bool {
	return status == http.StatusOK || status == http.StatusPartialContent || status == http.StatusRequestedRangeNotSatisfiable && asked.Get("Range") != ""
}

func short(d string) string {
	begin, more := errs.Beginning(d)
	return begin + more
}

// Referrers lists the manifests that refer to a digest, as an index.
func (c *Client) Referrers(ctx context.Context, r fetchwire.ReferrersRequest) (fetchwire.Head, []byte, error) {
	what := "referrers of " + reference(r.Repository, r.Digest)
	if _, err := digest.ParseOCI(r.Digest); err != nil {
		return fetchwire.Head{}, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.web.Limits().Total)
	defer cancel()
	index := ocispec.Index{MediaType: ocispec.MediaTypeImageIndex}
	index.SchemaVersion = 2
	err := each(ctx, c.endpoints(r.Repository), 0, func(_ int, e endpoint) error {
		repo, err := c.repository(e)
		if err != nil {
			return err
		}
		index.Manifests = []ocispec.Descriptor{}
		err = repo.Referrers(e.scoped(ctx), ocispec.Descriptor{Digest: godigest.Digest(r.Digest)}, r.ArtifactType, func(more []ocispec.Descriptor) error {
			index.Manifests = append(index.Manifests, more...)
			return nil
		})
		if err != nil {
			return explain(err, e, what)
		}
		return nil
	})
	if err != nil {
		return fetchwire.Head{}, nil, err
	}
	data, err := json.Marshal(index)
	if int64(len(data)) > c.web.Limits().MaxManifest {
		return fetchwire.Head{}, nil, errs.Newf(errs.Corrupt, "%s: more than %d bytes", what, c.web.Limits().MaxManifest)
	}
	return fetchwire.Head{Status: http.StatusOK, MediaType: index.MediaType, Size: int64(len(data))}, data, err
}
