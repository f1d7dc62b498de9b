package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
)

// keeper answers with one credential and remembers the questions.
type keeper struct {
	fetchwire.Credential
	mu    sync.Mutex
	asked []fetchwire.CredentialRequest
}

func (k *keeper) find(_ context.Context, r fetchwire.CredentialRequest) (fetchwire.Credential, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked = append(k.asked, r)
	return k.Credential, nil
}

// guard wants the header on a path and serves the blob.
func (h *hostile) guard(path, authorization, challenge string, blob []byte) {
	h.handle(path, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != authorization {
			w.Header().Set("WWW-Authenticate", challenge)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write(blob)
	})
}

func TestBasicAuth(t *testing.T) {
	h := serve(t, true)
	desc := h.blob([]byte("secret"))
	r := fetchwire.BlobRequest{Repository: h.repo(), Descriptor: desc}
	h.guard("/v2/app/blobs/"+desc.Digest, "Basic dTpw", `Basic realm="x"`, []byte("secret"))
	k := &keeper{Credential: fetchwire.Credential{User: "u", Password: "p"}}
	c := client(t, setup(h), k.find)
	if got, err := get(t, c, r); err != nil || string(got) != "secret" {
		t.Errorf("%q, %v", got, err)
	}
	if want := (fetchwire.CredentialRequest{Kind: fetchwire.ForRegistry, Host: h.host(), Repository: "app"}); !slices.Contains(k.asked, want) {
		t.Errorf("asked for %+v", k.asked)
	}
	_, err := get(t, client(t, setup(h), nil), r)
	refused(t, "no password", err, errs.Denied, "wants a user and a password, and none is known")
	if fetchwire.Status(err) != http.StatusUnauthorized {
		t.Errorf("status %d", fetchwire.Status(err))
	}
	_, err = get(t, client(t, setup(h), (&keeper{Credential: fetchwire.Credential{User: "u", Password: "q"}}).find), r)
	refused(t, "wrong password", err, errs.Denied, "401 Unauthorized")
	_, err = get(t, client(t, setup(h), func(context.Context, fetchwire.CredentialRequest) (fetchwire.Credential, error) {
		return fetchwire.Credential{}, errs.WithHint(errs.Newf(errs.Denied, "helper says no"), "ask it")
	}), r)
	refused(t, "helper fails", err, errs.Denied, "helper says no")
	if hints := errs.Hints(err); !slices.Contains(hints, "ask it") {
		t.Errorf("hints %q", hints)
	}
}

