package ref

import (
	"reflect"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/appc"
)

func TestParse(t *testing.T) {
	files := map[string]bool{"here": true, "odd:name": true, "dir/x": true}
	digest := "sha256:" + strings.Repeat("0a", 32)
	version := func(v string) appc.Labels { return appc.Labels{{Name: "version", Value: v}} }
	cases := map[string]Ref{
		"sha512-ab": {Kind: ID, ID: "sha512-ab"},
		digest:      {Kind: ID, ID: digest},
		"docker://alpine:3": {
			Kind: OCI, URL: "docker://alpine:3", Name: "docker.io/library/alpine", Labels: version("3"),
			Registry: Registry{Host: "docker.io", Repository: "library/alpine", Tag: "3"},
		},
		"docker:me/app": {
			Kind: OCI, URL: "docker://me/app", Name: "docker.io/me/app", Labels: version("latest"),
			Registry: Registry{Host: "docker.io", Repository: "me/app", Tag: "latest"},
		},
		"docker://r.example:5000/a": {
			Kind: OCI, URL: "docker://r.example:5000/a", Name: "r.example:5000/a", Labels: version("latest"),
			Registry: Registry{Host: "r.example:5000", Repository: "a", Tag: "latest"},
		},
		"docker://localhost/a:1@" + digest: {
			Kind: OCI, URL: "docker://localhost/a:1@" + digest, Name: "localhost/a",
			Registry: Registry{Host: "localhost", Repository: "a", Tag: "1", Digest: digest},
		},
		"oci:dir:v1":               {Kind: File, Path: "dir:v1", Form: Layout},
		"oci-archive:/a.tar":       {Kind: File, Path: "/a.tar", Form: OCIArchive},
		"docker-archive:a.tar:x:1": {Kind: File, Path: "a.tar:x:1", Form: DockerArchive},
		"file:///a/b%20c":          {Kind: File, Path: "/a/b c"},
		"https://x.example/a.aci":  {Kind: URL, URL: "https://x.example/a.aci"},
		"/abs/x":                   {Kind: File, Path: "/abs/x"},
		"here":                     {Kind: File, Path: "here"},
		"odd:name":                 {Kind: File, Path: "odd:name"},
		"dir/x":                    {Kind: File, Path: "dir/x"},
		"./gone":                   {Kind: File, Path: "./gone"},
		"../gone":                  {Kind: File, Path: "../gone"},
		"gone.aci":                 {Kind: File, Path: "gone.aci"},
		"example.com/app":          {Kind: Name, Name: "example.com/app"},
		"example.com/app:1.0":      {Kind: Name, Name: "example.com/app", Labels: version("1.0")},
		"a:1,os=linux,arch=amd64":  {Kind: Name, Name: "a", Labels: appc.Labels{{Name: "version", Value: "1"}, {Name: "os", Value: "linux"}, {Name: "arch", Value: "amd64"}}},
		"localhost:5000/a:1":       {Kind: Name, Name: "localhost:5000/a", Labels: version("1")},
	}
	for in, want := range cases {
		want.Text = in
		got, err := Parse(in, func(p string) bool { return files[p] })
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v; want %+v", in, got, err, want)
		}
	}
}

func TestRefused(t *testing.T) {
	for in, want := range map[string]string{
		"": "invalid image string", "sha512-": "image ID too short", "sha512-a": "image ID too short", "sha512-xyz": "invalid image string",
		"http://x/y": "invalid image string", "https:///a.aci": "invalid image string", "docker://": "invalid image string",
		"file://host/x": "invalid image string", "file:///a%00b": "invalid image string", "cimd:docker:v=0:x": "cimd", "oci:": "invalid image string",
		"docker://UPPER": "invalid image string", "docker://a:b:c": "invalid image string", "docker://a@sha256:12": "invalid image string", "docker://-x/a": "invalid image string",
		"docker://a.b/": "invalid image string", "docker://a:": "invalid image string", "docker://a//b": "invalid image string", "ftp://x/a.aci": "invalid image string",
		"UPPER": "invalid image string", "a,b": "invalid image string", "a,name=x": "invalid image string", "a,os=l,os=l": "invalid image string", "a\x00b": "invalid image string",
	} {
		r, err := Parse(in, func(string) bool { return false })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v; want %q", in, r, err, want)
		}
	}
}

func TestFullName(t *testing.T) {
	for in, want := range map[string]string{
		"busybox": "docker.io/library/busybox", "me/app": "docker.io/me/app", "docker.io/busybox": "docker.io/library/busybox",
		"index.docker.io/busybox": "docker.io/library/busybox", "registry-1.docker.io/library/busybox": "docker.io/library/busybox",
		"a.b/c": "a.b/c", "localhost/c": "localhost/c", "host:1/c/d": "host:1/c/d", "a/b/c": "docker.io/a/b/c",
	} {
		if got := FullName(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func FuzzRef(f *testing.F) {
	for _, s := range []string{"sha512-ab", "docker://a:1", "file:///x", "https://x/a.aci", "a:1,os=linux", "./x", "a", "localhost:1/a", "docker://a.b:1/c:d", "oci:x:y"} {
		f.Add(s, false)
		f.Add(s, true)
	}
	f.Fuzz(func(t *testing.T, s string, isFile bool) {
		r, err := Parse(s, func(string) bool { return isFile })
		if err != nil {
			return
		}
		again, err := Parse(r.String(), func(string) bool { return isFile })
		if err != nil || !reflect.DeepEqual(r, again) {
			t.Fatalf("%q: %+v, then %+v, %v", s, r, again, err)
		}
		if r.Kind == File && (r.Path == "" || strings.ContainsRune(r.Path, 0)) {
			t.Fatalf("%q: path %q", s, r.Path)
		}
	})
}
