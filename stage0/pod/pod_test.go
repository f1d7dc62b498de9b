package pod

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/cgroup"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/proc"
)

const imageID = "sha512-00aa"

const manifest = `{"acVersion":"0.8.11","acKind":"PodManifest","apps":[
{"name":"a","image":{"id":"` + imageID + `"},"app":{"exec":["/a"],"user":"0","group":"0"}},
{"name":"b","image":{"id":"` + imageID + `"},"app":{"exec":["/b"],"user":"0","group":"0"}}]}`

func newPods(t *testing.T) Pods {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("root is needed")
	}
	var id [8]byte
	rand.Read(id[:])
	p := Pods{Data: t.TempDir(), StoreID: "feed" + hex.EncodeToString(id[:])}
	t.Cleanup(func() { os.RemoveAll(filepath.Dir(poddir.RunDir(p.StoreID, "x"))) })
	return p
}

func refs() poddir.Refs {
	return poddir.Refs{CreatedAt: time.Now().UTC(), Images: []string{imageID}, Layers: []string{"layer-1"}}
}

// prepare makes a pod that is filled as stage0/prepare does it.
func prepare(t *testing.T, p Pods) *PreparingPod {
	t.Helper()
	made, err := p.Create(refs())
	if err != nil {
		t.Fatal(err)
	}
	write(t, made.Dir().Manifest(), manifest)
	write(t, made.Dir().Run(), `{"net":["none"]}`)
	for _, app := range []string{"a", "b"} {
		if err := os.MkdirAll(string(made.Dir().App(app)), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, made.Dir().App(app).Image(), `{"id":"`+imageID+`","layers":["layer-1"]}`)
	}
	if _, err := poddir.MakeRunDir(p.StoreID, made.UUID()); err != nil {
		t.Fatal(err)
	}
	return made
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (p Pods) mustBe(t *testing.T, uuid string, want State) Pod {
	t.Helper()
	pod, err := p.Get(uuid)
	if err != nil || pod.State != want {
		t.Fatalf("state %q, %v; want %q", pod.State, err, want)
	}
	return pod
}

// TestTable compares the table with the one in the documentation.
func TestTable(t *testing.T) {
	data, err := os.ReadFile("../../Documentation/devel/pod-lifecycle.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(data)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.HasPrefix(cells[1], "---") {
			continue
		}
		folder := poddir.Folder(strings.TrimSpace(cells[1]))
		held, free := State(strings.TrimSpace(cells[2])), State(strings.TrimSpace(cells[3]))
		for _, f := range poddir.Folders() {
			if f != folder {
				continue
			}
			rows++
			if got := stateOf(f, true, false); got != held {
				t.Errorf("%s, locked: %q, documented %q", f, got, held)
			}
			if got := stateOf(f, false, false); got != free {
				t.Errorf("%s, free: %q, documented %q", f, got, free)
			}
		}
	}
	if rows != len(poddir.Folders()) {
		t.Errorf("%d rows documented", rows)
	}
	if got := stateOf(poddir.Run, false, true); got != Exiting || got.Over() || !got.HasRun() {
		t.Errorf("run, free, populated: %q", got)
	}
}

func TestLife(t *testing.T) {
	p := newPods(t)
	made := prepare(t, p)
	uuid := made.UUID()
	p.mustBe(t, uuid, Preparing)
	ready, err := made.Ready()
	if err != nil {
		t.Fatal(err)
	}
	// The receiver is used up: closing it must not free the lock.
	if err := made.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.OpenPrepared(uuid); !errs.Is(err, errs.Busy) {
		t.Errorf("second lock: %v", err)
	}
	if err := ready.Close(); err != nil {
		t.Fatal(err)
	}
	p.mustBe(t, uuid, Prepared)
	if ready, err = p.OpenPrepared(uuid); err != nil {
		t.Fatal(err)
	}
	run, err := ready.Start()
	if err != nil {
		t.Fatal(err)
	}
	pod := p.mustBe(t, uuid, Running)
	if err := p.Collect(t.Context(), uuid); !errs.Is(err, errs.Busy) {
		t.Errorf("collect a running pod: %v", err)
	}
	f, err := p.Facts(pod)
	if err != nil || f.Exit != nil || f.Apps[0].Status != nil {
		t.Errorf("facts %+v, %v", f, err)
	}
	if err := run.Close(); err != nil {
		t.Fatal(err)
	}
	p.mustBe(t, uuid, Exited)
	if err := p.Mark(t.Context(), uuid); err != nil {
		t.Fatal(err)
	}
	p.mustBe(t, uuid, ExitedGarbage)
	if err := p.Collect(t.Context(), uuid); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Get(uuid); !errors.Is(err, fs.ErrNotExist) || !errs.Is(err, errs.NotFound) {
		t.Errorf("after collect: %v", err)
	}
	if exists(poddir.RunDir(p.StoreID, uuid)) {
		t.Error("run folder left")
	}
	if err := p.Collect(t.Context(), uuid); err != nil {
		t.Errorf("collect again: %v", err)
	}
}

