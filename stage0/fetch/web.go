package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/ref"
	"github.com/rkt-pods/rkt/stage0/remote"
	"github.com/rkt-pods/rkt/stage0/trust"
)

// maxPublished is how large a published image may be, packed.
const maxPublished = 1 << 40

// download is one ACI that is to be had by its URL.
type download struct {
	*importer
	client *remote.Client
	url    fetchwire.ImageURL
	ref    string // it is known by afterwards
	name   string // "": whatever its manifest says
	labels appc.Labels
	known  image.Record // what the store has under the reference, if anything
}

// url fetches the image that a URL names.
func (f *Fetcher) url(im *importer, r ref.Ref, known image.Record) (image.Record, error) {
	d := &download{importer: im, ref: r.URL, known: known, url: fetchwire.ImageURL{ACI: r.URL, Asc: besideACI(r.URL)}}
	if src, ok := known.Source(d.ref); ok && src.Fresh(now()) && im.settled(known, known.Name, false) {
		return known, nil
	}
	var err error
	if d.client, err = f.network(im.ctx); err != nil {
		return known, err
	}
	return d.alone()
}

// besideACI is where the signature of a URL's image is.
func besideACI(url string) string {
	path, query, ok := strings.Cut(url, "?")
	if path += ".asc"; ok {
		path += "?" + query
	}
	return path
}

// discover finds out where an image of that name is published, and fetches it.
func (f *Fetcher) discover(im *importer, r ref.Ref, known image.Record, missing error) (image.Record, error) {
	// An image that came from a registry, or a file, is found there again and not
	// by its name.
	src, ok := known.Source(r.Text)
	if known.ID != "" && (!ok || src.Fresh(now()) && im.settled(known, known.Name, false)) {
		return known, nil
	}
	if host, _, _ := strings.Cut(r.Name, "/"); !strings.ContainsAny(host, ".:") {
		if missing == nil {
			missing = errs.Newf(errs.NotFound, "not in the store")
		}
		return known, errs.WithHint(missing, "docker://%s is an image of a registry; ./%s is a file", r.Name, r.Name)
	}
	client, err := f.network(im.ctx)
	if err != nil {
		return known, err
	}
	found, err := client.Discover(im.ctx, fetchwire.DiscoverRequest{Name: r.Name, Labels: im.discoveryLabels(r.Labels), ImagesOnly: true})
	if err != nil {
		return known, errs.WithHint(err, "docker://%s would be an image of a registry", r.Name)
	}
	err = errs.Newf(errs.NotFound, "%s tells of no image", r.Name)
	for _, u := range found.Images {
		d := &download{importer: im, client: client, url: u, ref: r.Text, name: r.Name, labels: r.Labels, known: known}
		var rec image.Record
		if rec, err = d.alone(); err == nil || !errs.Is(err, errs.NotFound) && !errs.Is(err, errs.Unavailable) || im.ctx.Err() != nil {
			return rec, err
		}
	}
	return known, err
}

// discoveryLabels adds what a template may ask for and nobody has said.
func (im *importer) discoveryLabels(asked appc.Labels) map[string]string {
	p := im.opt.Platform.filled()
	labels := map[string]string{"version": "latest", "os": runtime.GOOS, "arch": image.ArchFromGo(p.Architecture, p.Variant)}
	if p.OS != "" {
		labels["os"] = p.OS
	}
	for _, l := range asked {
		labels[l.Name] = l.Value
	}
	return labels
}

// alone fetches while no other rkt fetches the same; who had to wait takes what
// the other has brought.
func (d *download) alone() (rec image.Record, err error) {
	began := now()
	sum := sha256.Sum256([]byte(d.url.ACI))
	claim, err := d.store.Claim(d.ctx, "url-"+hex.EncodeToString(sum[:16]))
	if err != nil {
		return rec, err
	}
	defer func() { err = errors.Join(err, claim.Release()) }()
	if d.name == "" {
		if rec, err := d.store.Named(d.ref); err == nil && d.settled(rec, rec.Name, false) {
			if src, ok := rec.Source(d.ref); ok && src.FetchedAt.After(began) {
				return rec, nil
			}
		}
	}
	return d.fetch()
}

