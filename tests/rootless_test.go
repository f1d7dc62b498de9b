package tests

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rkt-pods/rkt/pkg/cgroup"
	"github.com/rkt-pods/rkt/tests/images"
)

// The ordinary user of these tests, and the ids that belong to him.
const (
	plainUser  = 5555
	plainStart = 500000
)

// plain is a host as an ordinary user sees it who may use 65536 more ids, with
// a cgroup of his own. His commands have an /etc of their own for that.
type plain struct {
	*host
	home  string
	group string // the cgroup folder that is his
	image string
}

// newPlain makes the user's place.
func newPlain(t *testing.T) *plain {
	t.Helper()
	for _, need := range []string{"newuidmap", "newgidmap", "setpriv", "unshare"} {
		if _, err := exec.LookPath(need); err != nil {
			t.Fatalf("%v: `make host` installs it", err)
		}
	}
	dir, err := os.MkdirTemp("/var/tmp", "rkt-test-plain-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := &plain{host: &host{t: t, dir: filepath.Join(dir, "home", "data")}, home: filepath.Join(dir, "home")}
	p.image = filepath.Join(p.home, "busybox.aci")
	detected, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	p.group = filepath.Join(detected.Unified, filepath.Base(dir))
	p.sh(fmt.Sprintf(`set -e
		chmod 755 %[1]s; mkdir %[1]s/home %[1]s/bin %[1]s/etc
		cp -r %[2]s/. %[1]s/bin
		cp %[3]s %[1]s/home/busybox.aci
		cp /etc/passwd /etc/group %[1]s/etc; echo 'plain:x:%[4]d:%[4]d::%[1]s/home:/bin/sh' >>%[1]s/etc/passwd; echo 'plain:x:%[4]d:' >>%[1]s/etc/group
		echo plain:%[5]d:65536 >%[1]s/etc/subuid; cp %[1]s/etc/subuid %[1]s/etc/subgid
		touch /etc/subuid /etc/subgid
		mkdir %[6]s; for c in $(cat %[6]s/cgroup.controllers); do echo +$c >%[6]s/cgroup.subtree_control || true; done
		chown %[4]d:%[4]d %[6]s %[6]s/cgroup.procs %[6]s/cgroup.threads %[6]s/cgroup.subtree_control
		chown -R %[4]d:%[4]d %[1]s/home`, dir, bin, image("busybox.aci"), plainUser, plainStart, p.group))
	t.Cleanup(func() { p.sh(fmt.Sprintf("find %s -depth -type d -exec rmdir {} \\;", p.group)) })
	t.Cleanup(p.clean)
	script := fmt.Sprintf(`for f in passwd group subuid subgid; do mount --bind %s/etc/$f /etc/$f || exit 99; done
		g=%s/$$; mkdir $g && chown %[3]d:%[3]d $g $g/cgroup.procs $g/cgroup.threads $g/cgroup.subtree_control && echo $$ >$g/cgroup.procs || exit 99
		shift # the programs lie where he can reach them
		exec setpriv --reuid %[3]d --regid %[3]d --clear-groups env -i HOME=%[4]s PATH=$PATH $PLAIN_ENV %[1]s/bin/rkt "$@"`, dir, p.group, plainUser, p.home)
	p.inside = []string{"unshare", "-m", "--propagation=private", "sh", "-c", script, "plain"}
	return p
}

func (p *plain) sh(script string) {
	p.t.Helper()
	if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
		p.t.Fatalf("%v: %s", err, out)
	}
}

// run runs a shell script in a pod of one app, as the user does.
func (p *plain) run(flags []string, script string) result {
	p.t.Helper()
	args := append([]string{"run", "--insecure-options=image", p.image, "--exec=/bin/sh"}, flags...)
	return p.rkt(append(args, "--", "-c", script)...)
}

