package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
)

func TestBlobRawAndDecompressed(t *testing.T) {
	h := serve(t, true)
	content := bytes.Repeat(random(1<<20), 5)
	packed := gzipped(content)
	desc := h.blob(packed)
	c := client(t, setup(h), nil)
	got, err := get(t, c, fetchwire.BlobRequest{Repository: h.repo(), Descriptor: desc})
	if err != nil || !bytes.Equal(got, packed) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	var raw bytes.Buffer
	var last atomic.Int64
	head, body, err := c.Blob(t.Context(), fetchwire.BlobRequest{Repository: h.repo(), Descriptor: desc, Decompress: true},
		BlobOptions{Raw: &raw, Progress: func(n int64) { last.Store(n) }})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	got, err = io.ReadAll(body)
	if err != nil || !bytes.Equal(got, content) || !bytes.Equal(raw.Bytes(), packed) || head.Compression != fetchwire.Gzip || last.Load() != desc.Size {
		t.Errorf("%d bytes, %d raw, %+v, progress %d, %v", len(got), raw.Len(), head, last.Load(), err)
	}
}

func TestCutsCostLittle(t *testing.T) {
	h := serve(t, true)
	h.cut = 1 << 20
	blob := random(20<<20 + 17)
	desc := h.blob(blob)
	c := client(t, setup(h), nil)
	got, err := get(t, c, fetchwire.BlobRequest{Repository: h.repo(), Descriptor: desc})
	if err != nil || !bytes.Equal(got, blob) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if sent := h.sent.Load(); sent > desc.Size*11/10 {
		t.Errorf("%d bytes were sent for %d", sent, desc.Size)
	}
	if n := len(h.asked()); n != 21 {
		t.Errorf("%d requests", n)
	}
}

func TestCutWithoutRangeStartsOver(t *testing.T) {
	h := serve(t, true)
	h.noRange = true
	blob := random(3 << 20)
	desc := h.blob(blob)
	c := client(t, setup(h), nil)
	r := fetchwire.BlobRequest{Repository: h.repo(), Descriptor: desc}
	// It gets farther each time, so it arrives.
	var n atomic.Int64
	h.handle("/v2/app/blobs/"+desc.Digest, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(blob)))
		part := min(n.Add(1)<<20, int64(len(blob)))
		_, _ = w.Write(blob[:part])
		if part < int64(len(blob)) {
			panic(http.ErrAbortHandler)
		}
	})
	if got, err := get(t, c, r); err != nil || !bytes.Equal(got, blob) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	// It is cut behind its last byte.
	h.handle("/v2/app/blobs/"+desc.Digest, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(blob)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	if got, err := get(t, c, r); err != nil || !bytes.Equal(got, blob) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	// It never gets farther, so it is given up.
	h.handle("/v2/app/blobs/"+desc.Digest, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(blob)))
		_, _ = w.Write(blob[:1<<20])
		panic(http.ErrAbortHandler)
	})
	_, err := get(t, c, r)
	refused(t, "cut at the same place", err, errs.Unavailable, "cut off after 1048576 bytes")
	// The beginning is another one the second time.
	n.Store(0)
	h.handle("/v2/app/blobs/"+desc.Digest, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(blob)))
		if n.Add(1) == 1 {
			_, _ = w.Write(blob[:1<<20])
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write(make([]byte, len(blob)))
	})
	_, err = get(t, c, r)
	refused(t, "another beginning", err, errs.Corrupt, "changed while it was being fetched")
}

func TestBadBlobs(t *testing.T) {
	h := serve(t, true)
	blob := gzipped(random(1 << 20))
	bad := bytes.Clone(blob)
	bad[len(bad)/2] ^= 1
	forever := func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(blob[:32<<10]); err != nil {
				return
			}
		}
	}
	slow := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(blob)))
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			_, _ = w.Write(blob[i : i+1])
			w.(http.Flusher).Flush()
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
	}
	for what, test := range map[string]struct {
		serve http.HandlerFunc
		class errs.Class
		text  string
	}{
		"changed":  {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(bad) }, errs.Corrupt, "wrong digest: it is sha256:"},
		"too long": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(append(bytes.Clone(blob), 'x')) }, errs.Corrupt, "wrong length"},
		"length": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(len(blob)-1))
			_, _ = w.Write(blob[1:])
		}, errs.Corrupt, "wrong length: "},
		"too short":  {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(blob[:len(blob)-1]) }, errs.Corrupt, "wrong length: "},
		"endless":    {forever, errs.Corrupt, fmt.Sprintf("more than the %d bytes", len(blob))},
		"slow-loris": {slow, errs.Unavailable, "it stalls"},
		"other rest": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", "bytes 5-9/10")
			w.WriteHeader(http.StatusPartialContent)
		}, errs.Corrupt, "a rest that was not asked for"},
		"gone": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }, errs.NotFound, "410 Gone"},
	} {
		for _, decompress := range []bool{false, true} {
			t.Run(fmt.Sprint(what, decompress), func(t *testing.T) {
				t.Parallel()
				desc := h.blob(blob)
				desc.Size = int64(len(blob))
				repo := h.repo()
				repo.Name = "app/" + strings.ReplaceAll(what, " ", "-")
				h.handle("/v2/"+repo.Name+"/blobs/"+desc.Digest, test.serve)
				c := client(t, setup(h), nil)
				_, err := get(t, c, fetchwire.BlobRequest{Repository: repo, Descriptor: desc, Decompress: decompress})
				refused(t, what, err, test.class, test.text)
			})
		}
	}
}