func TestTokenAuth(t *testing.T) {
	h := serve(t, true)
	desc := h.blob([]byte("secret"))
	r := fetchwire.BlobRequest{Repository: h.repo(), Descriptor: desc}
	realm := fmt.Sprintf(`Bearer realm="%s/token",service="reg"`, h.URL)
	h.guard("/v2/app/blobs/"+desc.Digest, "Bearer tok", realm, []byte("secret"))
	var scope atomic.Value
	h.handle("/token", func(w http.ResponseWriter, r *http.Request) {
		scope.Store(r.FormValue("scope"))
		user, password, _ := r.BasicAuth()
		if r.FormValue("refresh_token") != "re" && (user != "u" || password != "p") {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"token": "tok", "access_token": "tok"}) // to a test
	})
	for what, k := range map[string]fetchwire.Credential{
		"password": {User: "u", Password: "p"}, "identity token": {Refresh: "re"}, "token": {Token: "tok"},
	} {
		got, err := get(t, client(t, setup(h), (&keeper{Credential: k}).find), r)
		if err != nil || string(got) != "secret" {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
	if scope.Load() != "repository:app:pull" {
		t.Errorf("scope %q", scope.Load())
	}
	_, err := get(t, client(t, setup(h), (&keeper{Credential: fetchwire.Credential{User: "u", Password: "wrong"}}).find), r)
	refused(t, "wrong password", err, errs.Denied, "401 Unauthorized")
	// A server that names another one to take the password to, by plain http.
	plain := serve(t, false)
	h.guard("/v2/app/blobs/"+desc.Digest, "Bearer tok", fmt.Sprintf(`Bearer realm="%s/token"`, plain.URL), nil)
	if _, err := get(t, client(t, setup(h), (&keeper{Credential: fetchwire.Credential{User: "u", Password: "p"}}).find), r); err == nil || len(plain.asked()) != 0 {
		t.Errorf("password by plain http: %v", err)
	}
}

// TestCredentialsStayWithTheirHost: storage that a registry redirects to sees
// none of them.
func TestCredentialsStayWithTheirHost(t *testing.T) {
	h, storage := serve(t, true), serve(t, true)
	blob := random(3 << 20)
	desc := h.blob(blob)
	storage.blob(blob)
	var seen []string
	var mu sync.Mutex
	storage.handle("/data", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen = append(seen, r.Header.Get("Authorization")+r.Header.Get("Referer"))
		mu.Unlock()
		r.URL.Path = "/blobs/" + desc.Digest
		storage.serveBlob(w, r, blob)
	})
	storage.cut = 1 << 20
	h.handle("/v2/app/blobs/"+desc.Digest, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Basic dTpw" {
			w.Header().Set("WWW-Authenticate", "Basic realm=x")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		http.Redirect(w, r, storage.URL+"/data?signature=x", http.StatusTemporaryRedirect)
	})
	k := &keeper{Credential: fetchwire.Credential{User: "u", Password: "p"}}
	c := client(t, setup(h, storage), k.find)
	head, body, err := c.Blob(t.Context(), fetchwire.BlobRequest{Repository: h.repo(), Descriptor: desc}, BlobOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	got, err := io.ReadAll(body)
	if err != nil || !bytes.Equal(got, blob) || head.URL != storage.URL+"/data" {
		t.Errorf("%d bytes of %s, %v", len(got), head.URL, err)
	}
	// The redirect of an ACI goes the same way.
	h.handle("/x.aci", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Basic dTpw" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		http.Redirect(w, r, storage.URL+"/data", http.StatusFound)
	})
	_, file, err := c.HTTP(t.Context(), fetchwire.HTTPRequest{URL: h.URL + "/x.aci", MaxBytes: 10 << 20}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if got, err := io.ReadAll(file); err != nil || !bytes.Equal(got, blob) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if len(seen) < 6 || strings.Join(seen, "") != "" {
		t.Errorf("the storage saw %q", seen)
	}
	for _, r := range k.asked {
		if r.Host == storage.host() {
			t.Errorf("asked for %+v", r)
		}
	}
}

// TestStrangersAreNotAskedFor: rkt-fetch gets no credential of a host that no
// request names, whatever it says.
func TestStrangersAreNotAskedFor(t *testing.T) {
	k := &keeper{Credential: fetchwire.Credential{User: "u", Password: "p"}}
	own, other, err := fetchwire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	other.Close()
	c := &Client{opts: Options{Credentials: k.find, Setup: fetchwire.Setup{Registries: []fetchwire.Registry{
		{Name: "reg.example", Mirrors: []fetchwire.Mirror{{Host: "mirror.example"}}}, {Name: "unused.example"},
	}}}, ctx: t.Context(), conn: own, hosts: map[string]bool{}, asks: make(chan struct{}, maxAsks)}
	c.allowRegistry("reg.example")
	c.allow(fetchwire.ForURL, "web.example")
	for _, r := range []fetchwire.CredentialRequest{
		{Kind: fetchwire.ForRegistry, Host: "reg.example"}, {Kind: fetchwire.ForRegistry, Host: "mirror.example"}, {Kind: fetchwire.ForURL, Host: "web.example"},
		{Kind: fetchwire.ForRegistry, Host: "unused.example"}, {Kind: fetchwire.ForURL, Host: "reg.example"}, {Kind: fetchwire.ForRegistry, Host: "web.example"}, {Host: "reg.example"},
	} {
		if err := c.ask(1, r); err != nil {
			t.Fatal(err)
		}
	}
	for range maxAsks { // all are answered
		c.asks <- struct{}{}
	}
	if len(k.asked) != 3 {
		t.Errorf("asked for %+v", k.asked)
	}
}
