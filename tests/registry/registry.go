// Package registry is a container registry for tests: it serves OCI image
// layouts by the distribution API from a folder, counts what it is asked for,
// and misbehaves when it is told to.
package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// Registry serves the layouts below a folder: the repository a/b is the layout
// in a/b. It may be changed while it serves.
type Registry struct {
	Dir string

	mu       sync.Mutex
	requests []string
	sent     int64 // bytes of blobs
	cut      int64
	wrong    map[string]bool
	fail     map[string]int
	gate     chan struct{}
	held     string // the blob that waits at the gate; "": each
}

// New serves the layouts below dir.
func New(dir string) *Registry {
	return &Registry{Dir: dir, wrong: map[string]bool{}, fail: map[string]int{}}
}

// CutEvery ends a connection after so many bytes of a blob.
func (r *Registry) CutEvery(n int64) { r.set(func() { r.cut = n }) }

// WrongOnce answers the next request for a blob with other bytes of the same
// length.
func (r *Registry) WrongOnce(digest string) { r.set(func() { r.wrong[digest] = true }) }

// Fail answers requests whose path contains a part with a status.
func (r *Registry) Fail(part string, status int) { r.set(func() { r.fail[part] = status }) }

// Hold lets no blob out until Release.
func (r *Registry) Hold() { r.HoldBlob("") }

// HoldBlob does not let the blob out until Release.
func (r *Registry) HoldBlob(digest string) {
	r.set(func() { r.gate, r.held = make(chan struct{}), digest })
}

// Release lets the blobs out.
func (r *Registry) Release() {
	r.set(func() {
		if r.gate != nil {
			close(r.gate)
			r.gate = nil
		}
	})
}

// Take returns the requests since the last call, as "METHOD path", and how many
// bytes of blobs were sent.
func (r *Registry) Take() (requests []string, sent int64) {
	r.set(func() {
		requests, sent = r.requests, r.sent
		r.requests, r.sent = nil, 0
	})
	return requests, sent
}

func (r *Registry) set(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// ServeHTTP implements http.Handler.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	status, gate := 0, (chan struct{})(nil)
	r.set(func() {
		r.requests = append(r.requests, req.Method+" "+req.URL.Path)
		for part, s := range r.fail {
			if strings.Contains(req.URL.Path, part) {
				status = s
			}
		}
		if strings.HasSuffix(req.URL.Path, r.held) {
			gate = r.gate
		}
	})
	if status != 0 {
		http.Error(w, http.StatusText(status), status)
		return
	}
	path, ok := strings.CutPrefix(req.URL.Path, "/v2/")
	if !ok {
		http.NotFound(w, req)
		return
	}
	if path == "" {
		return // it is a registry
	}
	for _, kind := range []string{"manifests", "blobs", "referrers"} {
		repo, what, ok := strings.Cut(path, "/"+kind+"/")
		if !ok {
			continue
		}
		layout := filepath.Join(r.Dir, filepath.FromSlash(repo))
		switch kind {
		case "manifests":
			manifest(w, req, layout, what)
		case "referrers":
			referrers(w, layout, what)
		default:
			if gate != nil {
				select {
				case <-gate:
				case <-req.Context().Done():
					return
				}
			}
			r.blob(w, req, layout, what)
		}
		return
	}
	http.NotFound(w, req)
}