// TestAborted: readers say of a dead supervisor's pod what gc writes.
func TestAborted(t *testing.T) {
	p := newPods(t)
	run, err := prepare(t, p).Start()
	if err != nil {
		t.Fatal(err)
	}
	uuid := run.UUID()
	// App a was seen to end, b was not.
	code := 0
	attempt := run.Dir().App("a").Attempt(0)
	if err := os.MkdirAll(string(attempt), 0o700); err != nil {
		t.Fatal(err)
	}
	ended := poddir.Status{App: "a", State: poddir.Exited, ExitCode: &code, Reason: poddir.Completed}
	if err := atomicfile.WriteJSON(attempt.Status(), ended, 0o600, atomicfile.Renamed); err != nil {
		t.Fatal(err)
	}
	if err := run.Close(); err != nil {
		t.Fatal(err)
	}
	check := func(pod Pod, derived bool) Facts {
		t.Helper()
		f, err := p.Facts(pod)
		if err != nil {
			t.Fatal(err)
		}
		a, b := f.Apps[0].Status, f.Apps[1].Status
		if a.Reason != poddir.Completed || *a.ExitCode != 0 || a.Derived {
			t.Errorf("app a: %+v", a)
		}
		if b.Reason != poddir.Aborted || b.State != poddir.Exited || b.ExitCode != nil {
			t.Errorf("app b: %+v", b)
		}
		if f.Exit == nil || f.Exit.Code != AbortedCode || f.Exit.Cause != poddir.CauseAborted {
			t.Errorf("exit %+v", f.Exit)
		}
		if exists(pod.Dir.Exit()) == derived {
			t.Errorf("exit.json exists: %t", !derived)
		}
		return f
	}
	check(p.mustBe(t, uuid, Exited), true)
	if err := p.Mark(t.Context(), uuid); err != nil {
		t.Fatal(err)
	}
	first := check(p.mustBe(t, uuid, ExitedGarbage), false)
	// Once recorded the end does not move any more.
	second := check(p.mustBe(t, uuid, ExitedGarbage), false)
	if !first.Exit.FinishedAt.Equal(second.Exit.FinishedAt) {
		t.Errorf("the end moved from %s to %s", first.Exit.FinishedAt, second.Exit.FinishedAt)
	}
}

