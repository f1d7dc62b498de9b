package kube

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/stage0/podplan"
)

var update = flag.Bool("update", false, "write the expected results anew")

// testImage is what every container runs in tests.
const testImage = `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"docker.io/library/web",
"labels":[{"name":"os","value":"linux"},{"name":"arch","value":"amd64"},{"name":"version","value":"1"}],
"annotations":[{"name":"rkt/image/format","value":"oci"},{"name":"appc.io/docker/entrypoint","value":"[\"/entry\"]"},{"name":"appc.io/docker/cmd","value":"[\"serve\"]"}],
"app":{"exec":["/entry","serve"],"user":"www","group":"www","environment":[{"name":"PATH","value":"/bin"}],
"ports":[{"name":"80-tcp","protocol":"tcp","port":80}],"mountPoints":[{"name":"volume-cache","path":"/cache"}]}}`

// TestGolden runs each archive of testdata: pod.yaml in; the images, the pod's
// manifest, its run options and the problems out.
func TestGolden(t *testing.T) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatal("no archives", err)
	}
	for _, path := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := txtar.Archive{Comment: a.Comment, Files: append(a.Files[:1:1], outcome(t, a.Files[0].Data)...)}
			compare(t, path, txtar.Format(&got))
		})
	}
}

func compare(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func outcome(t *testing.T, data []byte) (files []txtar.File) {
	t.Helper()
	pod, problems := Read(data)
	if text := texts(problems); text != "" {
		files = append(files, txtar.File{Name: "problems", Data: []byte(text)})
	}
	for _, p := range problems {
		if !p.Ignorable {
			return files
		}
	}
	m := manifest(t, pod)
	text, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var raw json.RawMessage = text
	var images []string
	for _, a := range pod.Apps {
		images = append(images, fmt.Sprintf("%s %s", a.Image, a.DefaultPull()))
	}
	return append(files, jsonFile(t, "images.json", images), jsonFile(t, "manifest.json", raw),
		jsonFile(t, "run.json", pod.Options), jsonFile(t, "hostpaths.json", pod.HostPaths))
}

func texts(problems []Problem) string {
	var b strings.Builder
	for _, p := range problems {
		fmt.Fprintf(&b, "%d: %s", p.Line, p.Error())
		if p.Ignorable {
			b.WriteString(" (ignorable)")
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func jsonFile(t *testing.T, name string, v any) txtar.File {
	t.Helper()
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return txtar.File{Name: name, Data: append(data, '\n')}
}

// manifest plans the pod with the test's image for each container.
func manifest(t *testing.T, pod *Pod) *podspec.Pod {
	t.Helper()
	m, err := image.Parse([]byte(testImage))
	if err != nil {
		t.Fatal(err)
	}
	o := pod.Plan()
	for i := range o.Apps {
		o.Apps[i].Manifest = m
		o.Apps[i].Image.ID = "sha512-" + strings.Repeat("0", 128)
	}
	result, err := podplan.Plan(o)
	if err != nil {
		t.Fatal(err)
	}
	return result.Pod
}

// TestProblems changes one thing of a good Pod and wants exactly one problem.
func TestProblems(t *testing.T) {
	const good = `apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: a
    image: web:1
`
	if _, problems := Read([]byte(good)); len(problems) > 0 {
		t.Fatal(problems)
	}
	cases := []struct{ old, new, want string }{
		{good, "", "0: no Pod in it"},
		{good, "a: [", "1: not YAML: did not find expected node content"},
		{good, "- a\n", "1: is a list, not a Pod"},
		{"kind: Pod", "kind: Deployment", "2: kind: Deployment: not a Pod; its template is one, under apiVersion: v1 and kind: Pod"},
		{"kind: Pod", "kind: List", "2: kind: List: one Pod is run at a time"},
		{"kind: Pod", "kind: Secret", `2: kind: "Secret": not a Pod`},
		{"kind: Pod\n", "", "1: kind: missing: a Pod is wanted"},
		{"apiVersion: v1", "apiVersion: v2", `1: apiVersion: "v2": not v1`},
		{"    image: web:1\n", "    image: web:1\n---\nkind: Pod\n", "10: a second document: one Pod is run at a time"},
		{"    image: web:1\n", "    image: web:1\n    foo: 1\n", "9: spec.containers[0].foo: unknown field (ignorable)"},
		{"    image: web:1\n", "    image: web:1\n    Image: x\n", "9: spec.containers[0].Image: unknown field: did you mean image? (ignorable)"},
		{"    image: web:1\n", "    image: web:1\n    image: x\n", "9: spec.containers[0].image: given twice"},
		{"    image: web:1\n", "", "7: spec.containers[0].image: missing"},
		{"image: web:1", "image: 1", "8: spec.containers[0].image: is a number, not a string: put it in quotes"},
		{"image: web:1", "image: yes", "8: spec.containers[0].image: is a boolean, not a string: put it in quotes"},
		{"image: web:1", "image: {}", "8: spec.containers[0].image: is a mapping, not a string"},
		{"name: web", "name: Web", `4: metadata.name: "Web": not a name: lower-case letters, digits, - and . between them`},
		{"name: web", "name: we.b", `4: metadata.name: pod name "we.b": not lower-case letters, digits and single hyphens between them, 200 at the most (ignorable)`},
		{"  name: web\n", "  labels: {}\n", "3: metadata.name: missing"},
		{"  name: web\n", "  name: web\n  namespace: x\n", `5: metadata.namespace: "x": there are no namespaces (ignorable)`},
		{"  name: web\n", "  name: web\n  uid: x\n", "5: metadata.uid: not supported: is written by a cluster (ignorable)"},
		{"name: a", "name: A", `7: spec.containers[0].name: "A": not a name of lower-case letters, digits and -`},
		{"name: a", "name: a--b", `7: spec.containers[0].name: "a--b": two hyphens in a row are not supported`},
		{"  containers:\n  - name: a\n    image: web:1\n", "  volumes: []\n", "5: spec.containers: missing"},
		{"spec:\n", "spec:\n  hostPID: true\n", "6: spec.hostPID: not supported: a pod has its own (ignorable)"},
		{"spec:\n", "spec:\n  hostIPC: true\n", "6: spec.hostIPC: not supported: a pod has its own (ignorable)"},
		{"spec:\n", "spec:\n  hostNetwork: maybe\n", "6: spec.hostNetwork: is a string, not true or false"},
		{"spec:\n", "spec:\n  shareProcessNamespace: false\n", "6: spec.shareProcessNamespace: false is not supported: the apps of a pod share it (ignorable)"},
		{"spec:\n", "spec:\n  restartPolicy: Sometimes\n", `6: spec.restartPolicy: "Sometimes": none of Always, OnFailure, Never`},
		{"spec:\n", "spec:\n  terminationGracePeriodSeconds: -1\n", "6: spec.terminationGracePeriodSeconds: -1: not a number of seconds"},
		{"spec:\n", "spec:\n  terminationGracePeriodSeconds: 1.5\n", "6: spec.terminationGracePeriodSeconds: is a number, not a whole number"},
		{"spec:\n", "spec:\n  terminationGracePeriodSeconds: 99999999999999999999\n", "6: spec.terminationGracePeriodSeconds: is a number, not a whole number"},
		{"spec:\n", "spec:\n  nodeSelector: {a: b}\n", "6: spec.nodeSelector: not supported: there is one host (ignorable)"},
		{"spec:\n", "spec:\n  hostname: a.b\n", `6: spec.hostname: "a.b": not a host name of one label`},
		{"spec:\n", "spec:\n  dnsPolicy: Foo\n", `6: spec.dnsPolicy: "Foo": none of ClusterFirst, ClusterFirstWithHostNet, Default, None`},
		{"spec:\n", "spec:\n  dnsPolicy: None\n", "5: spec.dnsConfig.nameservers: missing: dnsPolicy: None leaves none"},
		{"spec:\n", "spec:\n  dnsConfig: {searches: [a]}\n", "6: spec.dnsConfig: not supported with the host's resolver: only with dnsPolicy: None (ignorable)"},
		{"spec:\n", "spec:\n  dnsPolicy: None\n  dnsConfig: {nameservers: [x]}\n", `7: spec.dnsConfig.nameservers[0]: "x": not an IP address`},
		{"spec:\n", "spec:\n  hostAliases: [{ip: x, hostnames: [a]}]\n", `6: spec.hostAliases[0].ip: "x": not an IP address`},
		{"spec:\n", "spec:\n  hostAliases: [{ip: 1.2.3.4}]\n", "6: spec.hostAliases[0].hostnames: missing"},
		{"spec:\n", "spec:\n  os: {name: windows}\n", `6: spec.os.name: "windows": this is Linux`},
		{"spec:\n", "spec:\n  volumes: [{name: v, hostPath: {path: x}}]\n", `6: spec.volumes[0].hostPath.path: "x": not an absolute path`},
		{"spec:\n", "spec:\n  volumes: [{name: v, hostPath: {path: /a/../b}}]\n", `6: spec.volumes[0].hostPath.path: "/a/../b": contains ..`},
		{"spec:\n", "spec:\n  volumes: [{name: v, hostPath: {path: /a, type: Dir}}]\n", `6: spec.volumes[0].hostPath.type: "Dir": none of DirectoryOrCreate, Directory, FileOrCreate, File, Socket, CharDevice, BlockDevice`},
		{"spec:\n", "spec:\n  hostnameOverride: A\n", `6: spec.hostnameOverride: "A": not a host name of 64 characters at most`},
		{"spec:\n", "spec:\n  hostNetwork: true\n  hostnameOverride: a.b\n", "7: spec.hostnameOverride: not with hostNetwork"},
		{"spec:\n", "spec:\n  volumes: [{name: v, emptyDir: {mode: 02777}}]\n", "6: spec.volumes[0].emptyDir.mode: 02777: not from 0 to 01777"},
		{"spec:\n", "spec:\n  volumes: [{name: v, emptyDir: {medium: HugePages}}]\n", "6: spec.volumes[0].emptyDir.medium: HugePages is not supported (ignorable)"},
		{"spec:\n", "spec:\n  volumes: [{name: v, emptyDir: {sizeLimit: 1Gi}}]\n", "6: spec.volumes[0].emptyDir.sizeLimit: not supported but for medium: Memory (ignorable)"},
		{"spec:\n", "spec:\n  volumes: [{name: v, emptyDir: {}, hostPath: {path: /a}}]\n", "6: spec.volumes[0]: emptyDir, hostPath and image exclude each other"},
		{"spec:\n", "spec:\n  volumes: [{name: v, configMap: {name: x}}]\n", "6: spec.volumes[0].configMap: not supported: there are no ConfigMaps: mount a hostPath (ignorable)"},
		{"spec:\n", "spec:\n  volumes: [{name: v}, {name: v}]\n", `6: spec.volumes[1].name: "v": given twice`},
		{"spec:\n", "spec:\n  securityContext: {runAsUser: -1}\n", "6: spec.securityContext.runAsUser: -1: not an id"},
		{"spec:\n", "spec:\n  securityContext: {supplementalGroupsPolicy: Strict}\n", "6: spec.securityContext.supplementalGroupsPolicy: Strict is not supported: the image's groups are joined (ignorable)"},
		{"spec:\n", "spec:\n  securityContext: {seLinuxOptions: {level: s0}}\n", "6: spec.securityContext.seLinuxOptions: not supported (ignorable)"},
		{"spec:\n", "spec:\n  securityContext: {seccompProfile: {type: Localhost}}\n", "6: spec.securityContext.seccompProfile.type: Localhost is not supported (ignorable)"},
		{"spec:\n", "spec:\n  initContainers: [{name: i, image: x, readinessProbe: {}}]\n", "6: spec.initContainers[0].readinessProbe: an init container has none"},
		{"spec:\n", "spec:\n  initContainers: [{name: a, image: x}]\n", `8: spec.containers[0].name: "a": given twice`},
		{"    image: web:1\n", "    image: web:1\n    command: ['']\n", "9: spec.containers[0].command[0]: empty"},
		{"    image: web:1\n", "    image: web:1\n    command: x\n", "9: spec.containers[0].command: is a string, not a list"},
		{"    image: web:1\n", "    image: web:1\n    workingDir: x\n", `9: spec.containers[0].workingDir: "x": not an absolute path`},
		{"    image: web:1\n", "    image: web:1\n    env: [{name: A, value: 1}]\n", "9: spec.containers[0].env[0].value: is a number, not a string: put it in quotes"},
		{"    image: web:1\n", "    image: web:1\n    env: [{name: A, valueFrom: {fieldRef: {}}}]\n", "9: spec.containers[0].env[0].valueFrom: not supported: there is no cluster to ask: write value (ignorable)"},
		{"    image: web:1\n", "    image: web:1\n    env: [{name: 1A, value: x}]\n", `9: spec.containers[0].env[0].name: "1A": letters, digits, _ . and - are supported, and no digit first (ignorable)`},
		{"    image: web:1\n", "    image: web:1\n    envFrom: [{secretRef: {name: x}}]\n", "9: spec.containers[0].envFrom: not supported: there are no ConfigMaps and Secrets: write env (ignorable)"},
		{"    image: web:1\n", "    image: web:1\n    ports: [{containerPort: 0}]\n", "9: spec.containers[0].ports[0].containerPort: 0: not a port"},
		{"    image: web:1\n", "    image: web:1\n    ports: [{containerPort: 80, protocol: tcp}]\n", `9: spec.containers[0].ports[0].protocol: "tcp": none of TCP, UDP, SCTP`},
		{"    image: web:1\n", "    image: web:1\n    volumeMounts: [{name: v, mountPath: /v}]\n", `9: spec.containers[0].volumeMounts[0].name: "v": no such volume in spec.volumes`},
		{"    image: web:1\n", "    image: web:1\n    resources: {limits: {cpu: 1x}}\n", `9: spec.containers[0].resources.limits[cpu]: "1x": not a quantity`},
		{"    image: web:1\n", "    image: web:1\n    resources: {limits: {cpu: 1}, requests: {cpu: 2}}\n", "9: spec.containers[0].resources.requests[cpu]: 2: more than the limit, 1"},
		{"    image: web:1\n", "    image: web:1\n    resources: {limits: {nvidia.com/gpu: 1}}\n", "9: spec.containers[0].resources.limits[nvidia.com/gpu]: not supported (ignorable)"},
		{"    image: web:1\n", "    image: web:1\n    securityContext: {privileged: true}\n", "9: spec.containers[0].securityContext.privileged: not supported: name the capabilities and devices that are needed (ignorable)"},
		{"    image: web:1\n", "    image: web:1\n    securityContext: {capabilities: {add: [FLY]}}\n", `9: spec.containers[0].securityContext.capabilities.add[0]: "FLY": no such capability`},
		{"    image: web:1\n", "    image: web:1\n    securityContext: {capabilities: {add: [ALL]}}\n", "9: spec.containers[0].securityContext.capabilities.add[0]: ALL is not supported: name those that are needed (ignorable)"},
		{"    image: web:1\n", "    image: web:1\n    securityContext: {runAsUser: 0, runAsNonRoot: true}\n", "9: spec.containers[0].securityContext.runAsNonRoot: true, and runAsUser is 0"},
		{"    image: web:1\n", "    image: web:1\n    securityContext: {allowPrivilegeEscalation: false, capabilities: {add: [SYS_ADMIN]}}\n", "9: spec.containers[0].securityContext.allowPrivilegeEscalation: false, and capabilities.add has SYS_ADMIN"},
		{"    image: web:1\n", "    image: web:1\n    securityContext: {procMount: Unmasked}\n", "9: spec.containers[0].securityContext.procMount: Unmasked is not supported (ignorable)"},
		{"    image: web:1\n", "    image: web:1\n    securityContext: {appArmorProfile: {type: RuntimeDefault}}\n", "9: spec.containers[0].securityContext.appArmorProfile.type: RuntimeDefault is not supported (ignorable)"},
		{"    image: web:1\n", "    image: web:1\n    readinessProbe: {}\n", "9: spec.containers[0].readinessProbe: wants one of exec, httpGet, tcpSocket"},
		{"    image: web:1\n", "    image: web:1\n    readinessProbe: {grpc: {port: 1}}\n", "9: spec.containers[0].readinessProbe.grpc: not supported (ignorable)"},
		{"    image: web:1\n", "    image: web:1\n    readinessProbe: {httpGet: {port: http}}\n", `9: spec.containers[0].readinessProbe.httpGet.port: "http": no port of the container has that name`},
		{"    image: web:1\n", "    image: web:1\n    readinessProbe: {httpGet: {port: 80, scheme: HTTPS}}\n", "9: spec.containers[0].readinessProbe.httpGet.scheme: HTTPS is not supported yet (ignorable)"},
		{"    image: web:1\n", "    image: web:1\n    readinessProbe: {tcpSocket: {port: 80, host: example.com}}\n", `9: spec.containers[0].readinessProbe.tcpSocket.host: "example.com": only the pod itself is asked (ignorable)`},
		{"    image: web:1\n", "    image: web:1\n    livenessProbe: {tcpSocket: {port: 80}, successThreshold: 2}\n", "9: spec.containers[0].livenessProbe.successThreshold: 2: must be 1"},
		{"    image: web:1\n", "    image: web:1\n    livenessProbe: {tcpSocket: {port: 80}, periodSeconds: -1}\n", "9: spec.containers[0].livenessProbe.periodSeconds: -1: not a number of seconds from 1 on"},
		{"    image: web:1\n", "    image: web:1\n    startupProbe: {tcpSocket: {port: 80}, successThreshold: 2}\n", "9: spec.containers[0].startupProbe.successThreshold: 2: must be 1"},
		{"spec:\n", "spec:\n  initContainers: [{name: i, image: x, restartPolicy: Always, readinessProbe: {tcpSocket: {port: 1}}, startupProbe: {tcpSocket: {port: 1}}}]\n", "6: spec.initContainers[0].readinessProbe: not supported for a sidecar with a startupProbe or a postStart hook: what follows would wait for it (ignorable)"},
		{"    image: web:1\n", "    image: web:1\n    lifecycle: {preStop: {sleep: {seconds: 1}}}\n", "9: spec.containers[0].lifecycle.preStop.sleep: not supported (ignorable)"},
		{"    image: web:1\n", "    image: web:1\n    lifecycle: {stopSignal: SIGFOO}\n", `9: spec.containers[0].lifecycle.stopSignal: "SIGFOO": unknown`},
		{"    image: web:1\n", "    image: web:1\n    restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [3]}}]\n", "9: spec.containers[0].restartPolicyRules: need a restartPolicy of the container"},
		{"    image: web:1\n", "    image: web:1\n    restartPolicy: Never\n    restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [3]}}]\n", "10: spec.containers[0].restartPolicyRules[0].action: RestartAllContainers is not supported (ignorable)"},
		{"    image: web:1\n", "    image: web:1\n    imagePullPolicy: Sometimes\n", `9: spec.containers[0].imagePullPolicy: "Sometimes": none of Always, IfNotPresent, Never`},
		{"    image: web:1\n", "    image: web:1\n    tty: true\n", "9: spec.containers[0].tty: not supported: rkt run --interactive does it for a pod of one app (ignorable)"},
	}
	for _, c := range cases {
		text := strings.Replace(good, c.old, c.new, 1)
		if text == good {
			t.Fatalf("%q does not occur", c.old)
		}
		_, problems := Read([]byte(text))
		if got := strings.TrimSuffix(texts(problems), "\n"); got != c.want {
			t.Errorf("%q:\n got %s\nwant %s", c.new, got, c.want)
		}
	}
}

// TestAliases: a few lines that stand for very many values cost nothing.
func TestAliases(t *testing.T) {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nx: &a0 {name: x, value: x}\n")
	for i := range 20 {
		fmt.Fprintf(&b, "x%d: &a%d [%s]\n", i, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 9), ", "))
	}
	b.WriteString("spec: {containers: [{name: a, image: x, env: *a1, command: &c [a, *c]}]}\n")
	_, problems := Read([]byte(b.String()))
	if len(problems) == 0 || len(problems) > 60 {
		t.Errorf("%d problems", len(problems))
	}
}

func TestExpand(t *testing.T) {
	vars := map[string]string{"A": "1", "B": "$(A)", "": "empty"}
	for in, want := range map[string]string{
		"": "", "$": "$", "x$": "x$", "$(A)": "1", "$$(A)": "$(A)", "$$$(A)": "$1", "$(B)": "$(A)", "$(C)": "$(C)", "$(A": "$(A",
		"$(A)$(A)": "11", "a$b": "a$b", "$()": "empty", "$$": "$", "$$$": "$$", "$(A$(A)": "$(A$(A)", "(A)": "(A)",
	} {
		if got := expand(in, vars); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	for _, s := range []string{"", "$", "$$", "$$$", "$(A)", "a$", "$(A)$", "x$(", "$$(A)"} {
		if got := expand(escape(s), vars); got != s {
			t.Errorf("%q: written as %q, read as %q", s, escape(s), got)
		}
	}
}

// FuzzPod: whatever is read without a problem makes a manifest that is valid,
// and every problem has a text.
func FuzzPod(f *testing.F) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range archives {
		a, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(a.Files[0].Data)
	}
	m, err := image.Parse([]byte(testImage))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		pod, problems := Read(data)
		for _, p := range problems {
			if p.Text == "" || p.Line < 0 {
				t.Fatalf("%+v", p)
			}
		}
		if len(problems) > 0 {
			return
		}
		o := pod.Plan()
		for i := range o.Apps {
			o.Apps[i].Manifest = m
			o.Apps[i].Image.ID = "sha512-00"
		}
		result, err := podplan.Plan(o)
		if err != nil {
			return // such as a user that must not be root
		}
		if _, err := result.Pod.Marshal(); err != nil {
			t.Fatal(err)
		}
	})
}
