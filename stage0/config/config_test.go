package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// place writes files, given as folder/name → text, and returns their folder.
func dir(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const (
	basic  = `{"rktKind":"auth","rktVersion":"v1","domains":["a.example","b.example:8443"],"type":"basic","credentials":{"user":"u","password":"p"}}`
	oauth  = `{"rktKind":"auth","rktVersion":"v1","domains":["b.example:8443"],"type":"oauth","credentials":{"token":"t"}}`
	docker = `{"rktKind":"dockerAuth","rktVersion":"v1","registries":["quay.io"],"credentials":{"user":"u","password":"p"}}`
	paths  = `{"rktKind":"paths","rktVersion":"v1","data":"/srv/rkt","stage1-images":"/srv/s1","stores":["/srv/images"]}`
	stage1 = `{"rktKind":"stage1","rktVersion":"v1","name":"example.org/s1","version":"1","location":"/usr/libexec/s1.aci"}`
)

func TestMerge(t *testing.T) {
	system := dir(t, map[string]string{"auth.d/a.json": basic, "paths.d/p.json": paths, "stage1.d/s.json": stage1, "auth.d/README": "not read", "auth.d/sub/x.json": "not read"})
	local := dir(t, map[string]string{"auth.d/b.json": oauth, "auth.d/c.json": docker, "paths.d/p.json": `{"rktKind":"paths","rktVersion":"v1","data":"/other"}`})
	c, err := Load(Dirs{System: system, Local: local, User: filepath.Join(local, "missing")}, false)
	if err != nil {
		t.Fatal(err)
	}
	if c.Auth["a.example"].Type != "basic" || c.Auth["b.example:8443"].Type != "oauth" || c.DockerAuth["quay.io"].User != "u" {
		t.Errorf("auth %+v", c)
	}
	if c.Paths.Data != "/other" || c.Paths.Stage1Images != "/srv/s1" || !slices.Equal(c.Paths.Stores, []string{"/srv/images"}) || c.Stage1.Name != "example.org/s1" || c.Stage1.Location != "/usr/libexec/s1.aci" {
		t.Errorf("paths %+v, stage1 %+v", c.Paths, c.Stage1)
	}
	// What is printed can be read again.
	entries := c.Entries()
	if len(entries) != 5 {
		t.Fatalf("%d entries", len(entries))
	}
	files := map[string]string{}
	for i, e := range entries {
		data, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		folder := map[any]string{"auth": "auth.d", "dockerAuth": "auth.d", "paths": "paths.d", "stage1": "stage1.d"}[e["rktKind"]]
		files[filepath.Join(folder, string(rune('a'+i))+".json")] = string(data)
	}
	again, err := Load(Dirs{Local: dir(t, files)}, false)
	if err != nil || len(again.Entries()) != 5 || !reflect.DeepEqual(again.Paths, c.Paths) {
		t.Errorf("again: %+v, %v", again, err)
	}
}

func TestMistakes(t *testing.T) {
	cases := map[string]string{ // text of auth.d/x.json → part of the error
		``:                                     "x.json",
		`{"rktVersion":"v1"}`:                  "rktKind: missing",
		`{"rktKind":"auth"}`:                   "rktVersion: missing",
		`{"rktKind":"auth","rktVersion":"v2"}`: "rktVersion",
		`{"rktKind":"what","rktVersion":"v1"}`: "unknown",
		paths:                                  "belongs into paths.d",
		strings.Replace(basic, `"basic"`, `"magic"`, 1):                   "type",
		strings.Replace(basic, `"user":"u",`, ``, 1):                      "credentials.user: missing",
		strings.Replace(basic, `["a.example","b.example:8443"]`, `[]`, 1): "domains: missing",
		strings.Replace(basic, `"b.example:8443"`, `"a.example"`, 1):      "configured twice",
		strings.Replace(docker, `"password":"p"`, `"password":""`, 1):     "credentials",
		strings.Replace(docker, `["quay.io"]`, `[""]`, 1):                 "registries",
	}
	for text, want := range cases {
		_, err := Load(Dirs{Local: dir(t, map[string]string{"auth.d/x.json": text})}, false)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "x.json") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		strings.Replace(stage1, `"version":"1",`, ``, 1):                                  "go together",
		strings.Replace(stage1, `/usr/libexec/s1.aci`, `s1.aci`, 1):                       "relative path or a URL without scheme",
		strings.Replace(stage1, `/usr/libexec/s1.aci`, `ftp://x/s1.aci`, 1):               "relative path or a URL without scheme",
		strings.Replace(stage1, `"rktVersion"`, `"location":1,"rktVersion"`, 1) + "trail": "s.json",
	} {
		_, err := Load(Dirs{Local: dir(t, map[string]string{"stage1.d/s.json": text})}, false)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := LoadPaths(Dirs{Local: dir(t, map[string]string{"paths.d/p.json": `{"rktKind":"paths","rktVersion":"v1","data":"rel"}`})}); err == nil {
		t.Error("relative data folder accepted")
	}
	two := dir(t, map[string]string{"paths.d/p.json": paths, "paths.d/q.json": paths})
	if _, err := LoadPaths(Dirs{Local: two}); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("twice: %v", err)
	}
}

func TestDataDir(t *testing.T) {
	real := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ flag, configured, want string }{
		{"", "", DefaultData}, {"", "/srv/x", "/srv/x"}, {"/a/b", "/srv/x", "/a/b"}, {link, "", real}, {link + "/new", "", real + "/new"},
	} {
		conf := Config{Paths: Paths{Data: c.configured}}
		got, err := conf.DataDir(c.flag)
		if err != nil || got != c.want {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
}
