package tests

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rkt-pods/rkt/pkg/idrange"
	"github.com/rkt-pods/rkt/tests/images"
)

// leases is where the host's user ids of pods are given away.
const leases = "/var/lib/rkt-ids"

// users is the range of a pod's ids, as status tells it.
func (h *host) users(uuid string) *idrange.Range {
	h.t.Helper()
	var s struct {
		Users *idrange.Range `json:"private_users"`
	}
	if err := json.Unmarshal([]byte(h.must("status", "--format=json", uuid)), &s); err != nil {
		h.t.Fatal(err)
	}
	return s.Users
}

// owners lists which users and groups have the files below a folder.
func owners(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err == nil {
			st := info.Sys().(*syscall.Stat_t)
			rel, _ := filepath.Rel(dir, path)
			all[rel] = fmt.Sprintf("%d:%d", st.Uid, st.Gid)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestPrivateUsers runs a pod in a user namespace: what it sees is owned by the
// ids that the image has, what it writes by ids of the host that are nobody
// else's, and it has no right outside.
func TestPrivateUsers(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	img := writeImage(t, "example.com/owned:1", []images.Entry{
		images.Dir("srv", 0o755), owned(images.File("srv/theirs", 0o640, "theirs"), 1000, 1000), images.File("srv/roots", 0o600, "roots"),
	})
	script := strings.Join([]string{
		"cat /proc/self/uid_map",
		"stat -c '%u:%g %n' / /srv/theirs /srv/roots /dev /dev/null /dev/pts/ptmx /dev/mqueue /dev/shm /etc/hosts /etc/mtab",
		"cat /srv/roots; echo",
		"echo more >>/srv/theirs; touch /new; mkdir /srv/dir; chown 7:8 /new; su app -c 'touch /tmp/apps'",
		"echo >/dev/null && head -c1 /dev/zero | wc -c",
		"echo changed >/etc/hosts && cat /etc/hosts",
		// Only the host's root could do these.
		"mknod /node c 1 3 2>&1; hostname other 2>&1; echo 1 2>&1 >/proc/sys/kernel/panic",
		"exit 0",
	}, "\n")
	file := filepath.Join(t.TempDir(), "uuid")
	p := h.begin(file, "run", "--insecure-options=image", "--uuid-file-save="+file, "--private-users", img, "--exec=/bin/sh", "--", "-c", script)
	res := p.wait()
	ids := h.users(p.uuid())
	if ids == nil || ids.Count != idrange.Size {
		t.Fatalf("ids: %v; %s", ids, res)
	}
	want := strings.Join([]string{
		"0:0 /", "1000:1000 /srv/theirs", "0:0 /srv/roots", "0:0 /dev", "0:0 /dev/null", "0:0 /dev/pts/ptmx", "0:0 /dev/mqueue", "0:0 /dev/shm",
		"0:0 /etc/hosts", "0:0 /etc/mtab", "roots", "1", "changed",
	}, "\n")
	if f := strings.Fields(res.stdout); len(f) < 3 || f[0] != "0" || f[1] != fmt.Sprint(ids.Start) || f[2] != fmt.Sprint(ids.Count) {
		t.Errorf("uid_map: %s", res)
	}
	if res.code != 0 || !strings.Contains(res.stdout, want) {
		t.Errorf("not %s\nin %s", want, res)
	}
	if strings.Count(res.stdout, "ot permitted") != 2 {
		t.Errorf("rights of the host's root: %s", res)
	}
	dir := filepath.Join(h.dir, "pods", "run", p.uuid(), "apps", "owned", "0", "upper")
	for name, own := range owners(t, dir) {
		id := 0
		switch name {
		case "new":
			if own != fmt.Sprintf("%d:%d", ids.Host(7), ids.Host(8)) {
				t.Errorf("%s: %s", name, own)
			}
			continue
		case "srv/theirs", "tmp/apps":
			id = 1000
		}
		if own != fmt.Sprintf("%d:%[1]d", ids.Host(id)) {
			t.Errorf("%s: belongs to %s, not %d", name, own, ids.Host(id))
		}
	}
	if h.holder(ids) != p.uuid() {
		t.Error("the ids of a pod that is still there are not its own")
	}
	uuid := p.uuid()
	h.must("rm", uuid)
	if h.holder(ids) == uuid {
		t.Error("the ids of a removed pod are not free")
	}
}

// owned is an entry of another owner.
func owned(e images.Entry, uid, gid int) images.Entry {
	e.Header.Uid, e.Header.Gid = uid, gid
	return e
}

// TestPrivateUsersVolumes mounts volumes of every kind into a pod with a user
// namespace.
func TestPrivateUsersVolumes(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	seeded := writeImage(t, "example.com/seeded-users:1", []images.Entry{
		images.Dir("data", 0o755), owned(images.File("data/a", 0o600, "a"), 1000, 1000), images.Dir("empty", 0o755), owned(images.File("empty/b", 0o600, "b"), 33, 34),
	})
	h.must("fetch", "--insecure-options=image", seeded)
	src := t.TempDir()
	for _, dir := range []string{"plain", "mapped"} {
		path := filepath.Join(src, dir)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "host"), []byte("host"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	secret := filepath.Join(src, "secret")
	if err := os.WriteFile(secret, []byte("hush"), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--private-users"}
	for _, v := range []string{
		"plain,kind=host,source=" + src + "/plain", "mapped,kind=host,idmap=true,source=" + src + "/mapped",
		"named,kind=named", "empty,kind=empty,seed=true", "mem,kind=tmpfs,uid=5,gid=6", "img,kind=image,source=example.com/seeded-users:1", "secret,kind=secret,source=" + secret,
	} {
		flags = append(flags, "--volume="+v)
	}
	script := strings.Join([]string{
		"stat -c '%u:%g %n' /plain /plain/host /mapped /mapped/host /data /data/a /empty /empty/b /mem /img/data/a /run/secret /run/secret/secret",
		"cat /run/secret/secret; echo", "cat /plain/host 2>&1", "cat /mapped/host; echo", "cat /data/a; echo",
		"for d in /plain /mapped /data /empty /mem; do touch $d/new 2>&1; done",
		"stat -c '%u:%g %n' /mapped/new /data/new /empty/new /mem/new /data/sub",
	}, "\n")
	file := filepath.Join(src, "uuid")
	args := append([]string{"run", "--insecure-options=image", "--uuid-file-save=" + file}, flags...)
	args = append(args, "example.com/seeded-users:1", "--name=app", "--exec=/bin/sh")
	for _, m := range []string{
		"plain,target=/plain", "mapped,target=/mapped", "named,target=/data", "empty,target=/empty", "mem,target=/mem", "img,target=/img",
		"secret,target=/run/secret", "named,target=/sub,subPath=sub",
	} {
		args = append(args, "--mount=volume="+m)
	}
	p := h.begin(file, append(args, "--", "-c", script)...)
	res := p.wait()
	ids := h.users(p.uuid())
	want := strings.Join([]string{
		"65534:65534 /plain", "65534:65534 /plain/host", "0:0 /mapped", "0:0 /mapped/host", "0:0 /data", "1000:1000 /data/a", "0:0 /empty", "33:34 /empty/b",
		"5:6 /mem", "1000:1000 /img/data/a", "0:0 /run/secret", "0:0 /run/secret/secret", "hush",
		"cat: can't open '/plain/host': Permission denied", "host", "a", "touch: /plain/new: Permission denied",
		"0:0 /mapped/new", "0:0 /data/new", "0:0 /empty/new", "0:0 /mem/new", "0:0 /data/sub", "",
	}, "\n")
	if res.code != 0 || res.stdout != want {
		t.Errorf("not %s\nbut %s", want, res)
	}
	for _, f := range []struct{ path, own string }{
		{src + "/mapped/new", "0:0"}, {src + "/mapped/host", "0:0"}, {src + "/plain/host", "0:0"},
		{h.dir + "/volumes/named/data/new", "0:0"}, {h.dir + "/volumes/named/data/a", "1000:1000"}, {h.dir + "/volumes/named/data/sub", "0:0"},
		{h.dir + "/pods/run/" + p.uuid() + "/volumes/empty/new", fmt.Sprintf("%d:%[1]d", ids.Host(0))},
		{h.dir + "/pods/run/" + p.uuid() + "/volumes/empty/b", fmt.Sprintf("%d:%d", ids.Host(33), ids.Host(34))},
	} {
		if own := owners(t, f.path)["."]; own != f.own {
			t.Errorf("%s: belongs to %s, not %s", f.path, own, f.own)
		}
	}
	// Others, with other ids or the host's, find the volume as it is.
	for _, more := range [][]string{{"--private-users"}, nil} {
		res := h.run("example.com/seeded-users:1", append([]string{"--volume=v,kind=named,source=named", "--mount=volume=v,target=/data"}, more...), "stat -c '%u:%g %n' /data/a /data/new")
		if res.code != 0 || res.stdout != "1000:1000 /data/a\n0:0 /data/new\n" {
			t.Errorf("%v: %s", more, res)
		}
	}
	h.must("gc", "--grace-period=0s", "--volumes")
}

// TestPrivateUsersRefused: what can't be had is named, and leaves no ids taken.
func TestPrivateUsersRefused(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	first := h.start([]string{"--private-users=3000000000:70000", "--net=none"}, app{name: "a", script: "exec sleep 1000"})
	first.running()
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--private-users=3000069999:10"}, "pod " + first.uuid() + " has 3000000000:70000 of them"},
		{[]string{"--private-users=0:10"}, "begins with the host's root"},
		{[]string{"--private-users=4294967295:10"}, "ends above the greatest id"},
		{[]string{"--private-users=yes please"}, "neither auto nor START:COUNT"},
		{[]string{"--private-users=3100000000:1000", "--user=1000"}, "user 1000: the pod has only ids below 1000"},
		{[]string{"--private-users=3100001000:1000", "--supplementary-gids=1,1000"}, "group 1000: the pod has only ids below 1000"},
		{[]string{"--private-users", "--volume=v,kind=host,source=/proc,recursive=false,idmap=true", "--mount=volume=v,target=/v"}, "proc can't be one"},
		{[]string{"--volume=v,kind=host,source=/tmp,idmap=true", "--mount=volume=v,target=/v"}, "idmap: the pod's ids are the host's"},
		{[]string{"--private-users", "--volume=v,kind=tmpfs,idmap=true", "--mount=volume=v,target=/v"}, "idmap: not for a volume of kind tmpfs"},
		{[]string{"--private-users=3100002000:1000", "--volume=v,kind=empty,uid=1000", "--mount=volume=v,target=/v"}, "uid 1000: the pod has only ids below 1000"},
	} {
		res := h.run(image("busybox.aci"), append(c.flags, "--net=none"), "echo ran")
		if res.code != 254 || res.stdout != "" || !strings.Contains(res.stderr, c.want) {
			t.Errorf("%v: not %q but %s", c.flags, c.want, res)
		}
	}
	h.must("stop", "--force", first.uuid())
	first.wait()
	h.must("gc", "--grace-period=0s")
	for _, start := range []string{"3000000000", "3000069999", "3100000000", "3100001000", "3100002000"} {
		if _, err := os.Stat(filepath.Join(leases, start)); err == nil {
			t.Errorf("%s is still taken", start)
		}
	}
}

// TestPrivateUsersPod looks at the parts that a pod's user namespace changes
// beside its files.
func TestPrivateUsersPod(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	file := filepath.Join(t.TempDir(), "uuid")
	uuid := strings.TrimSpace(h.must("prepare", "--quiet", "--uuid-file-save="+file, "--insecure-options=image", "--private-users", "--sysctl=kernel.msgmax=4096", "--sysctl=net.core.somaxconn=77", "--sysctl=fs.mqueue.msg_max=11",
		image("busybox.aci"), "--name=web", "--user=app", "--caps-retain=CAP_SYS_PTRACE,CAP_KILL,CAP_SETUID,CAP_SETGID", "--exec=/bin/sh", "--", "-c", "touch /tmp/there; echo up $(ls /tmp); exec sleep 1000", "---",
		image("busybox.aci"), "--name=admin", "--caps-retain=CAP_SYS_ADMIN,CAP_CHOWN,CAP_DAC_OVERRIDE", "--seccomp=mode=retain,@appc.io/all", "--device=/dev/loop-control", "--exec=/bin/sh", "--", "-c", "exec sleep 1000"))
	ids := h.users(uuid)
	if ids == nil || h.holder(ids) != uuid {
		t.Fatalf("a prepared pod has not got its ids: %v", ids)
	}
	p := h.begin(file, "run-prepared", uuid)
	p.running()
	p.logged("web", "up there")
	enter := func(app string, more ...string) result {
		return h.rkt(append([]string{"enter", "--app=" + app}, more...)...)
	}
	for _, c := range []struct {
		res    result
		stdout string
	}{
		{enter("web", uuid, "/bin/sh", "-c", "id -u; id -g; cat /proc/sys/kernel/msgmax /proc/sys/net/core/somaxconn /proc/sys/fs/mqueue/msg_max"), "1000\n0\n4096\n77\n11\n"},
		{enter("web", "--user=root", uuid, "/bin/sh", "-c", "id -u; touch /roots; stat -c %u:%g /roots /tmp/there; grep -h ^Cap[PE] /proc/self/status"),
			"0\n0:0\n1000:0\nCapPrm:\t00000000000800e0\nCapEff:\t00000000000800e0\n"},
		{enter("web", "--user=root", uuid, "/bin/cat", "/proc/self/uid_map"), fmt.Sprintf("%10d %10d %10d\n", 0, ids.Start, ids.Count)},
		// May mount, but not take away what hides or protects.
		{enter("admin", uuid, "/bin/sh", "-c", "mkdir /m && mount -t tmpfs x /m && touch /m/f && stat -c %u /m/f; for w in 'mount --bind /proc /m' 'mount -t proc proc /m' 'mount -t sysfs sysfs /m' 'umount /proc/sys' 'mount -o remount,rw /proc/sys' 'umount /proc/kcore' 'umount /sys'; do $w 2>/dev/null && echo $w; done; stat -c '%u %F' /dev/loop-control; exit 0"),
			"0\n0 character special file\n"},
	} {
		if c.res.code != 0 || c.res.stdout != c.stdout {
			t.Errorf("not %q but %s", c.stdout, c.res)
		}
	}
	// A new execution begins afresh, in the same namespace.
	h.must("app", "restart", "--app=web", uuid)
	until(t, "the second one is up", func() bool { return strings.Count(h.must("logs", "--app=web", uuid), "up there\n") == 2 })
	if res := enter("web", uuid, "/bin/sh", "-c", "ls /roots 2>&1; stat -c %u:%g /tmp/there"); !strings.HasSuffix(res.stdout, "1000:0\n") || !strings.Contains(res.stdout, "No such file") {
		t.Errorf("after a restart: %s", res)
	}
	h.must("stop", uuid)
	p.wait()
}

// TestPrivateUsersMany starts a hundred pods at once: no two have an id in
// common, each one's files are its own, and gc frees all ids.
func TestPrivateUsersMany(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.must("fetch", "--insecure-options=image", image("busybox.aci"))
	const count = 100
	pods := make([]*pod, count)
	for i := range pods {
		pods[i] = h.start([]string{"--private-users=auto", "--net=none"}, app{name: "a", script: "touch /root-file; su app -c 'touch /tmp/app-file'"})
	}
	taken := map[string]*idrange.Range{}
	for _, p := range pods {
		if res := p.wait(); res.code != 0 {
			t.Fatal(res)
		}
		ids := h.users(p.uuid())
		if ids == nil || h.holder(ids) != p.uuid() {
			t.Fatalf("ids of pod %s: %v", p.uuid(), ids)
		}
		for other, theirs := range taken {
			if theirs.Overlaps(*ids) {
				t.Errorf("pods %s and %s have %s and %s", other, p.uuid(), theirs, ids)
			}
		}
		taken[p.uuid()] = ids
		upper := filepath.Join(h.dir, "pods", "run", p.uuid(), "apps", "a", "0", "upper")
		for name, id := range map[string]int{".": 0, "root-file": 0, "tmp/app-file": 1000} {
			if own, want := owners(t, filepath.Join(upper, name))["."], strconv.Itoa(ids.Host(id)); !strings.HasPrefix(own, want+":") {
				t.Errorf("pod %s: %s belongs to %s, not %s", p.uuid(), name, own, want)
			}
		}
	}
	h.must("gc", "--grace-period=0s")
	for uuid, ids := range taken {
		if h.holder(ids) == uuid {
			t.Errorf("%s of pod %s are still taken", ids, uuid)
		}
	}
}

// holder is the pod that has the ids now: other tests take what is free.
func (h *host) holder(r *idrange.Range) string {
	var l struct {
		UUID string `json:"uuid"`
	}
	data, err := os.ReadFile(filepath.Join(leases, strconv.FormatUint(uint64(r.Start), 10)))
	if err == nil {
		err = json.Unmarshal(data, &l)
	}
	if err != nil && !os.IsNotExist(err) {
		h.t.Fatal(err)
	}
	return l.UUID
}

// TestEscapeUsers: with all capabilities of its user namespace, and a filter that
// lets every call pass, an app rules nothing but what is its own.
func TestEscapeUsers(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	flags := []string{"--private-users", "--insecure-options=image,capabilities,seccomp"}
	h.confined(flags, 6, "cgroup")
	all := h.escape(flags, "write", "read", "kernel", "mounts")
	if len(all) < 150 {
		t.Fatalf("only %d were tried: %v", len(all), all)
	}
	for name, what := range all {
		if strings.HasPrefix(what, "WORKED") && !slices.ContainsFunc(itsOwn, func(own string) bool { return strings.HasPrefix(name, own) }) {
			t.Errorf("%s %s", name, what)
		}
	}
}

// itsOwn is what root of a user namespace may do in it: change what is mounted
// in the app, its host name, and the end of the pod; and calls that take no
// right, or look at their arguments before they ask for one.
var itsOwn = []string{
	"mounts fsopen ", "mounts cover ", "mounts bind ", "mounts mount tmpfs", "mounts propagation", "kernel host name", "kernel reboot",
	"kernel perf", "kernel bpf", "kernel userfaultfd", "kernel io_uring", "kernel swap", "kernel socket to the hypervisor",
}
