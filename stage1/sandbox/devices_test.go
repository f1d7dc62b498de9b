package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/stage1/plan"
)

const gpuSpec = `{"cdiVersion":"0.6.0","kind":"vendor.com/gpu",
"containerEdits":{"env":["ALL=1"],"additionalGids":[44]},
"devices":[
 {"name":"0","containerEdits":{"env":["PATH=/gpu"],"deviceNodes":[{"path":"/dev/gpu0","hostPath":"/dev/null","permissions":"rw","uid":7}],
  "mounts":[{"hostPath":"LIB","containerPath":"/usr/lib/gpu","options":["ro","bind"]}]}},
 {"name":"made","containerEdits":{"deviceNodes":[{"path":"/dev/made","type":"c","major":240,"minor":3,"fileMode":432}]}},
 {"name":"hook","containerEdits":{"hooks":[{"hookName":"createContainer","path":"/bin/x"}]}}]}`

func request(t *testing.T, s string) podspec.Device {
	t.Helper()
	d, err := podspec.ParseDevice(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDevices(t *testing.T) {
	f := newFixture(t)
	specs, lib, nodes := f.TempDir(), f.layer("libgpu.so=lib"), f.TempDir()
	f.must(os.WriteFile(filepath.Join(specs, "gpu.json"), []byte(strings.ReplaceAll(gpuSpec, "LIB", lib)), 0o644))
	f.must(os.Mkdir(filepath.Join(nodes, "by"), 0o755))
	f.must(unix.Mknod(filepath.Join(nodes, "by/null"), unix.S_IFCHR|0o640, int(unix.Mkdev(1, 3))))
	f.must(os.Chown(filepath.Join(nodes, "by/null"), 8, 9))
	app := plan.App{Name: "web", Cwd: "/", Lowers: []string{f.layer("x=1")}, Env: []string{"PATH=/bin"}, Devices: []plan.Device{{Path: "/dev/null", Type: 'c', Major: 1, Minor: 3}}, DeviceRequests: []podspec.Device{
		request(t, "vendor.com/gpu=0"), request(t, "vendor.com/gpu=made"), request(t, "/dev/zero:/dev/zero2:r"), request(t, nodes+":/dev/many:rw"),
	}}
	p, err := Open(Config{Plan: plan.Pod{Apps: []plan.App{app}}, Dir: f.dir, RunDir: f.runDir, CDIDirs: []string{specs}})
	f.must(err)
	defer func() { f.must(p.Close()) }()
	root, err := p.MountRootFS(app, f.attempt("web", 0))
	f.must(err)
	la, err := p.Prepare(app, root)
	f.must(err)
	for _, want := range []plan.Device{
		{Path: "/dev/gpu0", Type: 'c', Major: 1, Minor: 3, Mode: 0o666, UID: 7, HostPath: "/dev/null", Access: "rw"},
		{Path: "/dev/made", Type: 'c', Major: 240, Minor: 3, Mode: 0o660, HostPath: "/dev/made", Access: "rw"},
		{Path: "/dev/zero2", Type: 'c', Major: 1, Minor: 5, Mode: 0o666, HostPath: "/dev/zero", Access: "r"},
		{Path: "/dev/many/by/null", Type: 'c', Major: 1, Minor: 3, Mode: 0o640, UID: 8, GID: 9, HostPath: nodes + "/by/null", Access: "rw"},
	} {
		if !slices.Contains(la.Devices, want) {
			t.Errorf("%+v is not among %+v", want, la.Devices)
		}
	}
	if read(t, root, "usr/lib/gpu/libgpu.so") != "lib" || os.WriteFile(filepath.Join(root, "usr/lib/gpu/x"), nil, 0o600) == nil {
		t.Error("the device's files are not there, or writable")
	}
	if !slices.Contains(la.Env, "PATH=/gpu") || slices.Contains(la.Env, "PATH=/bin") || !slices.Contains(la.Env, "ALL=1") || !slices.Contains(la.Gids, 44) {
		t.Errorf("environment %q, groups %v", la.Env, la.Gids)
	}
}

func TestDeviceErrors(t *testing.T) {
	specs := t.TempDir()
	for name, text := range map[string]string{"gpu.json": gpuSpec, "broken.json": "{", "old.yaml": "cdiVersion: 0.6.0"} {
		if err := os.WriteFile(filepath.Join(specs, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for device, want := range map[string]string{
		"vendor.com/gpu=1":       "device vendor.com/gpu=1: in no file",
		"vendor.com/gpu=hook":    "hooks",
		"vendor.com/gpu=0":       `mount of "LIB"`,
		"/dev/nosuch":            "device /dev/nosuch: not there",
		"/etc/passwd:/dev/x":     "no device on the host",
		"/etc:/dev/x":            "a folder without devices",
		"/dev/zero:/dev/null":    "there is one by that name already",
		"/dev/zero:/dev/pts/x":   "the executor's",
		"/dev/zero:/dev/shm/x:r": "the executor's",
	} {
		f := newFixture(t)
		app := plan.App{Name: "web", Devices: []plan.Device{{Path: "/dev/null"}}, DeviceRequests: []podspec.Device{request(t, device)}}
		_, err := Open(Config{Plan: plan.Pod{Apps: []plan.App{app}}, Dir: f.dir, RunDir: f.runDir, CDIDirs: []string{specs}})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "app web") {
			t.Errorf("%s: got %v, want %q", device, err, want)
		}
	}
}

func TestSysctl(t *testing.T) {
	own := map[string]string{"net/core/somaxconn": "", "kernel/msgmax": "", "kernel/domainname": ""}
	for key := range own {
		own[key] = read(t, "/proc/sys", key)
	}
	f := newFixture(t)
	p := f.open(plan.Pod{Sysctls: []plan.Sysctl{{Key: "net/core/somaxconn", Value: "77"}, {Key: "kernel/msgmax", Value: "1234"}, {Key: "kernel/domainname", Value: "example.com"}}})
	f.must(startInit(soon(t), p))
	defer func() { f.must(p.KillInit()); f.must(p.WaitInit(soon(t))) }()
	out, err := inNamespaces(p.Namespaces().Net, p.Namespaces().UTS, "cat /proc/sys/net/core/somaxconn /proc/sys/kernel/domainname")
	if err != nil || out != "77\nexample.com\n" {
		t.Errorf("inside: %q %v", out, err)
	}
	for key, want := range own {
		if got := read(t, "/proc/sys", key); got != want {
			t.Errorf("the host's %s is %q now, was %q", key, got, want)
		}
	}
	for _, c := range []struct {
		s    plan.Sysctl
		want string
	}{
		{plan.Sysctl{Key: "net/nosuch", Value: "1"}, "sysctl net.nosuch: this kernel has none"},
		{plan.Sysctl{Key: "net/core/somaxconn", Value: "x"}, "sysctl net.core.somaxconn=x: invalid argument"},
		{plan.Sysctl{Key: "net/core", Value: "x"}, "can't be written"},
	} {
		g := newFixture(t)
		bad := g.open(plan.Pod{Sysctls: []plan.Sysctl{c.s}})
		if err := startInit(soon(t), bad); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %q", c.s, err, c.want)
		}
	}
}
