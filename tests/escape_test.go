package tests

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/tests/images"
)

// tries are what the program escape tried, by name, and what came of each.
type tries map[string]string

// parseTries reads what escape printed; what is no attempt has the name "#".
func parseTries(t testing.TB, res result) tries {
	t.Helper()
	if res.code != 0 {
		t.Fatalf("the attacks did not come to their end: %s", res)
	}
	all := tries{}
	for line := range strings.Lines(res.stdout) {
		name, what, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if said, is := strings.CutPrefix(name, "# "); is && !ok {
			all["#"] += said + "\n"
			continue
		}
		all[name] = what
	}
	return all
}

// worked lists the attempts that were successful.
func (a tries) worked() []string {
	var list []string
	for name, what := range a {
		if strings.HasPrefix(what, "WORKED") {
			list = append(list, name+" "+what)
		}
	}
	slices.Sort(list)
	return list
}

// did says whether the attempt was made, and was successful.
func (a tries) did(t testing.TB, name string) bool {
	t.Helper()
	what, ok := a[name]
	if !ok {
		t.Errorf("%s was not tried", name)
	}
	return strings.HasPrefix(what, "WORKED")
}

// said is a value that escape told.
func (a tries) said(name string) string {
	for word := range strings.FieldsSeq(a["#"]) {
		if value, ok := strings.CutPrefix(word, name+"="); ok {
			return value
		}
	}
	return ""
}

// confined lets an app try the attacks, and fails if one of at least so many
// attempts works.
func (h *host) confined(flags []string, least int, attacks ...string) tries {
	h.t.Helper()
	all := h.escape(flags, attacks...)
	if got := all.worked(); len(got) > 0 {
		h.t.Errorf("%v %v:\n  %s", flags, attacks, strings.Join(got, "\n  "))
	}
	if len(all) < least {
		h.t.Errorf("%v: only %d were tried, not %d", attacks, len(all), least)
	}
	return all
}

// escape lets an app try the attacks.
func (h *host) escape(flags []string, attacks ...string) tries {
	h.t.Helper()
	args := slices.Concat([]string{"run", "--insecure-options=image", "--net=none", cmp.Or(h.attack, image("escape.aci")), "--exec=/escape"}, flags, []string{"--"}, attacks)
	return parseTries(h.t, h.rkt(args...))
}

// attacker starts a pod and returns at once.
func (h *host) attacker(args ...string) *pod {
	h.t.Helper()
	file := filepath.Join(h.t.TempDir(), "uuid")
	return h.begin(file, append([]string{"run", "--insecure-options=image", "--net=none", "--uuid-file-save=" + file}, args...)...)
}

// openDoors takes all confinement away: an attack that does not work there is none.
const openDoors = "--insecure-options=image,capabilities,paths,seccomp"

// users are the ways in which the attacks are made: as root with the default
// set, as one without rights, and with a filter that lets every call pass, so
// that the capabilities alone must hold.
var users = map[string][]string{
	"root":             nil,
	"user":             {"--user=1000", "--group=1000"},
	"without a filter": {"--seccomp=mode=retain,@appc.io/all"},
	"no new rights":    {"--no-new-privileges"},
	"delegated":        {"--cgroup-delegate"},
	"own ids":          {"--private-users"},
}

// TestEscapeProc: nothing in /proc and /sys by which one rules the host can be
// opened for writing, or reached by another name or another mount of it; what
// is hidden is empty (CVE-2019-16884, -19921, CVE-2023-27561; core_pattern,
// sysrq, the ring buffer).
func TestEscapeProc(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for who, flags := range users {
		all := h.confined(flags, 150, "write", "read", "mounts")
		if all["write /proc/sys/kernel/core_pattern"] == "" || all["read mode of /proc/keys"] == "" || t.Failed() {
			t.Fatalf("as %s: %v", who, all)
		}
	}
	open := h.escape([]string{openDoors}, "write", "read", "mounts")
	for _, name := range []string{"write /proc/sys/kernel/core_pattern", "write /proc/self/root/proc/sys/kernel/core_pattern", "read /proc/interrupts", "mounts mount proc", "mounts fsopen tmpfs", "mounts bind /proc/sys", "mounts open_tree"} {
		if !open.did(t, name) {
			t.Errorf("%s is no attack: it does not work with all doors open either: %s", name, open[name])
		}
	}
}