func TestBusyServerIsWaitedFor(t *testing.T) {
	h := serve(t, true)
	desc := h.blob([]byte("hello"))
	path := "/v2/app/blobs/" + desc.Digest
	c := client(t, setup(h), nil)
	r := fetchwire.BlobRequest{Repository: h.repo(), Descriptor: desc}
	var n atomic.Int64
	busy := func(status int, after string) {
		n.Store(0)
		h.handle(path, func(w http.ResponseWriter, _ *http.Request) {
			if n.Add(1) < 2 || after == "1000" {
				w.Header().Set("Retry-After", after)
				w.WriteHeader(status)
				return
			}
			_, _ = io.WriteString(w, "hello")
		})
	}
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		busy(status, "1")
		start := time.Now()
		if _, err := get(t, c, r); err != nil || time.Since(start) < time.Second {
			t.Errorf("%d: %v after %s", status, err, time.Since(start))
		}
		busy(status, "1000")
		start = time.Now()
		_, err := get(t, c, r)
		refused(t, "too long a wait", err, errs.Unavailable, strconv.Itoa(status))
		if hints := errs.Hints(err); len(hints) != 1 || hints[0] != "it asks to wait 16m40s" || time.Since(start) > time.Second {
			t.Errorf("%d: hints %q after %s", status, hints, time.Since(start))
		}
	}
}

// TestManyAtOnce: the confined program has all that its threads, its memory and
// its poller need.
func TestManyAtOnce(t *testing.T) {
	h := serve(t, true)
	content := random(4 << 20)
	desc := h.blob(gzipped(content))
	c := client(t, setup(h), nil)
	var all sync.WaitGroup
	for range 30 {
		all.Go(func() {
			got, err := get(t, c, fetchwire.BlobRequest{Repository: h.repo(), Descriptor: desc, Decompress: true})
			if err != nil || !bytes.Equal(got, content) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
	all.Wait()
}

func TestUnreachable(t *testing.T) {
	h := serve(t, true)
	s := setup(h)
	h.Close()
	c := client(t, s, nil)
	_, _, err := c.Manifest(t.Context(), fetchwire.ManifestRequest{Repository: h.repo(), Reference: "latest"})
	refused(t, "closed port", err, errs.Unavailable, "connection refused")
	_, _, err = c.Manifest(t.Context(), fetchwire.ManifestRequest{Repository: fetchwire.Repository{Registry: "nowhere.invalid", Name: "app"}, Reference: "latest"})
	refused(t, "no such host", err, errs.Unavailable, "nowhere.invalid")
}

// TestReaderThatStops: a request that is given up takes nothing with it.
func TestReaderThatStops(t *testing.T) {
	h := serve(t, true)
	desc := h.blob(random(8 << 20))
	c := client(t, setup(h), nil)
	r := fetchwire.BlobRequest{Repository: h.repo(), Descriptor: desc}
	ctx, cancel := context.WithCancel(t.Context())
	_, body, err := c.Blob(ctx, r, BlobOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, body, 1<<20); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := io.Copy(io.Discard, body); !errors.Is(err, context.Canceled) {
		t.Errorf("after cancel: %v", err)
	}
	body.Close()
	_, body, err = c.Blob(t.Context(), r, BlobOptions{})
	if err != nil {
		t.Fatal(err)
	}
	body.Close()
	if got, err := get(t, c, r); err != nil || int64(len(got)) != desc.Size {
		t.Errorf("another request: %d bytes, %v", len(got), err)
	}
	if _, _, err := c.Blob(ctx, r, BlobOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: %v", err)
	}
}

func TestKilledInTheMiddle(t *testing.T) {
	h := serve(t, true)
	desc := h.blob(random(8 << 20))
	c := client(t, setup(h), nil)
	_, body, err := c.Blob(t.Context(), fetchwire.BlobRequest{Repository: h.repo(), Descriptor: desc}, BlobOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if err := c.proc.Cmd.Process.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(io.Discard, body)
	refused(t, "killed", err, errs.Unavailable, "rkt-fetch ended: signal: killed")
	_, _, err = c.Manifest(t.Context(), fetchwire.ManifestRequest{Repository: h.repo(), Reference: "latest"})
	refused(t, "killed before", err, errs.Unavailable, "rkt-fetch ended: signal: killed")
}

// TestClosedWhileInUse: requests of a client that is closed end, and so do new
// ones.
func TestClosedWhileInUse(t *testing.T) {
	h := serve(t, true)
	desc := h.blob(random(8 << 20))
	c := client(t, setup(h), nil)
	_, body, err := c.Blob(t.Context(), fetchwire.BlobRequest{Repository: h.repo(), Descriptor: desc}, BlobOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	c.Close()
	if _, err := io.Copy(io.Discard, body); !errors.Is(err, context.Canceled) {
		t.Errorf("in use: %v", err)
	}
	_, _, err = c.Manifest(t.Context(), fetchwire.ManifestRequest{Repository: h.repo(), Reference: "latest"})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("afterwards: %v", err)
	}
	c.Close()
}

// failing is a writer that takes some bytes only.
type failing struct{ n int }

func (f *failing) Write(p []byte) (int, error) {
	f.n -= len(p)
	if f.n < 0 {
		return 0, os.ErrPermission
	}
	return len(p), nil
}

func TestCopyThatFailsFailsTheStream(t *testing.T) {
	h := serve(t, true)
	desc := h.blob(gzipped(random(8 << 20)))
	c := client(t, setup(h), nil)
	_, body, err := c.Blob(t.Context(), fetchwire.BlobRequest{Repository: h.repo(), Descriptor: desc, Decompress: true}, BlobOptions{Raw: &failing{1 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if _, err := io.Copy(io.Discard, body); !errors.Is(err, os.ErrPermission) {
		t.Errorf("%v", err)
	}
}
