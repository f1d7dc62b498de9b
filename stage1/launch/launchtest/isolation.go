package launchtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// status picks fields of a /proc/<pid>/status.
func status(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(line, ":"); ok {
			all[k] = strings.TrimSpace(v)
		}
	}
	return all
}

// testCaps is what the test app's capabilities are in /proc/<pid>/status:
// CHOWN 0, KILL 5, SETGID 6, SETUID 7, NET_BIND_SERVICE 10, MKNOD 27.
const testCaps = "00000000080004e1"

func testPrivileges(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	for _, c := range []struct {
		uid, gid int
		gids     []int
		want     map[string]string
	}{
		{0, 0, nil, map[string]string{
			"Uid": "0\t0\t0\t0", "Gid": "0\t0\t0\t0", "Groups": "", "CapBnd": testCaps, "CapPrm": testCaps,
			"CapEff": testCaps, "CapInh": "0000000000000000", "CapAmb": "0000000000000000",
		}},
		{1000, 1001, []int{1002, 1003}, map[string]string{
			"Uid": "1000\t1000\t1000\t1000", "Gid": "1001\t1001\t1001\t1001", "Groups": "1002 1003", "CapBnd": testCaps,
			"CapPrm": "0000000000000000", "CapEff": "0000000000000000", "CapInh": "0000000000000000",
		}},
	} {
		app := p.app("/bin/cat", "/proc/self/status")
		app.UID, app.GID, app.Gids = c.uid, c.gid, c.gids
		r, err := p.run(app)
		p.must(err)
		got := status(r.stdout)
		c.want["NoNewPrivs"] = "1"
		for k, v := range c.want {
			if got[k] != v {
				t.Errorf("uid %d: %s is %q, not %q", c.uid, k, got[k], v)
			}
		}
	}
}

