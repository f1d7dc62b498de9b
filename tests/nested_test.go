package tests

import (
	"strings"
	"testing"
)

// TestNested runs rkt in an app of rkt that may make cgroups: its pod is
// bounded and killed there, and leaves nothing.
func TestNested(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	const caps = "--caps-retain=CHOWN,DAC_OVERRIDE,FOWNER,FSETID,KILL,MKNOD,NET_ADMIN,SETFCAP,SETGID,SETPCAP,SETUID,SYS_ADMIN,SYS_CHROOT,SYS_PTRACE,AUDIT_WRITE,NET_BIND_SERVICE,NET_RAW"
	script := strings.Join([]string{
		"mkdir -p /run",
		`rkt="/opt/rkt/rkt --dir=/data/rkt"`,
		`$rkt run --insecure-options=image --net=none --uuid-file-save=/uuid /images/busybox.aci --name=inner --memory=16Mi --pids=20 --exec=/bin/sh -- -c 'echo up; ` + hold(32) + `; echo survived'`,
		"echo code $?",
		"$rkt status --uuid-file=/uuid",
		"$rkt gc --grace-period=0s",
		"ls -d /sys/fs/cgroup/rkt-* /sys/fs/cgroup/*/rkt-* 2>/dev/null",
		"exit 0",
	}, "\n")
	res := h.start([]string{
		"--net=none", "--volume=bin,kind=host,source=" + bin + ",readOnly=true", "--volume=images,kind=host,source=" + imageDir + ",readOnly=true", "--volume=data,kind=empty",
	}, app{name: "outer", script: script, flags: []string{
		"--cgroup-delegate", "--memory=256Mi", caps, "--seccomp=mode=retain,@appc.io/all",
		"--mount=volume=bin,target=/opt/rkt", "--mount=volume=images,target=/images", "--mount=volume=data,target=/data",
	}}).wait()
	if res.code != 0 || strings.Contains(res.stdout, "survived") || strings.Contains(res.stdout, "/sys/fs/cgroup/") {
		t.Error(res)
	}
	for _, want := range []string{"up\ncode 137\n", "app-inner-isolator=enforced: memory 16777216\n", "app-inner-isolator=enforced: pids 20\n", "app-inner-reason=OOMKilled\n"} {
		if !strings.Contains(res.stdout, want) {
			t.Errorf("%q is missing: %s", want, res)
		}
	}
}
