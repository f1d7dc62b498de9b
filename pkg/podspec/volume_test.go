package podspec

import (
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/errs"
)

func TestVolumeValidate(t *testing.T) {
	yes, id := true, 5
	for name, c := range map[string]struct {
		v    Volume
		want string // "" if it is good
	}{
		"host":                 {Volume{Kind: VolumeHost, Source: "/srv", Recursive: &yes, Propagation: "slave", FollowSymlinks: true}, ""},
		"host, owner":          {Volume{Kind: VolumeHost, Source: "/srv", UID: &id}, "uid: not for a volume of kind host"},
		"host, nothing":        {Volume{Kind: VolumeHost}, "source: "},
		"host, shared":         {Volume{Kind: VolumeHost, Source: "/srv", Propagation: "shared"}, "propagation: shared: no mount of a pod ever reaches the host"},
		"host, odd":            {Volume{Kind: VolumeHost, Source: "/srv", Propagation: "both"}, `propagation: "both"`},
		"host, z":              {Volume{Kind: VolumeHost, Source: "/srv", SELinux: "Z"}, ""},
		"empty, z":             {Volume{Kind: VolumeEmpty, SELinux: "z"}, "selinux: not for a volume of kind empty"},
		"host, label":          {Volume{Kind: VolumeHost, Source: "/srv", SELinux: "s0"}, `selinux: "s0"`},
		"empty":                {Volume{Kind: VolumeEmpty, Mode: "1777", UID: &id, GID: &id, Seed: &yes}, ""},
		"empty, size":          {Volume{Kind: VolumeEmpty, Size: "1Mi"}, "size: not for a volume of kind empty"},
		"tmpfs":                {Volume{Kind: VolumeTmpfs, Size: "1Mi", Mode: "0700"}, ""},
		"tmpfs, no size":       {Volume{Kind: VolumeTmpfs, Size: "0"}, `size: "0": not more than 0`},
		"tmpfs, odd size":      {Volume{Kind: VolumeTmpfs, Size: "big"}, "size: "},
		"tmpfs, seed":          {Volume{Kind: VolumeTmpfs, Seed: &yes}, "seed: not for a volume of kind tmpfs"},
		"named":                {Volume{Kind: VolumeNamed, Source: "shop-db"}, ""},
		"named, by its name":   {Volume{Kind: VolumeNamed}, ""},
		"named, a path":        {Volume{Kind: VolumeNamed, Source: "/srv"}, "source: volume name"},
		"named, up":            {Volume{Kind: VolumeNamed, Source: ".."}, "source: volume name"},
		"named, hidden":        {Volume{Kind: VolumeNamed, Source: ".rm-x"}, "source: volume name"},
		"image":                {Volume{Kind: VolumeImage, Source: id128}, ""},
		"image, name":          {Volume{Kind: VolumeImage, Source: "example.com/x"}, "source: "},
		"secret, file":         {Volume{Kind: VolumeSecret, Source: "/etc/key", Mode: "0440", UID: &id}, ""},
		"secret, all":          {Volume{Kind: VolumeSecret}, ""},
		"secret, some":         {Volume{Kind: VolumeSecret, Credentials: []string{"db", "tls.key"}}, ""},
		"secret, both":         {Volume{Kind: VolumeSecret, Source: "/x", Credentials: []string{"db"}}, "source, credentials: only one"},
		"secret, out":          {Volume{Kind: VolumeSecret, Credentials: []string{"../shadow"}}, "credentials: "},
		"secret, up":           {Volume{Kind: VolumeSecret, Credentials: []string{".."}}, "credentials: "},
		"of no kind":           {Volume{}, "kind: "},
		"of a kind that's new": {Volume{Kind: "nfs"}, `kind: "nfs": none of host, empty, tmpfs, named, image, secret`},
	} {
		c.v.Name = "data"
		err := c.v.Validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

const id128 = "sha512-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestSubPath(t *testing.T) {
	for s, good := range map[string]bool{"a": true, "a/b": true, "a/./b": true, "/a": false, "..": false, "a/../b": false, "a/..": false, ".": false, "./": false, "a..b": true} {
		text := strings.Replace(whole, `"path":"/data"`, `"path":"/data","subPath":"`+s+`"`, 1)
		_, err := Parse([]byte(text))
		if good != (err == nil) || !good && !strings.Contains(err.Error(), "apps[0].mounts[0].subPath") {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestParseDevice(t *testing.T) {
	for s, want := range map[string]string{
		"/dev/fuse":              "/dev/fuse:/dev/fuse:rwm",
		"/dev/fuse:r":            "/dev/fuse:/dev/fuse:r",
		"/dev/sdb:/dev/disk":     "/dev/sdb:/dev/disk:rwm",
		"/dev/sdb:/dev/disk:rw":  "/dev/sdb:/dev/disk:rw",
		"/srv/node:/dev/x/../y":  "/srv/node:/dev/y:rwm",
		"vendor.com/gpu=0":       "vendor.com/gpu=0",
		"vendor.com/gpu=a:b.c_d": "vendor.com/gpu=a:b.c_d",
		"":                       "", "fuse": "", "/dev/fuse:/etc/fuse": "", "/dev/fuse:/dev": "", "/dev/a:/dev/b:rw:m": "", "/srv/x": "", "vendor.com/gpu": "", "vendor.com=0": "", "v/c=": "", "a b/c=d": "",
	} {
		d, err := ParseDevice(s)
		if (want == "") != (err != nil) || err == nil && d.String() != want {
			t.Errorf("%q: got %v, %v, want %q", s, d, err, want)
		}
		if err != nil && !errs.Is(err, errs.Usage) {
			t.Errorf("%q: class of %v", s, err)
		}
	}
}

func TestOwnAnnotations(t *testing.T) {
	for text, good := range map[string]bool{
		`rkt/devices","value":"/dev/fuse,vendor.com/gpu=0`: true, `rkt/devices","value":"fuse`: false,
		`rkt/umask","value":"0027`: true, `rkt/umask","value":"1000`: false, `rkt/umask","value":"9`: false, `rkt/umask","value":"`: false,
	} {
		_, err := Parse([]byte(strings.Replace(whole, `"mounts":[`, `"annotations":[{"name":"`+text+`"}],"mounts":[`, 1)))
		if good != (err == nil) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
