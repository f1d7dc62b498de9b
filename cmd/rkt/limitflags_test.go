package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// TestLimitFlags: what flags before and after an image become.
func TestLimitFlags(t *testing.T) {
	for _, c := range []struct{ line, pod, app string }{
		{"--memory=1Gi a --memory=16Mi", `resource/memory={"limit":"1Gi"}`, `resource/memory={"limit":"16Mi"}`},
		{"--pids 10 a", `rkt/pids=10`, ``},
		{"a --cpu=500m --cpu-shares=512", ``, `resource/cpu={"limit":"500m"} os/linux/cpu-shares=512`},
		{"a --cpuset=0 --cpuset-mems=0", ``, `rkt/cpuset={"cpus":"0","mems":"0"}`},
		{"a --io-limit=8:0,rbps=1M --io-limit=/dev/sdb,wiops=5", ``, `rkt/io-limits={"/dev/sdb":{"wiops":"5"},"8:0":{"rbps":"1M"}}`},
		{"a --ulimit=nofile=1:unlimited --ulimit=RLIMIT_CORE=0", ``, `rkt/rlimits={"core":{"soft":0,"hard":0},"nofile":{"soft":1,"hard":"unlimited"}}`},
		{"a --swap=0 --memory=1Mi", ``, `rkt/swap="0" resource/memory={"limit":"1Mi"}`},
		{"a --priority=batch --shm-size=1Mi --nice=-3", `rkt/priority="batch" rkt/shm-size="1Mi"`, `rkt/nice=-3`},
		{"--isolator=example.com/x={\"a\":1} a --isolator=os/linux/selinux-context={}", `example.com/x={"a":1}`, `os/linux/selinux-context={}`},
		{"a --no-new-privileges --cgroup-delegate=false", ``, `os/linux/no-new-privileges=true rkt/cgroup-delegate=false`},
	} {
		o, _, r, err := parseApps(strings.Fields(c.line), false)
		if err != nil || r.err() != nil {
			t.Errorf("%q: %v, %v", c.line, err, r.err())
			continue
		}
		var pod, app []string
		for _, iso := range o.apps.bounds {
			pod = append(pod, iso.Name+"="+string(iso.Value))
		}
		for _, iso := range o.apps.list[0].plan.Isolators {
			app = append(app, iso.Name+"="+string(iso.Value))
		}
		if strings.Join(pod, " ") != c.pod || strings.Join(app, " ") != c.app {
			t.Errorf("%q: pod %q, app %q", c.line, pod, app)
		}
	}
}

// TestHostileLimitFlags: nothing of it may pass, and nothing may panic.
func TestHostileLimitFlags(t *testing.T) {
	for _, flag := range []string{
		"--memory=16", "--memory=-1", "--memory=1e99", "--memory=16Eib", "--memory=", "--memory=99999999999999999999",
		"--cpu=0", "--cpu=-1", "--cpu=1e20", "--cpu=x", "--cpu-shares=1", "--cpu-shares=1.5", "--cpu-shares=99999999999999999999",
		"--pids=0", "--pids=-1", "--pids=18446744073709551616", "--cpuset=", "--cpuset=0-", "--cpuset=-1", "--cpuset=all",
		"--io-limit=sda,rbps=1", "--io-limit=/dev/sda", "--io-limit=/dev/sda,rbps=-1", "--io-limit=/dev/sda,rbps=1,rbps=2", "--io-limit=/etc/passwd,rbps=1",
		"--io-weight=0", "--hugetlb=2MB", "--hugetlb=2=1", "--hugetlb=2MB=-1", "--swap=-1", "--memory-low=x", "--memory-high=1ZiB",
		"--ulimit=nofile", "--ulimit=nofile=", "--ulimit=nofile=2:1", "--ulimit=nofile=-1", "--ulimit=bogus=1", "--ulimit=nofile=1:2:3",
		"--nice=20", "--nice=-21", "--nice=nice", "--oom-score-adj=1001", "--priority=urgent", "--priority=1001", "--shm-size=-1",
		"--isolator=x", "--isolator=x={", "--isolator==1", "--isolator=os/linux/no-new-privileges=1", "--no-new-privileges=maybe", "--cgroup-delegate=2",
		"--memory=1Mi --memory=2Mi", "--ulimit=nofile=1 --ulimit=nofile=2", "--cpuset=0 --cpuset=1",
	} {
		for _, line := range []string{"a " + flag, flag + " a"} {
			if _, _, _, err := parseApps(strings.Fields(line), false); err == nil || !errs.Is(err, errs.Usage) && !strings.Contains(err.Error(), "invalid argument") {
				t.Errorf("%q: %v", line, err)
			}
		}
	}
}

// FuzzIsolatorFlag: any name and value is an error or an isolator that is
// written into a manifest as it came.
func FuzzIsolatorFlag(f *testing.F) {
	f.Add(`resource/memory={"limit":"16Mi"}`)
	f.Add(`rkt/rlimits={"nofile":{"soft":1,"hard":"unlimited"}}`)
	f.Add(`rkt/io-limits={"all":{"rbps":1}}`)
	f.Fuzz(func(t *testing.T, s string) {
		o, _, _, err := parseApps([]string{"a", "--isolator=" + s}, false)
		if err != nil {
			return
		}
		for _, iso := range o.apps.list[0].plan.Isolators {
			if !json.Valid(iso.Value) {
				t.Fatalf("%q became %s", s, iso.Value)
			}
		}
	})
}
