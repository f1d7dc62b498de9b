package tests

import (
	"strings"
	"testing"
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
