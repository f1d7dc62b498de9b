package tests

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/rkt-pods/rkt/tests/images"
	"github.com/rkt-pods/rkt/tests/registry"
	"github.com/rkt-pods/rkt/tests/signer"
)

// serving is a registry on loopback and a store that may ask it.
type serving struct {
	*host
	*registry.Registry
	at string
}

func newServing(t *testing.T, dir string) *serving {
	t.Helper()
	r := registry.New(dir)
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	return &serving{newHost(t), r, strings.TrimPrefix(server.URL, "http://")}
}

// fetch runs fetch with what a registry without TLS and signatures needs.
func (s *serving) fetch(args ...string) result {
	s.t.Helper()
	return s.rkt(append([]string{"--insecure-options=image,http", "fetch"}, args...)...)
}

// layers are n layers of size bytes that don't pack.
func layers(t *testing.T, n, size int) [][]byte {
	t.Helper()
	var list [][]byte
	for i := range n {
		data := make([]byte, 0, size)
		for block := sha256.Sum256([]byte{byte(i)}); len(data) < size; block = sha256.Sum256(block[:]) {
			data = append(data, block[:]...)
		}
		tar, err := images.Tar([]images.Entry{images.Dir("d", 0o755), images.File(fmt.Sprintf("d/f%d", i), 0o644, string(data))})
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, tar)
	}
	return list
}

func publish(t *testing.T, dir string, list ...images.Image) {
	t.Helper()
	files, err := images.OCI(list...)
	if err != nil {
		t.Fatal(err)
	}
	if err := files.WriteDir(dir); err != nil {
		t.Fatal(err)
	}
}

// TestFetchAndRun: an image of a registry is fetched when it is needed, once, and
// runs.
func TestFetchAndRun(t *testing.T) {
	s := newServing(t, imageDir)
	name := "docker://" + s.at + "/busybox.oci:1.0"
	if res := s.rkt("run", "--pull-policy=never", name); res.code != 254 || !strings.Contains(res.stderr, "not in the store") {
		t.Errorf("never: %s", res)
	}
	run := []string{"run", "--insecure-options=image,http", "--net=none", name, "--exec=/bin/echo", "--", "hello"}
	if res := s.rkt(run...); res.code != 0 || res.stdout != "hello\n" {
		t.Fatalf("first: %s", res)
	}
	s.Take()
	if res := s.rkt(run...); res.code != 0 || res.stdout != "hello\n" {
		t.Fatalf("second: %s", res)
	}
	if requests, _ := s.Take(); len(requests) > 0 {
		t.Errorf("an image of the store was asked for: %q", requests)
	}
	if res := s.fetch("--quiet", name); res.code != 0 || res.stderr != "" {
		t.Errorf("update: %s", res)
	}
	if requests, _ := s.Take(); len(requests) != 1 {
		t.Errorf("an unchanged tag cost %q", requests)
	}
	// By name, as it is listed.
	if res := s.rkt("image", "cat-manifest", s.at+"/busybox.oci:1.0"); res.code != 0 {
		t.Error(res)
	}
}

