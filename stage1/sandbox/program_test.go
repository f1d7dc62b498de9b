package sandbox

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/plan"
)

func TestLookupProgram(t *testing.T) {
	f := newFixture(t)
	self := read(t, os.Getenv(childEnv)) // static, whatever the test binary is
	dynamic := read(t, "/bin/ls")        // needs the loader
	interp := elfInterpreter(t, "/bin/ls")
	foreign := []byte(self)
	foreign[18], foreign[19] = 8, 0 // MIPS
	cut := dynamic[:80]

	top := f.layer(
		"0755 bin/true="+self, "0644 bin/plain="+self, "0700 bin/rootonly="+self, "0755 opt/app/run="+self,
		"0755 usr/bin/script=#!/bin/true -x\n", "0755 bin/nested=#! /usr/bin/script\n", "0755 bin/self=#!/bin/self\n",
		"0755 bin/orphan=#!/bin/missing\n", "0755 bin/empty=", "0755 bin/text=hello\n", "0755 bin/noname=#!\nx",
		"0755 bin/foreign="+string(foreign), "0755 bin/dyn="+dynamic, "0755 bin/cut="+cut,
		"bin/link -> /opt/app/run", "bin/dangling -> /nope", "bin/loop -> loop", "bin/dir/", "0755 opt/app/bin/true="+self,
		"bin/out -> ../../../../../../../../bin/ls",
	)
	src := f.layer("0755 tool="+self, "0755 usesimage=#!/bin/true\n")
	p := f.open(plan.Pod{Volumes: []plan.Volume{{Name: "v", Kind: "host", Source: src}}})
	app := plan.App{
		Name: "web", Lowers: []string{top}, User: "0", Group: "0", Cwd: "/opt/app",
		Env:          []string{"PATH=/sbin:/usr/bin:/bin"},
		Capabilities: appc.DefaultCapabilities(),
		Mounts:       []plan.Mount{{Type: "proc", Target: "/proc"}, {Type: "bind", Volume: "v", Target: "/vol", VolumeEntry: true}},
	}
	root, err := p.MountRootFS(app, f.attempt("web", 0))
	f.must(err)
	la, err := p.Prepare(app, root)
	f.must(err)

	for _, c := range []struct {
		argv0, path string
		uid, code   int
		text        string
	}{
		{argv0: "true", path: "/bin/true"},
		{argv0: "/bin/true", path: "/bin/true"},
		{argv0: "./run", path: "/opt/app/./run"},
		{argv0: "bin/true", path: "/opt/app/bin/true"},
		{argv0: "script", path: "/usr/bin/script"},
		{argv0: "nested", path: "/bin/nested"},
		{argv0: "link", path: "/bin/link"},
		{argv0: "/vol/tool", path: "/vol/tool"},
		{argv0: "/vol/usesimage", path: "/vol/usesimage"},
		{argv0: "/proc/self/exe"},
		{argv0: "rootonly", path: "/bin/rootonly"},
		{argv0: "/bin/true", uid: 1000, path: "/bin/true"},
		{argv0: "rootonly", uid: 1000, code: 126, text: `program "rootonly": user 1000 may not execute it (mode 0700, owner 0:0)`},
		{argv0: "plain", code: 126, text: "may not execute it (mode 0644"},
		{argv0: "nope", code: 127, text: `program "nope": not found in PATH`},
		{argv0: "/bin/nope", code: 127, text: `program "/bin/nope": not found`},
		{argv0: "dangling", code: 127, text: "not found"},
		{argv0: "/bin/true/x", code: 127, text: "not found"},
		{argv0: "/bin/loop", code: 127, text: "too many levels of symbolic links"},
		{argv0: "/bin/out", code: 127, text: "not found"},
		{argv0: "/bin/dir", code: 126, text: "is a folder"},
		{argv0: "orphan", code: 127, text: `program "orphan": interpreter: program "/bin/missing": not found`},
		{argv0: "self", code: 126, text: "too many interpreters"},
		{argv0: "empty", code: 126, text: "is empty"},
		{argv0: "text", code: 126, text: "unknown format"},
		{argv0: "noname", code: 126, text: "names no interpreter"},
		{argv0: "foreign", code: 126, text: "made for mips, this host is"},
		{argv0: "cut", code: 126, text: "damaged ELF file"},
		{argv0: "dyn", code: 127, text: `program "dyn": interpreter: program "` + interp + `": not found`},
		{argv0: "", code: 127, text: "empty name"},
	} {
		la := la
		la.Argv, la.UID, la.GID = []string{c.argv0}, c.uid, c.uid
		got, err := p.LookupProgram(la)
		if c.code == 0 {
			if err != nil || got != c.path {
				t.Errorf("%q as %d: %q, %v; want %q", c.argv0, c.uid, got, err, c.path)
			}
			continue
		}
		var start *launch.StartError
		if !errors.As(err, &start) || start.ExitCode != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%q as %d: %v; want %d and %q", c.argv0, c.uid, err, c.code, c.text)
		}
	}
}

func elfInterpreter(t *testing.T, path string) string {
	t.Helper()
	e, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, p := range e.Progs {
		if p.Type == elf.PT_INTERP {
			data := make([]byte, p.Filesz)
			if _, err := p.ReadAt(data, 0); err != nil {
				t.Fatal(err)
			}
			return string(bytes.TrimRight(data, "\x00"))
		}
	}
	t.Fatalf("%s has no interpreter", path)
	return ""
}

// Whatever a program's head is, looking at it ends with a verdict.
func FuzzProgram(f *testing.F) {
	f.Add([]byte("#!/bin/sh\n"))
	f.Add([]byte("\x7fELF\x02\x01\x01"))
	f.Add([]byte("\x7fELF\x01\x02\x01"))
	f.Add([]byte("#!" + strings.Repeat(" ", 300)))
	if exe, err := os.ReadFile("/bin/ls"); err == nil {
		f.Add(exe[:4096])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		top := t.TempDir()
		if err := os.WriteFile(filepath.Join(top, "p"), data, 0o755); err != nil {
			t.Fatal(err)
		}
		r, err := openRoot(top, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer r.close()
		l := &lookup{root: r, app: launch.App{App: plan.App{Cwd: "/"}}}
		var start *launch.StartError
		if err := l.check("/p", "p", 0); err != nil && !errors.As(err, &start) {
			t.Errorf("not a verdict: %v", err)
		}
	})
}
