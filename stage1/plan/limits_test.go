package plan

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

// compileOne plans a pod of one app with one isolator.
func compileOne(iso appc.Isolator, ofPod, ofImage bool, host Host) (Pod, error) {
	spec := &appc.App{Exec: []string{"/x"}, User: "0", Group: "0"}
	pod := &podspec.Pod{Apps: []podspec.App{{Name: "x", App: spec}}}
	img := poddir.AppImage{ID: "sha512-1", Lowers: []string{"/layers/x"}}
	if ofPod {
		pod.Isolators = []appc.Isolator{iso}
	} else {
		spec.Isolators = []appc.Isolator{iso}
	}
	if ofImage {
		img.Original = spec
	}
	return Compile(Input{UUID: "6c9b5f0e-7a46-4c2b-9d53-0a4bd9b1c0de", Pod: pod, Images: map[string]poddir.AppImage{"x": img}, Host: host})
}

// fuzzHosts are one that can do little, and one that can do all.
func fuzzHosts() []Host {
	return []Host{
		{Arch: "amd64", Bounding: appc.DefaultCapabilities(), KnowsCall: inProfile},
		{Arch: "arm64", Bounding: appc.DefaultCapabilities(), KnowsCall: inProfile, SysResource: true, SysNice: true, SELinux: true, AppArmor: true, Hybrid: true},
	}
}

// FuzzManifest: any pod manifest that is one at all becomes a plan, or an error
// that is not rkt's own fault. Nothing panics.
func FuzzManifest(f *testing.F) {
	const app = `{"acVersion":"0.8.11","acKind":"PodManifest","apps":[{"name":"x","image":{"id":"sha512-1"},"app":{"exec":["/x"],"user":"0","group":"0"%s}%s}]%s}`
	for _, parts := range [][3]any{
		{"", "", ""},
		{`,"isolators":[{"name":"resource/memory","value":{"limit":"-1"}},{"name":"rkt/pids","value":1e99}]`, "", ""},
		{`,"mountPoints":[{"name":"m","path":"/../proc"}],"workingDirectory":"..","supplementaryGIDs":[-1]`, `,"mounts":[{"volume":"v","path":"/v"}]`, `,"volumes":[{"name":"v","kind":"host","source":"/../.."}]`},
		{`,"ports":[{"name":"p","protocol":"tcp","port":65535,"count":4294967295}]`, `,"readOnlyRootFS":true`, `,"ports":[{"name":"p","hostPort":65535}],"isolators":[{"name":"os/unix/sysctl","value":{"net.x":"1"}}]`},
		{`,"eventHandlers":[{"name":"pre-start","exec":["/y"]}],"environment":[{"name":"A","value":""}]`, `,"annotations":[{"name":"rkt/lifecycle/live","value":"exec:true"}]`, `,"volumes":[{"name":"t","kind":"tmpfs","size":"1e30","mode":"99999"}]`},
	} {
		f.Add([]byte(fmt.Sprintf(app, parts[:]...)), byte(0))
	}
	f.Fuzz(func(t *testing.T, data []byte, of byte) {
		pod, err := podspec.Parse(data)
		if err != nil {
			return
		}
		for _, host := range fuzzHosts() {
			in := Input{UUID: "6c9b5f0e-7a46-4c2b-9d53-0a4bd9b1c0de", Pod: pod, Host: host, Images: map[string]poddir.AppImage{}}
			in.Options.StrictIsolators, in.Options.InsecureCaps, in.Options.InsecurePaths = of&1 != 0, of&2 != 0, of&4 != 0
			for i := range pod.Apps {
				img := poddir.AppImage{ID: "sha512-1", Lowers: []string{"/layers/x"}}
				if of&8 != 0 {
					img.Original = pod.Apps[i].App
				}
				in.Images[pod.Apps[i].Name] = img
			}
			if _, err := Compile(in); errs.Is(err, errs.Internal) {
				t.Fatalf("%s: %v", data, err)
			}
		}
	})
}

// FuzzIsolator: whatever an isolator says, of the pod or an app, by the user or
// the image, is an error of a class that is not rkt's own fault, or else it is
// a limit or told in a result. Nothing panics, and nothing passes in silence.
func FuzzIsolator(f *testing.F) {
	for _, iso := range []struct{ name, value string }{
		{appc.IsoMemory, `{"limit":"16Mi"}`},
		{appc.IsoCPU, `{"limit":"1e9","request":"0.1"}`},
		{appc.IsoCPUShares, `2`},
		{appc.IsoBlockIOPS, `{"default":true,"limit":1}`},
		{appc.IsoNetworkBandwidth, `{"default":true,"limit":"1M"}`},
		{appc.IsoRlimits, `{"nofile":{"soft":1,"hard":"unlimited"}}`},
		{appc.IsoPriority, `"batch"`},
		{appc.IsoPriority, `-1000`},
		{appc.IsoShmSize, `"1Gi"`},
		{appc.IsoNice, `-20`},
		{appc.IsoSELinux, `{"user":"u","role":"r","type":"t","level":"l"}`},
		{appc.IsoAppArmor, `{"profile":"p"}`},
		{appc.IsoOOMScoreAdj, `1000`},
		{appc.IsoCapsRetain, `{"set":["CAP_KILL"]}`},
		{appc.IsoSeccompRemove, `{"set":["mount"],"errno":"EPERM"}`},
		{appc.IsoSysctl, `{"net.core.somaxconn":"1"}`},
		{appc.IsoDelegate, `true`},
		{"example.com/x", `null`},
	} {
		for _, of := range []byte{0, 1, 2, 3} {
			f.Add(iso.name, iso.value, of)
		}
	}
	hosts := fuzzHosts()
	f.Fuzz(func(t *testing.T, name, value string, of byte) {
		if !json.Valid([]byte(value)) {
			return // no manifest has it
		}
		iso := appc.Isolator{Name: name, Value: json.RawMessage(value)}
		for _, host := range hosts {
			pod, err := compileOne(iso, of&1 != 0, of&2 != 0, host)
			if err != nil {
				if errs.Is(err, errs.Internal) {
					t.Fatalf("%s %s: %v", name, value, err)
				}
				continue
			}
			app := pod.Apps[0]
			told := len(pod.Results)+len(app.Results) > 0 || !pod.Limits.Empty() || !app.Limits.Empty() || pod.Network.Bandwidth != nil
			if !told && name != appc.IsoCPU && name != appc.IsoMemory { // a request of 0 asks for nothing
				t.Fatalf("%s %s: nothing is said of it", name, value)
			}
		}
	})
}
