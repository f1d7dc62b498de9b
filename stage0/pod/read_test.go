package pod

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/proc"
)

// ended makes a pod in pods/run whose supervisor has written everything.
func ended(t *testing.T, p Pods) string {
	t.Helper()
	run, err := prepare(t, p).Start()
	if err != nil {
		t.Fatal(err)
	}
	for i, app := range []string{"a", "b"} {
		attempt := run.Dir().App(app).Attempt(0)
		if err := os.MkdirAll(string(attempt), 0o700); err != nil {
			t.Fatal(err)
		}
		status := poddir.Status{App: app, State: poddir.Exited, ExitCode: &i, Reason: poddir.Completed}
		if err := atomicfile.WriteJSON(attempt.Status(), status, 0o600, atomicfile.Renamed); err != nil {
			t.Fatal(err)
		}
	}
	exit := poddir.Exit{Code: 3, Cause: poddir.CausePolicy, FinishedAt: time.Now()}
	if err := atomicfile.WriteJSON(run.Dir().Exit(), exit, 0o600, atomicfile.Renamed); err != nil {
		t.Fatal(err)
	}
	if err := run.Close(); err != nil {
		t.Fatal(err)
	}
	return run.UUID()
}

// wrong says what a reader may not see of a pod of ended.
func wrong(f Facts) error {
	switch {
	case f.Folder == poddir.Garbage && len(f.Apps) == 0:
		return nil // half of it is removed
	case len(f.Apps) != 2:
		return fmt.Errorf("%s: %d apps", f.State, len(f.Apps))
	case f.State.HasRun() && (f.Exit == nil || f.Exit.Derived || f.Exit.Code != 3):
		return fmt.Errorf("%s: exit %+v", f.State, f.Exit)
	}
	for i, a := range f.Apps {
		if a.Status == nil || a.Status.Derived || *a.Status.ExitCode != i {
			return fmt.Errorf("%s: app %s: %+v", f.State, a.Name, a.Status)
		}
	}
	return nil
}

// TestReadersBesideMoves: whoever reads a pod while it is marked, set aside and
// removed gets a true answer or hears that it is gone.
func TestReadersBesideMoves(t *testing.T) {
	p := newPods(t)
	const pods = 60
	reads := 0
	for range pods {
		uuid := ended(t, p)
		var done atomic.Bool
		moved := make(chan error, 1)
		go func() {
			defer done.Store(true)
			if err := p.Mark(t.Context(), uuid); err != nil {
				moved <- err
				return
			}
			moved <- p.Collect(t.Context(), uuid)
		}()
		for last := false; !last; {
			last = done.Load()
			reads++
			if err := readAll(p, uuid); err != nil {
				t.Error(err)
			}
		}
		if err := <-moved; err != nil && !errs.Is(err, errs.Busy) {
			t.Error(err)
		}
	}
	t.Logf("%d reads", reads)
}

// readAll reads a pod in each way there is.
func readAll(p Pods, uuid string) error {
	pod, err := p.Get(uuid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	gone := func(err error) bool { return errors.Is(err, fs.ErrNotExist) && errs.Is(err, errs.NotFound) }
	f, err := p.Facts(pod)
	if err == nil {
		err = wrong(f)
	}
	if err != nil && !gone(err) {
		return fmt.Errorf("facts: %w", err)
	}
	e, err := p.Exit(pod)
	if err == nil && e != nil && (e.Derived || e.Code != 3) {
		err = fmt.Errorf("%+v", e)
	}
	if err != nil && !gone(err) {
		return fmt.Errorf("exit: %w", err)
	}
	data, err := p.ManifestBytes(pod)
	if err == nil && string(data) != manifest {
		err = fmt.Errorf("%q", data)
	}
	if err != nil && !gone(err) {
		return fmt.Errorf("manifest: %w", err)
	}
	refs, err := p.refs(pod)
	if err == nil && len(refs.Images) != 1 && exists(poddir.Path(p.Data, poddir.ExitedGarbage, uuid)) {
		err = fmt.Errorf("%+v", refs)
	}
	if err != nil {
		return fmt.Errorf("refs: %w", err)
	}
	return nil
}

// TestReadMoved: what was read in a folder that the pod then left is thrown
// away, however right it looks.
func TestReadMoved(t *testing.T) {
	p := newPods(t)
	uuid := ended(t, p)
	pod := p.mustBe(t, uuid, Exited)
	var seen []poddir.Folder
	err := p.Read(pod, func(now Pod) error {
		seen = append(seen, now.Folder)
		switch now.Folder {
		case poddir.Run:
			return p.Mark(t.Context(), uuid)
		case poddir.ExitedGarbage:
			return p.Dismiss(t.Context(), uuid)
		default:
			return p.Remove(uuid)
		}
	})
	want := "pod " + uuid + ": was removed while it was read"
	if err == nil || err.Error() != want || !errs.Is(err, errs.NotFound) || !errors.Is(err, fs.ErrNotExist) || len(errs.Hints(err)) == 0 {
		t.Errorf("%v (hints %q), want %s", err, errs.Hints(err), want)
	}
	if len(seen) != 3 || seen[1] != poddir.ExitedGarbage || seen[2] != poddir.Garbage {
		t.Errorf("read in %v", seen)
	}
	if _, err := p.WaitOver(t.Context(), uuid); err == nil || err.Error() != "pod "+uuid+": was removed while it was waited for" || !errs.Is(err, errs.NotFound) {
		t.Errorf("wait: %v", err)
	}
}

// TestWaitReadyPreparing: whoever asks for a pod that is just being prepared,
// as its UUID is known from the first moment, waits for it.
func TestWaitReadyPreparing(t *testing.T) {
	p := newPods(t)
	made, err := p.Create(refs())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	waited := make(chan error, 1)
	go func() { waited <- p.WaitReady(ctx, made.UUID()) }()
	select {
	case err := <-waited:
		t.Fatalf("not waited for: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if _, err := poddir.MakeRunDir(p.StoreID, made.UUID()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(poddir.RunDir(p.StoreID, made.UUID()))) })
	self, err := proc.Self()
	if err != nil {
		t.Fatal(err)
	}
	sum := poddir.Summary{UUID: made.UUID(), State: string(Running), Ready: true, Supervisor: &poddir.Supervisor{ID: self}}
	if err := poddir.WriteSummary(p.StoreID, sum); err != nil {
		t.Fatal(err)
	}
	prepared, err := made.Ready()
	if err != nil {
		t.Fatal(err)
	}
	running, err := prepared.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = running.Close() }()
	if err := <-waited; err != nil {
		t.Error(err)
	}
}