func TestFetchFormats(t *testing.T) {
	dir := t.TempDir()
	publish(t, filepath.Join(dir, "app"), images.Image{Name: "1", Layers: layers(t, 2, 1000), Pack: images.Gzip})
	s := newServing(t, dir)
	res := s.fetch("--format=json", "docker://"+s.at+"/app:1")
	var list []struct{ Reference, ID, Name, Digest string }
	if err := json.Unmarshal([]byte(res.stdout), &list); err != nil || len(list) != 1 || !strings.HasPrefix(list[0].ID, "sha512-") ||
		list[0].Name != s.at+"/app:1" || !strings.HasPrefix(list[0].Digest, "sha256:") || res.stderr != "" {
		t.Fatalf("%v: %s", err, res)
	}
	if res := s.fetch("docker://" + s.at + "/app@" + list[0].Digest); res.code != 0 || !strings.HasPrefix(list[0].ID, strings.TrimSpace(res.stdout)) {
		t.Errorf("by digest: %s", res)
	}
	if res := s.rkt("image", "rm", list[0].ID); res.code != 0 || !strings.Contains(res.stdout, "KiB freed") {
		t.Errorf("rm: %s", res)
	}
	res = s.fetch("docker://" + s.at + "/app:1")
	if res.code != 0 || strings.Count(res.stderr, "fetch: layer ") != 2 || strings.Contains(res.stderr, "\x1b") {
		t.Errorf("progress where there is no terminal: %s", res)
	}
	for flag, want := range map[string]string{
		"--max-image-size=1Ki": "--max-image-size=SIZE allows more", "--max-entries=1": "--max-entries=N allows more", "--platform=linux/s390x": "not for linux/s390x",
	} {
		other := newServing(t, dir)
		if res := other.fetch(flag, "docker://"+other.at+"/app:1"); res.code != 254 || !strings.Contains(res.stderr, want) {
			t.Errorf("%s: %s", flag, res)
		}
	}
}

// TestFetchInterrupted: SIGINT ends a fetch with a clear line, and what was
// verified is not fetched again.
func TestFetchInterrupted(t *testing.T) {
	dir := t.TempDir()
	publish(t, filepath.Join(dir, "app"), images.Image{Name: "1", Layers: layers(t, 4, 100<<10)})
	s := newServing(t, dir)
	name := "docker://" + s.at + "/app:1"
	held := sum(layers(t, 4, 100<<10)[3])
	s.HoldBlob(held)
	var stderr bytes.Buffer
	cmd := s.command("--insecure-options=image,http", "fetch", name)
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "three layers are there", func() bool {
		found, _ := filepath.Glob(filepath.Join(s.dir, "store/layers/oci-*"))
		return len(found) == 3
	})
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 254 || !strings.Contains(stderr.String(), "interrupted\n") || !strings.Contains(stderr.String(), "are kept") {
		t.Errorf("exit %d: %s", code, &stderr)
	}
	s.Release()
	if res := s.rkt("gc"); res.code != 0 {
		t.Error(res)
	}
	s.Take()
	if res := s.fetch(name); res.code != 0 {
		t.Fatal(res)
	}
	requests, _ := s.Take()
	for _, l := range layers(t, 4, 100<<10)[:3] {
		if slices.ContainsFunc(requests, func(r string) bool { return strings.HasSuffix(r, sum(l)) }) {
			t.Errorf("a layer that was there was asked for: %q", requests)
		}
	}
}

// TestFetchKeepsBlobs: with --keep-blobs the layers come back out as they were
// published.
func TestFetchKeepsBlobs(t *testing.T) {
	dir := t.TempDir()
	publish(t, filepath.Join(dir, "app"), images.Image{Name: "1", Layers: layers(t, 2, 10<<10), Pack: images.Zstd})
	s := newServing(t, dir)
	if res := s.fetch("--keep-blobs", "docker://"+s.at+"/app:1"); res.code != 0 {
		t.Fatal(res)
	}
	out := filepath.Join(dir, "out.tar")
	if res := s.rkt("image", "export", s.at+"/app:1", out); res.code != 0 {
		t.Fatal(res)
	}
	listed, err := exec.Command("tar", "-tf", out).Output()
	if err != nil {
		t.Fatal(err)
	}
	published, err := filepath.Glob(filepath.Join(dir, "app/blobs/sha256/*"))
	if err != nil || len(published) != 4 {
		t.Fatalf("%q, %v", published, err)
	}
	for _, blob := range published {
		if !strings.Contains(string(listed), filepath.Base(blob)) {
			t.Errorf("the export lacks %s:\n%s", filepath.Base(blob), listed)
		}
	}
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(s[:])
}

