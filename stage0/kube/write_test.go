package kube

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

// source is the pod as it would be on disk.
func source(t *testing.T, pod *Pod) Source {
	t.Helper()
	m, err := image.Parse([]byte(testImage))
	if err != nil {
		t.Fatal(err)
	}
	s := Source{UUID: "11111111-2222-3333-4444-555555555555", Manifest: manifest(t, pod), Options: pod.Options, Images: map[string]poddir.AppImage{}}
	for _, a := range s.Manifest.Apps {
		s.Images[a.Name] = poddir.AppImage{Original: m.App, Notes: m.Annotations}
	}
	return s
}

// TestRoundTrip: a Pod that was read is written as one that is read as the
// same pod.
func TestRoundTrip(t *testing.T) {
	for _, name := range []string{"minimal", "whole", "ports", "users"} {
		a, err := txtar.ParseFile("testdata/" + name + ".txtar")
		if err != nil {
			t.Fatal(err)
		}
		pod, _ := Read(a.Files[0].Data)
		first := source(t, pod)
		data, problems, err := Write(first)
		if err != nil || len(problems) > 0 {
			t.Fatalf("%s: %v %v", name, problems, err)
		}
		again, problems := Read(data)
		if len(problems) > 0 {
			t.Fatalf("%s: %v\n%s", name, problems, data)
		}
		again.Name, again.HostPaths = pod.Name, pod.HostPaths
		second := source(t, again)
		if !reflect.DeepEqual(sorted(t, first.Manifest), sorted(t, second.Manifest)) || !reflect.DeepEqual(first.Options, second.Options) {
			one, _ := json.MarshalIndent(first, "", " ")
			two, _ := json.MarshalIndent(second, "", " ")
			t.Errorf("%s:\n%s\n%s\n%s", name, data, one, two)
		}
		third, _, err := Write(second)
		if err != nil || !bytes.Equal(data, third) {
			t.Errorf("%s: %v\n%s\n%s", name, err, data, third)
		}
	}
}

// sorted leaves the order out that has no meaning.
func sorted(t *testing.T, p *podspec.Pod) any {
	t.Helper()
	data, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	q, err := podspec.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	index := func(list appc.Annotations) map[string]string {
		m := map[string]string{}
		for _, a := range list {
			m[a.Name] = a.Value
		}
		return m
	}
	var apps []any
	for _, a := range q.Apps {
		ann := index(a.Annotations)
		a.Annotations = nil
		isolators := map[string]any{}
		for _, iso := range a.App.Isolators {
			var v any
			if err := iso.Decode(&v); err != nil {
				t.Fatal(err)
			}
			isolators[iso.Name] = v
		}
		a.App.Isolators = nil
		apps = append(apps, a, ann, isolators)
	}
	q.Apps = nil
	return []any{q, apps}
}

// TestWriteWhole pins how a written Pod looks.
func TestWriteWhole(t *testing.T) {
	a, err := txtar.ParseFile("testdata/whole.txtar")
	if err != nil {
		t.Fatal(err)
	}
	pod, _ := Read(a.Files[0].Data)
	data, _, err := Write(source(t, pod))
	if err != nil {
		t.Fatal(err)
	}
	compare(t, "testdata/written.yaml", data)
}

