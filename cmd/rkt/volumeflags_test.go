package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

func TestParseVolume(t *testing.T) {
	for s, want := range map[string]string{
		"v,kind=host,source=/srv,recursive=false,readOnly=true":        `{"name":"v","kind":"host","source":"/srv","recursive":false,"readOnly":true}`,
		"v,kind=host,source=/srv,followSymlinks=1,propagation=private": `{"name":"v","kind":"host","source":"/srv","propagation":"private","followSymlinks":true}`,
		"name=v,kind=empty,mode=0750,uid=1,gid=2,seed=true":            `{"name":"v","kind":"empty","mode":"0750","uid":1,"gid":2,"seed":true}`,
		"v,kind=tmpfs,size=64Mi":                                       `{"name":"v","kind":"tmpfs","size":"64Mi"}`,
		"v,kind=named":                                                 `{"name":"v","kind":"named"}`,
		"v,kind=named,source=shop-db":                                  `{"name":"v","kind":"named","source":"shop-db"}`,
		"v,kind=image,source=docker://debian:12":                       `{"name":"v","kind":"image","source":"docker://debian:12"}`,
		"v,kind=secret,credentials=db:tls":                             `{"name":"v","kind":"secret","credentials":["db","tls"]}`,
		"v":                                                            "kind: ",
		"v,kind=host":                                                  "source: ",
		"v,kind=image":                                                 "source: ",
		"V,kind=empty":                                                 "name: ",
		"v,kind=empty,mode=999":                                        "mode: ",
		"v,kind=empty,uid=-1":                                          "uid=-1: not understood",
		"v,kind=empty,uid=1,uid=2":                                     `"uid" is given twice`,
		"v,kind=empty,colour=red":                                      `"colour": unknown key of a volume`,
		"v,kind=host,source=/srv,readOnly=maybe":                       "readOnly=maybe: not understood",
		"v,kind=host,source=/x,propagation=shared":                     "propagation: shared: ",
	} {
		v, err := parseVolume(s)
		if !strings.HasPrefix(want, "{") {
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", s, err, want)
			}
			continue
		}
		got, jerr := json.Marshal(v)
		if err != nil || jerr != nil || string(got) != want {
			t.Errorf("%s: got %s, %v, want %s", s, got, err, want)
		}
	}
}

// TestMountsAndDevices: before any image for all apps, after one for that.
func TestMountsAndDevices(t *testing.T) {
	words := strings.Fields(`--volume=v,kind=empty --mount=volume=v,target=/v --device=/dev/fuse --tmpfs=/all --sysctl=net.core.somaxconn=7
		a.aci --mount volume=v,target=/w,subPath=x/y,readOnly=true,nested=true --device=/dev/kvm:r --tmpfs=/one,size=1Mi --umask=027 b.aci`)
	o, _, _, err := parseApps(words, false)
	if err != nil {
		t.Fatal(err)
	}
	a, b := o.apps.list[0].plan, o.apps.list[1].plan
	devices := func(list appc.Annotations) string { s, _ := list.Get(podspec.AnnDevices); return s }
	if devices(a.Annotations) != "/dev/fuse,/dev/kvm:r" || devices(b.Annotations) != "/dev/fuse" {
		t.Errorf("devices %q and %q", devices(a.Annotations), devices(b.Annotations))
	}
	if mask, _ := a.Annotations.Get(podspec.AnnUmask); mask != "027" {
		t.Errorf("umask %q", mask)
	}
	if len(o.apps.mounts) != 2 || len(a.Mounts) != 2 || len(b.Mounts) != 0 {
		t.Fatalf("mounts: of all %+v, of a %+v, of b %+v", o.apps.mounts, a.Mounts, b.Mounts)
	}
	if m := a.Mounts[0]; m.SubPath != "x/y" || !m.ReadOnly || !m.Nested {
		t.Errorf("mount %+v", m)
	}
	if v := a.Mounts[1].AppVolume; v == nil || v.Kind != podspec.VolumeTmpfs || v.Size != "1Mi" {
		t.Errorf("tmpfs %+v", v)
	}
	if want := `{"net.core.somaxconn":"7"}`; string(o.isolators()[0].Value) != want {
		t.Errorf("isolators %s", o.isolators()[0].Value)
	}
}

func TestMountErrors(t *testing.T) {
	for word, want := range map[string]string{
		"--mount=v,target=/v":                  "not volume=NAME,target=PATH",
		"--mount=volume=v":                     "not volume=NAME,target=PATH",
		"--mount=volume=v,target=/v,subPath=":  "no value",
		"--mount=volume=v,target=/v,ro=true":   `"ro": unknown key of a mount`,
		"--mount=volume=v,target=/v,nested=no": "nested=no",
		"--tmpfs=size=1Mi":                     "not PATH",
		"--tmpfs=rel":                          "rel",
		"--tmpfs=/x,source=/y":                 `"source": unknown key of a tmpfs`,
		"--tmpfs=/x,size=-1":                   "size",
		"--device=fuse":                        "neither PATH",
		"--sysctl=net.core.somaxconn":          "not NAME=VALUE",
		"--umask=0888":                         "not an octal mask",
	} {
		_, _, _, err := parseApps([]string{"a.aci", word}, false)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", word, err, want)
		}
	}
}

// FuzzParseVolume: whatever is accepted can be written into a manifest and
// comes back the same.
func FuzzParseVolume(f *testing.F) {
	for _, s := range []string{
		"v,kind=host,source=/srv,readOnly=true", "v,kind=empty,mode=0750,uid=1", "v,kind=tmpfs,size=1Mi", "v,kind=named,source=x", "v,kind=image,source=x",
		"v,kind=secret,credentials=a:b", ",", "v,kind=", "v,kind=tmpfs,size=999999999999999999999Ei", "v,kind=empty,uid=4294967295",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := parseVolume(s)
		if err != nil {
			return
		}
		if v.Kind == podspec.VolumeImage {
			v.Source = someImage
		}
		pod := podspec.Pod{ACVersion: appc.SpecVersion, ACKind: podspec.Kind, Volumes: []podspec.Volume{v}, Apps: []podspec.App{{
			Name: "a", Image: podspec.Image{ID: someImage}, Mounts: []podspec.Mount{{Volume: v.Name, Path: "/x"}},
		}}}
		data, err := pod.Marshal()
		if err != nil {
			t.Fatalf("%q was accepted and can't be written: %v", s, err)
		}
		again, err := podspec.Parse(data)
		if err != nil || !reflect.DeepEqual(again.Volumes[0], v) {
			t.Fatalf("%q: %v\n%+v\n%+v", s, err, again, v)
		}
	})
}
