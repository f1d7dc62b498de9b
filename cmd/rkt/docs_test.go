package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

var update = flag.Bool("update", false, "write the generated pages anew")

// TestDocs generates the command pages, the man pages and the completions, and
// compares them with those in the tree: they change in the same commit as the
// commands.
func TestDocs(t *testing.T) {
	want := map[string][]byte{}
	root := newRoot(&globals{})
	root.DisableAutoGenTag = true
	for _, cmd := range visible(root) {
		// Flags of later versions would only be in the way of a reader.
		want["Documentation/commands/"+fileName(cmd)+".md"] = page(t, cmd)
		want["Documentation/man/"+strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1"] = man(t, cmd)
	}
	for name, generate := range map[string]func(*bytes.Buffer) error{
		"rkt.bash": func(b *bytes.Buffer) error { return root.GenBashCompletionV2(b, true) },
		"_rkt":     func(b *bytes.Buffer) error { return root.GenZshCompletion(b) },
		"rkt.fish": func(b *bytes.Buffer) error { return root.GenFishCompletion(b, true) },
	} {
		var b bytes.Buffer
		if err := generate(&b); err != nil {
			t.Fatal(err)
		}
		want["dist/completions/"+name] = b.Bytes()
	}
	compare(t, "../..", want)
}

// visible lists the command and its visible sub-commands.
func visible(cmd *cobra.Command) []*cobra.Command {
	list := []*cobra.Command{cmd}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			list = append(list, visible(sub)...)
		}
	}
	return list
}

func fileName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "_") }

func page(t *testing.T, cmd *cobra.Command) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := doc.GenMarkdown(cmd, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func man(t *testing.T, cmd *cobra.Command) []byte {
	t.Helper()
	var b bytes.Buffer
	// A fixed date: a page that differs at each build is never the same twice.
	date := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if err := doc.GenMan(cmd, &doc.GenManHeader{Section: "1", Source: "rkt", Manual: "rkt", Date: &date}, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// compare checks that exactly these files are in their folders, or with
// -update makes it so.
func compare(t *testing.T, top string, want map[string][]byte) {
	t.Helper()
	dirs := map[string]bool{}
	for name, data := range want {
		path := filepath.Join(top, name)
		dirs[filepath.Dir(path)] = true
		if *update {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s is not what the commands say (%v): run `make docs`", name, err)
		}
	}
	for dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			rel, _ := filepath.Rel(top, filepath.Join(dir, e.Name()))
			if _, ok := want[rel]; !ok {
				t.Errorf("%s belongs to no command", rel)
			}
		}
	}
}
