package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// refusedAs fails if something was not refused in rkt's own words.
func refusedAs(t *testing.T, what string, res result) {
	t.Helper()
	if res.code != 254 || res.stdout != "" || !strings.Contains(res.stderr, ": ") || strings.Contains(res.stderr, "goroutine ") || strings.Contains(res.stderr, "panic") {
		t.Errorf("%s: %s", what, res)
	}
}

// TestHostileFlags: numbers that are none, too large or negative, words of the
// wrong kind and paths that lead elsewhere are refused, each by each flag that
// asks for isolation, resources, users or volumes.
func TestHostileFlags(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.must("fetch", "--insecure-options=image", image("busybox.aci"))
	numbers := []string{"", "x", "-1", "1.5.5", "99999999999999999999999999", "0x10", "1e400", "NaN", " 1", "1\n", "١"}
	for flag, only := range map[string][]string{
		"--memory=": nil, "--memory-low=": nil, "--memory-high=": nil, "--swap=": nil, "--shm-size=": nil, "--network-bandwidth=": nil, "--cpu=": nil, "--cpu-shares=": nil,
		"--pids=": nil, "--io-weight=": nil, "--cpuset=": nil, "--cpuset-mems=": nil, "--priority=": {"", "x", "-1001", "1001", "1.5", "99999999999999999999"},
		"--nice=": {"", "x", "20", "-21", "1.5", "99999999999999999999"}, "--oom-score-adj=": {"", "x", "-1001", "1001", "99999999999999999999"},
		"--umask=": {"x", "-1", "8", "99999", "0777777"}, "--supplementary-gids=": {"x", "-1", "4294967296", "1,,x"},
		"--stop-timeout=": {"x", "-1s", "1"}, "--stop-signal=": {"x", "0", "65", "-1"},
		"--ulimit=nofile=": {"", "x", "-1", "2:1", "1:2:3", "99999999999999999999999"}, "--hugetlb=2MB=": numbers, "--io-limit=all,rbps=": numbers, "--io-limit=all,riops=": {"99999999999999"},
		"--tmpfs=/t,size=": numbers, "--tmpfs=/t,mode=": {"", "x", "8", "-1", "77777777"}, "--tmpfs=/t,uid=": {"", "x", "-1", "4294967296"}, "--tmpfs=": {"", "t", "/t,x=1", "/"},
		"--device=":      {"", "x", "/dev/nosuch", "/etc/passwd", "/dev/null:/etc/x", "/dev/null:/dev/x:q", "vendor.com/class=nosuch", "/dev/../etc/passwd"},
		"--sysctl=":      {"", "x", "=1", "kernel.core_pattern=x", "kernel/core_pattern=x", "net/../kernel/core_pattern=x", "kernel.hostname=x", "vm.swappiness=1", "net.nosuch=1", "net..x=1"},
		"--volume=":      {"", "v", "v,kind=x", "v,kind=host", "v,kind=host,source=x", "v,kind=host,source=/,readOnly=maybe", "v,kind=empty,mode=9", "v,kind=empty,uid=-1", "v,kind=host,source=/,mode=0755", "v,kind=empty,source=/x", "v,source=/x,source=/y,kind=host", "v,kind=tmpfs,size=-1"},
		"--mount=":       {"", "volume=v", "target=/v", "volume=nosuch,target=/v", "volume=v,target=v", "volume=v,target=/v,x=1", "volume=v,target=/v,readOnly=2"},
		"--seccomp=":     {"", "mode=x,read", "mode=retain", "read", "mode=remove,errno=ENOSUCH,read", "mode=retain,@nosuch/x", "mode=retain,mode=remove,read"},
		"--caps-retain=": {"", "CAP_NOSUCH", "all", "-1", "CAP_SYS_ADMIN CAP_CHOWN"}, "--caps-remove=": {"", "CAP_NOSUCH"},
		"--user=": {"nosuch", "-1", "4294967296", "4294967295", "1 2"}, "--group=": {"nosuch", "-1", "4294967296"}, "--working-dir=": {"x", "../x", "/nosuch/dir"},
		"--hostname=": {strings.Repeat("a", 65), "a b", "a/b"}, "--isolator=": {
			"", "x", "=1", "resource/memory", "resource/memory=", "resource/memory={", "resource/memory=1", "resource/memory=null", `resource/memory={"limit":-1}`, `resource/memory={"limit":"16Mi","swap":"1"}`,
			`resource/memory={"limit":["16Mi"]}`, `resource/cpu={"limit":true}`, `os/linux/no-new-privileges="yes"`, `os/linux/oom-score-adj="1"`, `os/linux/cpu-shares=1`, `os/linux/capabilities-retain-set={"set":"CAP_CHOWN"}`,
			`os/linux/capabilities-retain-set={"set":[1]}`, `os/linux/capabilities-retain-set={"set":[]}`, `os/linux/seccomp-retain-set={"set":["read"],"errno":1}`, `os/linux/seccomp-remove-set={"sets":["read"]}`,
			`os/linux/selinux-context={"user":"u"}`, `os/linux/selinux-context={"user":"u:v","role":"r","type":"t","level":"l"}`, `os/linux/apparmor-profile={}`, `os/linux/apparmor-profile={"profile":"x\ny"}`,
			`rkt/pids=-1`, `rkt/pids="1"`, `rkt/rlimits={"nofile":1}`, `rkt/rlimits={"nofile":{"soft":1,"hard":2,"firm":3}}`, `rkt/cpuset={"cpus":"0","cpu":"1"}`, `rkt/io-limits={"all":{"rbps":-1}}`, `rkt/hugetlb=[]`,
			`resource/block-bandwidth={"limit":"1M"}`, `resource/block-iops={"default":true,"request":"1"}`, `resource/network-bandwidth={"default":true}`,
		},
	} {
		if only == nil {
			only = numbers
		}
		for _, v := range only {
			refusedAs(t, flag+v, h.rkt("run", "--net=none", "example.com/busybox:1.0", flag+v, "--volume=v,kind=empty", "--exec=/bin/echo", "--", "ran"))
		}
	}
	if res := h.rkt("run", "--net=none", "example.com/busybox:1.0", "--volume=v,kind=empty", "--exec=/bin/echo", "--", "ran"); res.code != 0 || res.stdout != "ran\n" {
		t.Errorf("beside them: %s", res)
	}
}

