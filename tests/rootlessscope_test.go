//go:build vm

package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestScopeOfUser: where the user's cgroup is systemd's, his manager makes one
// for the pod, in which limits hold. The process stays the pod's.
func TestScopeOfUser(t *testing.T) {
	t.Parallel()
	if os.Getenv("RKT_TEST_VM") != "1" {
		t.Fatal("this test adds a user: only the virtual machine of TestVM is for that")
	}
	h := newHost(t)
	const home = "/var/tmp/rkt-test-scoped" // which the user can reach
	const uid = 6666
	for _, script := range []string{
		fmt.Sprintf("mkdir %[1]s && cp -r %[3]s %[1]s/bin && cp %[4]s %[1]s/busybox.aci && chmod -R go+rX %[1]s && chown %[2]d:%[2]d %[1]s", home, uid, bin, image("busybox.aci")),
		fmt.Sprintf("echo scoped:*:%d:%[1]d::%s:/bin/sh >>/etc/passwd; echo scoped:x:%[1]d: >>/etc/group; for f in subuid subgid; do echo scoped:700000:65536 >>/etc/$f; done", uid, home),
		// Without a session the manager is ended soon, unless the user lingers.
		fmt.Sprintf("mkdir -p /var/lib/systemd/linger && touch /var/lib/systemd/linger/scoped && systemctl start systemd-logind dbus user@%d.service", uid),
	} {
		if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	t.Cleanup(func() { _ = exec.Command("systemctl", "stop", fmt.Sprintf("user@%d.service", uid)).Run() })
	h.dir = filepath.Join(home, "data")
	// What systemd mounts for the user is not to be seen in the tests' own mount namespace.
	h.inside = []string{"nsenter", "--target=1", "--mount", "sh", "-c", `rkt=$1; shift; exec setpriv --reuid 6666 --regid 6666 --clear-groups env -i HOME="$0" PATH=$PATH XDG_RUNTIME_DIR=/run/user/6666 "$0/bin/rkt" "$@"`, home}
	res := h.rkt("run", "--insecure-options=image", "--net=none", home+"/busybox.aci", "--memory=24Mi", "--pids=9", "--exec=/bin/sh", "--", "-c", "id -u; "+hold(48)+"; echo survived")
	if res.code != 137 || res.stdout != "0\n" {
		t.Errorf("%s", res)
	}
	if res := h.rkt("run", "--rm", "--insecure-options=image", "--net=none", home+"/busybox.aci", "--exec=/bin/sh", "--", "-c", "exit 42"); res.code != 42 {
		t.Errorf("%s", res)
	}
	uuid := strings.TrimSpace(strings.Split(h.must("list", "--no-legend", "--full"), "\t")[0])
	if text := h.must("status", uuid); !strings.Contains(text, "-isolator=enforced: memory 25165824\n") || !strings.Contains(text, "-reason=OOMKilled\n") {
		t.Errorf("status: %s", text)
	}
}