func TestRootless(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T, *plain){
		"Run": rootlessRun, "Volumes": rootlessVolumes, "Life": rootlessLife, "Killed": rootlessKilled, "Refused": rootlessRefused, "Folder": rootlessFolder, "Layers": rootlessLayers, "Escape": rootlessEscape,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newPlain(t))
		})
	}
}

// rootlessRun: what an app sees, what it may, and who has what it writes.
func rootlessRun(t *testing.T, p *plain) {
	res := p.run([]string{"--net=none"}, strings.Join([]string{
		"id -u; cat /proc/self/uid_map", "touch /root-file; su app -c 'touch /tmp/app-file; id -u'", "stat -c %u:%g /root-file /tmp/app-file /dev /etc/hosts",
		"echo x >/dev/null; head -c1 /dev/zero | wc -c; ls /sys/class/net",
		"mknod /node c 1 3 2>&1; echo 1 2>&1 >/proc/sys/kernel/panic; mount -t tmpfs x /tmp 2>&1; hostname x 2>&1; exit 7",
	}, "\n"))
	want := fmt.Sprintf("0\n%10d %10d %10d\n%10d %10d %10d\n1000\n0:0\n1000:1000\n0:0\n0:0\n1\nlo\n", 0, plainUser, 1, 1, plainStart, 65536)
	if res.code != 7 || !strings.HasPrefix(res.stdout, want) || strings.Count(res.stdout, "ermi") != 3 {
		t.Errorf("not %s\nbut %s", want, res)
	}
	uppers, err := filepath.Glob(filepath.Join(p.dir, "pods/run/*/apps/*/0/upper"))
	if err != nil || len(uppers) != 1 {
		t.Fatalf("%v, %v", uppers, err)
	}
	for name, want := range map[string]int{"root-file": plainUser, "tmp/app-file": plainStart + 999, ".": plainUser} {
		if own := owners(t, filepath.Join(uppers[0], name))["."]; own != fmt.Sprintf("%d:%[1]d", want) {
			t.Errorf("%s belongs to %s, not %d", name, own, want)
		}
	}
	// The host's network is the one network that there is.
	res = p.run([]string{"--net=host"}, "readlink /proc/self/ns/net; ls /sys/kernel >/dev/null && touch /sys/x 2>&1; cat /etc/hostname; echo $HOME")
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil || res.code != 0 || !strings.HasPrefix(res.stdout, own+"\n") || !strings.Contains(res.stdout, "Read-only file system") {
		t.Errorf("%v: %s", err, res)
	}
	if res := p.run(nil, "ls /sys/class/net"); res.code != 0 || res.stdout != "lo\n" || !strings.Contains(res.stderr, "warning: the pod has no network") {
		t.Errorf("%s", res)
	}
	if res := p.run([]string{"--net=none", "--inherit-env"}, "env"); res.code != 0 || strings.Contains(res.stdout, "ROOTLESS") || !strings.Contains(res.stdout, "HOME="+p.home) {
		t.Errorf("%s", res)
	}
	if res := p.run([]string{"--net=none", "--private-users"}, "echo in one"); res.code != 0 || res.stdout != "in one\n" {
		t.Errorf("%s", res)
	}
}