// TestHostileManifests: so are pod manifests, with the same in them and more.
func TestHostileManifests(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.must("fetch", "--insecure-options=image", image("busybox.aci"))
	id := strings.TrimSpace(h.must("image", "list", "--no-legend", "--full", "--fields=id"))
	file := filepath.Join(t.TempDir(), "pod.json")
	run := func(manifest string) result {
		if err := os.WriteFile(file, []byte(manifest), 0o644); err != nil {
			t.Fatal(err)
		}
		return h.rkt("run", "--net=none", "--pod-manifest="+file)
	}
	pod := func(app, ra, top string) string {
		return `{"acVersion":"0.8.11","acKind":"PodManifest","apps":[{"name":"x","image":{"id":"` + id + `"},"app":{"exec":["/bin/echo","ran"],"user":"0","group":"0"` + app + `}` + ra + `}]` + top + `}`
	}
	isolators := func(list string) string { return pod(`,"isolators":[`+list+`]`, "", "") }
	for what, manifest := range map[string]string{
		"nothing": "", "no JSON": "{", "a list": "[]", "null": "null", "a number": "1", "deep": strings.Repeat("[", 100000), "another kind": strings.Replace(pod("", "", ""), "PodManifest", "ImageManifest", 1),
		"no apps":              `{"acVersion":"0.8.11","acKind":"PodManifest","apps":[]}`,
		"apps as a word":       `{"acVersion":"0.8.11","acKind":"PodManifest","apps":"x"}`,
		"a version":            strings.Replace(pod("", "", ""), "0.8.11", "nonsense", 1),
		"name":                 strings.Replace(pod("", "", ""), `"name":"x"`, `"name":"../x"`, 1),
		"image":                strings.Replace(pod("", "", ""), id, "sha512-0", 1),
		"exec":                 strings.Replace(pod("", "", ""), `["/bin/echo","ran"]`, `"/bin/echo"`, 1),
		"no exec":              strings.Replace(pod("", "", ""), `["/bin/echo","ran"]`, `[]`, 1),
		"user":                 strings.Replace(pod("", "", ""), `"user":"0"`, `"user":0`, 1),
		"user's number":        strings.Replace(pod("", "", ""), `"user":"0"`, `"user":"99999999999"`, 1),
		"groups":               pod(`,"supplementaryGIDs":[-1]`, "", ""),
		"groups as words":      pod(`,"supplementaryGIDs":["0"]`, "", ""),
		"working folder":       pod(`,"workingDirectory":"x"`, "", ""),
		"environment":          pod(`,"environment":[{"name":"1=2","value":""}]`, "", ""),
		"handler":              pod(`,"eventHandlers":[{"name":"nosuch","exec":["/x"]}]`, "", ""),
		"mount point":          pod(`,"mountPoints":[{"name":"m","path":"m"}]`, "", ""),
		"mount":                pod("", `,"mounts":[{"volume":"nosuch","path":"/v"}]`, ""),
		"mount's path":         pod("", `,"mounts":[{"volume":"v","path":"/proc"}]`, `,"volumes":[{"name":"v","kind":"empty"}]`),
		"volume":               pod("", `,"mounts":[{"volume":"v","path":"/v"}]`, `,"volumes":[{"name":"v","kind":"nosuch"}]`),
		"volume's source":      pod("", `,"mounts":[{"volume":"v","path":"/v"}]`, `,"volumes":[{"name":"v","kind":"host","source":"etc"}]`),
		"volume's mode":        pod("", `,"mounts":[{"volume":"v","path":"/v"}]`, `,"volumes":[{"name":"v","kind":"empty","mode":493}]`),
		"volume's owner":       pod("", `,"mounts":[{"volume":"v","path":"/v"}]`, `,"volumes":[{"name":"v","kind":"empty","uid":-1}]`),
		"volume twice":         pod("", "", `,"volumes":[{"name":"v","kind":"empty"},{"name":"v","kind":"empty"}]`),
		"port":                 pod(`,"ports":[{"name":"p","protocol":"tcp","port":65536}]`, "", ""),
		"ports":                pod(`,"ports":[{"name":"p","protocol":"tcp","port":65535,"count":2}]`, "", `,"ports":[{"name":"p","hostPort":1}]`),
		"host's port":          pod(`,"ports":[{"name":"p","protocol":"tcp","port":80}]`, "", `,"ports":[{"name":"p","hostPort":0}]`),
		"annotation":           pod("", `,"annotations":[{"name":"rkt/lifecycle/restart","value":"nosuch"}]`, ""),
		"memory":               isolators(`{"name":"resource/memory","value":{"limit":"-16Mi"}}`),
		"memory as a list":     isolators(`{"name":"resource/memory","value":[1]}`),
		"huge memory":          isolators(`{"name":"resource/memory","value":{"limit":"1e90"}}`),
		"an isolator's key":    isolators(`{"name":"resource/memory","value":{"limit":"16Mi","limmit":"1Gi"}}`),
		"no value":             isolators(`{"name":"rkt/pids"}`),
		"no name":              isolators(`{"value":1}`),
		"a name's form":        isolators(`{"name":"../x","value":1}`),
		"capabilities":         isolators(`{"name":"os/linux/capabilities-retain-set","value":{"set":["CAP_NOSUCH"]}}`),
		"two sets":             isolators(`{"name":"os/linux/capabilities-retain-set","value":{"set":["CAP_KILL"]}},{"name":"os/linux/capabilities-remove-set","value":{"set":["CAP_KILL"]}}`),
		"a call":               isolators(`{"name":"os/linux/seccomp-retain-set","value":{"set":["nosuch"]}}`),
		"an app's for the pod": pod("", "", `,"isolators":[{"name":"os/linux/no-new-privileges","value":true}]`),
		"sysctl":               pod("", "", `,"isolators":[{"name":"os/unix/sysctl","value":{"kernel.core_pattern":"|/x"}}]`),
		"sysctl's value":       pod("", "", `,"isolators":[{"name":"os/unix/sysctl","value":{"net.core.somaxconn":1}}]`),
	} {
		refusedAs(t, what, run(manifest))
	}
	if res := run(pod("", "", "")); res.code != 0 || res.stdout != "ran\n" {
		t.Errorf("beside them: %s", res)
	}
}
