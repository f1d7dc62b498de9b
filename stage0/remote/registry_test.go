package remote

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
)

// quiet takes what servers say about connections that were cut.
var quiet = log.New(io.Discard, "", 0)

const ociManifest = "application/vnd.oci.image.manifest.v1+json"

func TestManifestByTagAndDigest(t *testing.T) {
	h := serve(t, true)
	data := []byte(`{"schemaVersion":2}`)
	d := h.manifest("latest", ociManifest, data)
	c := client(t, setup(h), nil)
	for _, ref := range []string{"latest", d} {
		head, got, err := c.Manifest(t.Context(), fetchwire.ManifestRequest{Repository: h.repo(), Reference: ref})
		if err != nil || !bytes.Equal(got, data) || head.Digest != d || head.MediaType != ociManifest || head.Status != http.StatusOK {
			t.Fatalf("%s: %+v, %q, %v", ref, head, got, err)
		}
	}
	for _, kind := range []string{
		"application/vnd.docker.distribution.manifest.v2+json", "application/vnd.docker.distribution.manifest.list.v2+json",
		"application/vnd.oci.image.index.v1+json", "application/vnd.oci.image.index.v1+json; charset=utf-8",
	} {
		h.manifest("kind", kind, data)
		want, _, _ := strings.Cut(kind, ";")
		if head, _, err := c.Manifest(t.Context(), fetchwire.ManifestRequest{Repository: h.repo(), Reference: "kind"}); err != nil || head.MediaType != want {
			t.Errorf("%s: %+v, %v", kind, head, err)
		}
	}
	h.asked()
	for what, r := range map[string]fetchwire.ManifestRequest{
		"HEAD /v2/app/manifests/latest": {KnownDigest: d},
		"GET /v2/app/manifests/latest":  {IfNoneMatch: `"latest"`},
	} {
		r.Repository, r.Reference = h.repo(), "latest"
		head, got, err := c.Manifest(t.Context(), r)
		if asked := h.asked(); err != nil || len(got) != 0 || head.Status != http.StatusNotModified || !slices.Equal(asked, []string{what}) {
			t.Errorf("%s: %+v, %q, %v after %q", what, head, got, err, asked)
		}
	}
	s, err := c.Sandbox(t.Context())
	if err != nil || len(s.Facts) < 2 {
		t.Errorf("sandbox %+v, %v", s, err)
	}
	t.Log(s)
}

