package remote

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
)

// allowed is what a confined program can still do in each mode.
var allowed = map[fetchwire.Mode][]string{
	fetchwire.Network: {"read /etc/hosts", "read /etc/ssl/certs", "tcp socket", "udp socket"},
	fetchwire.Unpack:  nil,
}

func TestConfined(t *testing.T) {
	probe := buildProgram(t, "./testdata/probe")
	landlocked := false
	for mode, may := range allowed {
		// What rkt's caller left open for all must not reach the child.
		var left [2]int
		if err := unix.Pipe2(left[:], 0); err != nil {
			t.Fatal(err)
		}
		c, err := start(t.Context(), mode, Options{Program: probe})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		s, err := c.Sandbox(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(left[1])
		if n, err := unix.Read(left[0], make([]byte, 1)); n != 0 || err != nil {
			t.Errorf("%s: a descriptor stayed open: %d, %v", mode, n, err)
		}
		unix.Close(left[0])
		landlocked = landlocked || slices.Contains(s.Facts, "read /etc/passwd: refused")
		tried := 0
		for _, fact := range s.Facts {
			what, result, _ := strings.Cut(fact, ": ")
			switch {
			case result != "allowed" && result != "refused":
				continue
			case result == "allowed" && !slices.Contains(may, what), result == "refused" && slices.Contains(may, what):
				t.Errorf("%s: %s", mode, fact)
			}
			tried++
		}
		if tried < 30 {
			t.Errorf("%s: %d tried: %q", mode, tried, s.Facts)
		}
		checkStatus(t, s.Facts)
	}
	if !landlocked {
		t.Log("files were not protected by Landlock")
	}
}

// checkStatus looks at what the child was before it confined itself.
func checkStatus(t *testing.T, facts []string) {
	t.Helper()
	want := []string{
		"NoNewPrivs: 1", "CapInh: 0000000000000000", "CapPrm: 0000000000000000", "CapEff: 0000000000000000",
		"CapBnd: 0000000000000000", "CapAmb: 0000000000000000", "Uid: 65534 65534 65534 65534", "Gid: 65534 65534 65534 65534", "Groups:",
	}
	if os.Geteuid() != 0 {
		want = []string{"NoNewPrivs: 1", "CapEff: 0000000000000000"}
	}
	for _, w := range want {
		if !slices.Contains(facts, w) {
			t.Errorf("%q is missing in %q", w, facts)
		}
	}
}

func TestProgramThatCannotRun(t *testing.T) {
	_, err := Start(t.Context(), Options{Program: filepath.Join(t.TempDir(), "none")})
	refused(t, "none", err, errs.NotFound, "start rkt-fetch")
	_, err = Start(t.Context(), Options{Program: "/etc/passwd"})
	refused(t, "no program", err, errs.Unavailable, "start /etc/passwd")
	c, err := Start(t.Context(), Options{Program: "/bin/false"})
	if err == nil {
		defer c.Close()
		_, _, err = c.Manifest(t.Context(), fetchwire.ManifestRequest{})
	}
	refused(t, "another program", err, errs.Unavailable, "rkt-fetch ended: exit status 1")
}

// beRkt is this program as a rkt that is going to be killed.
func beRkt(path string) int {
	ctx := context.Background()
	c, err := Start(ctx, Options{Program: path})
	if err == nil {
		_, err = c.Sandbox(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("child", c.proc.Cmd.Process.Pid)
	<-c.over
	return 0
}

func TestDiesWithRkt(t *testing.T) {
	rkt := exec.Command("/proc/self/exe")
	rkt.Env = append(os.Environ(), asRkt+"="+program)
	out, err := rkt.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := rkt.Start(); err != nil {
		t.Fatal(err)
	}
	defer rkt.Wait()
	defer rkt.Process.Kill()
	pid := 0
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		if word, ok := strings.CutPrefix(lines.Text(), "child "); ok {
			pid, _ = strconv.Atoi(word)
		}
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := rkt.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, int(5*time.Second/time.Millisecond))
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Poll(poll, int(5*time.Second/time.Millisecond))
	}
	if n != 1 || err != nil {
		t.Errorf("the child lives: %d, %v", n, err)
	}
}

func TestDecompressor(t *testing.T) {
	d := NewDecompressor(program, fetchwire.Limits{MaxSize: 30 << 20})
	defer d.Close()
	content := slices.Concat(random(1<<20), random(1<<20), make([]byte, 10<<20))
	packed := gzipped(content)
	for range 2 {
		r, kind, err := d.Open(t.Context(), strings.NewReader(string(packed)))
		if err != nil || kind != fetchwire.Gzip {
			t.Fatal(kind, err)
		}
		if got, err := io.ReadAll(r); err != nil || string(got) != string(content) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		r.Close()
	}
	all := func(in io.Reader) error {
		r, _, err := d.Open(t.Context(), in)
		if err != nil {
			return err
		}
		defer r.Close()
		_, err = io.Copy(io.Discard, r)
		return err
	}
	refused(t, "truncated", all(strings.NewReader(string(packed[:len(packed)-9]))), errs.Corrupt, "truncated gzip stream")
	refused(t, "garbage", all(strings.NewReader(string(packed)+"garbage")), errs.Corrupt, "garbage after the end of the gzip stream")
	refused(t, "no gzip", all(strings.NewReader("\x1f\x8bnothing")), errs.Corrupt, "gzip stream")
	refused(t, "too large", all(strings.NewReader(string(gzipped(make([]byte, 31<<20))))), errs.Corrupt, "more than 31457280 bytes")
	refused(t, "too large and plain", all(strings.NewReader(string(make([]byte, 31<<20)))), errs.Corrupt, "more than 31457280 bytes")
	broken := errs.Newf(errs.Denied, "wrong signature")
	refused(t, "its check fails", all(io.MultiReader(strings.NewReader(string(packed)), failingReader{broken})), errs.Denied, "wrong signature")
	refused(t, "it breaks", all(io.MultiReader(strings.NewReader(string(packed[:1<<20])), failingReader{broken})), errs.Denied, "wrong signature")
	r, kind, err := d.Open(t.Context(), strings.NewReader("plain"))
	if err != nil || kind != fetchwire.Plain {
		t.Fatal(kind, err)
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != "plain" {
		t.Errorf("%q, %v", got, err)
	}
	// One that is given up, and the program that has died, disturb no other.
	r, _, err = d.Open(t.Context(), strings.NewReader(string(packed)))
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	d.client.proc.Kill()
	<-d.client.over
	if err := all(strings.NewReader(string(packed))); err != nil {
		t.Error(err)
	}
}

// TestDecompressorGivenUp: who gives up before there is an answer is not held
// by what is still to be fed, though the other side has stopped taking it.
func TestDecompressorGivenUp(t *testing.T) {
	d := NewDecompressor(program, fetchwire.Limits{})
	defer d.Close()
	packed := string(gzipped(random(8 << 20)))
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		done := make(chan error, 1)
		go func() {
			r, _, err := d.Open(ctx, strings.NewReader(packed))
			if err == nil {
				r.Close()
			}
			done <- err
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatal("Open has not returned")
		}
	}
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

func TestDecompressorHasNoNetwork(t *testing.T) {
	h := serve(t, true)
	c, err := start(t.Context(), fetchwire.Unpack, Options{Program: program})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _, err = c.Manifest(t.Context(), fetchwire.ManifestRequest{Repository: h.repo(), Reference: "latest"})
	refused(t, "network", err, errs.Usage, "a request for the network")
	if asked := h.asked(); len(asked) != 0 {
		t.Errorf("%q", asked)
	}
}
