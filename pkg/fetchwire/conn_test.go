package fetchwire

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
)

func pair(t *testing.T) (own, other *Conn) {
	t.Helper()
	own, f, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	other = newConn(f)
	t.Cleanup(func() { own.Close(); other.Close() })
	return own, other
}

var every = []*Message{
	{Setup: &Setup{UserAgent: "a", Proxy: Proxy{HTTP: "p"}, Limits: Limits{Stall: time.Second}, Registries: []Registry{{Name: "r", Mirrors: []Mirror{{Host: "m", PlainHTTP: true}}}}}},
	{ID: 1, Request: &Request{Manifest: &ManifestRequest{Repository: Repository{"r", "n"}, Reference: "latest", Accept: []string{"x"}}}},
	{ID: 2, Request: &Request{Blob: &BlobRequest{Repository: Repository{"r", "n"}, Descriptor: Descriptor{"m", "sha256:0", 7}, Decompress: true}}},
	{ID: 3, Request: &Request{Referrers: &ReferrersRequest{Digest: "d", ArtifactType: "t"}}},
	{ID: 4, Request: &Request{HTTP: &HTTPRequest{URL: "https://x/y.aci", MaxBytes: 9}}},
	{ID: 5, Request: &Request{Discover: &DiscoverRequest{Name: "x/y", Labels: map[string]string{"os": "linux"}}}},
	{ID: 6, Request: &Request{Decompress: &DecompressRequest{}}},
	{ID: 6, Cancel: &Cancel{}},
	{ID: 1, Answer: &Credential{User: "u", Password: "p"}},
	{Sandbox: &Sandbox{Facts: []string{"f"}, Missing: []string{"m"}}},
	{ID: 1, Head: &Head{Status: 200, Size: -1, ETag: `"e"`, MaxAge: 60, Compression: Gzip}},
	{ID: 1, Progress: &Progress{Bytes: 5}},
	{ID: 1, End: &End{}},
	{ID: 1, End: &End{Failure: &Failure{Class: errs.Denied, Message: "no", Hints: []string{"h"}, Status: 401}}},
	{ID: 1, Ask: &CredentialRequest{Kind: ForRegistry, Host: "r", Repository: "n"}},
}

func TestEveryMessageArrivesAsItWasSent(t *testing.T) {
	own, other := pair(t)
	for _, m := range every {
		for _, way := range [][2]*Conn{{own, other}, {other, own}} {
			if err := way[0].Send(m); err != nil {
				t.Fatal(err)
			}
			got, files, err := way[1].Receive()
			if err != nil || len(files) != 0 || !reflect.DeepEqual(got, m) {
				t.Errorf("%+v arrives as %+v, %v, %v", m, got, files, err)
			}
		}
	}
}

func TestLongSetupGoesBesideThePacket(t *testing.T) {
	own, other := pair(t)
	m := &Message{Setup: &Setup{Roots: strings.Repeat("certificate\n", 100_000)}}
	if err := own.Send(m); err != nil {
		t.Fatal(err)
	}
	got, files, err := other.Receive()
	if err != nil || len(files) != 0 || !reflect.DeepEqual(got, m) {
		t.Errorf("arrives with %v, %v", files, err)
	}
	m.Setup.Roots = strings.Repeat("x", maxSetup)
	if err := own.Send(m); !errs.Is(err, errs.Unsupported) {
		t.Errorf("a set-up of over %d bytes: %v", maxSetup, err)
	}
	if err := own.Send(&Message{Request: &Request{HTTP: &HTTPRequest{URL: strings.Repeat("x", maxPacket)}}}); !errs.Is(err, errs.Unsupported) {
		t.Errorf("a request of over %d bytes: %v", maxPacket, err)
	}
}

func TestDescriptorsGoOneWay(t *testing.T) {
	own, other := pair(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := own.Send(every[1], w); err != nil {
		t.Fatal(err)
	}
	w.Close()
	_, files, err := other.Receive()
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	if flags, err := unix.FcntlInt(files[0].Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("flags %x, %v", flags, err)
	}
	if err := other.Send(every[12], files[0]); err != nil {
		t.Fatal(err)
	}
	files[0].Close()
	if _, _, err := own.Receive(); !errs.Is(err, errs.Corrupt) {
		t.Errorf("a descriptor from rkt-fetch: %v", err)
	}
	// Both ends are closed, so nothing has kept the refused one.
	if n, err := r.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("read %d, %v", n, err)
	}
}

func TestBadMessagesAreRefused(t *testing.T) {
	for what, text := range map[string]string{
		"no JSON":        "hello",
		"nothing":        "{}",
		"two parts":      `{"end":{},"head":{"size":1}}`,
		"unknown field":  `{"end":{},"future":1}`,
		"unknown inside": `{"end":{"future":1}}`,
		"too long":       `{"end":{"failure":{"class":"busy","message":"` + strings.Repeat("x", maxPacket) + `"}}}`,
	} {
		own, other := pair(t)
		if err := other.send([]byte(text), nil); err != nil {
			t.Fatal(err)
		}
		if m, _, err := own.Receive(); !errs.Is(err, errs.Corrupt) {
			t.Errorf("%s: %+v, %v", what, m, err)
		}
	}
}

func TestEndOfTheOtherSide(t *testing.T) {
	own, other := pair(t)
	other.Close()
	if _, _, err := own.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("receive: %v", err)
	}
	if err := own.Send(every[1]); !errors.Is(err, unix.EPIPE) {
		t.Errorf("send: %v", err)
	}
	own, _ = pair(t)
	var done sync.WaitGroup
	done.Go(func() {
		if _, _, err := own.Receive(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("receive from what is closed: %v", err)
		}
	})
	own.Close()
	done.Wait()
}

func TestFailureKeepsWhatCallersAct(t *testing.T) {
	err := errs.WithHint(errs.WithHint(StatusError(401, errs.Newf(errs.Denied, "get %q: no", "x\x1b[2J")), "inner"), "outer\n")
	back := Fail(err).Err()
	if !errs.Is(back, errs.Denied) || Status(back) != 401 || back.Error() != err.Error() ||
		!reflect.DeepEqual(errs.Hints(back), []string{"outer ", "inner"}) {
		t.Errorf("%v, %s, %d, %q", back, errs.ClassOf(back), Status(back), errs.Hints(back))
	}
	if Fail(nil) != nil || (*Failure)(nil).Err() != nil {
		t.Error("success is a failure")
	}
	hostile := (&Failure{Class: "root", Message: "\x1b]0;x\a" + strings.Repeat("é", maxText)}).Err()
	if !errs.Is(hostile, errs.Internal) || strings.ContainsAny(hostile.Error(), "\x1b\a") || len(hostile.Error()) > maxText+10 {
		t.Errorf("%q", hostile)
	}
}

func TestDetect(t *testing.T) {
	for head, want := range map[string]Compression{
		"":                     Plain,
		"\x1f\x8b\x08":         Gzip,
		"BZh9":                 Bzip2,
		"\xfd7zXZ\x00\x00":     Xz,
		"\x28\xb5\x2f\xfd\x00": Zstd,
		"manifest":             Plain,
	} {
		if got := Detect([]byte(head)); got != want {
			t.Errorf("%q: %s", head, got)
		}
	}
}

func TestLimitsHaveDefaults(t *testing.T) {
	l := Limits{Attempts: 2}.Fill()
	data, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]int64
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	if len(m) != reflect.TypeFor[Limits]().NumField() || l.Attempts != 2 {
		t.Errorf("%s", data)
	}
}
