package libcontainer

import (
	"errors"
	"testing"

	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// TestMessages are chains as the library gives them.
func TestMessages(t *testing.T) {
	for _, c := range []struct {
		in, want string
		code     int
	}{
		{`unable to start container process: error during container init: exec: "app": executable file not found in $PATH`,
			"app web: program app: executable file not found in $PATH", 127},
		{"exec /bin/app: exec format error\n", "app web: program app: exec format error", 126},
		{"exec /bin/a: b: no such file or directory", "app web: program app: b: no such file or directory", 126},
		{`unable to start container process: error during container init: error mounting "/a b" to rootfs at "/x": create mountpoint for /x mount: stat /a b: no such file or directory`,
			"set up app web: mount /a b at /x: stat /a b: no such file or directory", 0},
		{"unable to start container process: unable to apply cgroup configuration: mkdir /sys/fs/cgroup/x: read-only file system",
			"set up app web: apply cgroup configuration: mkdir /sys/fs/cgroup/x: read-only file system", 0},
		{"unable to start container process: can't get final child's PID from pipe: EOF; runc init error(s): nsexec-1[7]: failed to setns to ipc: Operation not permitted; nsexec-0[6]: failed to sync",
			"set up app web: setns to ipc: Operation not permitted", 0},
		{"first\nsecond", "set up app web: first; second", 0},
	} {
		err := named("set up", "web", []string{"app"}, errors.New(c.in))
		start, ok := errors.AsType[*launch.StartError](err)
		if err.Error() != c.want || ok != (c.code != 0) || ok && start.ExitCode != c.code {
			t.Errorf("%s:\n got %q\nwant %q, code %d", c.in, err, c.want, c.code)
		}
	}
	inner := errs.WithHint(errs.Newf(errs.Busy, "x: y"), "wait")
	if err := named("set up", "web", nil, inner); !errs.Is(err, errs.Busy) || len(errs.Hints(err)) != 1 {
		t.Errorf("class %s, hints %q", errs.ClassOf(err), errs.Hints(err))
	}
}

func TestMountOptions(t *testing.T) {
	for _, c := range []struct {
		in    plan.Mount
		flags int
		clear int
		data  string
		rec   uint64
	}{
		{plan.Mount{Type: "tmpfs", Target: "/x", Options: []string{"nosuid", "ro", "rw", "mode=755", "size=1k"}},
			unix.MS_NOSUID, unix.MS_RDONLY, "mode=755,size=1k", 0},
		{plan.Mount{Type: "bind", Source: "/s", Target: "/x", Options: []string{"ro"}},
			unix.MS_BIND | unix.MS_RDONLY, 0, "", 0},
		{plan.Mount{Type: "bind", Source: "/s", Target: "/x", Options: []string{"ro", "nodev"}, Recursive: true},
			unix.MS_BIND | unix.MS_REC | unix.MS_RDONLY | unix.MS_NODEV, 0, "", unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NODEV},
		{plan.Mount{Type: "bind", Source: "/s", Target: "/x", Options: []string{"ro", "rw"}, Recursive: true},
			unix.MS_BIND | unix.MS_REC, unix.MS_RDONLY, "", 0},
	} {
		m, err := mount(c.in)
		if err != nil || m.Flags != c.flags || m.ClearedFlags != c.clear || m.Data != c.data || recAttr(m) != c.rec {
			t.Errorf("%+v: %+v, %v", c.in, m, err)
		}
	}
	for _, bad := range []plan.Mount{
		{Type: "bind", Source: "relative", Target: "/x"},
		{Type: "bind", Source: "/s", Target: "x"},
		{Type: "bind", Source: "/s", Target: "/x", Options: []string{"mode=755"}},
		{Type: "bind", Source: "/s", Target: "/x\x00y"},
	} {
		if m, err := mount(bad); err == nil {
			t.Errorf("%+v: %+v", bad, m)
		}
	}
}

func recAttr(m *configs.Mount) uint64 {
	if m.RecAttr == nil {
		return 0
	}
	return m.RecAttr.Attr_set
}