func rootlessVolumes(t *testing.T, p *plain) {
	p.sh(fmt.Sprintf("mkdir %[1]s/src && echo mine >%[1]s/src/f && echo hush >%[1]s/secret && chmod 600 %[1]s/secret %[1]s/src/f && chown -R %[2]d:%[2]d %[1]s/src %[1]s/secret", p.home, plainUser))
	p.must("fetch", "--insecure-options=image", p.image)
	flags := []string{"--net=none"}
	for _, v := range []string{
		"host,kind=host,source=" + p.home + "/src", "named,kind=named", "empty,kind=empty,uid=33", "mem,kind=tmpfs,uid=5,gid=6", "img,kind=image,source=example.com/busybox:1.0", "secret,kind=secret,source=" + p.home + "/secret", "etc,kind=host,source=/etc,readOnly=true",
	} {
		name, _, _ := strings.Cut(v, ",")
		flags = append(flags, "--volume="+v, "--mount=volume="+name+",target=/v/"+name)
	}
	res := p.run(flags, strings.Join([]string{
		"cat /v/host/f /v/secret/secret", "for d in host named empty mem; do touch /v/$d/new && stat -c '%u %n' /v/$d /v/$d/new; done", "ls /v/img/bin/sh; touch /v/img/x 2>&1; touch /v/etc/x 2>&1; cat /v/etc/shadow 2>&1",
	}, "\n"))
	want := "mine\nhush\n0 /v/host\n0 /v/host/new\n0 /v/named\n0 /v/named/new\n33 /v/empty\n0 /v/empty/new\n5 /v/mem\n0 /v/mem/new\n/v/img/bin/sh\ntouch: /v/img/x: Read-only file system\ntouch: /v/etc/x: Read-only file system\ncat: can't open '/v/etc/shadow': Permission denied\n"
	if res.stdout != want {
		t.Errorf("not %s\nbut %s", want, res)
	}
	if own := owners(t, filepath.Join(p.home, "src", "new"))["."]; own != fmt.Sprintf("%d:%[1]d", plainUser) {
		t.Errorf("the new file belongs to %s", own)
	}
	p.must("gc", "--grace-period=0s", "--volumes")
}

// rootlessLife: the commands that look at a pod, and change it.
func rootlessLife(t *testing.T, p *plain) {
	file := filepath.Join(p.home, "uuid")
	uuid := strings.TrimSpace(p.must("prepare", "--quiet", "--insecure-options=image", "--pod-name=shop", p.image, "--name=web", "--user=app", "--device=/dev/null:/dev/mine", "--exec=/bin/sh", "--", "-c", "echo up; trap 'exit 0' TERM; while :; do sleep 1; done"))
	if err := os.WriteFile(file, []byte(uuid), 0o644); err != nil {
		t.Fatal(err)
	}
	run := p.begin(file, "run-prepared", "--net=none", uuid)
	// A second one, which has a namespace of its own, since it begins at the same time.
	other := p.begin(filepath.Join(p.home, "other"), "run", "--insecure-options=image", "--net=none", "--uuid-file-save="+filepath.Join(p.home, "other"), p.image, "--exec=/bin/sleep", "--", "1000")
	run.running()
	other.running()
	run.logged("web", "up")
	for _, c := range []struct{ res, want string }{
		{p.must("enter", "shop", "/bin/sh", "-c", "id -u; stat -c %F /dev/mine; grep CapEff /proc/self/status"), "1000\ncharacter special file\nCapEff:\t0000000000000000\n"},
		{p.must("enter", "--user=root", uuid[:8], "/bin/id", "-u"), "0\n"},
		{p.must("enter", other.uuid(), "/bin/id", "-u"), "0\n"},
		{p.must("list", "--no-legend", "--filter=name=shop"), "web"},
		{p.must("logs", "shop"), "up\n"},
		{p.must("status", "shop"), "state=running\n"},
	} {
		if !strings.Contains(c.res, c.want) {
			t.Errorf("not %q but %q", c.want, c.res)
		}
	}
	p.must("app", "restart", "--app=web", "shop")
	until(t, "the second one is up", func() bool { return strings.Count(p.must("logs", "shop"), "up\n") == 2 })
	p.must("pause", "shop")
	p.must("unpause", "shop")
	p.must("stop", "shop")
	if res := run.wait(); res.code != 0 {
		t.Errorf("%s", res)
	}
	p.must("stop", "--force", other.uuid())
	other.wait()
	p.must("rm", uuid)
}

