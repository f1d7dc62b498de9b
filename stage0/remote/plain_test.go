package remote

import (
	"bufio"
	"bytes"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
)

// TestPlainRegistryThatFailsLater: where a registry was found to speak no TLS, what
// it says later is the error, and not that once more.
func TestPlainRegistryThatFailsLater(t *testing.T) {
	h := serve(t, false)
	blob := random(3 << 20)
	desc := h.blob(blob)
	path := "/v2/app/blobs/" + desc.Digest
	s := setup()
	s.InsecureHTTP = true
	for status, want := range map[int]string{http.StatusInternalServerError: "answers 500", http.StatusForbidden: "answers 403"} {
		asked := 0
		h.handle(path, func(w http.ResponseWriter, r *http.Request) {
			if asked++; asked > 1 {
				w.WriteHeader(status)
				return
			}
			(&hostile{cut: 1 << 20}).serveBlob(w, r, blob)
		})
		_, err := get(t, client(t, s, nil), fetchwire.BlobRequest{Repository: h.repo(), Descriptor: desc})
		class := errs.Unavailable
		if status == http.StatusForbidden {
			class = errs.Denied
		}
		refused(t, want, err, class, want)
	}
	// One that can't give a rest is asked for all.
	asked := 0
	h.handle(path, func(w http.ResponseWriter, r *http.Request) {
		asked++
		switch {
		case r.Header.Get("Range") != "":
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		case asked == 1:
			(&hostile{cut: 1 << 20}).serveBlob(w, r, blob)
		default:
			(&hostile{}).serveBlob(w, r, blob)
		}
	})
	got, err := get(t, client(t, s, nil), fetchwire.BlobRequest{Repository: h.repo(), Descriptor: desc})
	if err != nil || !bytes.Equal(got, blob) || asked != 3 {
		t.Errorf("%d bytes after %d requests, %v", len(got), asked, err)
	}
}

// TestPlainMirrors: for each mirror by itself it is found out whether it speaks TLS.
func TestPlainMirrors(t *testing.T) {
	own, empty, mirror := serve(t, true), serve(t, true), serve(t, false)
	blob := random(1000)
	desc := mirror.blob(blob)
	s := setup(own, empty)
	s.InsecureHTTP = true
	s.Registries = []fetchwire.Registry{{Name: own.host(), Mirrors: []fetchwire.Mirror{{Host: empty.host()}, {Host: mirror.host()}}}}
	got, err := get(t, client(t, s, nil), fetchwire.BlobRequest{Repository: own.repo(), Descriptor: desc})
	if err != nil || !bytes.Equal(got, blob) || len(own.asked()) > 0 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// rude answers a TLS handshake with what is neither TLS nor HTTP.
type rude struct{ net.Listener }

// Accept waits for the next connection that is in the clear.
func (l rude) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		r := bufio.NewReader(c)
		if first, err := r.Peek(1); err != nil || first[0] != 0x16 {
			return peeked{c, r}, nil
		}
		_, _ = c.Write([]byte("<html>what?\n")) // the client may be gone
		c.Close()
	}
}

// peeked is a connection whose first bytes were looked at.
type peeked struct {
	net.Conn
	r *bufio.Reader
}

func (p peeked) Read(b []byte) (int, error) { return p.r.Read(b) }

func TestRudePlainRegistry(t *testing.T) {
	h := serve(t, false)
	h.manifest("latest", ociManifest, []byte("{}"))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := http.Server{Handler: h}
	go func() { _ = server.Serve(rude{l}) }() // until it is closed
	t.Cleanup(func() { server.Close() })
	r := fetchwire.ManifestRequest{Repository: fetchwire.Repository{Registry: l.Addr().String(), Name: "app"}, Reference: "latest"}
	s := setup()
	_, _, err = client(t, s, nil).Manifest(t.Context(), r)
	refused(t, "plain", err, errs.Corrupt, "does not speak TLS")
	if len(errs.Hints(err)) == 0 {
		t.Errorf("no hint: %v", err)
	}
	s.InsecureHTTP = true
	if _, _, err := client(t, s, nil).Manifest(t.Context(), r); err != nil {
		t.Error(err)
	}
}

// TestProgramThatFailsAtOnce: why it did is told, however the race with the first
// message ends.
func TestProgramThatFailsAtOnce(t *testing.T) {
	r := fetchwire.ManifestRequest{Repository: fetchwire.Repository{Registry: "reg.example", Name: "app"}, Reference: "latest"}
	for range 50 {
		c, err := Start(t.Context(), Options{Program: "/bin/false", Setup: fetchwire.Setup{UserAgent: strings.Repeat("x", 100<<10)}})
		if err == nil {
			_, _, err = c.Manifest(t.Context(), r)
			c.Close()
		}
		refused(t, "start", err, errs.Unavailable, "rkt-fetch ended: exit status 1")
	}
}