// fetch asks for the image, unless it is still the one that the store has.
func (d *download) fetch() (rec image.Record, err error) {
	request := fetchwire.HTTPRequest{URL: d.url.ACI, Accept: "application/octet-stream, */*", MaxBytes: maxPublished}
	src, _ := d.known.Source(d.ref)
	if d.settled(d.known, d.known.Name, false) {
		request.IfNoneMatch = src.ETag
	}
	ask := trust.ACI{Source: d.url.ACI, Name: d.name, SignatureAt: d.url.Asc}
	late := false
	if request.IfNoneMatch == "" {
		late = d.signature(&ask)
	}
	verifier, err := d.verifier(&ask, late)
	if err != nil {
		return rec, err
	}
	head, body, err := d.client.HTTP(d.ctx, request, nil)
	if err != nil {
		return rec, err
	}
	defer body.Close()
	switch {
	case head.Status == statusNotModified && request.IfNoneMatch != "":
		src.MaxAge = head.MaxAge
		return d.confirm(d.known, src, false)
	case head.Status == statusAccepted:
		return rec, errs.WithHint(errs.Newf(errs.Unavailable, "%s: not ready yet, says the server", d.url.ACI), "try again later")
	}
	if request.IfNoneMatch != "" { // another one: now its signature is needed
		late = d.signature(&ask)
		if verifier, err = d.verifier(&ask, late); err != nil {
			return rec, err
		}
	}
	in := aciSource{
		published: &counter{r: body, report: func(n int64) {
			d.progress(Event{Stage: StageRead, Object: d.url.ACI, State: Fetching, Done: n, Total: max(0, head.Size)})
		}},
		verifier: verifier, signature: ask.Signature, name: d.name, labels: d.labels,
		source: &image.Source{Ref: d.ref, URL: head.URL, ETag: head.ETag, MaxAge: head.MaxAge, FetchedAt: now()},
	}
	return d.staged(func() (image.Record, error) {
		if late {
			if err := d.deferred(&in, &ask); err != nil {
				return image.Record{}, err
			}
		}
		return d.aciFrom(in)
	})
}

// verifier prepares the check, unless the signature is still to come.
func (d *download) verifier(ask *trust.ACI, late bool) (*trust.Verifier, error) {
	if late {
		return nil, nil
	}
	return d.opt.Policy.ACI(d.ctx, *ask)
}

// signature gets the signature: the one that the user gave, else the one that is
// published beside the image. It says whether the server wants to be asked again
// later.
func (d *download) signature(ask *trust.ACI) (late bool) {
	if d.opt.Policy.AllowUnsigned {
		return false
	}
	if d.opt.Signature != "" {
		ask.SignatureAt = d.opt.Signature
		ask.Signature, ask.SignatureErr = readSignature(d.opt.Signature, true)
		return false
	}
	head, body, err := d.client.HTTP(d.ctx, fetchwire.HTTPRequest{URL: d.url.Asc, MaxBytes: trust.MaxSignature}, nil)
	switch {
	case errs.Is(err, errs.NotFound):
		return false
	case err != nil:
		ask.SignatureErr = errs.WithClass(errs.ClassOf(err), errs.Newf(errs.Unavailable, "error downloading the signature file: %w", err))
		return false
	}
	defer body.Close()
	if head.Status == statusAccepted {
		return true
	}
	ask.Signature, ask.SignatureErr = readBounded(body, d.url.Asc)
	return false
}

// deferred keeps the image as it comes until its signature is ready, which some
// servers make only then.
func (d *download) deferred(in *aciSource, ask *trust.ACI) error {
	if err := fault.Step("fetch.spool"); err != nil {
		return err
	}
	f, err := os.OpenFile(d.staging.Path("published"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	context.AfterFunc(d.ctx, func() { _ = f.Close() }) // whoever reads it ends
	if _, err := io.Copy(f, in.published); err != nil {
		return errors.Join(err, f.Close())
	}
	if d.signature(ask) {
		ask.SignatureErr = errs.Newf(errs.Unavailable, "it is not ready yet, says the server")
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return errors.Join(err, f.Close())
	}
	in.published, in.signature = f, ask.Signature
	in.verifier, err = d.opt.Policy.ACI(d.ctx, *ask)
	return err
}