// rootlessKilled: nothing outlives the supervisor, and gc finds what is left.
func rootlessKilled(t *testing.T, p *plain) {
	file := filepath.Join(p.home, "uuid")
	run := p.begin(file, "run", "--insecure-options=image", "--net=none", "--uuid-file-save="+file, p.image, "--exec=/bin/sh", "--", "-c", "(setsid sleep 1001 &) ; exec sleep 1000")
	s := run.running()
	app := s.Apps[0].Status.PID
	if err := syscall.Kill(s.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "the app is gone", func() bool { return syscall.Kill(app, 0) != nil })
	run.wait()
	p.must("gc", "--grace-period=0s")
	p.must("gc", "--check")
	if text := p.must("list", "--no-legend"); text != "" {
		t.Errorf("left: %s", text)
	}
}

// rootlessRefused: what can't be given is named.
func rootlessRefused(t *testing.T, p *plain) {
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--net=default"}, "network default: takes the host's root to make"},
		{[]string{"--port=80-tcp:8080"}, "port 80-tcp: the pod has no network"},
		{[]string{"--net=none", "--private-users=600000:65536"}, "user ids 600000:65536: only the host's root can give them"},
		{[]string{"--net=none", "--ulimit=nofile=100000000"}, "nofile"},
		{[]string{"--net=none", "--nice=-5"}, "nice"},
		{[]string{"--net=none", "--user=70000"}, "70000"},
	} {
		if res := p.run(c.flags, "echo ran"); res.code != 254 || res.stdout != "" || !strings.Contains(res.stderr, c.want) {
			t.Errorf("%v: not %q but %s", c.flags, c.want, res)
		}
	}
	// Limits hold where the cgroup has the controller, and are refused elsewhere.
	res := p.run([]string{"--net=none", "--pids=7"}, "for i in 1 2 3 4 5 6 7 8 9; do sleep 1000 & done 2>&1; kill $(jobs -p); echo done")
	controllers, err := os.ReadFile(filepath.Join(p.group, "cgroup.controllers"))
	if err != nil {
		t.Fatal(err)
	}
	if has := bytes.Contains(controllers, []byte("pids")); has && !strings.Contains(res.stdout+res.stderr, "fork") || !has && (res.code != 254 || !strings.Contains(res.stderr, "pids controller")) {
		t.Errorf("controllers %q: %s", controllers, res)
	}
	// Without a cgroup of his own, without ids, and without the programs.
	outside := p.command("run", "--insecure-options=image", "--net=none", p.image)
	for i, a := range outside.Args {
		outside.Args[i] = strings.Replace(a, "echo $$ >$g/cgroup.procs", "true", 1)
	}
	if out, _ := outside.CombinedOutput(); outside.ProcessState.ExitCode() != 254 || !strings.Contains(string(out), "not this user's to change") {
		t.Errorf("without a cgroup: %s", out)
	}
	p.sh("echo nobody:1:1 >" + filepath.Dir(p.home) + "/etc/subgid")
	if res := p.run([]string{"--net=none"}, "echo ran"); res.code != 254 || !strings.Contains(res.stderr, "user plain has no ids in /etc/subuid, or none in /etc/subgid") {
		t.Errorf("without ids: %s", res)
	}
	p.sh(fmt.Sprintf("cp %[1]s/etc/subuid %[1]s/etc/subgid", filepath.Dir(p.home)))
	if res := p.rkt("--dir=/var/lib/rkt-of-another", "gc"); res.code != 254 || !strings.Contains(res.stderr, "cannot run as unprivileged user") {
		t.Errorf("in root's folder: %s", res)
	}
}

