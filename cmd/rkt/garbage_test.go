package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/stage0/pod"
	"github.com/rkt-pods/rkt/stage0/store"
)

// TestReadGarbage: a pod that a killed gc left half removed is shown with what
// is left of it.
func TestReadGarbage(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	s, err := store.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(filepath.Dir(poddir.RunDir(s.ID(), "x"))) })
	dir := endedPod(t, pod.Pods{Data: s.Data(), StoreID: s.ID()})
	log := "2026-01-02T15:04:05.000000000Z stdout F said\n"
	if err := os.WriteFile(dir.App("a").Attempt(0).Log(), []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	uuid := dir.UUID()
	garbage := poddir.Dir(poddir.Path(s.Data(), poddir.Garbage, uuid))
	if err := os.Rename(string(dir), string(garbage)); err != nil {
		t.Fatal(err)
	}
	check := func(what string, want map[string]string) {
		t.Helper()
		for line, text := range want {
			out := filepath.Join(t.TempDir(), "out")
			_, stderr := runTo(t, t.Context(), out, append([]string{"--dir=" + data}, strings.Fields(line+" "+uuid)...)...)
			stdout, err := os.ReadFile(out)
			if got := string(stdout) + stderr; err != nil || !strings.Contains(got, text) {
				t.Errorf("%s: %s: %v\n%swant: %s", what, line, err, got, text)
			}
		}
	}
	check("whole", map[string]string{
		"status": "\nexited=true\nexit=0\nexit-cause=policy\napp-a=0\n", "status --format=json": `"reason":"being removed","app_names":["a"]`,
		"logs": "said\n", "cat-manifest": `"acKind": "PodManifest"`,
	})
	if err := os.Remove(garbage.Manifest()); err != nil {
		t.Fatal(err)
	}
	removed := "pod " + uuid + ": is being removed\n"
	check("without its manifest", map[string]string{
		"status": "state=garbage\nreason=being removed\n", "status --format=json-pretty": `"code": 0`,
		"logs": "logs: " + removed, "cat-manifest": "cat-manifest: " + removed,
	})
	if err := os.Remove(garbage.Exit()); err != nil {
		t.Fatal(err)
	}
	check("without its exit", map[string]string{"status": "\nexited=false\n"})
}
