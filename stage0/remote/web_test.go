package remote

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
)

func fetch(t *testing.T, c *Client, r fetchwire.HTTPRequest) (fetchwire.Head, []byte, error) {
	t.Helper()
	head, body, err := c.HTTP(t.Context(), r, nil)
	if err != nil {
		return head, nil, err
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	return head, data, err
}

func TestHTTP(t *testing.T) {
	h := serve(t, true)
	aci := random(1 << 20)
	h.handle("/x.aci", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		w.Header().Set("Cache-Control", "public, max-age=60")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(aci))
	})
	h.handle("/x.aci.asc", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
	h.handle("/fresh", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Cache-Control", "max-age=60, no-store") })
	c := client(t, setup(h), nil)
	head, data, err := fetch(t, c, fetchwire.HTTPRequest{URL: h.URL + "/x.aci?key=secret", MaxBytes: 1 << 20})
	want := fetchwire.Head{Status: 200, MediaType: "application/octet-stream", Size: 1 << 20, ETag: `"1"`, MaxAge: 60, URL: h.URL + "/x.aci"}
	head.MediaType = want.MediaType
	if err != nil || !bytes.Equal(data, aci) || head != want {
		t.Errorf("%+v, %d bytes, %v", head, len(data), err)
	}
	head, data, err = fetch(t, c, fetchwire.HTTPRequest{URL: h.URL + "/x.aci", IfNoneMatch: `"1"`})
	if err != nil || head.Status != http.StatusNotModified || len(data) != 0 || head.MaxAge != 60 {
		t.Errorf("%+v, %d bytes, %v", head, len(data), err)
	}
	if head, data, err = fetch(t, c, fetchwire.HTTPRequest{URL: h.URL + "/x.aci.asc"}); err != nil || head.Status != http.StatusAccepted || len(data) != 0 {
		t.Errorf("%+v, %d bytes, %v", head, len(data), err)
	}
	if head, _, err = fetch(t, c, fetchwire.HTTPRequest{URL: h.URL + "/fresh"}); err != nil || head.MaxAge != 0 {
		t.Errorf("%+v, %v", head, err)
	}
	_, _, err = fetch(t, c, fetchwire.HTTPRequest{URL: h.URL + "/x.aci", MaxBytes: 1<<20 - 1})
	refused(t, "too long", err, errs.Corrupt, "more than 1048575 bytes")
	_, _, err = fetch(t, c, fetchwire.HTTPRequest{URL: h.URL + "/none"})
	refused(t, "not there", err, errs.NotFound, "404 Not Found")
	_, _, err = fetch(t, c, fetchwire.HTTPRequest{URL: "ftp://" + h.host() + "/x"})
	refused(t, "ftp", err, errs.Denied, "neither https nor http")
	_, _, err = fetch(t, c, fetchwire.HTTPRequest{URL: "/x"})
	refused(t, "no host", err, errs.Usage, "names no host")
}

func TestHTTPEndless(t *testing.T) {
	h := serve(t, true)
	h.handle("/endless", func(w http.ResponseWriter, r *http.Request) {
		for buf := make([]byte, 32<<10); r.Context().Err() == nil; {
			if _, err := w.Write(buf); err != nil {
				return
			}
		}
	})
	_, _, err := fetch(t, client(t, setup(h), nil), fetchwire.HTTPRequest{URL: h.URL + "/endless", MaxBytes: 10 << 20})
	refused(t, "endless", err, errs.Corrupt, "more than 10485760 bytes")
}

// TestHTTPGoesOn: after a cut the rest is asked for with a validator; of what
// has changed meanwhile nothing is taken for the rest.
func TestHTTPGoesOn(t *testing.T) {
	h := serve(t, true)
	aci := random(3<<20 + 5)
	var changed atomic.Bool
	var sent atomic.Int64
	for path, tag := range map[string]string{"/strong": `"1"`, "/none": ""} {
		h.handle(path, func(w http.ResponseWriter, r *http.Request) {
			content := aci
			if tag != "" {
				w.Header().Set("ETag", tag)
			}
			if changed.Load() && r.Header.Get("If-Range") == tag {
				content = append(random(10), aci[10:]...)
				content[0]++
				w.Header().Set("ETag", `"2"`)
			}
			cut := &cutter{w, &hostile{cut: 2 << 20}}
			defer func() { sent.Add(cut.h.sent.Load()) }()
			http.ServeContent(cut, r, "", time.Time{}, bytes.NewReader(content))
		})
	}
	c := client(t, setup(h), nil)
	r := fetchwire.HTTPRequest{URL: h.URL + "/strong", MaxBytes: 10 << 20}
	if _, data, err := fetch(t, c, r); err != nil || !bytes.Equal(data, aci) || sent.Load() > int64(len(aci))*11/10 {
		t.Errorf("%d bytes of %d sent, %v", len(data), sent.Load(), err)
	}
	// Without a validator there is no rest, and no end of such cuts.
	r.URL = h.URL + "/none"
	_, _, err := fetch(t, c, r)
	refused(t, "no validator", err, errs.Unavailable, "cut off after 2097152 bytes")
	first := true
	h.handle("/changes", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", fmt.Sprintf(`"%t"`, first))
		content := bytes.Clone(aci)
		if !first {
			content[5]++
		}
		first = false
		http.ServeContent(&cutter{w, &hostile{cut: 2 << 20}}, r, "", time.Time{}, bytes.NewReader(content))
	})
	r.URL = h.URL + "/changes"
	_, _, err = fetch(t, c, r)
	refused(t, "changed", err, errs.Corrupt, "changed while it was being fetched")
}

