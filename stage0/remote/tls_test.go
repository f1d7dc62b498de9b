package remote

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
)

// issue makes a certificate signed by the parent, or by itself, in PEM.
func issue(t *testing.T, change func(*x509.Certificate), parent *tls.Certificate) (pair tls.Certificate, cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true,
	}
	change(template)
	signer, key0 := template, any(private)
	if parent != nil {
		signer, key0 = parent.Leaf, parent.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer, &private.PublicKey, key0)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	key = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
	pair, err = tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	return pair, cert, key
}

func authority(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	ca, pem, _ := issue(t, func(c *x509.Certificate) {
		c.IsCA, c.KeyUsage, c.Subject.CommonName = true, x509.KeyUsageCertSign, "test authority"
	}, nil)
	return ca, pem
}

func serveTLS(t *testing.T, config *tls.Config) *hostile {
	t.Helper()
	h := serveWith(t, config)
	h.manifest("latest", ociManifest, []byte("{}"))
	return h
}

func TestCertificatesAreCheckedByName(t *testing.T) {
	ca, caPEM := authority(t)
	other, _ := authority(t)
	for what, test := range map[string]struct {
		signer *tls.Certificate
		change func(*x509.Certificate)
		text   string
		hint   string
	}{
		"expired": {&ca, func(c *x509.Certificate) { c.NotBefore, c.NotAfter = time.Unix(1e9, 0), time.Unix(1e9+60, 0) }, "it expired on 2001-09-09T01:47:40Z", "renew"},
		"too new": {&ca, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(30 * time.Minute) }, "it is not valid before", "clock"},
		"unknown": {&other, func(*x509.Certificate) {}, `an authority that is not known here (issuer "CN=test authority")`, "certs.d"},
		"name": {&ca, func(c *x509.Certificate) {
			c.IPAddresses, c.DNSNames = nil, []string{"a.example", "b.example"}
		}, "it is for a.example, b.example, not for it", "use a name"},
		"good": {&ca, func(*x509.Certificate) {}, "", ""},
	} {
		pair, _, _ := issue(t, test.change, test.signer)
		h := serveTLS(t, &tls.Config{Certificates: []tls.Certificate{pair}})
		s := setup()
		s.Roots = caPEM
		r := fetchwire.ManifestRequest{Repository: h.repo(), Reference: "latest"}
		_, _, err := client(t, s, nil).Manifest(t.Context(), r)
		if test.text == "" {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
			continue
		}
		refused(t, what, err, errs.Denied, "certificate of "+h.host()+": "+"")
		refused(t, what, err, errs.Denied, test.text)
		if hints := strings.Join(errs.Hints(err), " "); !strings.Contains(hints, test.hint) || !strings.Contains(hints, "--insecure-options=tls") {
			t.Errorf("%s: hints %q", what, hints)
		}
		s.InsecureTLS = true
		if _, _, err := client(t, s, nil).Manifest(t.Context(), r); err != nil {
			t.Errorf("%s, not checked: %v", what, err)
		}
		s.InsecureTLS = false
		s.Registries = []fetchwire.Registry{{Name: h.host(), InsecureTLS: true}}
		if _, _, err := client(t, s, nil).Manifest(t.Context(), r); err != nil {
			t.Errorf("%s, not checked for this registry: %v", what, err)
		}
	}
}

// TestCertificatesOfTheHost: an authority and a client's certificate for one
// host, from files that only root can read.
func TestCertificatesOfTheHost(t *testing.T) {
	ca, caPEM := authority(t)
	pair, _, _ := issue(t, func(*x509.Certificate) {}, &ca)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(caPEM))
	h := serveTLS(t, &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert})
	_, cert, key := issue(t, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }, &ca)
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, h.host(), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	try := func() error {
		t.Helper()
		s := setup()
		hosts, err := readHosts([]string{filepath.Join(dir, "none"), dir})
		if err != nil {
			t.Fatal(err)
		}
		s.Hosts = hosts
		_, _, err = client(t, s, nil).Manifest(t.Context(), fetchwire.ManifestRequest{Repository: h.repo(), Reference: "latest"})
		return err
	}
	refused(t, "nothing", try(), errs.Denied, "not known here")
	write("ca.crt", caPEM)
	refused(t, "no client certificate", try(), errs.Denied, "it says tls: certificate required")
	write("client.cert", cert)
	write("client.key", key)
	if err := try(); err != nil {
		t.Error(err)
	}
	write("client.key", "nonsense")
	refused(t, "bad key", try(), errs.Corrupt, "client certificate for "+h.host())
}

func TestFromHost(t *testing.T) {
	ca, caPEM := authority(t)
	pair, _, _ := issue(t, func(*x509.Certificate) {}, &ca)
	h := serveTLS(t, &tls.Config{Certificates: []tls.Certificate{pair}})
	dir := t.TempDir()
	file := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(file, []byte(caPEM), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, env := range []map[string]string{{"SSL_CERT_FILE": file}, {"SSL_CERT_DIR": dir}} {
		env["https_proxy"], env["NO_PROXY"] = "http://127.0.0.1:1", "127.0.0.1"
		s := setup()
		if err := FromHost(&s, func(name string) string { return env[name] }); err != nil {
			t.Fatal(err)
		}
		if s.Proxy != (fetchwire.Proxy{HTTPS: "http://127.0.0.1:1", No: "127.0.0.1"}) {
			t.Errorf("%+v", s.Proxy)
		}
		if _, _, err := client(t, s, nil).Manifest(t.Context(), fetchwire.ManifestRequest{Repository: h.repo(), Reference: "latest"}); err != nil {
			t.Error(err)
		}
	}
	var s fetchwire.Setup
	if err := FromHost(&s, func(name string) string { return map[string]string{"SSL_CERT_DIR": "/etc/ssl/certs/"}[name] }); err != nil || s.Roots != "" {
		t.Errorf("the host's own roots: %d bytes, %v", len(s.Roots), err)
	}
	refused(t, "no such file", FromHost(&s, func(name string) string { return map[string]string{"SSL_CERT_FILE": "/none"}[name] }), errs.NotFound, "/none")
}

func TestProxy(t *testing.T) {
	h := serve(t, false)
	h.handle("/x.asc", func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.Host)) })
	// A proxy gets the whole URL of what is plain http.
	s := setup()
	s.InsecureHTTP = true
	s.Proxy.HTTP = h.URL
	_, body, err := client(t, s, nil).HTTP(t.Context(), fetchwire.HTTPRequest{URL: "http://far.example/x.asc"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	got := make([]byte, 20)
	if n, err := body.Read(got); err != nil || string(got[:n]) != "far.example" {
		t.Errorf("%q, %v", got[:n], err)
	}
	s.Proxy.HTTPS = "http://127.0.0.1:1"
	_, _, err = client(t, s, nil).HTTP(t.Context(), fetchwire.HTTPRequest{URL: "https://far.example/x.asc"}, nil)
	refused(t, "no proxy there", err, errs.Unavailable, "connect to the proxy for far.example: connection refused")
}