// TestEscapeNamespaces: no new namespace, above all none of users in which one
// has all rights, and none of another (CVE-2022-0185).
func TestEscapeNamespaces(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for _, flags := range users {
		if slices.Contains(flags, "--seccomp=mode=retain,@appc.io/all") {
			continue // a user namespace takes no right
		}
		h.confined(flags, 20, "namespaces")
	}
	open := h.escape([]string{openDoors}, "namespaces")
	for _, name := range []string{"namespaces unshare user", "namespaces clone user and mount", "namespaces setns net"} {
		if !open.did(t, name) {
			t.Errorf("%s is no attack: %s", name, open[name])
		}
	}
}

// TestEscapeProcesses: pod init shows nothing and can't be ended, and the
// supervisor can't even be seen.
func TestEscapeProcesses(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	dir := t.TempDir()
	for who, flags := range users {
		p := h.attacker(slices.Concat([]string{
			"--volume=v,kind=host,source=" + dir, image("escape.aci"), "--mount=volume=v,target=/v", "--exec=/bin/sh",
		}, flags, []string{"--", "-c", "until test -s /v/pid; do usleep 20000; done; exec /escape processes:$(cat /v/pid)"})...)
		supervisor := p.running().PID
		if err := os.WriteFile(filepath.Join(dir, "new"), []byte(fmt.Sprint(supervisor)), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "pid")); err != nil {
			t.Fatal(err)
		}
		all := parseTries(t, p.wait())
		if got := all.worked(); len(got) > 0 || len(all) < 25 {
			t.Errorf("as %s: %v of %d", who, got, len(all))
		}
		if err := os.Remove(filepath.Join(dir, "pid")); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEscapeDevices: devices that are none of the app's can be neither made nor
// opened, wherever their nodes come from.
func TestEscapeDevices(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	volume := t.TempDir()
	node := filepath.Join(volume, "node")
	if err := unix.Mknod(node, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 11))); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(node, 0o666); err != nil {
		t.Fatal(err)
	}
	mount := []string{"--volume=v,kind=host,source=" + volume, "--mount=volume=v,target=/v"}
	for who, flags := range users {
		all := h.escape(slices.Concat(mount, flags), "devices:/v/node")
		got := all.worked()
		if who == "own ids" && len(got) == 0 {
			continue // not even a null device can be made there
		}
		if len(all) < 12 || who != "user" && (len(got) != 1 || !strings.HasPrefix(got[0], "devices null ")) {
			t.Errorf("as %s: %v of %v", who, got, all)
		}
	}
	if open := h.escape(append(mount, openDoors), "devices:/v/node"); len(open.worked()) < 2 {
		t.Errorf("no device can be had with all doors open: %v", open)
	}
}

// TestEscapeKeyrings: no key of the host's is found (CVE-2016-9962 and after).
// With a filter that lets the calls pass there is a session keyring of the
// app's own; the user's keyring is the kernel's, one for each number of a user.
func TestEscapeKeyrings(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	runtime.LockOSThread() // whose session keyring it is, and that of what it starts
	defer runtime.UnlockOSThread()
	name := fmt.Sprintf("rkt-test-%d", os.Getpid())
	for _, ring := range []int{unix.KEY_SPEC_USER_KEYRING, unix.KEY_SPEC_SESSION_KEYRING} {
		id, err := unix.AddKey("user", name, []byte("secret"), ring)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if _, err := unix.KeyctlInt(unix.KEYCTL_UNLINK, id, ring, 0, 0); err != nil {
				t.Error(err)
			}
		}()
	}
	h.confined(nil, 7, "keyrings:"+name)
	h.confined([]string{"--user=1000"}, 7, "keyrings:"+name)
	open := h.escape([]string{"--seccomp=mode=retain,@appc.io/all"}, "keyrings:"+name)
	if open.did(t, "keyrings search session") || open.did(t, "keyrings list") {
		t.Errorf("the app has the session keyring of who started it: %v", open)
	}
	if !open.did(t, "keyrings add") {
		t.Errorf("the calls did not pass: %v", open)
	}
}

