package remote

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
	"github.com/rkt-pods/rkt/tests/rktfetch"
)

// program is rkt-fetch, built as it is released.
var program string

func TestMain(m *testing.M) {
	os.Exit(testMain(m))
}

// asRkt in the environment makes this program a rkt that starts the rkt-fetch
// that it names.
const asRkt = "RKT_TEST_START"

func testMain(m *testing.M) int {
	if path := os.Getenv(asRkt); path != "" {
		return beRkt(path)
	}
	program = rktfetch.Program()
	return rktfetch.Main(m)
}

// hostile is a registry, and a web server, that can be told to misbehave.
type hostile struct {
	*httptest.Server
	mu        sync.Mutex
	blobs     map[string][]byte
	manifests map[string][]byte // by tag and digest
	types     map[string]string
	handlers  map[string]http.HandlerFunc // before all others, by path
	sent      atomic.Int64                // bytes of blobs
	cut       int64                       // each answer ends after as many bytes
	noRange   bool
	requests  []string
}

// serve starts a server, with the certificate of httptest if it speaks TLS.
func serve(t *testing.T, secure bool) *hostile {
	t.Helper()
	if secure {
		return serveWith(t, &tls.Config{})
	}
	return serveWith(t, nil)
}

func serveWith(t *testing.T, config *tls.Config) *hostile {
	t.Helper()
	h := &hostile{
		blobs: map[string][]byte{}, manifests: map[string][]byte{}, types: map[string]string{}, handlers: map[string]http.HandlerFunc{},
	}
	h.Server = httptest.NewUnstartedServer(h)
	h.Config.ErrorLog = quiet
	if config != nil {
		h.TLS = config
		h.StartTLS()
	} else {
		h.Start()
	}
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	return h
}

func (h *hostile) host() string { return h.Listener.Addr().String() }

func (h *hostile) handle(path string, f http.HandlerFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handlers[path] = f
}

func (h *hostile) blob(data []byte) fetchwire.Descriptor {
	d := digest.Of(digest.SHA256, data).OCI()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.blobs[d] = data
	return fetchwire.Descriptor{Digest: d, Size: int64(len(data))}
}

func (h *hostile) manifest(tag, kind string, data []byte) string {
	d := digest.Of(digest.SHA256, data).OCI()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.manifests[tag], h.manifests[d] = data, data
	h.types[tag], h.types[d] = kind, kind
	return d
}

func (h *hostile) asked() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.requests
	h.requests = nil
	return all
}

// ServeHTTP answers as a registry does that has one repository, app.
func (h *hostile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.requests = append(h.requests, r.Method+" "+r.URL.Path)
	special := h.handlers[r.URL.Path]
	last := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	manifest, isManifest := h.manifests[last]
	kind := h.types[last]
	blob, isBlob := h.blobs[last]
	h.mu.Unlock()
	switch {
	case special != nil:
		special(w, r)
	case isManifest && strings.Contains(r.URL.Path, "/manifests/"):
		w.Header().Set("Docker-Content-Digest", digest.Of(digest.SHA256, manifest).OCI())
		w.Header().Set("Content-Type", kind)
		w.Header().Set("ETag", `"`+last+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(manifest))
	case isBlob && strings.Contains(r.URL.Path, "/blobs/"):
		h.serveBlob(w, r, blob)
	default:
		http.NotFound(w, r)
	}
}

func (h *hostile) serveBlob(w http.ResponseWriter, r *http.Request, blob []byte) {
	if h.noRange {
		r.Header.Del("Range")
		w.Header().Set("Accept-Ranges", "none")
		w.Header().Set("Content-Length", strconv.Itoa(len(blob)))
		_, _ = (&cutter{w, h}).Write(blob)
		return
	}
	w.Header().Set("ETag", `"`+strconv.Itoa(len(blob))+`"`)
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(&cutter{w, h}, r, "", time.Time{}, bytes.NewReader(blob))
}

// cutter ends a connection in the middle.
type cutter struct {
	http.ResponseWriter
	h *hostile
}

// Write is for bodies that come at once.
func (c *cutter) Write(p []byte) (int, error) {
	n, err := c.ReadFrom(bytes.NewReader(p))
	return int(n), err
}

// ReadFrom writes until the cut.
func (c *cutter) ReadFrom(r io.Reader) (int64, error) {
	if c.h.cut <= 0 {
		n, err := io.Copy(struct{ io.Writer }{c.ResponseWriter}, r)
		c.h.sent.Add(n)
		return n, err
	}
	n, err := io.CopyN(struct{ io.Writer }{c.ResponseWriter}, r, c.h.cut)
	c.h.sent.Add(n)
	if err != nil { // less than the cut: the rest
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return n, err
	}
	c.ResponseWriter.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

// setup is a set-up that trusts the servers and does not wait long.
func setup(servers ...*hostile) fetchwire.Setup {
	s := fetchwire.Setup{UserAgent: "test", Limits: fetchwire.Limits{
		Connect: 2 * time.Second, Response: 2 * time.Second, Stall: time.Second, Total: 4 * time.Second,
		RetryWait: 3 * time.Second, Attempts: 3,
	}}
	for _, h := range servers {
		if c := h.Certificate(); c != nil {
			s.Roots += string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
		} else {
			s.Registries = append(s.Registries, fetchwire.Registry{Name: h.host(), PlainHTTP: true})
		}
	}
	return s
}

type credentials func(context.Context, fetchwire.CredentialRequest) (fetchwire.Credential, error)

func client(t *testing.T, s fetchwire.Setup, c credentials) *Client {
	t.Helper()
	made, err := Start(t.Context(), Options{Program: program, Setup: s, Credentials: c})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { made.Close() })
	return made
}

func (h *hostile) repo() fetchwire.Repository {
	return fetchwire.Repository{Registry: h.host(), Name: "app"}
}

// get reads a blob to its end.
func get(t *testing.T, c *Client, r fetchwire.BlobRequest) ([]byte, error) {
	t.Helper()
	_, body, err := c.Blob(t.Context(), r, BlobOptions{})
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(body)
}

// random are bytes that nothing makes smaller.
func random(n int) []byte {
	data := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(data) // never fails
	return data
}

func gzipped(data []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(data) // into memory
	z.Close()
	return b.Bytes()
}

// refused checks how something failed.
func refused(t *testing.T, what string, err error, class errs.Class, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) || errs.ClassOf(err) != class {
		t.Errorf("%s: %v (%s), want %q (%s)", what, err, errs.ClassOf(err), text, class)
	}
}