// TestLost: what a Pod can't say is named.
func TestLost(t *testing.T) {
	a, err := txtar.ParseFile("testdata/minimal.txtar")
	if err != nil {
		t.Fatal(err)
	}
	pod, _ := Read(a.Files[0].Data)
	no, uid := false, 7
	cases := map[string]func(s *Source){
		"annotations[x]: a Pod can't say it": func(s *Source) { s.Manifest.Annotations.Set("x", "y") },
		"annotations[rkt/lifecycle/exit-policy]: any: a Pod of several containers ends when all have ended": func(s *Source) {
			s.Manifest.Annotations.Set(podspec.AnnExitPolicy, "any")
			s.Manifest.Apps[0].Annotations.Set(podspec.AnnRestart, "never")
			other := s.Manifest.Apps[0]
			other.Name, other.Mounts = "other", nil
			s.Manifest.Apps = append(s.Manifest.Apps, other)
			s.Images["other"] = s.Images["web"]
		},
		"net: a,b: a Pod has the network that its host gives it":  func(s *Source) { s.Options.Net = []string{"a", "b"} },
		"dns: a Pod can't say it without a name server":           func(s *Source) { s.Options.DNS = []string{"none"} },
		"dnsDomain: a Pod can't say it":                           func(s *Source) { s.Options.DNSDomain = "x" },
		"hostsFromHost: a Pod can't say it":                       func(s *Source) { s.Options.HostsFromHost = true },
		"interactive: a Pod can't say it":                         func(s *Source) { s.Options.Interactive = true },
		"isolators[0]: rkt/priority: a Pod can't say it":          func(s *Source) { s.Manifest.Isolators = isolate(appc.IsoPriority, "batch") },
		"apps[0].app.isolators[0]: rkt/pids: a Pod can't say it":  func(s *Source) { s.Manifest.Apps[0].App.Isolators = isolate(appc.IsoPids, 5) },
		`apps[0].app.user: "nobody": a Pod names users by number`: func(s *Source) { s.Manifest.Apps[0].App.User, s.Manifest.Apps[0].App.Group = "nobody", "7" },
		`apps[0].app.group: "nobody": a Pod names groups by number`: func(s *Source) {
			s.Manifest.Apps[0].App.Group = "nobody"
		},
		"apps[0].app.ports[1]: r: a Pod has single ports, and no activation": func(s *Source) {
			s.Manifest.Apps[0].App.Ports = append(s.Manifest.Apps[0].App.Ports, appc.Port{Name: "r", Protocol: "tcp", Port: 5, Count: 2})
		},
		"apps[0].app.eventHandlers: a Pod can't say it": func(s *Source) {
			s.Manifest.Apps[0].App.EventHandlers = []appc.EventHandler{{Name: appc.PreStart, Exec: []string{"/x"}}}
		},
		"apps[0].app.userLabels: labels and annotations are a Pod's as a whole": func(s *Source) { s.Manifest.Apps[0].App.UserLabels = map[string]string{"a": "b"} },
		"volumes[1].recursive: false: a Pod can't say it": func(s *Source) {
			s.Manifest.Volumes = append(s.Manifest.Volumes, podspec.Volume{Name: "h", Kind: podspec.VolumeHost, Source: "/h", Recursive: &no})
		},
		"volumes[1].idmap: true: in a Pod with hostUsers: false each volume is mapped, in others none": func(s *Source) {
			s.Manifest.Volumes = append(s.Manifest.Volumes, podspec.Volume{Name: "h", Kind: podspec.VolumeHost, Source: "/h", IDMap: new(true)})
		},
		"annotations[rkt/private-users]: a Pod can't say it": func(s *Source) { s.Manifest.Annotations.Set(podspec.AnnUsers, "5:6") },
		"volumes[1].uid: an emptyDir is root's, or its group fsGroup": func(s *Source) {
			s.Manifest.Volumes = append(s.Manifest.Volumes, podspec.Volume{Name: "e", Kind: podspec.VolumeEmpty, Mode: "0777", UID: &uid})
		},
		"volumes[1].mode: 2750: that of an emptyDir is from 0 to 01777": func(s *Source) {
			s.Manifest.Volumes = append(s.Manifest.Volumes, podspec.Volume{Name: "e", Kind: podspec.VolumeEmpty, Mode: "2750"})
		},
		"volumes[1].kind: named: a Pod has no such volume": func(s *Source) {
			s.Manifest.Volumes = append(s.Manifest.Volumes, podspec.Volume{Name: "n", Kind: podspec.VolumeNamed})
		},
		"apps[0].annotations[rkt/lifecycle/restart]: a Pod has no maximum of restarts":            annotate(podspec.AnnRestart, "on-failure:3"),
		"apps[0].annotations[rkt/lifecycle/ready]: a Pod can't say it":                            annotate(podspec.AnnReady, "notify"),
		"apps[0].annotations[rkt/lifecycle/live]: 1.5s: a Pod has whole seconds":                  annotate(podspec.AnnLive, "tcp:80,period=1500ms"),
		"apps[0].annotations[rkt/lifecycle/post-start]: timeout 1s: it would be 24h0m0s in a Pod": annotate(podspec.AnnPostStart, "exec:/x,timeout=1s"),
		"apps[0].annotations[rkt/lifecycle/stop-timeout]: 1.5s: a Pod has whole seconds":          annotate(podspec.AnnStopTimeout, "1500ms"),
		"apps[0].annotations[rkt/umask]: a Pod can't say it":                                      annotate(podspec.AnnUmask, "0077"),
		"apps[0].annotations[rkt/lifecycle/restart]: never: a sidecar is always restarted": func(s *Source) {
			app := s.Manifest.Apps[0]
			app.Annotations = appc.Annotations{{Name: podspec.AnnRole, Value: "app"}, {Name: podspec.AnnStopTimeout, Value: "30s"}}
			app.Name, app.Mounts = "other", nil
			s.Images["other"] = s.Images["web"]
			s.Manifest.Apps = append(s.Manifest.Apps, app)
			annotate(podspec.AnnRole, "sidecar")(s)
			annotate(podspec.AnnRestart, "never")(s)
		},
	}
	for want, change := range cases {
		s := source(t, pod)
		change(&s)
		_, problems, err := Write(s)
		var got []string
		for _, p := range problems {
			got = append(got, p.Error())
		}
		if err != nil || strings.Join(got, "; ") != want {
			t.Errorf("%v %s\nwant %s", err, strings.Join(got, "; "), want)
		}
	}
}

func isolate(name string, v any) []appc.Isolator { return []appc.Isolator{appc.NewIsolator(name, v)} }

func annotate(name, value string) func(*Source) {
	return func(s *Source) { s.Manifest.Apps[0].Annotations.Set(name, value) }
}

// TestQuotes: every string is read as the string it was.
func TestQuotes(t *testing.T) {
	for _, s := range []string{
		"", "yes", "no", "on", "y", "true", "null", "~", "1", "1.5", "0x1f", "1:30", "1e3", "<<", "=", "-", "- a", "a: b", "a #b", "#", "&a", "*a", "!a", "a\nb\n", "\t", "'", "\"", "\\", "é", " a ", "2001-01-01", "{}", "[]", "%", "@", "`", ".inf", "...", "---",
	} {
		want := &document{Metadata: metadata{Name: "web", Labels: map[string]string{"k" + s: s}}}
		data, err := encode(want)
		if err != nil {
			t.Errorf("%q: %v", s, err)
			continue
		}
		d := decoder{lines: map[string]int{}}
		var got document
		d.into(d.parse(data), reflect.ValueOf(&got).Elem(), "")
		if len(d.problems) > 0 || !reflect.DeepEqual(&got, want) {
			t.Errorf("%q: written as\n%s: %v", s, data, d.problems)
		}
	}
}