// rootlessFolder: without --dir the user's data is in his own folder.
func rootlessFolder(t *testing.T, p *plain) {
	run := func(env string, args ...string) string {
		cmd := exec.Command(p.inside[0], append(append(p.inside[1:len(p.inside):len(p.inside)], "rkt"), args...)...)
		cmd.Env = append(os.Environ(), "PLAIN_ENV="+env)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v: %v: %s", args, err, out)
		}
		return string(out)
	}
	for env, dir := range map[string]string{"A=1": ".local/share/rkt", "XDG_DATA_HOME=" + p.home + "/xdg": "xdg/rkt"} {
		if out := run(env, "run", "--rm", "--insecure-options=image", "--net=none", p.image, "--exec=/bin/echo", "--", "here"); out != "here\n" && !strings.HasSuffix(out, "\nhere\n") {
			t.Errorf("%s: %s", env, out)
		}
		if _, err := os.Stat(filepath.Join(p.home, dir, "store", "id")); err != nil {
			t.Error(err)
		}
		if out := run(env, "list", "--no-legend"); out != "" {
			t.Errorf("%s: listed: %s", env, out)
		}
		if out := run(env, "image", "list", "--no-legend", "--fields=name"); strings.TrimSpace(out) != "example.com/busybox:1.0" {
			t.Errorf("%s: images: %s", env, out)
		}
		run(env, "gc", "--grace-period=0s")
	}
}

// rootlessLayers: whiteouts and opaque folders hide what is below, also those
// that an app makes, and owners are the image's.
func rootlessLayers(t *testing.T, p *plain) {
	img := writeImage(t, "example.com/stacked:1", []images.Entry{
		images.Dir("a", 0o755), images.File("a/gone", 0o644, "x"), images.File("a/stays", 0o644, "x"), images.Dir("b", 0o755), images.File("b/below", 0o644, "x"), owned(images.File("theirs", 0o600, "x"), 1234, 4321),
	}, []images.Entry{
		images.File("a/.wh.gone", 0o644, ""), images.Dir("b", 0o755), images.File("b/.wh..wh..opq", 0o644, ""), images.File("b/above", 0o644, "x"),
	})
	p.sh(fmt.Sprintf("cp -r %s %s/layout && chown -R %d %[2]s/layout", img, p.home, plainUser))
	args := []string{"run", "--insecure-options=image", "--net=none", filepath.Join(p.home, "layout"), "--exec=/bin/sh", "--", "-c", "ls /a /b; stat -c %u:%g /theirs; rm -r /a/stays /b && mkdir /b && ls /a /b"}
	if res := p.rkt(args...); res.code != 0 || res.stdout != "/a:\nstays\n\n/b:\nabove\n1234:4321\n/a:\n\n/b:\n" {
		t.Errorf("%s", res)
	}
	p.must("image", "verify", "--all")
	for name, own := range owners(t, filepath.Join(p.dir, "store", "layers")) {
		if id, _ := strconv.Atoi(strings.Split(own, ":")[0]); id != plainUser && (id < plainStart || id >= plainStart+65536) {
			t.Errorf("%s belongs to %s", name, own)
		}
	}
}

// rootlessEscape: the attacks on pods of root's fail here as well.
func rootlessEscape(t *testing.T, p *plain) {
	p.attack = filepath.Join(p.home, "escape.aci")
	p.sh("cp " + image("escape.aci") + " " + p.attack)
	for _, flags := range [][]string{nil, {"--user=1000", "--group=1000"}, {"--no-new-privileges"}} {
		p.confined(flags, 180, "write", "read", "mounts", "namespaces", "kernel", "descriptors")
		p.confined(flags, 12, "devices")
		p.confined(flags, 6, "cgroup")
	}
	file := filepath.Join(p.home, "uuid")
	run := p.begin(file, "run", "--insecure-options=image", "--net=none", "--uuid-file-save="+file, p.attack, "--exec=/bin/sleep", "--", "1000")
	supervisor := run.running().PID
	res := p.rkt("enter", run.uuid(), "/escape", fmt.Sprintf("processes:%d", supervisor))
	all := parseTries(t, res)
	delete(all, "processes strangers") // the app itself is seen from beside it
	if len(all) < 25 || len(all.worked()) > 0 {
		t.Errorf("%v of %d", all.worked(), len(all))
	}
	p.must("stop", "--force", run.uuid())
	run.wait()
}
