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
		{`"hostPort":80`, `"hostPort":0`, "ports[0].hostPort"},
		{`"127.0.0.1"`, `"::1"`, "ports[0].hostIP"},
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

func TestCheckSupported(t *testing.T) {
	for value, refused := range map[string]bool{
		`rkt/lifecycle/restart","value":"never`: false, `rkt/lifecycle/restart","value":"always`: true,
		`rkt/lifecycle/role","value":"app`: false, `rkt/lifecycle/role","value":"init`: true,
		`rkt/lifecycle/after","value":"db`: true, `rkt/lifecycle/ready","value":"x`: true, `rkt/lifecycle/live","value":"x`: true,
		`example.com/x","value":"y`: false,
	} {
		text := strings.Replace(whole, `"mounts":[`, `"annotations":[{"name":"`+value+`"}],"mounts":[`, 1)
		p, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		err = p.CheckSupported()
		name, _, _ := strings.Cut(value, `"`)
		if refused != (err != nil) || refused && (!errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), name)) {
			t.Errorf("%s: %v", value, err)
		}
	}
}

func TestStopSignal(t *testing.T) {
	for value, good := range map[string]bool{"SIGQUIT": true, "rtmin+3": true, "64": true, "65": false, "SIGNOPE": false, "": false, "TERM+1": false, "15 ": false} {
		text := strings.Replace(whole, `"mounts":[`, `"annotations":[{"name":"rkt/lifecycle/stop-signal","value":"`+value+`"}],"mounts":[`, 1)
		p, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		err = p.CheckSupported()
		if good != (err == nil) || !good && (!errs.Is(err, errs.Usage) || !strings.Contains(err.Error(), AnnStopSignal) || len(errs.Hints(err)) == 0) {
			t.Errorf("%q: %v", value, err)
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