// testFileCapabilities: without new privileges the capabilities of the app's
// own program give it none, and a user may execute no file of root's alone.
func testFileCapabilities(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	program := filepath.Join(p.rootfs, "bin/busybox")
	// CAP_KILL, effective; version 2 has two words of each set.
	file := []byte{1, 0, 0, 2, 1 << unix.CAP_KILL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	p.must(unix.Setxattr(program, "security.capability", file, 0))
	for nnp, want := range map[bool]string{true: "0000000000000000", false: "0000000000000020"} {
		app := p.app("/bin/busybox", "cat", "/proc/self/status")
		app.UID, app.NoNewPrivs = 1000, nnp
		r, err := p.run(app)
		p.must(err)
		if got := status(r.stdout); got["CapEff"] != want || got["CapPrm"] != want {
			t.Errorf("no new privileges %v: %s and %s, want %s", nnp, got["CapEff"], got["CapPrm"], want)
		}
	}
	p.must(unix.Removexattr(program, "security.capability"))
	p.must(os.Chmod(program, 0o700))
	app := p.app("/bin/busybox", "true")
	app.UID = 1000
	r, err := p.run(app)
	if failed, ok := errors.AsType[*launch.StartError](err); !ok || failed.ExitCode != 126 {
		t.Errorf("a program of root's alone: %v, %v", r, err)
	}
}

func testSeccomp(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	errno := uint(33) // EDOM, which chown never gives by itself
	for _, nnp := range []bool{true, false} {
		app := p.app("/bin/sh", "-c", "cat /proc/self/status; exec chown 1:1 /tmp")
		app.NoNewPrivs = nnp
		app.Seccomp = &specs.LinuxSeccomp{
			DefaultAction: specs.ActAllow,
			Syscalls: []specs.LinuxSyscall{{
				Names: []string{"chown", "fchownat", "lchown"}, Action: specs.ActErrno, ErrnoRet: &errno,
			}},
		}
		r, err := p.run(app)
		if errs.Is(err, errs.Unsupported) && strings.Contains(err.Error(), "built without seccomp") {
			continue
		}
		p.must(err)
		if got := status(r.stdout)["Seccomp"]; got != "2" || !strings.Contains(r.stderr, "Numerical argument out of domain") {
			t.Errorf("no new privileges %v: mode %q, %v", nnp, got, r)
		}
	}
}

func testPaths(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	for script, want := range map[string]string{
		// Masked: a file reads as empty, a folder shows nothing.
		"wc -c </proc/keys":     "0",
		"ls /sys/firmware":      "",
		"stat -c %t /proc/keys": "1",
		"echo x 2>/dev/null >/proc/sys/kernel/core_pattern || echo refused":  "refused",
		"echo x 2>/dev/null >/proc/irq/default_smp_affinity || echo refused": "refused",
		"mkdir /sys/fs/x 2>/dev/null || echo refused":                        "refused",
		"mkdir /sys/fs/cgroup/x 2>/dev/null || echo refused":                 "refused",
		"mkdir /sys/fs/cgroup/devices/x 2>/dev/null || echo refused":         "refused",
		"cat /proc/self/cgroup | cut -d: -f3 | sort -u":                      "/",
		"echo x >/dev/null && head -c2 /dev/zero | wc -c":                    "2",
		"hostname":                              podHostname,
		"ls -d /proc/[0-9]* | grep -c /proc/1$": "1",
		"cat /sys/class/net/lo/operstate":       "down",
		"pwd; umask":                            "/\n0022",
	} {
		if got := p.sh(script); got != want {
			t.Errorf("%s: %q, not %q", script, got, want)
		}
	}
}

func testMounts(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	host := t.TempDir()
	p.must(os.WriteFile(filepath.Join(host, "file"), []byte("host\n"), 0o644))
	p.must(os.Mkdir(filepath.Join(host, "sub"), 0o755))
	p.must(unix.Mount("tmpfs", filepath.Join(host, "sub"), "tmpfs", 0, ""))
	defer func() { p.must(unix.Unmount(filepath.Join(host, "sub"), 0)) }()
	app := p.app("/bin/sh", "-c", `
		cat /data/file /etc/one
		touch /data/new || echo ro; touch /data/sub/new || echo sub ro
		mkdir /rw/made /rw/sub/made; ls /flat/sub`)
	app.Mounts = append(app.Mounts,
		plan.Mount{Type: "bind", Source: host, Target: "/data", Options: []string{"ro"}, Recursive: true},
		plan.Mount{Type: "bind", Source: host, Target: "/rw", Recursive: true},
		plan.Mount{Type: "bind", Source: host, Target: "/flat"},
		plan.Mount{Type: "bind", Source: host + "/file", Target: "/etc/one"},
	)
	r, err := p.run(app)
	p.must(err)
	if r.stdout != "host\nhost\nro\nsub ro\n" {
		t.Error(r)
	}
	for _, made := range []string{"made", "sub/made"} {
		if _, err := os.Stat(filepath.Join(host, made)); err != nil {
			t.Error(err)
		}
	}
}

// testFlatMounts mounts without what is mounted below, which every kernel can
// do read-only.
func testFlatMounts(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	host := t.TempDir()
	p.must(os.WriteFile(filepath.Join(host, "file"), []byte("host\n"), 0o644))
	app := p.app("/bin/sh", "-c", `
		cat /data/file /etc/one
		touch /data/new || echo ro; echo x >/etc/one || echo file ro
		touch /rw/new; grep -c " /rw .* rw,nosuid,nodev" /proc/self/mounts; ! grep " /rw " /proc/self/mountinfo | grep -e shared: -e master:`)
	app.Mounts = append(app.Mounts,
		plan.Mount{Type: "bind", Source: host, Target: "/data", Options: []string{"ro"}},
		plan.Mount{Type: "bind", Source: host, Target: "/rw", Options: []string{"nosuid", "nodev", "private"}},
		plan.Mount{Type: "bind", Source: host + "/file", Target: "/etc/one", Options: []string{"ro"}},
	)
	r, err := p.run(app)
	p.must(err)
	if r.stdout != "host\nhost\nro\nfile ro\n1\n" {
		t.Error(r)
	}
	if _, err := os.Stat(filepath.Join(host, "new")); err != nil {
		t.Error(err)
	}
}

// testNullDevice gives an app no streams: what it has then is not the host's
// node, of which it could change the owner and the mode.
func testNullDevice(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	const script = `for n in 0 1; do [ "$(stat -L -c %d:%i /proc/$$/fd/$n)" = "$(stat -c %d:%i /dev/null)" ] || echo $n is another >&2; done`
	app := p.app("/bin/sh", "-c", "exec >/dev/null; "+script)
	r, err := p.run(app)
	p.must(err)
	if r.exit.Status != 0 || r.stderr != "" {
		t.Error(r)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	p.must(err)
	defer null.Close()
	r, err = p.output(func(s launch.Stdio) (launch.Process, error) {
		s.Stdin, s.Stdout = null, null
		app := p.app("/bin/sh", "-c", script)
		app.Stdio = s
		return p.launcher.Start(t.Context(), app)
	})
	p.must(err)
	if r.exit.Status != 0 || r.stderr != "" {
		t.Error(r)
	}
}

// testLinks gives mounts targets, and the app a working folder, that the image
// has made symbolic links of.
func testLinks(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	volume, outside := t.TempDir(), t.TempDir()
	p.must(os.WriteFile(filepath.Join(volume, "file"), nil, 0o644))
	for link, target := range map[string]string{
		"absolute": outside,
		"relative": "../../../../../../../../.." + outside,
		"second":   "absolute",
		"loop":     "loop",
		"proc2":    "proc/1/root",
	} {
		p.must(os.Symlink(target, filepath.Join(p.rootfs, link)))
	}
	for _, link := range []string{"absolute", "relative", "second", "loop", "proc2"} {
		app := p.app("/bin/sh", "-c", "pwd; ls /"+link+"/v")
		app.Cwd = "/" + link + "/cwd"
		app.Mounts = append(app.Mounts, plan.Mount{Type: "bind", Source: volume, Target: "/" + link + "/v"})
		r, err := p.run(app)
		switch link {
		case "loop", "proc2":
			if err == nil {
				t.Errorf("%s: %v", link, r)
			} else if !strings.HasPrefix(err.Error(), "set up app web: mount "+volume+" at /"+link+"/v: ") {
				t.Errorf("%s: %v", link, err)
			}
		default:
			if err != nil || r.stdout != outside+"/cwd\nfile\n" {
				t.Errorf("%s: %v, %v", link, r, err)
			}
		}
		if left, _ := os.ReadDir(outside); len(left) != 0 {
			t.Errorf("%s: outside of the rootfs: %v", link, left)
		}
	}
	// A link to what is not there yet.
	p.must(os.Symlink("/var/lib/later", filepath.Join(p.rootfs, "dangling")))
	app := p.app("/bin/ls", "/var/lib/later")
	app.Mounts = append(app.Mounts, plan.Mount{Type: "bind", Source: volume, Target: "/dangling"})
	if r, err := p.run(app); err != nil || r.stdout != "file\n" {
		t.Errorf("dangling: %v, %v", r, err)
	}
}

func testReadOnlyRootFS(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	app := p.app("/bin/sh", "-c", "touch /x 2>&1; touch /dev/shm/x && echo fine")
	app.ReadOnlyRootFS = true
	r, err := p.run(app)
	p.must(err)
	if r.stdout != "touch: /x: Read-only file system\nfine\n" {
		t.Error(r)
	}
}

func testDescriptors(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	// Opened without close-on-exec, as by a part of the program that forgot.
	fd, err := unix.Dup(0)
	p.must(err)
	defer unix.Close(fd)
	if got := p.sh("exec ls /proc/self/fd"); got != "0\n1\n2\n3" { // 3 is ls's own
		t.Errorf("descriptors in an app: %q", got)
	}
}

// openable is the number of a device that the host lets this process open and
// that is on no app's list, as mknod(1) has it. A machine that is itself
// confined need not let it open every one.
func openable(t *testing.T) string {
	t.Helper()
	node := filepath.Join(t.TempDir(), "node")
	for _, d := range [][2]uint32{{10, 200}, {10, 229}, {10, 237}, {1, 11}} {
		if err := unix.Mknod(node, unix.S_IFCHR|0o666, int(unix.Mkdev(d[0], d[1]))); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Open(node, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		_ = os.Remove(node)
		if err == nil {
			unix.Close(fd)
			return fmt.Sprintf("c %d %d", d[0], d[1])
		}
	}
	t.Fatal("no device to try with")
	return ""
}

func testDevices(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	device := openable(t)
	const refused = "/bin/sh: can't open /tmp/node: Operation not permitted\n"
	app := p.app("/bin/sh", "-c", "mknod /tmp/node "+device+"; </tmp/node")
	r, err := p.run(app)
	p.must(err)
	if r.stderr != refused {
		t.Errorf("%s: not refused: %v", device, r)
	}
	// Without a rule for nodes of any device there is not even that.
	app = p.app("/bin/mknod", "/tmp/other", "c", "1", "3")
	app.Devices = app.Devices[:1:1]
	app.Devices[0].Access = "rw"
	r, err = p.run(app)
	p.must(err)
	if r.exit.Status == 0 || !strings.Contains(r.stderr, "Operation not permitted") {
		t.Errorf("mknod: not refused: %v", r)
	}
	app = p.app("/bin/sh", "-c", "</tmp/node && echo opened")
	app.AllDevices = true
	r, err = p.run(app)
	if err != nil || r.stdout != "opened\n" {
		t.Errorf("%s with all devices: %v, %v", device, r, err)
	}
}

func testHostNet(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	want, err := os.Readlink("/proc/self/ns/net")
	p.must(err)
	app := p.app("/bin/readlink", "/proc/self/ns/net")
	app.Namespaces.Net = -1
	r, err := p.run(app)
	if err != nil || r.stdout != want+"\n" {
		t.Errorf("%v, %v, not %s", r, err, want)
	}
}

// testKeyring looks for a session keyring of the app's own that has no name
// by which another could join it.
func testKeyring(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	app := p.app("/bin/cat", "/proc/keys")
	app.MaskedPaths = nil
	r, err := p.run(app)
	p.must(err)
	if !strings.Contains(r.stdout, "  _ses: ") || strings.Contains(r.stdout, "  _ses.") {
		t.Error(r)
	}
}