func TestBadManifests(t *testing.T) {
	h := serve(t, true)
	other := h.manifest("html", "text/html", []byte("<html>"))
	h.manifest("old", "application/vnd.docker.distribution.manifest.v1+prettyjws", []byte("{}"))
	h.manifest("big", ociManifest, make([]byte, 5<<20))
	h.handle("/v2/app/manifests/"+digest.Of(digest.SHA256, []byte("x")).OCI(), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", ociManifest)
		_, _ = io.WriteString(w, "y")
	})
	h.handle("/v2/app/manifests/lie", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", ociManifest)
		w.Header().Set("Docker-Content-Digest", other)
		_, _ = io.WriteString(w, "y")
	})
	h.handle("/v2/app/manifests/loop", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/v2/app/manifests/loop", http.StatusFound)
	})
	n := 0
	h.handle("/v2/app/manifests/far", func(w http.ResponseWriter, r *http.Request) {
		n++
		http.Redirect(w, r, "/v2/app/manifests/far?"+strings.Repeat("x", n), http.StatusFound)
	})
	h.handle("/v2/app/manifests/header", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Long", strings.Repeat("x", 100<<10))
	})
	h.handle("/v2/app/manifests/down", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://"+r.Host+"/", http.StatusFound)
	})
	h.handle("/v2/app/manifests/silent", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	h.handle("/v2/app/manifests/drip", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", ociManifest)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			_, _ = io.WriteString(w, "{")
			w.(http.Flusher).Flush()
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
	})
	h.handle("/v2/app/manifests/denied", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	h.handle("/v2/app/manifests/broken", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	c := client(t, setup(h), nil)
	for ref, want := range map[string]struct {
		class errs.Class
		text  string
	}{
		"html":   {errs.Corrupt, `wrong media type: "text/html"`},
		"old":    {errs.Unsupported, "schema 1"},
		"big":    {errs.Corrupt, "more than 4194304 bytes"},
		"none":   {errs.NotFound, "404 Not Found"},
		"lie":    {errs.Corrupt, "wrong digest"},
		"loop":   {errs.Corrupt, "redirect loop"},
		"far":    {errs.Corrupt, "more than 10 redirects"},
		"header": {errs.Corrupt, "header of more than 65536 bytes"},
		"down":   {errs.Denied, "plain http is not allowed"},
		"silent": {errs.Unavailable, "no answer from"},
		"drip":   {errs.Unavailable, "manifest " + h.host() + "/app:drip: no answer from the other side in time"},
		"denied": {errs.Denied, "403 Forbidden"},
		"broken": {errs.Unavailable, "500 Internal"},
		digest.Of(digest.SHA256, []byte("x")).OCI(): {errs.Corrupt, "wrong digest"},
	} {
		_, _, err := c.Manifest(t.Context(), fetchwire.ManifestRequest{Repository: h.repo(), Reference: ref})
		refused(t, ref, err, want.class, want.text)
		if ref == "denied" && fetchwire.Status(err) != http.StatusForbidden {
			t.Errorf("status %d", fetchwire.Status(err))
		}
	}
}

// reply is how a registry lists referrers.
func reply(w http.ResponseWriter, digests ...string) {
	w.Header().Set("Content-Type", "application/vnd.oci.image.index.v1+json")
	index := map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json"}
	manifests := []map[string]any{}
	for _, d := range digests {
		manifests = append(manifests, map[string]any{
			"mediaType": ociManifest, "digest": d, "size": 3, "artifactType": "a/b", "annotations": map[string]string{"k": "v"},
		})
	}
	index["manifests"] = manifests
	_ = json.NewEncoder(w).Encode(index) // to a test
}

func TestReferrers(t *testing.T) {
	h := serve(t, true)
	one, two, three := "sha256:"+strings.Repeat("1", 64), "sha256:"+strings.Repeat("2", 64), "sha256:"+strings.Repeat("3", 64)
	h.handle("/v2/app/referrers/"+one, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("next") == "" {
			w.Header().Set("Link", `</v2/app/referrers/`+one+`?next=1>; rel="next"`)
			reply(w, two)
			return
		}
		reply(w, three)
	})
	// The other registry knows no referrers API, so the tag stands for it.
	old := serve(t, true)
	old.handle("/v2/app/manifests/sha256-"+strings.Repeat("1", 64), func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			w.Header().Set("Content-Type", "application/vnd.oci.image.index.v1+json")
		}
		reply(w, three)
	})
	c := client(t, setup(h, old), nil)
	for _, test := range []struct {
		h      *hostile
		digest string
		want   []string
	}{
		{h, one, []string{two, three}}, {old, one, []string{three}}, {old, two, nil},
	} {
		data, err := c.Referrers(t.Context(), fetchwire.ReferrersRequest{Repository: test.h.repo(), Digest: test.digest})
		if err != nil {
			t.Error(err)
			continue
		}
		var index struct {
			Manifests []struct {
				Digest       string
				ArtifactType string
				Annotations  map[string]string
			}
		}
		if err := json.Unmarshal(data, &index); err != nil || index.Manifests == nil {
			t.Errorf("%s, %v", data, err)
		}
		var got []string
		for _, m := range index.Manifests {
			got = append(got, m.Digest)
			if m.ArtifactType != "a/b" || m.Annotations["k"] != "v" {
				t.Errorf("%+v", m)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %s", test.digest, got)
		}
	}
}