type descriptor struct {
	MediaType    string            `json:"mediaType"`
	Digest       string            `json:"digest"`
	Size         int64             `json:"size"`
	ArtifactType string            `json:"artifactType,omitempty"`
	Annotations  map[string]string `json:"annotations,omitempty"`
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

func readIndex(layout string) (i index, err error) {
	raw, err := os.ReadFile(filepath.Join(layout, "index.json"))
	if err == nil {
		err = json.Unmarshal(raw, &i)
	}
	return i, err
}

func blobFile(layout, digest string) string {
	return filepath.Join(layout, "blobs", filepath.FromSlash(strings.Replace(filepath.Base(digest), ":", "/", 1)))
}

// manifest answers with what the tag of a layout, or a digest, names.
func manifest(w http.ResponseWriter, req *http.Request, layout, what string) {
	if !strings.Contains(what, ":") {
		i, err := readIndex(layout)
		for _, d := range i.Manifests {
			name := d.Annotations["org.opencontainers.image.ref.name"]
			if name[strings.LastIndexByte(name, ':')+1:] == what {
				what = d.Digest
			}
		}
		if err != nil || !strings.Contains(what, ":") {
			http.Error(w, `{"errors":[{"code":"MANIFEST_UNKNOWN"}]}`, http.StatusNotFound)
			return
		}
	}
	raw, err := os.ReadFile(blobFile(layout, what))
	var m struct {
		MediaType string          `json:"mediaType"`
		Manifests json.RawMessage `json:"manifests"`
	}
	if err != nil || json.Unmarshal(raw, &m) != nil {
		http.Error(w, `{"errors":[{"code":"MANIFEST_UNKNOWN"}]}`, http.StatusNotFound)
		return
	}
	if m.MediaType == "" {
		m.MediaType = "application/vnd.oci.image.manifest.v1+json"
		if m.Manifests != nil {
			m.MediaType = "application/vnd.oci.image.index.v1+json"
		}
	}
	w.Header().Set("Content-Type", m.MediaType)
	w.Header().Set("Docker-Content-Digest", what)
	w.Header().Set("Content-Length", strconv.Itoa(len(raw)))
	if req.Method != http.MethodHead {
		_, _ = w.Write(raw) // the client may be gone
	}
}

// referrers lists the manifests of the layout's index whose subject is the
// digest.
func referrers(w http.ResponseWriter, layout, what string) {
	out := index{SchemaVersion: 2, MediaType: "application/vnd.oci.image.index.v1+json", Manifests: []descriptor{}}
	i, err := readIndex(layout)
	if err != nil {
		http.NotFound(w, nil)
		return
	}
	for _, d := range i.Manifests {
		var m struct {
			ArtifactType string      `json:"artifactType"`
			Subject      *descriptor `json:"subject"`
		}
		raw, err := os.ReadFile(blobFile(layout, d.Digest))
		if err == nil && json.Unmarshal(raw, &m) == nil && m.Subject != nil && m.Subject.Digest == what {
			d.ArtifactType = m.ArtifactType
			out.Manifests = append(out.Manifests, d)
		}
	}
	w.Header().Set("Content-Type", out.MediaType)
	_ = json.NewEncoder(w).Encode(out) // the client may be gone
}

func (r *Registry) blob(w http.ResponseWriter, req *http.Request, layout, what string) {
	f, err := os.Open(blobFile(layout, what))
	if errors.Is(err, fs.ErrNotExist) {
		http.Error(w, `{"errors":[{"code":"BLOB_UNKNOWN"}]}`, http.StatusNotFound)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	out := &counted{ResponseWriter: w, registry: r}
	r.set(func() {
		out.left = r.cut
		if r.wrong[what] && req.Method == http.MethodGet {
			delete(r.wrong, what)
			out.wrong = true
		}
	})
	w.Header().Set("ETag", fmt.Sprintf("%q", what))
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(out, req, "", info.ModTime(), f)
}

// counted counts the bytes of a body, cuts it, and changes it.
type counted struct {
	http.ResponseWriter
	registry *Registry
	left     int64 // 0: no limit
	wrong    bool
}

// Write writes the next bytes of the body.
func (c *counted) Write(p []byte) (int, error) {
	if c.wrong {
		p = append([]byte{}, p...)
		for i := range p {
			p[i] ^= 0x55
		}
	}
	cut := c.left > 0 && int64(len(p)) >= c.left
	if cut {
		p = p[:c.left]
	}
	n, err := c.ResponseWriter.Write(p)
	c.registry.set(func() { c.registry.sent += int64(n) })
	if c.left -= int64(n); cut && err == nil {
		if f, ok := c.ResponseWriter.(http.Flusher); ok {
			f.Flush()
		}
		panic(http.ErrAbortHandler) // ends the connection, with no word of it in the log
	}
	return n, err
}