func TestFind(t *testing.T) {
	p := newPods(t)
	for folder, uuid := range map[poddir.Folder]string{
		poddir.Run: "aaaa0000-0000-0000-0000-000000000001", poddir.Prepared: "aaab0000-0000-0000-0000-000000000002",
		poddir.Embryo: "bbbb0000-0000-0000-0000-000000000003", poddir.Garbage: "cccc0000-0000-0000-0000-000000000004",
	} {
		if err := os.MkdirAll(poddir.Path(p.Data, folder, uuid), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for arg, want := range map[string]State{"AAAA": Exited, "bbbb": Embryo, "cccc": Garbage} {
		if pod, err := p.Find(arg); err != nil || pod.State != want {
			t.Errorf("%s: %+v, %v", arg, pod, err)
		}
	}
	for arg, want := range map[string]string{
		"": "UUID cannot be empty", "aaa": "ambiguous uuid, 2 matches", "zz": `no matches found for "zz"`,
	} {
		if _, err := p.Find(arg); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %q", arg, err, want)
		}
	}
	if all, err := p.List(); err != nil || len(all) != 4 || all[0].State != Embryo || all[3].State != Garbage {
		t.Errorf("list: %+v, %v", all, err)
	}
	if _, err := (Pods{Data: filepath.Join(p.Data, "never"), StoreID: "x"}).List(); err != nil {
		t.Errorf("list of nothing: %v", err)
	}
}

// TestHeld: references are counted in every state, rebuilt where refs.json is
// damaged, and unknown where that fails.
func TestHeld(t *testing.T) {
	p := newPods(t)
	made := prepare(t, p)
	defer made.Close()
	uuid := made.UUID()
	check := func(what string, holds, known bool) {
		t.Helper()
		h, err := p.Held()
		if err != nil {
			t.Fatal(err)
		}
		if got := len(h.Images[imageID]) == 1 && len(h.Layers["layer-1"]) == 1; got != holds {
			t.Errorf("%s: holds %t: %+v", what, got, h)
		}
		if _, unknown := h.Unknown[uuid]; unknown == known || (h.Err() == nil) != known {
			t.Errorf("%s: unknown %v", what, h.Unknown)
		}
	}
	check("whole", true, true)
	write(t, made.Dir().Refs(), "{")
	check("rebuilt", true, true)
	if err := os.Remove(made.Dir().Refs()); err != nil {
		t.Fatal(err)
	}
	check("rebuilt from nothing", true, true)
	write(t, made.Dir().App("b").Image(), "")
	check("unknown", false, false)
	if err := made.Close(); err != nil {
		t.Fatal(err)
	}
	p.mustBe(t, uuid, AbortedPrepare)
	check("never to run", false, true)
}

// TestCreateBesideCollect: whoever collects embryos in the moment before they
// are locked makes nobody fail.
func TestCreateBesideCollect(t *testing.T) {
	p := newPods(t)
	ctx, cancel := context.WithCancel(t.Context())
	var collectors sync.WaitGroup
	for range 2 {
		collectors.Go(func() {
			for ctx.Err() == nil {
				all, err := p.List()
				if err != nil {
					t.Error(err)
					return
				}
				for _, pod := range all {
					if err := p.Collect(ctx, pod.UUID); err != nil && !errs.Is(err, errs.Busy) {
						t.Errorf("collect %s: %v", pod.State, err)
					}
				}
			}
		})
	}
	var makers sync.WaitGroup
	for range 8 {
		makers.Go(func() {
			for range 20 {
				made, err := p.Create(refs())
				if err != nil {
					t.Errorf("create: %v", err)
					continue
				}
				if _, err := p.Get(made.UUID()); err != nil {
					t.Errorf("own pod: %v", err)
				}
				if err := made.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	makers.Wait()
	cancel()
	collectors.Wait()
	all, err := p.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range all {
		if err := p.Collect(t.Context(), pod.UUID); err != nil {
			t.Error(err)
		}
	}
	if left, err := p.List(); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestDiscard(t *testing.T) {
	p := newPods(t)
	made := prepare(t, p)
	if err := made.Discard(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, err := p.List(); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestExiting: a process that outlives the supervisor makes the pod "exiting",
// a wait lasts until it is gone, and collecting kills it.
func TestExiting(t *testing.T) {
	p := newPods(t)
	run, err := prepare(t, p).Start()
	if err != nil {
		t.Fatal(err)
	}
	uuid := run.UUID()
	rec, err := cgroup.Plan(p.StoreID, uuid)
	if err != nil {
		t.Fatal(err)
	}
	if err := cgroup.Create(&rec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cgroup.Kill(rec); cgroup.Remove(rec) })
	if err := atomicfile.WriteJSON(run.Dir().Cgroup(), rec, 0o600, atomicfile.Renamed); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	reaped := make(chan error, 1)
	go func() { reaped <- cmd.Wait() }()
	if err := cgroup.Attach(rec, cgroup.Helpers, cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := run.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := p.Facts(p.mustBe(t, uuid, Exiting))
	if err != nil || f.Reason == "" || f.Exit != nil {
		t.Errorf("facts %+v, %v", f, err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := p.WaitOver(short, uuid); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait: %v", err)
	}
	waited := make(chan error, 1)
	go func() {
		_, err := p.WaitOver(t.Context(), uuid)
		waited <- err
	}()
	if err := p.Collect(t.Context(), uuid); err != nil {
		t.Fatal(err)
	}
	if err := <-reaped; err == nil {
		t.Error("the process was not killed")
	}
	if err := <-waited; err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("wait: %v", err)
	}
	if exists(rec.Paths[0].Path) {
		t.Error("cgroup left")
	}
}

// TestDying: a pod whose init is still there, in no cgroup any more, is not
// over yet, and collecting waits for it.
func TestDying(t *testing.T) {
	p := newPods(t)
	run, err := prepare(t, p).Start()
	if err != nil {
		t.Fatal(err)
	}
	uuid := run.UUID()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := proc.Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.WriteJSON(run.Dir().Supervisor(), poddir.Supervisor{PodInit: id}, 0o600, atomicfile.Renamed); err != nil {
		t.Fatal(err)
	}
	if err := run.Close(); err != nil {
		t.Fatal(err)
	}
	p.mustBe(t, uuid, Exiting)
	collected := make(chan error, 1)
	go func() { collected <- p.Collect(t.Context(), uuid) }()
	select {
	case err := <-collected:
		t.Fatalf("collected too early: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if err := <-collected; err != nil {
		t.Error(err)
	}
}

// TestDamagedCgroup: a record that is damaged or names another pod's cgroup
// kills nothing of others, and keeps nobody from seeing and removing the pod.
func TestDamagedCgroup(t *testing.T) {
	p := newPods(t)
	foreign := func(path string) string {
		return `{"bootID":"` + proc.BootID() + `","paths":[{"path":"` + path + `"}]}`
	}
	for _, text := range []string{
		"", "{", "{}", foreign("/sys/fs/cgroup/unified"), foreign("/sys/fs/cgroup/unified/rkt-other/aaaa0000-0000-0000-0000-000000000001"),
		foreign("/sys/fs/cgroup/unified/rkt-" + p.StoreID + "/aaaa0000-0000-0000-0000-000000000001"),
	} {
		run, err := prepare(t, p).Start()
		if err != nil {
			t.Fatal(err)
		}
		write(t, run.Dir().Cgroup(), text)
		rec, err := p.Cgroup(run.Dir())
		if err != nil || !p.owns(run.Dir(), rec) {
			t.Errorf("%q: %+v, %v", text, rec, err)
		}
		if err := run.Close(); err != nil {
			t.Fatal(err)
		}
		p.mustBe(t, run.UUID(), Exited)
		if err := p.Collect(t.Context(), run.UUID()); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestWaitPrepared: the wait for a pod that is yet to be started goes on
// through its whole life.
func TestWaitPrepared(t *testing.T) {
	p := newPods(t)
	ready, err := prepare(t, p).Ready()
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() {
		pod, err := p.WaitOver(t.Context(), ready.UUID())
		if err == nil && pod.State != Exited {
			err = errors.New(string(pod.State))
		}
		waited <- err
	}()
	run, err := ready.Start()
	if err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-waited:
		t.Fatalf("over while it runs: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if err := run.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil {
		t.Error(err)
	}
}

// TestWaitInterrupted: a signal is no deadline, and is noticed at once.
func TestWaitInterrupted(t *testing.T) {
	p := newPods(t)
	run, err := prepare(t, p).Start()
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	begin := time.Now()
	_, err = p.WaitOver(ctx, run.UUID())
	if !errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait: %v", err)
	}
	if took := time.Since(begin); took > 900*time.Millisecond {
		t.Errorf("noticed after %s", took)
	}
}

// TestCollectInherited: the supervisor's successor removes the pod whose lock
// it was given.
func TestCollectInherited(t *testing.T) {
	p := newPods(t)
	run, err := prepare(t, p).Start()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := dup(run.Lock())
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Close(); err != nil {
		t.Fatal(err)
	}
	p.mustBe(t, run.UUID(), Running) // the copy holds it
	if err := p.CollectInherited(t.Context(), run.UUID(), fd); err != nil {
		t.Fatal(err)
	}
	if left, err := p.List(); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestPowerLoss: a pod whose files came back empty is still told of, and can
// be removed.
func TestPowerLoss(t *testing.T) {
	p := newPods(t)
	run, err := prepare(t, p).Start()
	if err != nil {
		t.Fatal(err)
	}
	write(t, run.Dir().Manifest(), "")
	if err := run.Close(); err != nil {
		t.Fatal(err)
	}
	pod := p.mustBe(t, run.UUID(), Exited)
	if _, err := p.Facts(pod); !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), pod.UUID) {
		t.Errorf("facts: %v", err)
	}
	if err := p.Collect(t.Context(), pod.UUID); err != nil {
		t.Error(err)
	}
}