func TestHTTPCredential(t *testing.T) {
	h := serve(t, true)
	h.handle("/x.asc", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("Authorization"))
	})
	for want, k := range map[string]fetchwire.Credential{
		"Basic dTpw": {User: "u", Password: "p"}, "Bearer tok": {Token: "tok"}, "": {},
	} {
		if _, data, err := fetch(t, client(t, setup(h), (&keeper{Credential: k}).find), fetchwire.HTTPRequest{URL: h.URL + "/x.asc"}); err != nil || string(data) != want {
			t.Errorf("%q, %v", data, err)
		}
	}
}

func page(h *hostile, path, text string) {
	h.handle(path, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("ac-discovery") != "1" {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, strings.ReplaceAll(text, "HOST", h.host()))
	})
}

func TestDiscovery(t *testing.T) {
	h := serve(t, true)
	page(h, "/deep", `<!DOCTYPE html><head>
		<META name="ac-discovery" content="HOST/deep https://HOST/{os}/{arch}/{name}-{version}.{ext}">
		<meta name="ac-discovery" content="HOST/deep https://HOST/{flavour}.{ext}"/>
		<meta name="ac-discovery" content="HOST/deep http://HOST/plain.{ext}">
		<meta name="ac-discovery" content="HOST/deep https://HOST/no-ext">
		<meta name="ac-discovery" content="HOST/other https://HOST/other.{ext}">
		<meta name="ac-discovery" content="HOST/deep https://HOST/two{ext}">
		<meta name="ac-discovery" content="one-word">
		<meta name="ac-discovery-pubkeys" content="elsewhere https://HOST/wrong.gpg">
		</head><body>&lt;meta`)
	page(h, "/", `<meta name="ac-discovery" content="HOST https://HOST/up.{ext}"><meta name="ac-discovery-pubkeys" content="HOST https://HOST/keys.gpg">`)
	h.handle("/deep/er", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>nothing") })
	c := client(t, setup(h), nil)
	r := fetchwire.DiscoverRequest{Name: h.host() + "/deep/er/app", Labels: map[string]string{"os": "linux", "arch": "amd64"}}
	d, err := c.Discover(t.Context(), r)
	host := "https://" + h.host()
	want := fetchwire.Discovery{
		Page: h.host() + "/deep", KeyPage: h.host(), Keys: []string{host + "/keys.gpg"}, Images: []fetchwire.ImageURL{
			{ACI: host + "/linux/amd64/" + r.Name + "-latest.aci", Asc: host + "/linux/amd64/" + r.Name + "-latest.aci.asc"},
			{ACI: host + "/twoaci", Asc: host + "/twoaci.asc"},
		},
	}
	if err != nil || !reflect.DeepEqual(d, want) {
		t.Errorf("%+v, %v", d, err)
	}
	r.ImagesOnly = true
	h.asked()
	r.Labels["version"], r.Labels["flavour"] = "1.0", "f"
	if d, err = c.Discover(t.Context(), r); err != nil || len(d.Images) != 3 || d.Images[0].ACI != host+"/linux/amd64/"+r.Name+"-1.0.aci" || d.Images[1].ACI != host+"/f.aci" {
		t.Errorf("%+v, %v", d, err)
	}
	if asked := h.asked(); len(asked) != 3 {
		t.Errorf("asked for %q", asked)
	}
}

func TestDiscoveryFails(t *testing.T) {
	h, plain := serve(t, true), serve(t, false)
	page(h, "/app", `<meta name="ac-discovery" content="HOST/app http://HOST/plain.{ext}">`)
	c := client(t, setup(h), nil)
	_, err := c.Discover(t.Context(), fetchwire.DiscoverRequest{Name: h.host() + "/app"})
	refused(t, "only plain http", err, errs.NotFound, "page "+h.host()+"/app: no tag that fits; get https://"+h.host())
	page(plain, "/app", `<meta name="ac-discovery" content="HOST/app http://HOST/plain.{ext}">`)
	_, err = c.Discover(t.Context(), fetchwire.DiscoverRequest{Name: plain.host() + "/app"})
	refused(t, "no https", err, errs.Denied, "speaks plain http")
	h.handle("/down", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, plain.URL+"/app?ac-discovery=1", http.StatusFound)
	})
	_, err = c.Discover(t.Context(), fetchwire.DiscoverRequest{Name: h.host() + "/down"})
	refused(t, "redirect to plain http", err, errs.NotFound, "plain http is not allowed")
	s := setup(h)
	s.InsecureHTTP = true
	d, err := client(t, s, nil).Discover(t.Context(), fetchwire.DiscoverRequest{Name: plain.host() + "/app"})
	if err != nil || len(d.Images) != 1 || d.Images[0].ACI != plain.URL+"/plain.aci" {
		t.Errorf("%+v, %v", d, err)
	}
}
