package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// copies makes pods in pods/run that have ended as the given one did.
func (h *host) copies(uuid string, n int) []string {
	h.t.Helper()
	var uuids []string
	for i := range n {
		id := fmt.Sprintf("%08x-0000-4000-8000-000000000000", i)
		staged := filepath.Join(h.dir, "pods", id)
		if out, err := exec.Command("cp", "-a", filepath.Join(h.dir, "pods", "run", uuid), staged).CombinedOutput(); err != nil {
			h.t.Fatalf("cp: %v\n%s", err, out)
		}
		if err := os.Rename(staged, filepath.Join(h.dir, "pods", "run", id)); err != nil {
			h.t.Fatal(err)
		}
		uuids = append(uuids, id)
	}
	return uuids
}

// TestConcurrentReadersAndMarks: status, list, logs and cat-manifest say the
// same of a pod before, while and after gc --mark-only sets it aside.
func TestConcurrentReadersAndMarks(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.start(nil, app{name: "x", script: "echo from x; exit 3"})
	if res := p.wait(); res.code != 3 {
		t.Fatal(res)
	}
	rounds := 40
	if testing.Short() {
		rounds = 5
	}
	const batch = 10
	for range rounds {
		uuids := h.copies(p.uuid(), batch)
		var marked atomic.Bool
		var readers sync.WaitGroup
		for _, read := range []func(string) error{h.readStatus, h.readLogs, h.readList, h.readManifest} {
			readers.Go(func() {
				for i := 0; !marked.Load(); i++ {
					if err := read(uuids[i%batch]); err != nil {
						t.Error(err)
					}
				}
			})
		}
		res := h.rkt("gc", "--mark-only")
		marked.Store(true)
		readers.Wait()
		if res.code != 0 {
			t.Fatal(res)
		}
		for _, uuid := range uuids {
			if err := os.RemoveAll(filepath.Join(h.dir, "pods", "exited-garbage", uuid)); err != nil {
				t.Fatal(err)
			}
		}
		// The original was marked too: it goes back for the next copies.
		if err := os.Rename(filepath.Join(h.dir, "pods", "exited-garbage", p.uuid()), filepath.Join(h.dir, "pods", "run", p.uuid())); err != nil {
			t.Fatal(err)
		}
	}
}

// endedPod is what is told of a copy as JSON.
type endedPod struct {
	UUID string `json:"uuid"`
	Apps []struct {
		Name     string `json:"name"`
		ExitCode *int   `json:"exit_code"`
	} `json:"apps"`
	Exit *struct {
		Code  int    `json:"code"`
		Cause string `json:"cause"`
	} `json:"exit"`
}

func (e endedPod) check() error {
	if len(e.Apps) != 1 || e.Apps[0].ExitCode == nil || *e.Apps[0].ExitCode != 3 || e.Exit == nil || e.Exit.Code != 3 || e.Exit.Cause != "policy" {
		return fmt.Errorf("pod %s: %+v, exit %+v", e.UUID, e.Apps, e.Exit)
	}
	return nil
}

func (h *host) readStatus(uuid string) error {
	res := h.rkt("status", "--format=json", uuid)
	var e endedPod
	if err := json.Unmarshal([]byte(res.stdout), &e); err != nil || res.code != 0 {
		return fmt.Errorf("%s: %w", res, err)
	}
	return e.check()
}

func (h *host) readList(string) error {
	res := h.rkt("list", "--format=json")
	var all []endedPod
	if err := json.Unmarshal([]byte(res.stdout), &all); err != nil || res.code != 0 || res.stderr != "" {
		return fmt.Errorf("%s: %w", res, err)
	}
	for _, e := range all {
		if err := e.check(); err != nil {
			return fmt.Errorf("list: %w", err)
		}
	}
	return nil
}

func (h *host) readLogs(uuid string) error {
	if res := h.rkt("logs", uuid); res.code != 0 || res.stdout != "from x\n" || res.stderr != "" {
		return fmt.Errorf("%s", res)
	}
	return nil
}

func (h *host) readManifest(uuid string) error {
	if res := h.rkt("cat-manifest", uuid); res.code != 0 || !strings.Contains(res.stdout, "echo from x") {
		return fmt.Errorf("%s", res)
	}
	return nil
}

// TestTwoCopiedFolders: a copy of a data folder has the names of the original on
// this host. It is refused as long as that has pods, and touches none of them.
func TestTwoCopiedFolders(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.start(nil, app{name: "x", script: "sleep 1000"})
	p.running()
	second := &host{t: t, dir: filepath.Join(t.TempDir(), "copy")}
	if out, err := exec.Command("cp", "-a", h.dir, second.dir).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v\n%s", err, out)
	}
	for _, args := range [][]string{
		{"gc", "--grace-period=0s"}, {"rm", p.uuid()}, {"list"},
		{"run", "--insecure-options=image", image("busybox.aci"), "--exec=/bin/true"},
	} {
		res := second.rkt(args...)
		if res.code != 254 || !strings.Contains(res.stderr, "one was copied from the other") || !strings.Contains(res.stderr, "hint: ") {
			t.Errorf("%s", res)
		}
	}
	if out := h.must("status", p.uuid()); !strings.Contains(out, "state=running\n") {
		t.Errorf("the original's pod: %s", out)
	}
	// By another path it is still the same folder.
	link := &host{t: t, dir: filepath.Join(t.TempDir(), "link")}
	if err := os.Symlink(h.dir, link.dir); err != nil {
		t.Fatal(err)
	}
	link.must("status", p.uuid())
	// With an id of its own the copy goes its own way.
	if err := os.Remove(filepath.Join(second.dir, "store", "id")); err != nil {
		t.Fatal(err)
	}
	second.must("run", "--insecure-options=image", image("busybox.aci"), "--exec=/bin/true")
	if out := h.must("status", p.uuid()); !strings.Contains(out, "state=running\n") {
		t.Errorf("the original's pod: %s", out)
	}
	h.must("stop", "--force", p.uuid())
	p.wait()
	// The copied record of the supervisor names a process that is gone now.
	second.clean()
	// What is moved stays what it was.
	moved := h.dir + "-moved"
	if err := os.Rename(h.dir, moved); err != nil {
		t.Fatal(err)
	}
	h.dir = moved
	h.must("status", p.uuid())
}
