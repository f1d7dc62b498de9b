package image

import (
	"encoding/json"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

const minimal = `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"example.com/app"`

func TestParse(t *testing.T) {
	m, err := Parse([]byte(minimal + `,"labels":[{"name":"version","value":"1.0"},{"name":"os","value":"linux"}],
		"app":{"exec":["/bin/x"],"user":"0","group":"0","supplementaryGids":[1],"isolators":[{"name":"example.com/unknown","value":{"a":1}}]},
		"dependencies":[{"imageName":"example.com/base","labels":[{"name":"version","value":"2"}]}],"pathWhitelist":["/a"],"future":{"x":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	if m.Version() != "1.0" || m.App.Isolators[0].Name != "example.com/unknown" || !slices.Equal(m.App.SupplementaryGIDs, []int{1}) || Reference(m.Name, m.Labels) != "example.com/app:1.0" {
		t.Errorf("%+v", m)
	}
	dep := m.Dependencies[0]
	if dep.String() != "example.com/base:2" || !dep.Matches("example.com/base", appc.Labels{{Name: "version", Value: "2"}}) || dep.Matches("example.com/base", nil) {
		t.Errorf("dependency %s", &dep)
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "empty",
		"{":                          "not valid JSON",
		"null":                       "acKind",
		"[]":                         "not valid JSON",
		minimal + `} x`:              "more text",
		`{"acKind":"PodManifest"}`:   "acKind",
		`{"acKind":"ImageManifest"}`: "acVersion",
		`{"acKind":"ImageManifest","acVersion":"0.8.11","name":"UPPER"}`:                               "name",
		minimal + `,"labels":[{"name":"name","value":"x"}]}`:                                           "labels[0]",
		minimal + `,"labels":[{"name":"a","value":"x"},{"name":"a","value":"y"}]}`:                     "labels[1]",
		minimal + `,"labels":[{"name":"arch","value":"amd64"}]}`:                                       "without os",
		minimal + `,"app":{"exec":["/x"]}}`:                                                            "app.user",
		minimal + `,"app":{"user":"0","group":"0","workingDirectory":"rel"}}`:                          "app.workingDirectory",
		minimal + `,"app":{"user":"0","group":"0","environment":[{"name":"1x","value":""}]}}`:          "app.environment[0]",
		minimal + `,"app":{"user":"0","group":"0","eventHandlers":[{"name":"reload","exec":["/x"]}]}}`: "app.eventHandlers[0]",
		minimal + `,"app":{"user":"0","group":"0","isolators":[{"name":"resource/memory"}]}}`:          "app.isolators[0]",
		minimal + `,"dependencies":[{"imageName":""}]}`:                                                "dependencies[0].imageName",
		minimal + `,"dependencies":[{"imageName":"a","imageID":"md5-0"}]}`:                             "dependencies[0].imageID",
		minimal + `,"pathWhitelist":["rel"]}`:                                                          "pathWhitelist[0]",
		minimal + `,"annotations":[{"name":"created","value":"yesterday"}]}`:                           "created",
	} {
		_, err := Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || !errs.Is(err, errs.Corrupt) {
			t.Errorf("%s\nerror %v (%s), want %q", text, err, errs.ClassOf(err), want)
		}
	}
}

func TestCheckHost(t *testing.T) {
	host := ArchFromGo(runtime.GOARCH, "")
	for _, x := range []struct {
		os, arch string
		ok       bool
	}{{"", "", true}, {"linux", "", true}, {"linux", host, true}, {"linux", "s390x", host == "s390x"}, {"freebsd", host, false}} {
		var l appc.Labels
		if x.os != "" {
			l = append(l, appc.Label{Name: "os", Value: x.os})
		}
		if x.arch != "" {
			l = append(l, appc.Label{Name: "arch", Value: x.arch})
		}
		if err := CheckHost(l); (err == nil) != x.ok || err != nil && (!errs.Is(err, errs.Unsupported) || len(errs.Hints(err)) == 0) {
			t.Errorf("%s/%s: %v", x.os, x.arch, err)
		}
	}
	for _, x := range [][3]string{{"386", "", "i386"}, {"arm64", "v8", "aarch64"}, {"arm", "v6", "armv6l"}, {"arm", "v7", "armv7l"}, {"amd64", "", "amd64"}} {
		if got := ArchFromGo(x[0], x[1]); got != x[2] {
			t.Errorf("%s %s: %s, want %s", x[0], x[1], got, x[2])
		}
	}
}

func fromOCI(t *testing.T, config string) *Manifest {
	t.Helper()
	c, err := ParseConfig([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	m, err := FromOCI(c, "docker.io/Library/My_App", append(appc.Labels{{Name: "version", Value: "1"}}, c.Labels()...), nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestFromOCI(t *testing.T) {
	m := fromOCI(t, `{"os":"linux","architecture":"arm64","created":"2020-01-02T03:04:05.6Z","author":"me","config":{
		"User":"www:33","ExposedPorts":{"80/tcp":{},"53/UDP":{},"7000-7002":{},"x/tcp":{},"99999/tcp":{}},
		"Env":["PATH=/bin","A=1","A=2","bad name=x"],"Entrypoint":["/entry","-f"],"Cmd":["run"],
		"Volumes":{"/var/lib/mysql":{},"/data/":{},"/Data":{},"/":{}},"WorkingDir":"srv","Labels":{"x":"y"},"StopSignal":"SIGQUIT"}}`)
	app := m.App
	if m.Name != "docker.io/library/my_app" || app.User != "www" || app.Group != "33" || app.WorkingDirectory != "/srv" {
		t.Errorf("%s: %+v", m.Name, app)
	}
	if !slices.Equal(app.Exec, []string{"/entry", "-f", "run"}) {
		t.Errorf("exec %q", app.Exec)
	}
	if want := []appc.EnvVar{{Name: "PATH", Value: "/bin"}, {Name: "A", Value: "2"}}; !slices.Equal(app.Environment, want) {
		t.Errorf("environment %+v", app.Environment)
	}
	if want := []appc.Port{{Name: "53-udp", Protocol: "udp", Port: 53}, {Name: "7000-7002-tcp", Protocol: "tcp", Port: 7000, Count: 3}, {Name: "80-tcp", Protocol: "tcp", Port: 80}}; !slices.Equal(app.Ports, want) {
		t.Errorf("ports %+v", app.Ports)
	}
	if want := []appc.MountPoint{{Name: "volume-data", Path: "/Data"}, {Name: "volume-data-2", Path: "/data"}, {Name: "volume-var-lib-mysql", Path: "/var/lib/mysql"}}; !slices.Equal(app.MountPoints, want) {
		t.Errorf("mount points %+v", app.MountPoints)
	}
	for name, want := range map[string]string{
		podspec.AnnStopSignal: "SIGQUIT", AnnFormat: "oci", AnnEntrypoint: `["/entry","-f"]`, AnnCmd: `["run"]`, "created": "2020-01-02T03:04:05Z", "authors": "me",
		AnnIgnored: `environment "bad name", port "99999/tcp", port "x/tcp", volume "/"`,
	} {
		if got, _ := m.Annotations.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if _, ok := m.Annotations.Get(AnnUserGroups); ok {
		t.Error("the group was given, yet is to come from the files")
	}
	if arch, _ := m.Labels.Get("arch"); arch != "aarch64" {
		t.Errorf("arch %q", arch)
	}
	if e, c, ok := m.Split(); !ok || !slices.Equal(e, []string{"/entry", "-f"}) || !slices.Equal(c, []string{"run"}) {
		t.Errorf("split %q %q %v", e, c, ok)
	}
	data, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Parse(data); err != nil || !reflect.DeepEqual(again, m) {
		t.Errorf("%s: %v", data, err)
	}
}

func TestFromOCIDefaults(t *testing.T) {
	for config, want := range map[string][2]string{
		`{}`: {"0", "0"}, `{"config":null}`: {"0", "0"}, `{"config":{"User":"root"}}`: {"root", "0"}, `{"config":{"User":"1000"}}`: {"1000", "1000"}, `{"config":{"User":":5"}}`: {"0", "5"},
	} {
		m := fromOCI(t, config)
		if m.App.User != want[0] || m.App.Group != want[1] || m.App.WorkingDirectory != "/" || len(m.App.Exec) > 0 {
			t.Errorf("%s: %+v", config, m.App)
		}
		if _, ok := m.Annotations.Get(AnnUserGroups); ok != (want[1] != "5") {
			t.Errorf("%s: groups from the files: %v", config, ok)
		}
	}
	if _, _, oci := (&Manifest{}).Split(); oci {
		t.Error("an ACI was split")
	}
}

func TestSanitizeIdentifier(t *testing.T) {
	for s, want := range map[string]string{
		"docker.io/library/x": "docker.io/library/x", "A B": "a-b", "--x--": "x", "a//b": "a/b", "localhost:5000/x": "localhost-5000/x", "": "image", "é": "image", "a_b": "a_b",
	} {
		got := SanitizeIdentifier(s)
		if got != want || appc.StrictIdentifier(got) != nil {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
}

// FuzzImageManifest reads anything without a panic; what it accepts, it writes
// and reads again as the same.
func FuzzImageManifest(f *testing.F) {
	f.Add([]byte(minimal + `}`))
	f.Add([]byte(minimal + `,"app":{"exec":["x"],"user":"0","group":"0","isolators":[{"name":"resource/cpu","value":{"limit":"1"}}],"ports":[{"name":"p","protocol":"tcp","port":1}]}}`))
	f.Add([]byte(minimal + `,"app":{"user":"0","group":"0","isolators":[{"name":"os/linux/seccomp-retain-set"}]},"dependencies":[{}],"annotations":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Parse(data)
		if err != nil {
			return
		}
		out, err := m.Marshal()
		if err != nil {
			t.Fatalf("accepted, but not written: %v", err)
		}
		again, err := Parse(out)
		if err != nil {
			t.Fatalf("written, but not accepted: %s: %v", out, err)
		}
		second, err := again.Marshal()
		if err != nil || string(second) != string(out) {
			t.Errorf("%s became %s, %v", out, second, err)
		}
	})
}

// FuzzOCIConfig turns any config into a valid manifest or refuses it.
func FuzzOCIConfig(f *testing.F) {
	f.Add([]byte(`{"os":"linux","architecture":"amd64","config":{"User":"a:b","Env":["A=b"],"ExposedPorts":{"80/tcp":{}},"Volumes":{"/x":{}}}}`))
	f.Add([]byte(`{"config":{"Entrypoint":[""],"Cmd":["\u0000"]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseConfig(data)
		if err != nil {
			return
		}
		m, err := FromOCI(c, "x", c.Labels(), nil)
		if err != nil {
			return
		}
		if out, err := m.Marshal(); err != nil || !json.Valid(out) {
			t.Errorf("%s: %v", out, err)
		}
	})
}