// TestEscapeKernel: the ring buffer, the clock, modules and what else is the
// kernel's own.
func TestEscapeKernel(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for who, flags := range users {
		if who == "without a filter" {
			continue // userfaultfd and io_uring take no right
		}
		h.confined(flags, 15, "kernel")
	}
	open := h.escape([]string{openDoors}, "kernel")
	for _, name := range []string{"kernel ring buffer", "kernel host name", "kernel bpf", "kernel reboot", "kernel accounting"} {
		if !open.did(t, name) {
			t.Errorf("%s is no attack: %s", name, open[name])
		}
	}
}

// TestEscapeCgroups: limits can't be lifted, no cgroup can be made, and no
// release agent be named (CVE-2022-0492).
func TestEscapeCgroups(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for who, flags := range users {
		flags = append(slices.Clone(flags), "--memory=64Mi")
		if who != "delegated" {
			h.confined(flags, 6, "cgroup")
			continue
		}
		// What is its own it may change, but no limit of its own and nothing above.
		all := h.escape(flags, "cgroup")
		if !all.did(t, "cgroup mkdir") {
			t.Errorf("delegation gives nothing: %v", all)
		}
		for _, name := range []string{"cgroup release_agent", "cgroup devices.allow", "cgroup mount memory", "cgroup mount rdma", "cgroup place above"} {
			if strings.HasPrefix(all[name], "WORKED") {
				t.Errorf("%s %s", name, all[name])
			}
		}
	}
}

// TestEscapeDescriptors: an app has its streams and nothing else, however it is
// started, and no way out by one that rkt has open (CVE-2024-21626,
// CVE-2016-9962).
func TestEscapeDescriptors(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.confined(nil, 2, "descriptors")
	h.confined([]string{"--user=1000", "--no-new-privileges"}, 2, "descriptors")
	p := h.attacker(image("escape.aci"), "--exec=/bin/sleep", "--", "1000")
	p.running()
	res := h.rkt("enter", p.uuid(), "/escape", "descriptors")
	if got := parseTries(t, res); len(got) != 2 || len(got.worked()) > 0 {
		t.Errorf("%v", got)
	}
	// With ".." it is the app's own /proc: a path is made shorter first.
	inside := func(res result) bool {
		return res.code == 254 || strings.HasPrefix(res.stdout, "/\n") || strings.HasPrefix(res.stdout, "/proc\n")
	}
	for n := range 24 {
		for _, dir := range []string{fmt.Sprintf("/proc/self/fd/%d", n), fmt.Sprintf("/proc/self/fd/%d/../../..", n)} {
			res := h.rkt("enter", "--cwd="+dir, p.uuid(), "/bin/sh", "-c", "pwd -P; ls -A .")
			if !inside(res) {
				t.Errorf("in %s: %s", dir, res)
			}
			if n%4 != 3 {
				continue // a pod for each takes its time
			}
			res = h.run(image("busybox.aci"), []string{"--working-dir=" + dir}, "pwd -P; ls -A .")
			if !inside(res) {
				t.Errorf("a pod in %s: %s", dir, res)
			}
		}
	}
	h.must("stop", "--force", p.uuid())
	p.wait()
}

// TestEscapeTrace: apps of one pod see each other, but one of another user is
// no more than seen.
func TestEscapeTrace(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for _, c := range []struct {
		victim, attacker []string
		works            bool
	}{
		{[]string{"--user=1000"}, []string{"--user=2000"}, false},
		{nil, []string{"--user=2000"}, false},
		{[]string{"--user=1000"}, []string{"--caps-remove=CAP_KILL"}, false},
		{[]string{"--user=1000"}, []string{"--user=1000"}, true},
	} {
		res := h.rkt(slices.Concat([]string{"run", "--insecure-options=image", "--net=none", "--exit-policy=any", "--log-prefix=never",
			image("busybox.aci"), "--name=victim", "--exec=/bin/sleep"}, c.victim, []string{"--", "1000", "---",
			image("escape.aci"), "--name=attacker", "--exec=/escape"}, c.attacker, []string{"--", "trace:sleep"})...)
		all := parseTries(t, res)
		if got := all.worked(); len(all) < 18 || (len(got) > 0) != c.works {
			t.Errorf("%v on %v: %v of %v", c.attacker, c.victim, got, all)
		}
	}
}

