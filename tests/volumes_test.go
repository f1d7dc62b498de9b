package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/tests/images"
)

// TestPropagation: what is mounted and unmounted on the host below a volume is
// seen in it if the volume is a slave, and neither goes out. All of it happens
// in a mount namespace of the test's own.
func TestPropagation(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	top := t.TempDir()
	for _, c := range []struct {
		options, want string
	}{
		{"", "before\nlater\n"},
		{",propagation=slave", "before\nlater\n"},
		{",propagation=private", "before\n"},
		{",readOnly=true", "before\n"},
		{",readOnly=true,propagation=slave", "before\nlater\n"},
	} {
		volume := filepath.Join(top, "v")
		inside := []string{
			"run", "--insecure-options=image", "--uuid-file-save=" + filepath.Join(top, "uuid"),
			"--volume=v,kind=host,source=" + volume + c.options, image("busybox.aci"), "--mount=volume=v,target=/v", "--exec=/bin/sh",
			"--", "-c", "echo up; until test -e /v/go; do :; done; cat /v/one/f /v/two/f 2>/dev/null; if echo x 2>/dev/null >/v/one/w; then echo written; fi; exit 0",
		}
		script := `set -e
			mkdir -p $V; mount -t tmpfs none $V; mount --make-shared $V; mkdir $V/one $V/two
			mount -t tmpfs none $V/one; echo before >$V/one/f
			"$@" & pod=$!
			until test -s $TOP/uuid && "$RKT" --dir="$DIR" status --uuid-file=$TOP/uuid 2>/dev/null | grep -q '^state=running' && "$RKT" --dir="$DIR" logs --uuid-file=$TOP/uuid 2>/dev/null | grep -q up; do :; done
			mount -t tmpfs none $V/two; echo later >$V/two/f; touch $V/go
			wait $pod`
		cmd := h.command(inside...)
		cmd.Args = append([]string{"unshare", "--mount", "--propagation=private", "sh", "-c", script, "sh"}, append([]string{cmd.Path}, cmd.Args[1:]...)...)
		rkt := cmd.Path
		unshare, err := exec.LookPath("unshare")
		if err != nil {
			t.Fatal(err)
		}
		cmd.Path = unshare
		cmd.Env = append(cmd.Env, "V="+volume, "TOP="+top, "RKT="+rkt, "DIR="+h.dir)
		out, err := cmd.Output()
		want := "up\n" + c.want
		if !strings.Contains(c.options, "readOnly") {
			want += "written\n"
		}
		if err != nil || string(out) != want {
			t.Errorf("%q: got %q, %v, want %q", c.options, out, err, want)
		}
		if err := os.Remove(filepath.Join(top, "uuid")); err != nil {
			t.Fatal(err)
		}
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), top) {
		t.Errorf("something of it is mounted on the host: %v", err)
	}
}

// TestReadOnlyIsRecursive: what is mounted below a read-only volume can't be
// written to either, by whatever way it is mounted.
func TestReadOnlyIsRecursive(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for _, target := range []string{"/v", "/dev/v"} {
		res := h.run(image("busybox.aci"), []string{"--volume=v,kind=host,source=/dev,readOnly=true", "--mount=volume=v,target=" + target},
			"for d in "+target+" "+target+"/shm "+target+"/pts; do test -d $d || continue; touch $d/rkt-test-x 2>/dev/null && echo written $d; done; true")
		if res.code != 0 || res.stdout != "" {
			t.Errorf("%s: %s", target, res)
		}
	}
}

