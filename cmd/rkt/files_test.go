package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestNamedFiles: what a user names instead of a small file ends the command
// and neither hangs it nor fills its memory, and a pipe is one.
func TestNamedFiles(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	// A read that was given up still waits, and would take what the next one
	// is to get: that has a pipe of its own.
	for _, name := range []string{"fifo", "answered"} {
		if err := unix.Mkfifo(at(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(at("huge"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(at("huge"), 1<<40); err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"status --uuid-file=", "stop --uuid-file=", "prepare --pod-manifest=", "prepare a --set-env-file="} {
		for path, want := range map[string]string{
			at("fifo"): "interrupted while waiting", at("huge"): "larger than ", "/dev/zero": "is a device", dir: "is a folder",
		} {
			// The end of ctx is what a signal is to the program.
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			code, stderr := runWith(t, ctx, "--dir="+at("none"), flag+path)
			cancel()
			if code != codeError || !strings.Contains(stderr, want) || !strings.Contains(stderr, path) {
				t.Errorf("%s%s: %d, %s", flag, path, code, stderr)
			}
		}
	}
	if code, stderr := runWith(t, t.Context(), "--dir="+at("none"), "--insecure-options=image fetch "+at("fifo")); code != codeError || !strings.Contains(stderr, "not a regular file") {
		t.Errorf("fetch: %d, %s", code, stderr)
	}
	go func() { _ = os.WriteFile(at("answered"), []byte("abcdef\n"), 0) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if code, stderr := runWith(t, ctx, "--dir="+at("none"), "status --uuid-file="+at("answered")); code != codeError || !strings.Contains(stderr, `no matches found for "abcdef"`) {
		t.Errorf("pipe: %d, %s", code, stderr)
	}
}

// TestConfigNoFile: what lies in a folder of configuration and is no file is
// told, and not waited for.
func TestConfigNoFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "paths.d"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "paths.d", "a.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, stderr := runWith(t, t.Context(), "--user-config="+dir, "list"); code != codeError || !strings.Contains(stderr, "a.json: is a pipe, not a file") {
		t.Errorf("%d, %s", code, stderr)
	}
}

func runWith(t *testing.T, ctx context.Context, first, line string) (code int, stderr string) {
	t.Helper()
	return runTo(t, ctx, filepath.Join(t.TempDir(), "out"), append([]string{first}, strings.Fields(line)...)...)
}
