package fetch

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/ref"
	"github.com/rkt-pods/rkt/stage0/remote"
	"github.com/rkt-pods/rkt/stage0/store"
	"github.com/rkt-pods/rkt/tests/images"
	"github.com/rkt-pods/rkt/tests/rktfetch"
)

// website publishes files by plain http.
type website struct {
	t  *testing.T
	st *store.Store

	mu       sync.Mutex
	files    map[string][]byte
	maxAge   int
	requests []string
}

func newWebsite(t *testing.T) *website {
	return &website{t: t, st: newStore(t), files: map[string][]byte{}}
}

// ServeHTTP implements http.Handler.
func (w *website) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests = append(w.requests, r.URL.String())
	data, ok := w.files[r.URL.Path]
	if !ok {
		http.NotFound(out, r)
		return
	}
	tag := fmt.Sprintf("%q", images.Digest(data))
	out.Header().Set("ETag", tag)
	if w.maxAge > 0 {
		out.Header().Set("Cache-Control", fmt.Sprintf("max-age=%d", w.maxAge))
	}
	if r.Header.Get("If-None-Match") == tag {
		out.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = out.Write(data) // the client may be gone
}

func (w *website) put(name string, data []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.files[name] = data
}

func (w *website) fetch(pull Pull, arg string) (image.Record, []string, error) {
	w.t.Helper()
	w.mu.Lock()
	w.requests = nil
	w.mu.Unlock()
	f := &Fetcher{Store: w.st, Pull: pull, Options: Options{Policy: unsigned}}
	f.Options.Decompressor = remote.NewDecompressor(rktfetch.Program(), fetchwire.Limits{})
	f.Network = func(context.Context) (remote.Options, error) {
		return remote.Options{Program: rktfetch.Program(), Setup: fetchwire.Setup{InsecureHTTP: true}}, nil
	}
	defer f.Close()
	rec, err := f.Resolve(w.t.Context(), must(ref.Parse(arg, func(string) bool { return false })))
	w.mu.Lock()
	defer w.mu.Unlock()
	return rec, w.requests, err
}

func someACI(name, version, content string, dependencies ...string) []byte {
	manifest := strings.TrimSuffix(images.Manifest(name, version, []string{"/bin/true"}), "}")
	if len(dependencies) > 0 {
		manifest += `,"dependencies":[{"imageName":"` + strings.Join(dependencies, `"},{"imageName":"`) + `"}]`
	}
	aci := must(images.ACI(manifest+"}", []images.Entry{images.File("f", 0o644, content)}))
	return must(images.Compress(images.Gzip, aci))
}

func TestACIByURL(t *testing.T) {
	w := newWebsite(t)
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	w.put("/x.aci", someACI("example.com/x", "1", "one"))
	url := server.URL + "/x.aci"
	first, requests, err := w.fetch(PullNew, url)
	if err != nil || first.Name != "example.com/x" || len(requests) != 1 {
		t.Fatalf("%+v, %v, requests %q", first, err, requests)
	}
	if rec, requests, err := w.fetch(PullNew, url); err != nil || rec.ID != first.ID || len(requests) > 0 {
		t.Errorf("new: %v, %v, requests %q", rec.ID, err, requests)
	}
	if rec, requests, err := w.fetch(PullUpdate, url); err != nil || rec.ID != first.ID || len(requests) != 1 {
		t.Errorf("update: %v, %v, requests %q", rec.ID, err, requests)
	}
	w.put("/x.aci", someACI("example.com/x", "1", "two"))
	w.maxAge = 3600
	second, _, err := w.fetch(PullUpdate, url)
	if err != nil || second.ID == first.ID {
		t.Fatalf("changed: %v, %v", second.ID, err)
	}
	if rec, requests, err := w.fetch(PullUpdate, url); err != nil || rec.ID != second.ID || len(requests) > 0 {
		t.Errorf("within max-age: %v, %v, requests %q", rec.ID, err, requests)
	}
	if _, _, err := w.fetch(PullUpdate, server.URL+"/none.aci"); !errs.Is(err, errs.NotFound) {
		t.Errorf("none: %v", err)
	}
	w.put("/cut.aci", someACI("example.com/x", "1", noise(1, 10000))[:5000])
	if _, _, err := w.fetch(PullUpdate, server.URL+"/cut.aci"); !errs.Is(err, errs.Corrupt) {
		t.Errorf("cut: %v", err)
	}
}

// TestDiscovery finds an image by its name, and what it depends on too. What is
// not what was asked for is refused.
func TestDiscovery(t *testing.T) {
	// A name has no port, so the site has to have an address of its own.
	l, err := net.Listen("tcp", "127.3.2.1:80")
	if err != nil {
		t.Fatal(err)
	}
	w := newWebsite(t)
	server := httptest.NewUnstartedServer(w)
	_ = server.Listener.Close() // its own place, that nobody has asked for anything
	server.Listener = l
	server.Start()
	t.Cleanup(server.Close)
	const host = "127.3.2.1"
	page := fmt.Sprintf(`<meta name="ac-discovery" content="%s http://%[1]s/{name}-{version}.{ext}">`, host)
	w.put("/app", []byte(page))
	w.put("/base", []byte(page))
	w.put("/other", []byte(page))
	w.put("/"+host+"/app-1.aci", someACI(host+"/app", "1", "app", host+"/base"))
	w.put("/"+host+"/base-latest.aci", someACI(host+"/base", "7", "base"))
	w.put("/"+host+"/other-1.aci", someACI(host+"/app", "1", "other"))
	rec, _, err := w.fetch(PullNew, host+"/app:1")
	if err != nil {
		t.Fatal(err)
	}
	if len(rec.Layers) != 2 || len(rec.Depends) != 1 {
		t.Errorf("layers %q, depends %q", rec.Layers, rec.Depends)
	}
	if again, requests, err := w.fetch(PullNew, host+"/app:1"); err != nil || again.ID != rec.ID || len(requests) > 0 {
		t.Errorf("again: %v, %v, requests %q", again.ID, err, requests)
	}
	if other, _, err := w.fetch(PullNew, host+"/other:1"); !errs.Is(err, errs.Denied) || !strings.Contains(err.Error(), "is "+host+"/app:1") {
		t.Errorf("another name: %v, %v", other.ID, err)
	}
	if _, requests, err := w.fetch(PullNew, "busybox"); !errs.Is(err, errs.NotFound) || len(requests) > 0 {
		t.Errorf("no host: %v, requests %q", err, requests)
	}
	if left, err := filepath.Glob(filepath.Join(w.st.Data(), "store/tmp/*")); err != nil || len(left) > 0 {
		t.Errorf("left %q, %v", left, err)
	}
}
