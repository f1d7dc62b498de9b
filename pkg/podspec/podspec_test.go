package podspec

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/errs"
)

const id = "sha512-0123456789abcdef"

const whole = `{"acVersion":"0.8.11","acKind":"PodManifest","apps":[{"name":"web","image":{"id":"` + id + `","name":"example.com/web"},
"app":{"exec":["/web"],"user":"0","group":"0"},"mounts":[{"volume":"data","path":"/data"}]}],
"volumes":[{"name":"data","kind":"host","source":"/srv","readOnly":true}],
"annotations":[{"name":"rkt/lifecycle/exit-policy","value":"any"}],
"ports":[{"name":"http","hostPort":80,"hostIP":"127.0.0.1"}]}`

func TestParse(t *testing.T) {
	p, err := Parse([]byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	if p.Find("web") == nil || p.Find("db") != nil {
		t.Error("Find")
	}
	data, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(data)
	if err != nil || !reflect.DeepEqual(p, again) {
		t.Errorf("round trip: %v\n%+v\n%+v", err, p, again)
	}
}

// TestValidate changes one thing of a valid manifest, and wants the path of it
// in the error.
func TestValidate(t *testing.T) {
	cases := []struct{ old, new, want string }{
		{`"PodManifest"`, `"ImageManifest"`, "acKind"},
		{`"0.8.11"`, `""`, "acVersion: missing"},
		{`"0.8.11"`, `"v1"`, "acVersion"},
		{`"name":"web","image"`, `"name":"Web","image"`, "apps[0].name"},
		{`"name":"web","image"`, `"image"`, "apps[0].name: missing"},
		{id, "sha256-00", "apps[0].image.id"},
		{id, "", "apps[0].image.id: missing"},
		{`"example.com/web"`, `"example com"`, "apps[0].image.name"},
		{`"user":"0"`, `"user":""`, "apps[0].app.user: missing"},
		{`"volume":"data"`, `"volume":"dat"`, `apps[0].mounts[0].volume: "dat": no such volume`},
		{`"path":"/data"`, `"path":"data"`, "apps[0].mounts[0].path"},
		{`"kind":"host"`, `"kind":"nfs"`, "volumes[0].kind"},
		{`"source":"/srv"`, `"source":"srv"`, "volumes[0].source"},
		{`"readOnly":true`, `"mode":"0755"`, "volumes[0].mode"},
		{`"kind":"host","source":"/srv"`, `"kind":"empty","mode":"9"`, "volumes[0].mode"},
		{`"kind":"host","source":"/srv"`, `"kind":"empty","uid":-1`, "volumes[0].uid"},
		{`"kind":"host"`, `"kind":"empty"`, "volumes[0].source"},
		{`"value":"any"`, `"value":"some"`, "annotations: rkt/lifecycle/exit-policy"},
		{`rkt/lifecycle/exit-policy`, `rkt/lifecycle/restart`, `annotations: "rkt/lifecycle/restart": unknown here`},
		{`"hostPort":80`, `"hostPort":0`, "ports[0].hostPort"},
		{`"127.0.0.1"`, `"::1%lo"`, "ports[0].hostIP"},
		{`"apps":[`, `"apps":[],"x":[`, "apps: missing"},
		{`"readOnly":true}]`, `"readOnly":true},{"name":"data","kind":"empty"}]`, "volumes[1].name"},
		{`{"name":"web","image"`, `{"name":"web","image":{"id":"` + id + `"}},{"name":"web","image"`, "apps[1].name"},
		{`"mounts":[`, `"annotations":[{"name":"rkt/lifecycle/stop-timeout","value":"soon"}],"mounts":[`, "apps[0].annotations: rkt/lifecycle/stop-timeout"},
	}
	for _, c := range cases {
		text := strings.Replace(whole, c.old, c.new, 1)
		if text == whole {
			t.Fatalf("%q does not occur", c.old)
		}
		_, err := Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s → %s: %v, want %q", c.old, c.new, err, c.want)
		}
	}
	if _, err := Parse([]byte(`{`)); !errs.Is(err, errs.Corrupt) {
		t.Errorf("no JSON: %v", err)
	}
}

func TestAppAnnotations(t *testing.T) {
	for _, c := range []struct {
		name, value string
		good        bool
	}{
		{"stop-signal", "SIGQUIT", true},
		{"stop-signal", "rtmin+3", true},
		{"stop-signal", "64", true},
		{"stop-signal", "65", false},
		{"stop-signal", "SIGNOPE", false},
		{"stop-signal", "", false},
		{"stop-signal", "TERM+1", false},
		{"stop-signal", "15 ", false},
		{"stop-timeout", "-1s", false},
		{"ready", "notify", true},
		{"ready", "x", false},
		{"live", "tcp:80,period=2s", true},
		{"live", "notify", false},
		{"post-start", "http:80/", true},
		{"pre-stop", "tcp:80", false},
		{"restart-keep-rootfs", "yes", false},
		{"startup", "tcp:80", true},
		{"role", "init", true},
		{"restrat", "always", false},
		{"exit-policy", "all", false}, // the pod's
	} {
		name := "rkt/lifecycle/" + c.name
		text := strings.Replace(whole, `"mounts":[`, `"annotations":[{"name":"`+name+`","value":"`+c.value+`"}],"mounts":[`, 1)
		_, err := Parse([]byte(text))
		if c.good != (err == nil) || !c.good && (!errs.Is(err, errs.Usage) || !strings.Contains(err.Error(), name)) {
			t.Errorf("%s %q: %v", name, c.value, err)
		}
	}
}

func TestParseSignal(t *testing.T) {
	for s, want := range map[string]int{
		"SIGTERM": 15, "TERM": 15, "sigterm": 15, "15": 15, "SIGRTMIN+3": 37, "RTMIN": 34, "SIGRTMAX-2": 62, "64": 64, "SIGPOLL": 29,
		"": 0, "0": 0, "65": 0, "-1": 0, "SIG": 0, "SIGNOPE": 0, "SIGRTMIN-1": 0, "SIGRTMIN+31": 0, "SIGRTMAX+1": 0, "SIGTERM+1": 0, "RTMIN+": 0, "RTMIN+-1": 0, "+3": 0,
	} {
		got, err := ParseSignal(s)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("%q is %d, %v; want %d", s, got, err, want)
		}
	}
}

func TestPodName(t *testing.T) {
	for name, good := range map[string]bool{"db": true, "shop-db2": true, "": false, "Db": false, "-x": false, "a/b": false, "..": false, strings.Repeat("a", 201): false} {
		if err := CheckPodName(name); good != (err == nil) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func FuzzPodManifest(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(`{"acKind":"PodManifest","acVersion":"0.8.11","apps":[{"name":"a","image":{"id":"sha512-00"},"app":{"isolators":[{"name":"resource/cpu"}]}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse(data)
		if err != nil {
			return
		}
		out, err := p.Marshal()
		if err != nil {
			t.Fatalf("parsed and not written: %v", err)
		}
		again, err := Parse(out)
		if err != nil {
			t.Fatalf("written and not parsed: %v\n%s", err, out)
		}
		one, _ := json.Marshal(p)
		two, _ := json.Marshal(again)
		if string(one) != string(two) {
			t.Fatalf("round trip:\n%s\n%s", one, two)
		}
	})
}
