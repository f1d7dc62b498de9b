package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/stage0/pod"
	"github.com/rkt-pods/rkt/stage0/store"
)

// runTo runs the program in this process with a given stdout, and returns its
// code and what it said on stderr.
func runTo(t *testing.T, ctx context.Context, stdout string, args ...string) (code int, stderr string) {
	t.Helper()
	out, err := os.OpenFile(stdout, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	said, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	none := filepath.Join(t.TempDir(), "none")
	code = run(ctx, append([]string{"--system-config=" + none, "--local-config=" + none}, args...), os.Stdin, out, said)
	text, err := os.ReadFile(said.Name())
	if err != nil {
		t.Fatal(err)
	}
	return code, string(text)
}

// TestLostOutput: a command whose result can't be written does not end well.
func TestLostOutput(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	st, err := store.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(filepath.Dir(poddir.RunDir(st.ID(), "x"))) })
	uuid := endedPod(t, pod.Pods{Data: st.Data(), StoreID: st.ID()}).UUID()
	for _, line := range []string{
		"status " + uuid, "cat-manifest " + uuid, // before gc
		"help", "help run", "run --help", "--help", "version", "list", "list --format=json", "config", "completion bash",
		"gc --format=json", "gc --dry-run --format=json", "image list", "image list --format=json",
	} {
		args := append([]string{"--dir=" + data}, strings.Fields(line)...)
		if code, stderr := runTo(t, t.Context(), "/dev/full", args...); code != codeError || strings.Count(stderr, "write to stdout: no space left on device") != 1 || strings.Contains(stderr, "hint") {
			t.Errorf("%s: %d, %s", line, code, stderr)
		}
		if code, stderr := runTo(t, t.Context(), filepath.Join(t.TempDir(), "out"), args...); code != codeOK || stderr != "" {
			t.Errorf("%s: %d, %s", line, code, stderr)
		}
	}
}
