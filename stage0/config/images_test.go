package config

import (
	"reflect"
	"strings"
	"testing"
)

const (
	signed     = `{"rktKind":"trust","rktVersion":"v1","prefixes":["example.com","host:5000/team"],"require":"signed","keys":["ABCDEF7890ABCDEF7890ABCDEF7890ABCDEF7890"]}`
	byDigest   = `{"rktKind":"trust","rktVersion":"v1","prefixes":["*"],"require":"digest"}`
	registries = `{"rktKind":"registry","rktVersion":"v1","registries":["docker.io"],"mirrors":["mirror.example:5000/hub","other.example"],"plainHTTP":false}`
	inTheClear = `{"rktKind":"registry","rktVersion":"v1","registries":["mirror.example:5000","[::1]:5000"],"plainHTTP":true}`
)

func TestTrustAndRegistries(t *testing.T) {
	system := dir(t, map[string]string{"trust.d/a.json": signed, "trust.d/b.json": byDigest, "registries.d/a.json": registries})
	local := dir(t, map[string]string{"registries.d/b.json": inTheClear, "trust.d/a.json": strings.Replace(byDigest, `"*"`, `"example.com"`, 1)})
	c, err := Load(Dirs{System: system, Local: local}, false)
	if err != nil {
		t.Fatal(err)
	}
	key := "abcdef7890abcdef7890abcdef7890abcdef7890"
	if want := map[string]Trust{"example.com": {Require: "digest"}, "host:5000/team": {Require: "signed", Keys: []string{key}}, "*": {Require: "digest"}}; !reflect.DeepEqual(c.Trust, want) {
		t.Errorf("trust %+v", c.Trust)
	}
	want := map[string]Registry{"docker.io": {Mirrors: []string{"mirror.example:5000/hub", "other.example"}}, "mirror.example:5000": {PlainHTTP: true}, "[::1]:5000": {PlainHTTP: true}}
	if !reflect.DeepEqual(c.Registries, want) {
		t.Errorf("registries %+v", c.Registries)
	}
	kinds := ""
	for _, e := range c.Entries() {
		kinds += e["rktKind"].(string) + " "
	}
	if kinds != "registry registry registry trust trust trust " {
		t.Errorf("entries %q", kinds)
	}
}

func TestMistakesAboutImages(t *testing.T) {
	for text, want := range map[string]string{
		strings.Replace(signed, `"keys"`, `"key"`, 1):                        "unknown field",
		strings.Replace(signed, `"signed"`, `"trusted"`, 1):                  "require",
		strings.Replace(signed, `"signed"`, `"digest"`, 1):                   `only with require "signed"`,
		strings.Replace(signed, `ABCDEF7890ABCDEF`, ``, 1):                   "fingerprint",
		strings.Replace(signed, `["example.com","host:5000/team"]`, `[]`, 1): "prefixes: missing",
		strings.Replace(signed, `"example.com"`, `"https://example.com"`, 1): "scheme",
		strings.Replace(signed, `"example.com"`, `"../etc"`, 1):              "not the beginning of an image's name",
		strings.Replace(signed, `"example.com"`, `"a//b"`, 1):                "not the beginning",
		strings.Replace(signed, `"example.com"`, `"a b"`, 1):                 "not the beginning",
		strings.Replace(signed, `"example.com"`, `"host:5000/team"`, 1):      "configured twice",
		strings.Replace(signed, `"host:5000/team"`, `"host:port/team"`, 1):   "no port",
		registries: "belongs into registries.d",
	} {
		_, err := Load(Dirs{Local: dir(t, map[string]string{"trust.d/x.json": text})}, false)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "x.json") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		strings.Replace(registries, `["docker.io"]`, `[]`, 1):                    "registries: missing",
		strings.Replace(registries, `["docker.io"]`, `["docker.io/x"]`, 1):       "not HOST",
		strings.Replace(registries, `"other.example"`, `"http://other"`, 1):      "mirrors",
		strings.Replace(registries, `"plainHTTP":false`, `"plainHttps":1`, 1):    "unknown field",
		strings.Replace(registries, `"docker.io"`, `"docker.io","docker.io"`, 1): "configured twice",
	} {
		_, err := Load(Dirs{Local: dir(t, map[string]string{"registries.d/x.json": text})}, false)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
