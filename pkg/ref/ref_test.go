package ref

import (
	"reflect"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
)

func TestParse(t *testing.T) {
	files := map[string]bool{"here": true, "odd:name": true, "dir/x": true}
	digest := "sha256:" + strings.Repeat("0a", 32)
	version := func(v string) appc.Labels { return appc.Labels{{Name: "version", Value: v}} }
	cases := map[string]Ref{
		"sha512-ab":                 {Kind: ID, ID: "sha512-ab"},
		digest:                      {Kind: ID, ID: digest},
		"docker://alpine:3":         {Kind: OCI, URL: "docker://alpine:3", Name: "alpine", Labels: version("3")},
		"docker:alpine":             {Kind: OCI, URL: "docker://alpine", Name: "alpine"},
		"docker://r.example:5000/a": {Kind: OCI, URL: "docker://r.example:5000/a", Name: "r.example:5000/a"},
		"file:///a/b%20c":           {Kind: File, Path: "/a/b c"},
		"https://x.example/a.aci":   {Kind: URL, URL: "https://x.example/a.aci"},
		"/abs/x":                    {Kind: File, Path: "/abs/x"},
		"here":                      {Kind: File, Path: "here"},
		"odd:name":                  {Kind: File, Path: "odd:name"},
		"dir/x":                     {Kind: File, Path: "dir/x"},
		"./gone":                    {Kind: File, Path: "./gone"},
		"../gone":                   {Kind: File, Path: "../gone"},
		"gone.aci":                  {Kind: File, Path: "gone.aci"},
		"example.com/app":           {Kind: Name, Name: "example.com/app"},
		"example.com/app:1.0":       {Kind: Name, Name: "example.com/app", Labels: version("1.0")},
		"a:1,os=linux,arch=amd64":   {Kind: Name, Name: "a", Labels: appc.Labels{{Name: "version", Value: "1"}, {Name: "os", Value: "linux"}, {Name: "arch", Value: "amd64"}}},
		"localhost:5000/a:1":        {Kind: Name, Name: "localhost:5000/a", Labels: version("1")},
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
		"file://host/x": "invalid image string", "file:///a%00b": "invalid image string", "cimd:docker:v=0:x": "cimd", "ftp://x/a.aci": "invalid image string",
		"UPPER": "invalid image string", "a,b": "invalid image string", "a,name=x": "invalid image string", "a,os=l,os=l": "invalid image string", "a\x00b": "invalid image string",
	} {
		r, err := Parse(in, func(string) bool { return false })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v; want %q", in, r, err, want)
		}
	}
}

func TestUnsupported(t *testing.T) {
	for in, refused := range map[string]bool{"docker://a": true, "https://x/a.aci": true, "sha512-ab": false, "/x": false, "a.b/c": false} {
		r, err := Parse(in, func(string) bool { return false })
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Unsupported(); refused != (err != nil) || refused && !errs.Is(err, errs.Unsupported) {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func FuzzRef(f *testing.F) {
	for _, s := range []string{"sha512-ab", "docker://a:1", "file:///x", "https://x/a.aci", "a:1,os=linux", "./x", "a", "localhost:1/a"} {
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
