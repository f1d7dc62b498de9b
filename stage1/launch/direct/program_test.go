package direct

import (
	"encoding/binary"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/cgroup"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/idrange"
	"github.com/rkt-pods/rkt/pkg/testkit"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/launch/cell"
	"github.com/rkt-pods/rkt/stage1/plan"
)

var update = flag.Bool("update", false, "rewrite the golden lists")

// golden compares a list of operations with the one in testdata.
func golden(t *testing.T, name string, p *program) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("some flags have other numbers on this architecture")
	}
	file := filepath.Join("testdata", name+".txt")
	got := p.String()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: the list differs (-update rewrites it); got:\n%s", name, got)
	}
}

func sample() (launch.App, identity, facts) {
	nice, adj := 5, 100
	app := launch.App{
		App: plan.App{
			Name: "web", Argv: []string{"server", "-v"}, Cwd: "/srv",
			Env:   []string{"PATH=/bin:/sbin", "A=1", "A=2", "HOME="},
			Umask: 0o027, ReadOnlyRootFS: true, NoNewPrivs: true,
			Mounts: []plan.Mount{
				{Type: "proc", Target: "/proc", Options: []string{"nosuid", "noexec", "nodev"}},
				{Type: "tmpfs", Target: "/dev", Options: []string{"nosuid", "strictatime", "mode=755"}},
				{Type: "cgroup", Target: "/sys/fs/cgroup", Options: []string{"nosuid", "ro"}},
				{Type: "bind", Source: "/volumes/data", Target: "/data", Options: []string{"ro"}, Recursive: true},
				{Type: "bind", Source: "/etc/hosts", Target: "/etc/hosts", Options: []string{"private"}},
			},
			MaskedPaths: []string{"/proc/keys"}, ReadOnlyPaths: []string{"/proc/sys"},
			Devices: []plan.Device{{Path: "/dev/null", Type: 'c', Major: 1, Minor: 3, Mode: 0o666, Access: "rwm"}},
		},
		RootFS: "/pods/web/rootfs",
	}
	id := identity{
		Command: cell.CommandOf(app), Caps: []int{0, 10}, NoNewPrivs: true, Umask: app.Umask, Nice: &nice, OOMAdj: &adj,
		Filter: make([]byte, 16), Rlimits: []cell.Rlimit{{Type: 7, Hard: 2048, Soft: 1024}}, Argv: app.Argv,
	}
	id.Command.UID, id.Command.GID, id.Command.Gids = 1000, 1001, []int{1002, 1003}
	f := facts{
		setAttr: true, lastCap: 11, null: [3]bool{true, false, false},
		hierarchies: []cgroup.Hierarchy{{Name: "cpu,cpuacct", Options: []string{"cpu", "cpuacct"}}, {Name: "systemd", Options: []string{"name=systemd"}}},
		files:       inherited{cgroups: []int{5, 6}, pid: 7, ipc: 8, uts: 9, net: 10, main: -1, count: 11},
	}
	return app, id, f
}

// TestStartList is what is done for an app, in the order in which it is done.
func TestStartList(t *testing.T) {
	app, id, f := sample()
	mounts, err := parseMounts(app.Mounts, true)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "start", compileStart(app, id, mounts, f))

	// On a kernel without mount_setattr(2), with a terminal and cgroup v2, and
	// with more privileges.
	app.Mounts[3].Recursive = false
	if mounts, err = parseMounts(app.Mounts, false); err != nil {
		t.Fatal(err)
	}
	f.setAttr, f.hierarchies = false, nil
	id.NoNewPrivs, id.Stdio, id.Argv = false, launch.Stdio{TTY: true, Width: 80, Height: 24}, []string{"/bin/server"}
	id.AppArmor, id.Label = "profile", "context"
	golden(t, "start-old", compileStart(app, id, mounts, f))
}

// TestUserNamespaceLists: outside until the last steps, and what is made is the
// pod's root's.
func TestUserNamespaceLists(t *testing.T) {
	app, id, f := sample()
	app.Mounts = append(app.Mounts, plan.Mount{Type: "devpts", Target: "/dev/pts", Options: []string{"newinstance", "gid=5"}}, plan.Mount{Type: "mqueue", Target: "/dev/mqueue"})
	mounts, err := parseMounts(app.Mounts, true)
	if err != nil {
		t.Fatal(err)
	}
	f.ids, f.caps, f.files.user, f.files.count = &idrange.Range{Start: 100000, Count: 65536}, 0xff, 11, 12
	golden(t, "start-users", compileStart(app, id, mounts, f))
	f.files = inherited{cgroups: []int{5}, pid: -1, ipc: -1, uts: -1, net: -1, user: 6, main: 7, count: 8}
	golden(t, "beside-users", compileBeside(id, f))
}

func TestBesideList(t *testing.T) {
	_, id, f := sample()
	f.files = inherited{cgroups: []int{5}, pid: -1, ipc: -1, uts: -1, net: -1, main: 6, count: 7}
	golden(t, "beside", compileBeside(id, f))
}

