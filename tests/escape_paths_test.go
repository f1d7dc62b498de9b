package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/tests/images"
)

// TestEscapeNullDevice: an app puts something else where a program beside it
// gets its null device and its terminal from. It may be anything of the app's
// own, but nothing of the process that becomes the program (CVE-2025-31133,
// CVE-2025-52565).
func TestEscapeNullDevice(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.attacker(image("busybox.aci"), "--exec=/bin/sleep", "--", "1000")
	p.running()
	for _, to := range []string{
		"/proc/self/exe", "/proc/self/fd/3", "/proc/self/fd/4", "/proc/self/fd/5", "/proc/self/mem", "/proc/self/root", "/proc/thread-self/cwd", "/proc/1/root", "/proc/1/exe",
		"/proc/sys/kernel/core_pattern", "/proc/kcore", "/sys/kernel/uevent_helper", "../../../../../etc/passwd", "null",
	} {
		link := h.command("enter", p.uuid(), "/bin/sh", "-c", "rm -f /dev/null; ln -s "+to+" /dev/null")
		link.Stdin = strings.NewReader("") // no null device here
		if out, err := link.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", to, err, out)
		}
		res := h.rkt("enter", p.uuid(), "/bin/readlink", "/proc/self/fd/0")
		if res.code != 254 || !strings.Contains(res.stderr, "null device") {
			t.Errorf("with a link to %s the program has %s", to, res)
		}
	}
	// Without any it must not be the host's, whose mode and owner root in the
	// app could change, but one that the app makes anew is good.
	for _, c := range [][2]string{
		{"rm -f /dev/null", ""},
		{"rm -f /dev/null; mknod /dev/null c 1 3", "/dev/null\n"},
		{"rm -f /dev/null; echo file >/dev/null", "/dev/null\n"},
		{"rm -f /dev/null; mkdir /dev/null", ""},
		{"rmdir /dev/null; mknod /dev/null c 1 3", "/dev/null\n"},
	} {
		script, want := c[0], c[1]
		link := h.command("enter", p.uuid(), "/bin/sh", "-c", script)
		link.Stdin = strings.NewReader("")
		if out, err := link.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
		res := h.rkt("enter", p.uuid(), "/bin/sh", "-c", "readlink /proc/self/fd/0; test /dev/null -ef /proc/self/fd/0")
		if res.stdout != want || (res.code == 0) != (want != "") {
			t.Errorf("after %s: %s", script, res)
		}
	}
	h.must("stop", "--force", p.uuid())
	p.wait()
}

// TestEscapeMasks: what an image and its volumes put where rkt looks for what
// it hides and protects with changes nothing of that (CVE-2025-31133,
// CVE-2025-52881, CVE-2019-19921).
func TestEscapeMasks(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	links := writeImage(t, "example.com/links:3", []images.Entry{
		images.Dir("dev", 0o755), images.Symlink("dev/null", "/proc/sys/kernel/core_pattern"), images.Symlink("dev/console", "/proc/sysrq-trigger"),
		images.Symlink("dev/pts", "/proc"), images.Symlink("dev/shm", "/sys"), images.Dir("proc", 0o755), images.Symlink("proc/sys", "/tmp"),
		images.Symlink("proc/kcore", "/etc/passwd"), images.Dir("sys", 0o755), images.Symlink("sys/firmware", "/tmp"), images.Symlink("sys/fs", "/etc"),
	})
	const script = `head -c 9 /proc/kcore | wc -c; ls /sys/firmware | wc -l; (echo x >/proc/sys/kernel/core_pattern) 2>&1 | grep -c Read-only
		stat -c %t:%T /dev/null /dev/console; stat -f -c %T /dev/pts /dev/shm; grep -c "^root" /etc/passwd; ls -A /tmp | wc -l`
	const want = "0\n0\n1\n1:3\n1:3\ndevpts\ntmpfs\n1\n0\n"
	for _, flags := range [][]string{nil, {"--interactive"}, {"--readonly-rootfs"}} {
		if res := h.run(links, flags, script); res.code != 0 || strings.ReplaceAll(res.stdout, "\r", "") != want {
			t.Errorf("%v: %s", flags, res)
		}
	}
	for _, top := range []string{"proc", "sys", "dev"} {
		img := writeImage(t, "example.com/top:1", []images.Entry{images.Dir("evil", 0o755), images.Dir("evil/sys", 0o755), images.Symlink(top, "/evil")})
		if res := h.run(img, nil, "true"); res.code != 254 || !strings.Contains(res.stderr, "/"+top+": the image has a symlink or a file there") {
			t.Errorf("/%s: %s", top, res)
		}
	}
}