// TestEnterAs: another user, folder and environment, with the app's rights.
func TestEnterAs(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.start(nil, app{name: "web", script: "exec sleep 1000", flags: []string{"--user=app", "--caps-retain=CAP_KILL"}})
	p.running()
	for _, c := range []struct {
		flags  []string
		code   int
		stdout string
		stderr string
	}{
		{nil, 0, "1000 0 / /home/app\n", ""},
		{[]string{"--user=root"}, 0, "0 0 / /root\n", ""},
		{[]string{"--user=root", "--cwd=/etc", "--env=HOME=/x"}, 0, "0 0 /etc /x\n", ""},
		{[]string{"--user=app:4321"}, 0, "1000 4321 / /home/app\n", ""},
		{[]string{"--user=1234:5678"}, 0, "1234 5678 / /\n", ""},
		{[]string{"--user=nosuch"}, 254, "", `user "nosuch": not in the image`},
		{[]string{"--user=app:nosuch"}, 254, "", `group "nosuch": not in the image`},
		{[]string{"--cwd=/nosuch"}, 254, "", "/nosuch"},
		{[]string{"--cwd=etc"}, 254, "", "etc"},
		{[]string{"--user=:"}, 254, "", "not USER[:GROUP]"},
		{[]string{"--env=1=2"}, 254, "", "1"},
	} {
		args := append(append([]string{"enter"}, c.flags...), p.uuid(), "/bin/sh", "-c", "echo $(id -u) $(id -g) $(pwd) $HOME")
		res := h.rkt(args...)
		if res.code != c.code || res.stdout != c.stdout || !strings.Contains(res.stderr, c.stderr) {
			t.Errorf("%v: %s", c.flags, res)
		}
	}
	// CAP_KILL is number 5, and all that anybody in there can have.
	res := h.rkt("enter", "--user=root", p.uuid(), "/bin/grep", "-E", "Cap(Prm|Eff|Bnd)|Seccomp:", "/proc/self/status")
	if strings.Count(res.stdout, "0000000000000020") != 3 || !strings.Contains(res.stdout, "Seccomp:\t2") {
		t.Errorf("rights: %s", res)
	}
	h.must("stop", "--force", p.uuid())
	p.wait()
}

// TestEnterWithNoNewPrivileges: nobody in such an app can become another user.
func TestEnterWithNoNewPrivileges(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.must("fetch", "--insecure-options=image", image("busybox.aci"))
	id := strings.TrimSpace(h.must("image", "list", "--no-legend", "--full", "--fields=id"))
	manifest := filepath.Join(t.TempDir(), "pod.json")
	text := `{"acVersion":"0.8.11","acKind":"PodManifest","apps":[{"name":"web","image":{"id":"` + id + `"},
		"app":{"exec":["/bin/sleep","1000"],"user":"1000","group":"1000","isolators":[{"name":"os/linux/no-new-privileges","value":true}]}}]}`
	if err := os.WriteFile(manifest, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	uuid := strings.TrimSpace(h.must("prepare", "--quiet", "--pod-manifest="+manifest))
	cmd := h.command("run-prepared", uuid)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "the app runs", func() bool {
		s := h.status(uuid)
		return len(s.Apps) == 1 && s.Apps[0].Status != nil && s.Apps[0].Status.State == "running"
	})
	if res := h.rkt("enter", "--user=root", uuid, "/bin/id"); res.code != 254 || !strings.Contains(res.stderr, "no-new-privileges") {
		t.Errorf("as root: %s", res)
	}
	if res := h.rkt("enter", "--user=app", uuid, "/bin/id", "-u"); res.code != 0 || res.stdout != "1000\n" {
		t.Errorf("as the app's user: %s", res)
	}
	h.must("stop", "--force", uuid)
	if err := cmd.Wait(); err == nil {
		t.Error("the stopped pod ended with 0")
	}
}

// TestNamedVolumeOfTwoPods: two pods that find one volume fresh share what the
// first one filled it with, and neither loses what the other writes.
func TestNamedVolumeOfTwoPods(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	var many []images.Entry
	many = append(many, images.Dir("data", 0o755))
	for _, c := range "abcdefghijklmnopqrstuvwxyz" {
		many = append(many, images.File("data/"+string(c), 0o644, strings.Repeat(string(c), 4096)))
	}
	img := writeImage(t, "example.com/seeded:1", many)
	h.must("fetch", "--insecure-options=image", img)
	results := make(chan result, 4)
	for _, who := range []string{"1", "2", "3", "4"} {
		go func() {
			res := h.run("example.com/seeded:1", []string{"--volume=v,kind=named,source=shared", "--mount=volume=v,target=/data"},
				"ls /data | grep -c '^[a-z]$'; echo "+who+" >/data/from-"+who)
			results <- res
		}()
	}
	for range 4 {
		if res := <-results; res.code != 0 || res.stdout != "26\n" {
			t.Errorf("%s", res)
		}
	}
	res := h.run("example.com/seeded:1", []string{"--volume=v,kind=named,source=shared", "--mount=volume=v,target=/data"}, "cat /data/from-*")
	if res.stdout != "1\n2\n3\n4\n" {
		t.Errorf("%s", res)
	}
	h.must("gc", "--grace-period=0s", "--volumes")
}