// TestBytes looks at the list as applaunch reads it.
func TestBytes(t *testing.T) {
	p := newProgram()
	fd, o := p.get("open", unix.SYS_OPENAT, cwdFD, p.string("/x"), imm(0))
	o.may(1, unix.ENOENT, unix.ENOTDIR)
	p.close("close", fd)
	p.do("exec", opExec, p.list([]string{"a", "bc"}, ""))
	data := p.bytes(9)
	le := binary.LittleEndian
	if le.Uint32(data) != magic || le.Uint32(data[4:]) != 3 || le.Uint32(data[8:]) != 9 || int(le.Uint64(data[16:])) != len(data)-headerSize {
		t.Errorf("header: %x", data[:24])
	}
	private := data[headerSize:]
	first := private[:opSize]
	if le.Uint32(first) != unix.SYS_OPENAT || le.Uint32(first[4:]) != uint32(fd) || le.Uint32(first[8:]) != uint32(unix.ENOENT) ||
		le.Uint32(first[12:]) != uint32(unix.ENOTDIR) || le.Uint32(first[24:]) != 1 {
		t.Errorf("first: %x", first)
	}
	if first[32] != byte(immediate) || first[33] != byte(pointer) || int64(le.Uint64(first[40:])) != unix.AT_FDCWD {
		t.Errorf("arguments: %x", first[32:])
	}
	text := func(at uint64) string {
		s, _, _ := strings.Cut(string(private[at:]), "\x00")
		return s
	}
	if got := text(le.Uint64(first[48:])); got != "/x" {
		t.Errorf("string: %q", got)
	}
	second := private[opSize:]
	if second[32] != byte(saved) || le.Uint64(second[40:]) != uint64(fd) {
		t.Errorf("second: %x", second[:opSize])
	}
	list := private[le.Uint64(private[2*opSize+40:]):]
	if text(le.Uint64(list)) != "a" || text(le.Uint64(list[8:])) != "bc" || le.Uint64(list[16:]) != 0 {
		t.Errorf("list: %x", list[:24])
	}
}

func TestMountOptions(t *testing.T) {
	const ro, nosuid, nodev = unix.MOUNT_ATTR_RDONLY, unix.MOUNT_ATTR_NOSUID, unix.MOUNT_ATTR_NODEV
	for _, c := range []struct {
		in         plan.Mount
		set, clear uint64
		data       [][2]string
	}{
		{plan.Mount{Type: "tmpfs", Target: "/x", Options: []string{"nosuid", "ro", "rw", "mode=755", "quiet"}},
			nosuid, ro, [][2]string{{"mode", "755"}, {"quiet", ""}}},
		{plan.Mount{Type: "bind", Source: "/s", Target: "/x", Options: []string{"ro", "nodev"}, Recursive: true}, ro | nodev, 0, nil},
		{plan.Mount{Type: "bind", Source: "/s", Target: "/x", Options: []string{"noatime", "relatime", "suid"}}, 0, unix.MOUNT_ATTR__ATIME | nosuid, nil},
	} {
		m, err := parseMount(c.in, true)
		if err != nil || m.set != c.set || m.clear != c.clear || !slices.Equal(m.data, c.data) {
			t.Errorf("%+v: %+v, %v", c.in, m, err)
		}
	}
	for _, bad := range []plan.Mount{
		{Type: "bind", Source: "relative", Target: "/x"},
		{Type: "bind", Source: "/s", Target: "x"},
		{Type: "bind", Source: "/s", Target: "/"},
		{Type: "bind", Source: "/s", Target: "/x", Options: []string{"mode=755"}},
		{Type: "bind", Source: "/s", Target: "/x\x00y"},
	} {
		if m, err := parseMount(bad, true); err == nil {
			t.Errorf("%+v: %+v", bad, m)
		}
	}
	recursive := plan.Mount{Type: "bind", Source: "/s", Target: "/x", Options: []string{"ro"}, Recursive: true}
	if _, err := parseMount(recursive, false); !errs.Is(err, errs.Unsupported) || len(errs.Hints(err)) != 1 {
		t.Errorf("recursive and read-only on an old kernel: %v", err)
	}
}

func TestEnvironment(t *testing.T) {
	for _, c := range [][2]string{
		{"A=1 B=2 A=3", "B=2 A=3 HOME=/"},
		{"HOME=/root", "HOME=/root"},
		{"HOME=/root HOME=", "HOME=/root"},
		{"=x HOME=", "HOME=/"},
	} {
		if got := strings.Join(environment(strings.Fields(c[0])), " "); got != c[1] {
			t.Errorf("%s: %s, not %s", c[0], got, c[1])
		}
	}
}

// TestProgramAgain: a start that can't have its copy of applaunch leaves the
// next one a chance, which is what restarting an app is for.
func TestProgramAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "applaunch")
	l := newLauncher(Options{Program: path})
	if fd, err := l.applaunch(); err == nil {
		t.Fatalf("descriptor %d without a program", fd)
	}
	if err := testkit.WriteProgram(path, []byte("#!/bin/true\n")); err != nil {
		t.Fatal(err)
	}
	first, err := l.applaunch()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(first)
	if second, err := l.applaunch(); err != nil || second != first {
		t.Errorf("descriptors %d and %d, %v", first, second, err)
	}
}
