package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// kinds of orphans, each once.
func kinds(list []orphan) []string {
	var all []string
	for _, o := range list {
		all = append(all, o.Kind)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// TestCheckAfterKill kills a supervisor: until gc has been there, check tells
// what the pod holds still. The gc need not be allowed to remove the pod for it
// to give that back.
func TestCheckAfterKill(t *testing.T) {
	h := newNetHost(t)
	p := h.start([]string{"--port=80-tcp:8080"}, "/netpeer", "serve", "tcp:80")
	if found := h.orphans(); len(found) > 0 {
		t.Errorf("of a running pod: %+v", found)
	}
	for _, line := range []string{"its lock is held", `is held by "rkt run", pid`, "/mnt/rootfs/netpeer-0\n", "network", "eth0 172.16.28.", "keeps it: is running"} {
		if out := h.must("status", "--explain", p.uuid); !strings.Contains(out, line) {
			t.Errorf("explained without %q:\n%s", line, out)
		}
	}
	p.kill()
	h.must("status", "--wait", p.uuid)
	for _, line := range []string{"nobody holds its lock; no process of it is left", `was last held by "rkt run", pid`, "(gone)", "eth0 172.16.28.", "the grace period is 30m0s"} {
		if out := h.must("status", "--explain", p.uuid); !strings.Contains(out, line) {
			t.Errorf("explained after the kill without %q:\n%s", line, out)
		}
	}
	found := h.orphans()
	for _, kind := range []string{"cgroup", "lease", "rule"} {
		i := slices.IndexFunc(found, func(o orphan) bool { return o.Kind == kind })
		if i < 0 || found[i].Pod != p.uuid || found[i].Remedy != "rkt gc" {
			t.Errorf("no %s of pod %s: %+v", kind, p.uuid, found)
		}
	}
	// From another network nothing of this one can be given back.
	elsewhere := h.command("gc")
	elsewhere.Args = slices.Insert(elsewhere.Args, slices.Index(elsewhere.Args, filepath.Join(bin, "rkt")), "unshare", "--net")
	if out, err := elsewhere.CombinedOutput(); err == nil || !strings.Contains(string(out), "was started in another network namespace") || !strings.Contains(string(out), "nsenter --net=/proc/") {
		t.Errorf("gc in another network namespace: %v\n%s", err, out)
	}
	if found := h.orphans(); !slices.Contains(kinds(found), "rule") {
		t.Errorf("after gc in another network namespace: %+v", found)
	}
	h.must("gc")
	if found := h.orphans(); len(found) > 0 {
		t.Errorf("after gc: %+v", found)
	}
	if list := h.list(); len(list) != 1 || list[0].UUID != p.uuid {
		t.Errorf("the pod is gone before its grace period: %+v", list)
	}
	if out := h.must("status", p.uuid); !strings.Contains(out, "state=") {
		t.Errorf("status: %s", out)
	}
}

// TestCheckFindsAll makes one orphan of each kind that rkt itself never leaves,
// and removes each by the command that is printed with it.
func TestCheckFindsAll(t *testing.T) {
	h := newNetHost(t)
	uuid := strings.TrimSpace(h.must("prepare", "example.com/netpeer:1.0"))
	id, dead := h.storeID(), "0c9d3f52-6d6b-4a4e-9f43-1f6a3b0c7d11"
	owner := "rkt-" + id + "-" + dead
	cgroup := strings.TrimSpace(h.sh("awk '$0 ~ / - cgroup2 / {print $5; exit}' /proc/self/mountinfo"))
	group := filepath.Join(cgroup, "rkt-"+id, dead, "apps")
	layers, err := filepath.Glob(filepath.Join(h.dir, "store", "layers", "*"))
	if err != nil || len(layers) != 1 {
		t.Fatal(layers, err)
	}
	h.sh(fmt.Sprintf(`
run=/run/rkt/%[1]s; mkdir -p $run/%[2]s/mnt "%[4]s/store/tmp/import-1" "%[4]s/store/layers/sha256-dead" "%[4]s/pods/embryo/%[6]s" "%[4]s/names" /run/netns
mount -t tmpfs tmpfs $run/%[2]s/mnt
mkdir -p %[5]s
sh -c 'echo 0 >%[5]s/cgroup.procs; exec sleep infinity' >/dev/null 2>&1 &
touch /run/netns/%[3]s
mount -t tmpfs tmpfs /var/lib # that of the host is everybody's
mkdir -p /var/lib/rkt-ids; echo '{"data":"%[4]s","uuid":"%[2]s","start":1900000000,"count":65536}' >/var/lib/rkt-ids/1900000000
ip link add orphan0 type veth peer name orphan1; ip link set orphan0 alias %[3]s
until grep -q . %[5]s/cgroup.procs; do :; done`, id, dead, owner, h.dir, group, dead[:35]+"3"))
	if err := os.WriteFile(filepath.Join(h.dir, "names", "web"), []byte(dead[:35]+"2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(layers[0], filepath.Join(h.dir, "aside")); err != nil {
		t.Fatal(err)
	}
	found := h.orphans()
	want := []string{"cgroup", "image", "layer", "link", "mount", "netns", "pod", "pod-name", "process", "reference", "run-folder", "staging", "user-ids"}
	if got := kinds(found); !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	if res := h.rkt("gc", "--check"); res.code != 12 || !strings.Contains(res.stdout, "REMOVED BY") || !strings.Contains(res.stderr, "belong to nobody") {
		t.Errorf("as a table: %s", res)
	}
	if err := os.Rename(filepath.Join(h.dir, "aside"), layers[0]); err != nil {
		t.Fatal(err)
	}
	h.must("gc")
	for range 3 { // what one remedy leaves, such as the folder of a mount, the next one takes
		for _, o := range h.orphans() {
			if o.Kind != "layer" {
				h.sh(strings.Replace(o.Remedy, "rkt gc", "true", 1))
			}
		}
		h.must("gc")
	}
	if found := h.orphans(); len(found) > 0 {
		t.Errorf("after all remedies: %+v", found)
	}
	h.must("rm", uuid)
	h.sh("rm -rf /run/mount /run/netns") // of the programs that were used here
}