// TestEscapeSetuid: where new privileges are forbidden a set-user-id program
// gives none, nor does one with capabilities of its own; elsewhere it gives no
// more than the app's.
func TestEscapeSetuid(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	program, err := os.ReadFile(image("escape"))
	if err != nil {
		t.Fatal(err)
	}
	capable := string([]byte{1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}) // CAP_NET_RAW, effective
	img := writeImage(t, "example.com/setuid:1", []images.Entry{
		images.File("suid", 0o4755, string(program)), images.File("sgid", 0o2755, string(program)),
		images.File("capable", 0o755, string(program)).XAttr("security.capability", capable),
	})
	for _, c := range []struct{ flags, program, want string }{
		{"--no-new-privileges", "suid", "uid=1000 euid=1000 gid=1000 egid=1000"},
		{"--no-new-privileges", "sgid", "uid=1000 euid=1000 gid=1000 egid=1000"},
		{"--no-new-privileges", "capable", "CapEff=0000000000000000"},
		{"", "suid", "uid=1000 euid=0 gid=1000 egid=1000"},
		{"", "suid", "CapEff=00000000a80425fb"},
		{"", "capable", "CapEff=0000000000002000"},
		{"--caps-remove=CAP_NET_RAW,CAP_SETUID", "suid", "CapEff=00000000a804057b"},
	} {
		args := []string{"run", "--insecure-options=image", "--net=none", img, "--user=1000", "--group=1000", "--exec=/" + c.program}
		if c.flags != "" {
			args = append(args, c.flags)
		}
		res := h.rkt(append(args, "--", "whoami")...)
		if res.code != 0 || !strings.Contains(res.stdout, "# "+c.want+"\n") {
			t.Errorf("%s %s, want %s: %s", c.flags, c.program, c.want, res)
		}
	}
}

// TestEscapeRuntime: a program that waits for processes that rkt sends into its
// pod gets hold of none before that has no more rights than itself, and can
// change no program of rkt's by any of them, not even if it is executed in the
// app's name (CVE-2019-5736, CVE-2016-9962, CVE-2019-10144).
func TestEscapeRuntime(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	program, err := os.ReadFile(image("escape"))
	if err != nil {
		t.Fatal(err)
	}
	img := writeImage(t, "example.com/hunter:1", []images.Entry{
		images.File("escape", 0o755, string(program)), images.File("script", 0o755, "#!/proc/self/exe\n"),
	})
	before := programs(t)
	h.run(img, []string{"--exec=/script"}, "") // whatever becomes of it
	p := h.attacker(img, "--exec=/escape", "--", "hunt")
	p.running()
	until(t, "it hunts", func() bool { return strings.Contains(h.rkt("logs", p.uuid()).stdout, "# hunting") })
	var wg sync.WaitGroup
	for _, words := range [][]string{{"/script"}, {"/bin/true"}, {"/escape", "whoami"}} {
		wg.Go(func() {
			for range 30 {
				h.rkt(slices.Concat([]string{"enter", p.uuid()}, words)...)
			}
		})
	}
	wg.Wait()
	h.must("stop", p.uuid())
	all := parseTries(t, p.wait())
	if got := all.worked(); len(got) > 0 || len(all) < 8 {
		t.Errorf("the hunter got %v of %v", got, all)
	}
	if all.said("seen") < "1" || all.said("exes") == "0" {
		t.Errorf("the hunter met nobody: %v", all["#"])
	}
	t.Logf("%s", all["#"])
	if after := programs(t); !slices.EqualFunc(before, after, bytes.Equal) {
		t.Error("A PROGRAM OF RKT WAS CHANGED")
	}
}

// programs are rkt's own, byte for byte.
func programs(t *testing.T) [][]byte {
	t.Helper()
	var all [][]byte
	for _, name := range []string{"rkt", "stage1", "podinit", "applaunch"} {
		data, err := os.ReadFile(filepath.Join(bin, name))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, data)
	}
	return all
}
