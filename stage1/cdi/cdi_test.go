package cdi

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// write writes a specification with one device, whose variable says where.
func write(t *testing.T, dir, file, kind, device, edits string) {
	t.Helper()
	text := fmt.Sprintf(`{"cdiVersion":"0.8.0","kind":%q,"containerEdits":{"env":["ALL=%s"]},"devices":[{"name":%q,"containerEdits":%s}]}`, kind, file, device, edits)
	if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestFind(t *testing.T) {
	etc, run := t.TempDir(), t.TempDir()
	write(t, etc, "a.json", "vendor.com/gpu", "0", `{"env":["A=etc"]}`)
	write(t, etc, "b.json", "vendor.com/gpu", "1", `{"env":["A=one"]}`)
	write(t, run, "c.json", "vendor.com/gpu", "0", `{"env":["A=run"]}`)
	write(t, etc, "d.json", "vendor.com/nic", "0", `{}`)
	write(t, etc, "e.json", "vendor.com/nic", "0", `{}`)
	r, err := Load([]string{etc, run, filepath.Join(etc, "none")})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"vendor.com/gpu=0": "ALL=c.json A=run", "vendor.com/gpu=1": "ALL=b.json A=one"} {
		edits, err := r.Find(name)
		if err != nil || len(edits) != 2 || strings.Join(append(edits[0].Env, edits[1].Env...), " ") != want {
			t.Errorf("%s: %+v, %v, want %s", name, edits, err, want)
		}
	}
	if _, err := r.Find("vendor.com/nic=0"); !errs.Is(err, errs.Usage) || !strings.Contains(err.Error(), "d.json and ") {
		t.Errorf("said twice in one folder: %v", err)
	}
}

func TestRefused(t *testing.T) {
	for edits, want := range map[string]string{
		`{"hooks":[{"hookName":"x"}]}`:                                         "hooks",
		`{"intelRdt":{"closID":"x"}}`:                                          "Intel RDT",
		`{"netDevices":[{"hostInterfaceName":"x"}]}`:                           "network devices",
		`{"mounts":[{"hostPath":"none","containerPath":"/x","type":"tmpfs"}]}`: "only paths of the host",
		`{"mounts":[{"hostPath":"/x","containerPath":"x"}]}`:                   "only paths of the host",
		`{"deviceNodes":[{"path":"/etc/passwd"}]}`:                             "not below /dev",
		`{"deviceNodes":[{"path":"/dev/../etc/passwd"}]}`:                      "not below /dev",
		`{"env":["A"]}`: "not NAME=VALUE",
		`{"env":["A=1"],"hooks":null,"intelRdt":null,"netDevices":[],"additionalGids":[]}`: "",
	} {
		dir := t.TempDir()
		write(t, dir, "a.json", "vendor.com/gpu", "0", edits)
		r, err := Load([]string{dir})
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.Find("vendor.com/gpu=0")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", edits, err, want)
		}
	}
}

// TestOthers: what can't be read hinders nobody but who asks for it, who is
// told.
func TestOthers(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "good.json", "vendor.com/gpu", "0", `{}`)
	for name, text := range map[string]string{"broken.json": "{", "empty.json": "{}", "old.yaml": "kind: x", "notes.txt": "x"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "folder.json"), 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := Load([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Find("vendor.com/gpu=0"); err != nil {
		t.Error(err)
	}
	_, err = r.Find("vendor.com/gpu=1")
	if !errs.Is(err, errs.NotFound) || len(errs.Hints(err)) != 1 || !strings.Contains(errs.Hints(err)[0], "old.yaml") {
		t.Errorf("got %v %q", err, errs.Hints(err))
	}
	for _, name := range []string{"broken.json", "empty.json", "folder.json"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not told: %v", name, err)
		}
	}
}
