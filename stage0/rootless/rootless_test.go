package rootless

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rkt-pods/rkt/pkg/poddir"
)

func TestPlaces(t *testing.T) {
	env := func(kv map[string]string) func(string) string { return func(k string) string { return kv[k] } }
	for want, got := range map[string]string{
		"/h/.local/share/rkt": DataDir(env(map[string]string{"HOME": "/h"})),
		"/d/rkt":              DataDir(env(map[string]string{"HOME": "/h", "XDG_DATA_HOME": "/d"})),
		"/r/.local/share/rkt": DataDir(env(map[string]string{"HOME": "/r", "XDG_DATA_HOME": "relative"})),
		"/h/.config/rkt":      ConfigDir(env(map[string]string{"HOME": "/h"})),
		"/data/run":           runRoot("/data", env(map[string]string{"XDG_RUNTIME_DIR": "/nosuch"})),
		"/tmp/rkt":            runRoot("/data", env(map[string]string{"XDG_RUNTIME_DIR": "/tmp"})),
	} {
		if got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
}

func TestOwn(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("RKT_TEST_UNPRIVILEGED") == "1" {
			t.Skip("needs root")
		}
		t.Fatal("needs root; RKT_TEST_UNPRIVILEGED=1 leaves it out")
	}
	dir := t.TempDir()
	theirs := filepath.Join(dir, "theirs")
	if err := os.Mkdir(theirs, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(theirs, 5555, 5555); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{dir: true, dir + "/new/data": true, theirs: false, theirs + "/new/data": false, theirs + "/\x00": false} {
		if got := Own(path); got != want {
			t.Errorf("%q is this user's: %t", path, got)
		}
	}
}

func TestNamed(t *testing.T) {
	dir := poddir.Dir(filepath.Join(t.TempDir(), "0a1b2c3d-0000-0000-0000-000000000000"))
	if err := os.MkdirAll(string(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	const manifest = `{"acVersion":"0.8.11","acKind":"PodManifest","annotations":[{"name":"rkt/pod-name","value":"shop"}],
		"apps":[{"name":"a","image":{"id":"sha512-00000000000000000000000000000000"}}]}`
	file := filepath.Join(t.TempDir(), "uuid")
	for path, text := range map[string]string{dir.Manifest(): manifest, file: dir.UUID() + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args []string
		want bool
	}{
		{[]string{"enter", "shop"}, true}, {[]string{"enter", "0A1b"}, true}, {[]string{"status", "--uuid-file=" + file}, true},
		{[]string{"enter", "shops"}, false}, {[]string{"enter", "1b"}, false}, {[]string{"list", ""}, false}, {[]string{"status", "--uuid-file=/nosuch"}, false},
	} {
		if got := named(dir, c.args); got != c.want {
			t.Errorf("%v mean the pod: %t", c.args, got)
		}
	}
}

func TestRunningWithoutPods(t *testing.T) {
	dir := t.TempDir()
	if argv, err := running(dir, nil); argv != nil || err != nil {
		t.Errorf("%v, %v", argv, err)
	}
	// A pod whose supervisor is gone has no namespace to join.
	pod := poddir.Path(dir, poddir.Run, "0a1b2c3d-0000-0000-0000-000000000000")
	if err := os.MkdirAll(pod, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(poddir.Dir(pod).Supervisor(), []byte(`{"bootID":"x","pid":1,"start":1}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if argv, err := running(dir, nil); argv != nil || err != nil {
		t.Errorf("%v, %v", argv, err)
	}
}
