package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/tests/images"
)

// busybox is the layer that shell scripts need.
func busybox(t *testing.T) []images.Entry {
	t.Helper()
	entries, err := images.Busybox("/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// writeImage writes an OCI layout of layers above the busybox layer.
func writeImage(t *testing.T, name string, layers ...[]images.Entry) string {
	t.Helper()
	return writeLayers(t, name, append([][]images.Entry{busybox(t)}, layers...)...)
}

// writeLayers writes an OCI layout of just these layers.
func writeLayers(t *testing.T, name string, layers ...[]images.Entry) string {
	t.Helper()
	var tars [][]byte
	for _, entries := range layers {
		data, err := images.Tar(entries)
		if err != nil {
			t.Fatal(err)
		}
		tars = append(tars, data)
	}
	files, err := images.OCI(images.Image{Name: name, Layers: tars})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "layout")
	if err := files.WriteDir(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// run runs a shell script in one app of an image and returns how it ended.
func (h *host) run(img string, flags []string, script string) result {
	h.t.Helper()
	args := append([]string{"run", "--insecure-options=image", img, "--exec=/bin/sh"}, flags...)
	return h.rkt(append(args, "--", "-c", script)...)
}

// TestMountTargets: a volume's target goes through symbolic links of the image
// and stays inside the root file system.
func TestMountTargets(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	volume, canary := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(volume, "mark"), []byte("volume\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	up := strings.Repeat("../", 20)
	img := writeImage(t, "example.com/links:1", []images.Entry{
		images.Dir("real", 0o755), images.Dir("real/sub", 0o755),
		images.Symlink("abs", "/real/sub"), images.Symlink("rel", "real/sub"),
		images.Symlink("dangling", "/not/there/yet"), images.Symlink("danglingrel", "not/there/rel"),
		images.Symlink("out", canary), images.Symlink("outrel", up+canary[1:]),
		images.Symlink("loop1", "loop2"), images.Symlink("loop2", "loop1"),
		images.Symlink("self", "."), images.Symlink("chain", "abs"),
		images.File("file", 0o644, "image\n"), images.Symlink("tofile", "file"),
		images.Symlink("proc-out", "/proc/1/root/"),
	})
	cases := []struct {
		target, seen string // where the app looks
		ok           bool
	}{
		{"/real/sub", "/real/sub", true},
		{"/abs", "/real/sub", true},
		{"/rel", "/real/sub", true},
		{"/chain", "/real/sub", true},
		{"/self/self/real", "/real", true},
		{"/dangling", "/not/there/yet", true},
		{"/danglingrel", "/not/there/rel", true},
		{"/out", canary, true},
		{"/outrel", canary, true},
		{"/new/deep/er", "/new/deep/er", true},
		{"/loop1", "", false},
		{"/loop1/x", "", false},
	}
	for _, c := range cases {
		res := h.run(img, []string{"--volume=v,kind=host,source=" + volume, "--mount=volume=v,target=" + c.target}, "cat "+c.seen+"/mark")
		if c.ok && (res.code != 0 || res.stdout != "volume\n") || !c.ok && res.code != 254 {
			t.Errorf("%s: %s", c.target, res)
		}
	}
	left, err := os.ReadDir(canary)
	if err != nil || len(left) > 0 {
		t.Errorf("the host's folder was changed: %v %v", left, err)
	}
	// The working folder goes the same way, and is never made.
	for dir, code := range map[string]int{"/abs": 0, "/rel": 0, "/chain": 0, "/dangling": 254, "/loop1": 254, "/out": 254, "/outrel": 254, "/file": 254, "/tofile": 254} {
		res := h.run(img, []string{"--working-dir=" + dir}, "pwd -P")
		if res.code != code || code == 0 && res.stdout != "/real/sub\n" {
			t.Errorf("working folder %s: %s", dir, res)
		}
	}
	h.must("gc", "--grace-period=0s")
}

// TestFileVolume: a single file, read-only and read-write.
func TestFileVolume(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte("host\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, ro := range []bool{true, false} {
		res := h.run(image("busybox.aci"), []string{fmt.Sprintf("--volume=v,kind=host,source=%s,readOnly=%v", file, ro), "--mount=volume=v,target=/etc/mine"}, "cat /etc/mine; echo app >/etc/mine")
		if !strings.HasPrefix(res.stdout, "host\n") || (res.code == 0) == ro {
			t.Errorf("readOnly=%v: %s", ro, res)
		}
	}
	if data, _ := os.ReadFile(file); string(data) != "app\n" {
		t.Errorf("the file has %q", data)
	}
}

// TestNothingOfTheHost: what an app can see and do by default.
func TestNothingOfTheHost(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	// CAP_SYS_PTRACE alone in its pod sees an empty root through PID 1.
	res := h.run(image("busybox.aci"), []string{"--caps-retain=CAP_SYS_PTRACE"}, "ls -A /proc/1/root/; ls -A /proc/1/cwd/; echo end")
	if res.code != 0 || res.stdout != "end\n" {
		t.Errorf("through /proc/1: %s", res)
	}
	cases := map[string]string{
		"pid 1":            `! readlink /proc/1/exe && test $(ls -d /proc/[0-9]* | wc -l) -le 8`,
		"default caps":     `grep -q 'CapBnd:.00000000a80425fb' /proc/self/status`,
		"filter":           `grep -q 'Seccomp:.2' /proc/self/status`,
		"no mount":         `! mount -t tmpfs none /tmp 2>/dev/null`,
		"no mknod of disk": `! mknod /tmp/d b 254 0 2>/dev/null`,
		"null is made":     `mknod /tmp/n c 1 3 && echo x >/tmp/n`,
		"sysctl":           `! echo x 2>/dev/null >/proc/sys/kernel/core_pattern`,
		"sysrq":            `! echo x 2>/dev/null >/proc/sysrq-trigger`,
		"sys":              `! mkdir /sys/fs/cgroup/x 2>/dev/null`,
		"kcore":            `test "$(head -c 10 /proc/kcore 2>/dev/null | wc -c)" = 0`,
		"only three files": `test "$(ls /proc/self/fd | wc -l)" -le 4`,
		"cgroup root":      `grep -q '^0::/$' /proc/self/cgroup`,
		"loopback up":      `ping -c 1 127.0.0.1 >/dev/null`,
		"hosts":            `grep -q localhost /etc/hosts`,
		"hostname":         `test "$(cat /etc/hostname)" = "$(hostname)"`,
		"pts":              `test -c /dev/pts/ptmx && test -c /dev/tty && test -c /dev/console`,
		"shm":              `echo x >/dev/shm/x && test "$(stat -c %a /dev/shm)" = 1777`,
		"mtab":             `test -r /proc/mounts`,
	}
	var script strings.Builder
	for name, test := range cases {
		fmt.Fprintf(&script, "( %s ) || echo 'failed: %s'\n", test, name)
	}
	res = h.run(image("busybox.aci"), nil, script.String())
	if res.code != 0 || res.stdout != "" {
		t.Errorf("%s", res)
	}
}

// TestNetHost shares the host's network and none other.
func TestNetHost(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for flag, same := range map[string]bool{"--net=host": true, "--net=none": false} {
		res := h.rkt("run", "--insecure-options=image", flag, image("busybox.aci"), "--exec=/bin/readlink", "--", "/proc/self/ns/net")
		if res.code != 0 || (strings.TrimSpace(res.stdout) == own) != same {
			t.Errorf("%s: host %s, %s", flag, own, res)
		}
	}
}

// TestLayerParents: a layer whose tar lacks the entries of folders that a lower
// layer has leaves them as they are.
func TestLayerParents(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	img := writeImage(t, "example.com/parents:1",
		[]images.Entry{images.Dir("home", 0o755), images.Dir("home/u", 0o700).Owned(1234, 567)},
		[]images.Entry{images.File("tmp/x", 0o644, ""), images.File("root/x", 0o600, ""), images.File("home/u/x", 0o644, "").Owned(1234, 567)},
	)
	res := h.run(img, nil, "stat -c '%n %a %u:%g' /tmp /root /home/u")
	if want := "/tmp 1777 0:0\n/root 700 0:0\n/home/u 700 1234:567\n"; res.code != 0 || res.stdout != want {
		t.Errorf("%s", res)
	}
}

// TestStackedLayers: whiteouts, opaque folders, replaced kinds, and a layer twice.
func TestStackedLayers(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	one := []images.Entry{
		images.Dir("d", 0o755), images.File("d/a", 0o644, "a1\n"), images.File("d/b", 0o644, "b1\n"),
		images.Dir("o", 0o755), images.File("o/old", 0o644, ""), images.File("was-file", 0o644, ""), images.Dir("was-dir", 0o755), images.File("was-dir/x", 0o644, ""),
		images.Symlink("was-link", "/d"), images.File("target", 0o644, "linked\n"),
	}
	two := []images.Entry{
		images.Whiteout("d/a"), images.Dir("o", 0o755), images.Opaque("o"), images.File("o/new", 0o644, ""),
		images.Dir("was-file", 0o755), images.File("was-file/in", 0o644, ""), images.File("was-dir", 0o644, "f\n"),
		images.Dir("was-link", 0o755), images.File("was-link/in", 0o644, ""), images.Link("link", "target"),
	}
	img := writeImage(t, "example.com/layers:1", one, two, []images.Entry{images.File("d/c", 0o644, "")}, one)
	// The first layer comes again on top: its files are back, what it doesn't
	// name stays as the others left it.
	res := h.run(img, nil, `ls -A /d /o; test -L /was-link && echo link; test -f /was-file && echo file; test -d /was-dir && echo dir; cat /link`)
	if res.code != 0 {
		t.Fatal(res)
	}
	img = writeImage(t, "example.com/layers:2", one, two, []images.Entry{images.File("d/c", 0o644, "")})
	res = h.run(img, nil, `ls -A /d /o; ls -A /was-link /was-file; cat /was-dir /link`)
	want := "/d:\nb\nc\n\n/o:\nnew\n/was-file:\nin\n\n/was-link:\nin\nf\nlinked\n"
	if res.code != 0 || res.stdout != want {
		t.Errorf("want %q: %s", want, res)
	}
}

// TestLayerBelowLinks: what an upper layer has below a symlink of a lower one
// lies where the link points, as other tools unpack it.
func TestLayerBelowLinks(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	img := writeImage(t, "example.com/links:1",
		[]images.Entry{
			images.Dir("opt", 0o755), images.Dir("opt/real", 0o750), images.File("opt/real/old", 0o644, "old\n"), images.Symlink("short", "opt/real"),
			images.Dir("var", 0o755), images.Symlink("var/state", "/opt/real"), images.Symlink("out", "../../../../opt/real"),
		},
		[]images.Entry{images.File("short/one", 0o644, "1\n"), images.File("var/state/two", 0o644, "2\n"), images.File("out/three", 0o644, "3\n"), images.Whiteout("short/old")},
	)
	res := h.run(img, nil, "for l in /short /var/state /out; do readlink $l; done; ls /opt/real; cat /short/one /opt/real/two /var/state/three; stat -c %a /opt/real")
	if want := "opt/real\n/opt/real\n../../../../opt/real\none\nthree\ntwo\n1\n2\n3\n750\n"; res.code != 0 || res.stdout != want {
		t.Errorf("%s", res)
	}
}

// TestOpaqueRoot: a layer may say that it is all there is.
func TestOpaqueRoot(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	img := writeLayers(t, "example.com/opaque:1",
		[]images.Entry{images.File("below", 0o644, ""), images.Dir("etc", 0o755), images.File("etc/below", 0o644, "")},
		append(busybox(t), images.File(".wh..wh..opq", 0o600, "")),
		[]images.Entry{images.File("above", 0o644, "")})
	res := h.run(img, nil, "ls -d /below /etc/below /above 2>/dev/null")
	if res.stdout != "/above\n" {
		t.Errorf("%s", res)
	}
}

// TestHostileLayers: what overlayfs would obey is refused, or cleaned.
func TestHostileLayers(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	device := images.File("dev0", 0o644, "")
	device.Typeflag = '3' // character device 0:0
	img := writeImage(t, "example.com/hostile:1", []images.Entry{device})
	if res := h.rkt("fetch", "--insecure-options=image", img); res.code != 254 || !strings.Contains(res.stderr, "dev0") {
		t.Errorf("a whiteout device: %s", res)
	}
	img = writeImage(t, "example.com/hostile:2", []images.Entry{
		images.Dir("etc", 0o755).XAttr("trusted.overlay.opaque", "y").XAttr("user.overlay.opaque", "y"),
		images.Dir("home", 0o755).XAttr("trusted.overlay.redirect", "/root"),
	})
	// Cleaned or refused: either way nothing of it takes effect.
	res := h.run(img, nil, "test -f /etc/passwd && test -d /home/app")
	if res.code != 0 && res.code != 254 {
		t.Errorf("overlay attributes: %s", res)
	}
	for _, name := range []string{"../escape", "/../../escape", "a/../../escape"} {
		img := writeImage(t, "example.com/hostile:3", []images.Entry{images.Dir("a", 0o755), images.File(name, 0o644, "escaped")})
		h.rkt("fetch", "--insecure-options=image", img)
	}
	img = writeImage(t, "example.com/hostile:4", []images.Entry{images.Symlink("evil", h.dir), images.File("evil/escape", 0o644, "escaped")})
	h.rkt("fetch", "--insecure-options=image", img)
	for _, dir := range []string{h.dir, filepath.Dir(h.dir), filepath.Join(h.dir, "store"), filepath.Join(h.dir, "store", "layers"), "/"} {
		if _, err := os.Lstat(filepath.Join(dir, "escape")); err == nil {
			t.Errorf("HOST PATH %s/escape WAS WRITTEN: the unpacker left its root", dir)
		}
	}
}

// TestImageAccounts: a user of the image whose number is none of 32 bits is
// refused rather than made another one.
func TestImageAccounts(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	img := writeImage(t, "example.com/accounts:1", []images.Entry{
		images.File("etc/passwd", 0o644, "root:x:0:0::/:/bin/sh\nevil:x:4294967296:0::/:/bin/sh\nem:x::0::/:/bin/sh\nbad:x:abc:0::/:/bin/sh\nlast:x:4294967295:0::/:/bin/sh\n"),
		images.File("etc/group", 0o644, "root:x:0:\nwrap:x:4294967297:\n"),
	})
	for flag, value := range map[string]string{
		"--user=evil": "4294967296", "--user=em": `""`, "--user=bad": "abc", "--user=last": "4294967295", "--group=wrap": "4294967297",
	} {
		_, name, _ := strings.Cut(flag, "=")
		res := h.run(img, []string{flag}, "id")
		if res.code != 254 || !strings.Contains(res.stderr, name) || !strings.Contains(res.stderr, value) {
			t.Errorf("%s: %s", flag, res)
		}
	}
	if res := h.run(img, []string{"--user=0"}, "id -u"); res.code != 0 || res.stdout != "0\n" {
		t.Errorf("beside them: %s", res)
	}
}

// TestUnknownCalls: a mistyped system call or capability is an error where the
// user asks for it.
func TestUnknownCalls(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for flag, text := range map[string]string{
		"--seccomp=mode=remove,mount,unmount": `system call "unmount": unknown`,
		"--seccomp=mode=retain,read,opne":     `system call "opne": unknown`,
		"--caps-remove=CAP_MKNODE":            `"CAP_MKNODE"`,
	} {
		if res := h.run(image("busybox.aci"), []string{flag}, "true"); res.code != 254 || !strings.Contains(res.stderr, text) {
			t.Errorf("%s: %s", flag, res)
		}
	}
	// Calls of other architectures are calls.
	res := h.run(image("busybox.aci"), []string{"--seccomp=mode=remove,errno=EPERM,mkdir,mkdirat,arm_fadvise64_64,s390_pci_mmio_read,vm86"}, "mkdir /x 2>/dev/null || echo refused")
	if res.code != 0 || res.stdout != "refused\n" {
		t.Errorf("calls of other architectures: %s", res)
	}
}

// TestNothingMadeOnTheHost: whatever is mounted where, rkt makes nothing in a
// folder of the host's.
func TestNothingMadeOnTheHost(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	links := writeImage(t, "example.com/links:2", []images.Entry{images.Symlink("tosys", "/sys"), images.Symlink("todev", "/dev")})
	for _, c := range []struct {
		targets []string
		cwd     string
		works   bool
	}{
		{[]string{"/dev"}, "/", false},
		{[]string{"/todev"}, "/", false},
		{[]string{"/tosys"}, "/", false},
		{[]string{"/dev/x", "/dev/x/inner"}, "/", false},
		{[]string{"/dev/x"}, "/dev/x/inner", false},
		{[]string{"/proc"}, "/", false},
		{[]string{"/dev/x"}, "/dev/x", true},
		{[]string{"/dev/shm"}, "/dev/shm", true},
		{[]string{"/dev/mqueue"}, "/", true},
		{[]string{"/sys"}, "/", true},
		{[]string{"/sys/fs/cgroup"}, "/", true},
		{[]string{"/etc"}, "/etc", true},
		{[]string{"/run", "/tmp", "/var"}, "/", true},
	} {
		src := t.TempDir()
		args := []string{"--working-dir=" + c.cwd, "--volume=v,kind=host,source=" + src, "--dns=1.1.1.1", "--hostname=named"}
		for _, target := range c.targets {
			args = append(args, "--mount=volume=v,target="+target)
		}
		res := h.run(links, args, "echo ran")
		if works := res.code == 0 && res.stdout == "ran\n"; works != c.works || !works && res.code != 254 {
			t.Errorf("%v: %s", c.targets, res)
		}
		if left, err := os.ReadDir(src); err != nil || len(left) > 0 {
			t.Errorf("%v: MADE IN THE HOST'S FOLDER: %v %v", c.targets, left, err)
		}
	}
}

// TestEnterTraced: no process is sent into a pod of an app that could trace it,
// unless the pod was started with all capabilities on purpose.
func TestEnterTraced(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for _, c := range []struct {
		pod, app []string
		code     int
	}{
		{nil, []string{"--caps-retain=CAP_SYS_PTRACE,CAP_KILL"}, 254},
		{nil, []string{"--caps-retain=CAP_SYS_ADMIN"}, 254},
		{nil, []string{"--caps-retain=CAP_NET_ADMIN"}, 0},
		{[]string{"--insecure-options=capabilities"}, nil, 0},
	} {
		p := h.start(c.pod, app{name: "x", script: "exec sleep 1000", flags: c.app})
		p.running()
		res := h.rkt("enter", p.uuid(), "/bin/echo", "in")
		if res.code != c.code || (res.stdout == "in\n") != (c.code == 0) {
			t.Errorf("%v %v: %s", c.pod, c.app, res)
		}
		if c.code != 0 && (!strings.Contains(res.stderr, "app x: CAP_SYS_") || !strings.Contains(res.stderr, "hint: ")) {
			t.Errorf("%v: %s", c.app, res)
		}
		h.must("stop", "--force", p.uuid())
		p.wait()
	}
}

// TestNamesForTheTerminal: names that come with images are shown, not obeyed.
func TestNamesForTheTerminal(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	layer, err := images.Tar([]images.Entry{images.File("f", 0o644, "")})
	if err != nil {
		t.Fatal(err)
	}
	write := func(list ...images.Image) string {
		files, err := images.OCI(list...)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "layout")
		if err := files.WriteDir(dir); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	const evil = "example.com/\x1b]0;title\a\x1b[2Jx"
	one := images.Image{Name: evil + ":1", Layers: [][]byte{layer}}
	two := images.Image{Name: evil + ":2", Layers: [][]byte{layer, layer}}
	res := h.rkt("fetch", "--insecure-options=image", write(one, two))
	if res.code != 254 || strings.ContainsAny(res.stderr, "\x1b\a") || !strings.Contains(res.stderr, `\x1b[2Jx:2`) {
		t.Errorf("several images: %s", res)
	}
	if res := h.rkt("fetch", "--insecure-options=image", write(one)); res.code != 0 {
		t.Errorf("%s", res)
	}
	for _, args := range [][]string{{"image", "list"}, {"image", "list", "--full"}, {"image", "gc", "--dry-run", "--grace-period=0s"}} {
		res := h.rkt(args...)
		if res.code != 0 || strings.ContainsAny(res.stdout+res.stderr, "\x1b\a") || !strings.Contains(res.stdout, `\x1b[2Jx:1`) {
			t.Errorf("%s", res)
		}
	}
}