// TestDistributionRegistry fetches from the distribution's own registry, to which
// another program has copied the image, and gets what the layout itself gives.
func TestDistributionRegistry(t *testing.T) {
	skopeo := need(t, "skopeo")
	at, dir := registry.Distribution(t), t.TempDir()
	layout := filepath.Join(dir, "layout")
	for _, pack := range []images.Compression{images.Gzip, images.Zstd} {
		tag := string(pack)
		publish(t, layout, images.Image{Name: tag, Layers: layers(t, 3, 200<<10), Pack: pack})
		if out, err := exec.Command(skopeo, "copy", "--dest-tls-verify=false", "oci:"+layout+":"+tag, "docker://"+at+"/a/app:"+tag).CombinedOutput(); err != nil {
			t.Fatalf("skopeo: %v\n%s", err, out)
		}
		near, far := newHost(t), newHost(t)
		want := near.rkt("--insecure-options=image", "fetch", "--full", layout+":"+tag)
		got := far.rkt("--insecure-options=image,http", "fetch", "--full", "docker://"+at+"/a/app:"+tag)
		if want.code != 0 || got.code != 0 || want.stdout != got.stdout {
			t.Errorf("%s: from the layout: %s\nfrom the registry: %s", tag, want, got)
		}
		if res := far.rkt("image", "verify", "--all"); res.code != 0 {
			t.Error(res)
		}
		if got = far.rkt("--insecure-options=image,http", "fetch", "docker://"+at+"/a/app:none"); got.code != 254 || !strings.Contains(got.stderr, "404") {
			t.Errorf("a tag that is not there: %s", got)
		}
	}
}

// need finds a program that the tests need beside rkt.
func need(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%v: `make host` installs it", err)
	}
	return path
}

// TestCertificates: what is wrong with a registry's certificate is told, and
// --insecure-options=tls does without.
func TestCertificates(t *testing.T) {
	dir := t.TempDir()
	publish(t, filepath.Join(dir, "app"), images.Image{Name: "1", Layers: layers(t, 1, 100)})
	server := httptest.NewUnstartedServer(registry.New(dir))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that fail, as they have to
	server.StartTLS()
	t.Cleanup(server.Close)
	name := "docker://" + strings.TrimPrefix(server.URL, "https://") + "/app:1"
	h := newHost(t)
	if res := h.rkt("--insecure-options=image", "fetch", name); res.code != 254 || !strings.Contains(res.stderr, "certificate") || !strings.Contains(res.stderr, "authority") {
		t.Errorf("an unknown authority: %s", res)
	}
	if res := h.rkt("--insecure-options=image,http", "fetch", name); res.code != 254 {
		t.Errorf("http alone: %s", res)
	}
	if res := h.rkt("--insecure-options=image,tls", "fetch", name); res.code != 0 {
		t.Errorf("without a check: %s", res)
	}
}

// TestDeferredSignature: some servers make a signature when the image is asked for
// and say 202 until it is there.
func TestDeferredSignature(t *testing.T) {
	p := newPublisher(t)
	alice := must(signer.NewPGP("alice", packet.Config{}))
	aci := must(images.ACI(images.Manifest(signedName, "1", []string{"/x"}), []images.Entry{images.File("x", 0o755, "x")}))
	p.trust("", "alice.asc", must(alice.Public()))
	var ready, late atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/app.aci":
			ready.Store(!late.Load())
			_, _ = w.Write(aci) // the client may be gone
		case ready.Load():
			_, _ = w.Write(must(alice.Sign(aci)))
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	}))
	t.Cleanup(server.Close)
	late.Store(true)
	p.refused([]string{"--insecure-options=http", server.URL + "/app.aci"}, "not ready yet", "try again later")
	late.Store(false)
	id := p.ok("fetch", "--insecure-options=http", "--full", server.URL+"/app.aci")
	p.ok("image", "verify", "--trust", id)
}