// TestEscapeTargets: no volume is mounted over what rkt makes for the app or
// over its own files, by whatever spelling of a target or a name.
func TestEscapeTargets(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	volume := t.TempDir()
	if err := os.WriteFile(filepath.Join(volume, "mark"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	links := writeImage(t, "example.com/links:4", []images.Entry{images.Symlink("toproc", "/proc"), images.Symlink("up", "../../../../proc/sys"), images.Symlink("toroot", "/")})
	for _, target := range []string{
		"/", "//", "/..", "/../..", "/.", "/proc", "/proc/", "/proc/self", "/proc/sys/kernel", "/proc/1", "/tmp/../proc", "/../proc/sys", "/dev", "/dev/.", "/toproc", "/toproc/sys", "/up", "/toroot", "/toroot/proc", "proc", "",
	} {
		res := h.run(links, []string{"--volume=v,kind=host,source=" + volume, "--mount=volume=v,target=" + target}, "echo ran")
		if res.code != 254 || res.stdout != "" {
			t.Errorf("at %q: %s", target, res)
		}
	}
	// Where the host has rkt's own files an app has a folder of its own.
	for _, target := range []string{"/../../.." + bin, h.dir, "/run/rkt", "/var/lib/rkt"} {
		res := h.run(links, []string{"--volume=v,kind=host,source=" + volume, "--mount=volume=v,target=" + target}, "ls -A "+target)
		if res.code != 0 || res.stdout != "mark\n" {
			t.Errorf("at %s: %s", target, res)
		}
	}
	if left, err := os.ReadDir(volume); err != nil || len(left) != 1 {
		t.Errorf("MADE IN THE HOST'S FOLDER: %v %v", left, err)
	}
	for _, flags := range [][]string{
		{"--name=.."}, {"--name=../x"}, {"--name=a/b"}, {"--name="}, {"--volume=..,kind=empty", "--mount=volume=..,target=/v"}, {"--volume=../v,kind=empty", "--mount=volume=../v,target=/v"},
		{"--volume=v,kind=named,source=../x", "--mount=volume=v,target=/v"}, {"--volume=v,kind=host,source=" + volume, "--mount=volume=v,target=/v,subPath=../.."},
		{"--hostname=../x"}, {"--hostname=a\nb"}, {"--working-dir=../x"}, {"--user=../../etc/shadow"},
	} {
		if res := h.run(links, flags, "echo ran"); res.code != 254 && !strings.Contains(strings.Join(flags, " "), "subPath") {
			t.Errorf("%q: %s", flags, res)
		}
	}
}

// TestEscapeMounts: an app that may mount does so for itself alone.
func TestEscapeMounts(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	volume := t.TempDir()
	if err := os.Mkdir(filepath.Join(volume, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	p := h.attacker("--volume=v,kind=host,source="+volume, image("busybox.aci"), "--mount=volume=v,target=/v", "--caps-retain=CAP_SYS_ADMIN", "--exec=/bin/sh", "--", "-c",
		"mount --make-rshared /; mount -t tmpfs over /v/sub && touch /v/sub/inside && touch /v/up; exec sleep 1000")
	until(t, "it has mounted", func() bool { _, err := os.Stat(filepath.Join(volume, "up")); return err == nil })
	if left, err := os.ReadDir(filepath.Join(volume, "sub")); err != nil || len(left) > 0 {
		t.Errorf("the host sees the app's mount: %v, %v", left, err)
	}
	for _, pid := range []string{"self", strconv.Itoa(p.running().PID)} {
		if text, err := os.ReadFile("/proc/" + pid + "/mountinfo"); err != nil || strings.Contains(string(text), volume+"/sub") {
			t.Errorf("process %s has the app's mount: %v", pid, err)
		}
	}
	h.must("stop", "--force", p.uuid())
	p.wait()
}

// TestEscapeRace: while a pod exchanges folders of a volume with links, others
// start that have it, and mount others below such a folder. Whatever becomes of
// a start: nothing is mounted outside of the app's root or over what is rkt's,
// and nothing made on the host (CVE-2021-30465, CVE-2019-19921). How volumes
// are looked up is raced a thousand times by tests of stage1/sandbox.
func TestEscapeRace(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	const rounds, parts = 24, 25
	for _, to := range []string{"/proc", "/proc/self/root/dev", "../../../../../canary", ""} {
		shared, data, canary := t.TempDir(), t.TempDir(), t.TempDir()
		if to == "" {
			to = canary
		}
		if err := os.WriteFile(filepath.Join(data, "mark"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		args := []string{"--volume=a,kind=host,source=" + shared, "--volume=d,kind=host,source=" + data, "--mount=volume=a,target=/a", "--mount=volume=a,target=/dev/a"}
		for n := range parts {
			if err := os.MkdirAll(filepath.Join(shared, fmt.Sprintf("t/m%d", n)), 0o755); err != nil {
				t.Fatal(err)
			}
			args = append(args, fmt.Sprintf("--mount=volume=d,target=/a/t/m%d,nested=true", n), fmt.Sprintf("--mount=volume=d,target=/dev/a/t/m%d,nested=true", n))
		}
		p := h.attacker("--volume=a,kind=host,source="+shared, image("escape.aci"), "--mount=volume=a,target=/a", "--exec=/escape", "--", "flip:/a:t:"+to)
		until(t, "it exchanges them", func() bool { return strings.Contains(h.rkt("logs", p.uuid()).stdout, "# flipping") })
		ran := 0
		for range rounds / 4 {
			res := h.run(image("busybox.aci"), args, `for d in /proc /sys /proc/sys /proc/self; do
				for m in $d $d/m[0-9]*; do test -e $m/mark && echo over $m; done; done; stat -f -c %T /proc /sys; (: >/proc/sys/kernel/core_pattern) 2>/dev/null && echo writable; echo end`)
			switch {
			case res.code == 0 && res.stdout == "proc\nsysfs\nend\n":
				ran++
			case res.code != 254 || strings.Contains(res.stderr, "panic"):
				t.Errorf("link to %s: %s", to, res)
			}
			for _, dir := range []string{data, canary} {
				if left, err := os.ReadDir(dir); err != nil || len(left) > 1 || dir == canary && len(left) > 0 {
					t.Fatalf("link to %s: MADE ON THE HOST in %s: %v %v", to, dir, left, err)
				}
			}
		}
		h.must("stop", p.uuid())
		if all := parseTries(t, p.wait()); len(all.said("flips")) < 3 {
			t.Errorf("it was no race: %v", all)
		}
		t.Logf("link to %s: %d of %d starts went well", to, ran, rounds/4)
	}
}