// TestNames: the confined program reads /etc/hosts.
func TestNames(t *testing.T) {
	h := serve(t, false)
	h.manifest("latest", ociManifest, []byte("{}"))
	_, port, _ := strings.Cut(h.host(), ":")
	s := setup()
	s.Registries = []fetchwire.Registry{{Name: "localhost:" + port, PlainHTTP: true}}
	r := fetchwire.ManifestRequest{Repository: fetchwire.Repository{Registry: "localhost:" + port, Name: "app"}, Reference: "latest"}
	if _, _, err := client(t, s, nil).Manifest(t.Context(), r); err != nil {
		t.Error(err)
	}
}

func TestMirrors(t *testing.T) {
	own, mirror, broken := serve(t, true), serve(t, false), serve(t, false)
	blob := random(100_000)
	desc := own.blob(blob)
	mirror.blob(blob)
	h := "/v2/copy/app/blobs/" + desc.Digest
	broken.handle(h, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	s := setup(own)
	s.Registries = []fetchwire.Registry{{Name: own.host(), Mirrors: []fetchwire.Mirror{
		{Host: broken.host(), Prefix: "copy", PlainHTTP: true}, {Host: mirror.host(), Prefix: "copy", PlainHTTP: true},
	}}}
	c := client(t, s, nil)
	got, err := get(t, c, fetchwire.BlobRequest{Repository: own.repo(), Descriptor: desc})
	if err != nil || !bytes.Equal(got, blob) || len(own.asked()) != 0 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if asked := slices.Concat(broken.asked(), mirror.asked()); !slices.Equal(asked, []string{"GET " + h, "GET " + h}) {
		t.Errorf("asked for %q", asked)
	}
	// What no mirror has comes from the registry, and its error is the one.
	own.manifest("latest", ociManifest, []byte("{}"))
	if _, _, err := c.Manifest(t.Context(), fetchwire.ManifestRequest{Repository: own.repo(), Reference: "latest"}); err != nil {
		t.Error(err)
	}
	_, _, err = c.Manifest(t.Context(), fetchwire.ManifestRequest{Repository: own.repo(), Reference: "none"})
	refused(t, "no manifest anywhere", err, errs.NotFound, "(mirror "+broken.host()+":")
}

func TestPlainHTTPOnlyWhereAllowed(t *testing.T) {
	h := serve(t, false)
	h.manifest("latest", ociManifest, []byte("{}"))
	r := fetchwire.ManifestRequest{Repository: h.repo(), Reference: "latest"}
	s := setup(h)
	s.Registries = nil
	_, _, err := client(t, s, nil).Manifest(t.Context(), r)
	refused(t, "plain", err, errs.Denied, "speaks plain http")
	s.InsecureHTTP = true
	if _, _, err := client(t, s, nil).Manifest(t.Context(), r); err != nil {
		t.Error(err)
	}
}

// TestMirrorThatDies: what it began another one goes on with.
func TestMirrorThatDies(t *testing.T) {
	own, mirror := serve(t, true), serve(t, false)
	blob := random(3 << 20)
	desc := own.blob(blob)
	asked := 0
	mirror.handle("/v2/app/blobs/"+desc.Digest, func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked > 1 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		(&hostile{cut: 1 << 20}).serveBlob(w, r, blob)
	})
	s := setup(own)
	s.Registries = []fetchwire.Registry{{Name: own.host(), Mirrors: []fetchwire.Mirror{{Host: mirror.host(), PlainHTTP: true}}}}
	got, err := get(t, client(t, s, nil), fetchwire.BlobRequest{Repository: own.repo(), Descriptor: desc})
	if err != nil || !bytes.Equal(got, blob) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if sent := own.sent.Load(); asked != 2 || sent != 2<<20 {
		t.Errorf("the mirror was asked %d times, the registry sent %d bytes", asked, sent)
	}
}
