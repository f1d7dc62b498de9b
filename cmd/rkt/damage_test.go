package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/stage0/pod"
	"github.com/rkt-pods/rkt/stage0/store"
)

// damages are what may lie where a record was.
var damages = map[string]func(path string) error{
	"missing":   func(string) error { return nil },
	"empty":     func(path string) error { return os.WriteFile(path, nil, 0o600) },
	"truncated": func(path string) error { return os.WriteFile(path, []byte(`{"a":`), 0o600) },
	"folder":    func(path string) error { return os.MkdirAll(filepath.Join(path, "sub"), 0o700) },
	"fifo":      func(path string) error { return unix.Mkfifo(path, 0o600) },
	"loop":      func(path string) error { return os.Symlink(path, path) },
	"secret":    func(path string) error { return os.WriteFile(path, []byte(`{"a":`), 0) },
	"huge": func(path string) error {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			return err
		}
		return os.Truncate(path, 100<<20)
	},
}

// endedPod makes a pod that has ended long ago, with all its records.
func endedPod(t *testing.T, pods pod.Pods) poddir.Dir {
	t.Helper()
	made, err := pods.Create(poddir.Refs{CreatedAt: time.Now().Add(-5 * time.Hour), Images: []string{}, Layers: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	run, err := made.Start()
	if err != nil {
		t.Fatal(err)
	}
	d := run.Dir()
	code, ended := 0, time.Now().Add(-time.Hour)
	const manifest = `{"acVersion":"0.8.11","acKind":"PodManifest","apps":[{"name":"a","image":{"id":"sha512-00aa"},"app":{"exec":["/a"],"user":"0","group":"0"}}]}`
	err = os.MkdirAll(string(d.App("a").Attempt(0)), 0o700)
	if err == nil {
		err = os.WriteFile(d.Manifest(), []byte(manifest), 0o600)
	}
	for path, record := range map[string]any{
		d.Run(): poddir.RunOptions{Net: []string{"none"}}, d.Supervisor(): poddir.Supervisor{},
		d.Exit(): poddir.Exit{Cause: poddir.CausePolicy, FinishedAt: ended}, d.Cgroup(): poddir.Cgroup{},
		d.App("a").Image():             poddir.AppImage{ID: "sha512-00aa"},
		d.App("a").Attempt(0).Status(): poddir.Status{App: "a", State: poddir.Exited, ExitCode: &code},
	} {
		if err == nil {
			err = atomicfile.WriteJSON(path, record, 0o600, atomicfile.Renamed)
		}
	}
	if err == nil {
		err = run.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDamagedRecords: whatever lies where a record of one pod was, all others
// are listed and collected, that one is listed, collected or named, and can be
// removed.
func TestDamagedRecords(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	s, err := store.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	pods := pod.Pods{Data: s.Data(), StoreID: s.ID()}
	t.Cleanup(func() { os.RemoveAll(filepath.Dir(poddir.RunDir(s.ID(), "x"))) })
	for _, record := range []string{"lock", "pod", "refs.json", "run.json", "supervisor", "cgroup", "exit.json", "apps", "apps/a", "apps/a/0", "apps/a/0/status.json", "apps/a/image.json"} {
		for name, put := range damages {
			t.Run(record+" "+name, func(t *testing.T) {
				bad, good := endedPod(t, pods), endedPod(t, pods)
				path := filepath.Join(string(bad), record)
				if err := os.RemoveAll(path); err != nil {
					t.Fatal(err)
				}
				if err := put(path); err != nil {
					t.Fatal(err)
				}
				damagedLives(t, data, bad.UUID(), good.UUID())
			})
		}
	}
}

// damagedLives lists, collects and removes the two pods.
func damagedLives(t *testing.T, data, bad, good string) {
	rkt := func(line string) (int, string, string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		out := filepath.Join(t.TempDir(), "out")
		code, stderr := runTo(t, ctx, out, append([]string{"--dir=" + data}, strings.Fields(line)...)...)
		stdout, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		return code, string(stdout), stderr
	}
	if code, stdout, stderr := rkt("list --full"); code != codeOK || !strings.Contains(stdout, bad) || !strings.Contains(stdout, good) || stderr != "" && !strings.HasPrefix(stderr, "----\nlist: pod "+bad+": ") {
		t.Errorf("list: %d\n%s%s", code, stdout, stderr)
	}
	// It has an answer, or an error that says what to do.
	if code, stdout, stderr := rkt("status " + bad); (code != codeOK || !strings.HasPrefix(stdout, "state=")) && (code != codeError || !strings.Contains(stderr, "hint: ")) {
		t.Errorf("status: %d\n%s%s", code, stdout, stderr)
	}
	code, _, stderr := rkt("gc --grace-period=0s")
	if left := left(t, data, good); left != "" {
		t.Errorf("gc left the other: %s", left)
	}
	switch gone := left(t, data, bad) == ""; {
	case gone && code == codeOK && stderr == "":
		return
	case gone, code != codeIncomplete, !strings.Contains(stderr, "gc: could not collect "+bad+": "):
		t.Fatalf("gc: gone %t, %d, %s", gone, code, stderr)
	}
	code, _, stderr = rkt("rm " + bad)
	if hint := fmt.Sprintf("\"rm -r %s/lock\" and try again", left(t, data, bad)); code == codeError && strings.Contains(stderr, hint) {
		if err := os.RemoveAll(filepath.Join(left(t, data, bad), "lock")); err != nil {
			t.Fatal(err)
		}
		code, _, stderr = rkt("rm " + bad)
	}
	if code != codeOK || left(t, data, bad) != "" {
		t.Errorf("rm: %d, %s", code, stderr)
	}
}

// left is where the pod lies, "" if it is gone.
func left(t *testing.T, data, uuid string) string {
	t.Helper()
	found, err := fs.Glob(os.DirFS(data), "pods/*/"+uuid)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		return ""
	}
	return filepath.Join(data, found[0])
}
