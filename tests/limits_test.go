package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/cgroup"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

// statuses are those of the pod's apps by name, in full.
func (p *pod) statuses() map[string]poddir.Status {
	p.t.Helper()
	var s struct {
		Apps []struct {
			Name   string         `json:"name"`
			Status *poddir.Status `json:"status"`
		} `json:"apps"`
	}
	if err := json.Unmarshal([]byte(p.must("status", "--format=json", p.uuid())), &s); err != nil {
		p.t.Fatal(err)
	}
	all := map[string]poddir.Status{}
	for _, a := range s.Apps {
		if a.Status != nil {
			all[a.Name] = *a.Status
		}
	}
	return all
}

// record reads the cgroup record in a running pod's folder.
func (h *host) record(uuid string) poddir.Cgroup {
	h.t.Helper()
	var rec poddir.Cgroup
	data, err := os.ReadFile(filepath.Join(h.dir, "pods", "run", uuid, "cgroup"))
	if err == nil {
		err = json.Unmarshal(data, &rec)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return rec
}

// hold takes memory that the kernel can't take back, and keeps it: dd fills
// its buffer and then waits for a pipe that nobody reads.
func hold(mib int) string {
	return fmt.Sprintf("dd if=/dev/zero bs=%dM count=1 2>/dev/null | sleep 1000", mib)
}

// TestMemoryLimit: a process of the app, not its first, exceeds the limit. The
// app ends as a whole, its status tells why, and its sibling goes on.
func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.start([]string{"--exit-policy=all"},
		app{name: "x", script: hold(64) + "; echo survived", flags: []string{"--memory=32Mi"}},
		app{name: "y", script: "sleep 3; echo whole"})
	res := p.wait()
	if res.code != 137 || strings.Contains(res.stdout, "survived") || !strings.Contains(res.stdout, "whole") || !strings.Contains(res.stderr, "run: app x: killed by the kernel: out of memory\n") {
		t.Error(res)
	}
	all := p.statuses()
	x, u := all["x"], all["x"].Usage
	if !x.OOMKilled || x.Reason != poddir.OOMKilled || u.OOMKills == 0 || u.MemoryHits == 0 || u.MemoryPeak < 8<<20 || u.MemoryPeak > 34<<20 {
		t.Errorf("x: %+v", x)
	}
	if y := all["y"]; y.OOMKilled || y.Reason != poddir.Completed || y.Usage.OOMKills != 0 {
		t.Errorf("y: %+v", y)
	}
	text := h.must("status", p.uuid())
	for _, want := range []string{"app-x-isolator=enforced: memory 33554432\n", "app-x-reason=OOMKilled\n", "app-x-oom-kills=", "app-x-memory-peak="} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

// TestMemoryLimitOfThePod: each app stays below its own limit, both together
// exceed the pod's.
func TestMemoryLimitOfThePod(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.start([]string{"--memory=48Mi"},
		app{name: "x", script: hold(32), flags: []string{"--memory=40Mi"}}, app{name: "y", script: hold(32), flags: []string{"--memory=40Mi"}})
	if res := p.wait(); res.code != 137 {
		t.Error(res)
	}
	killed := 0
	for _, s := range p.statuses() {
		if s.OOMKilled {
			killed++
		}
	}
	if killed == 0 {
		t.Errorf("%+v", p.statuses())
	}
}

func TestPidsLimit(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	const forks = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 100 & done; echo all of them"
	for name, c := range map[string]struct{ pod, app []string }{
		"app": {nil, []string{"--pids=8"}},
		"pod": {[]string{"--pids=8"}, nil},
	} {
		res := h.start(c.pod, app{name: "x", script: forks, flags: c.app}).wait()
		if res.code == 0 || strings.Contains(res.stdout, "all of them") || !strings.Contains(res.stderr, "can't fork") {
			t.Errorf("%s: %s", name, res)
		}
	}
	if res := h.start(nil, app{name: "x", script: forks, flags: []string{"--pids=80"}}).wait(); res.code != 0 {
		t.Errorf("with enough: %s", res)
	}
}

// TestCPULimit: endless loops get no more than the limit; of all the time
// there was they would have taken nearly all.
func TestCPULimit(t *testing.T) {
	h := newHost(t)
	const spin = "timeout -s KILL 8 sh -c 'while :; do :; done'; true"
	for name, c := range map[string]struct {
		pod, app []string
		apps     int
	}{
		"app": {nil, []string{"--cpu=100m"}, 1},
		"pod": {[]string{"--cpu=100m"}, nil, 2},
	} {
		apps := []app{{name: "x", script: spin, flags: c.app}, {name: "y", script: spin, flags: c.app}}[:c.apps]
		p := h.start(c.pod, apps...)
		if res := p.wait(); res.code != 0 {
			t.Errorf("%s: %s", name, res)
		}
		var used time.Duration
		for _, s := range p.statuses() {
			used += time.Duration(s.Usage.CPUNs)
		}
		// Of eight seconds 0.8, and what the start took.
		if used < 300*time.Millisecond || used > 3*time.Second {
			t.Errorf("%s: %s of CPU", name, used)
		}
	}
}

// TestCPUSet: an app runs where it is told to and nowhere else, whatever it
// asks for itself.
func TestCPUSet(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	const ask = "taskset -p 3 $$ >/dev/null 2>&1; grep -E '(Cpus|Mems)_allowed_list' /proc/self/status"
	for name, c := range map[string]struct{ pod, app []string }{
		"app": {nil, []string{"--cpuset=0", "--cpuset-mems=0"}},
		"pod": {[]string{"--cpuset=0", "--cpuset-mems=0"}, nil},
	} {
		p := h.start(c.pod, app{name: "x", script: ask, flags: c.app})
		if res := p.wait(); strings.Join(strings.Fields(res.stdout), " ") != "Cpus_allowed_list: 0 Mems_allowed_list: 0" {
			t.Errorf("%s: %s", name, res)
		}
		if text := h.must("status", p.uuid()); !strings.Contains(text, "isolator=enforced: cpuset ") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// TestIOLimit reads and writes past the page cache at a tenth of what the
// slowest disk does.
func TestIOLimit(t *testing.T) {
	h := newHost(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "data")
	if err := os.WriteFile(file, make([]byte, 4<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	f.Close()
	disk := diskOf(t, file)
	const (
		read  = "dd if=/v/data of=/dev/null bs=64k iflag=direct"
		write = "dd if=/dev/zero of=/v/new bs=64k count=64 oflag=direct conv=notrunc"
	)
	flags := []string{"--volume=v,kind=host,source=" + dir, "--mount=volume=v,target=/v"}
	start := func(script string, ofPod, ofApp []string) *pod {
		return h.start(append(slices.Clone(flags), ofPod...), app{name: "x", script: script, flags: ofApp})
	}
	took := func(p *pod) time.Duration {
		if res := p.wait(); res.code != 0 {
			t.Fatal(res)
		}
		s := p.statuses()["x"]
		return s.FinishedAt.Sub(*s.StartedAt)
	}
	for _, script := range []string{read, write} {
		if free := took(start(script, nil, nil)); free > 2*time.Second {
			t.Errorf("without a limit %s took %s", script, free)
		}
	}
	pods := map[string]*pod{}
	for name, c := range map[string]struct {
		script   string
		pod, app []string
	}{
		"bytes read, app":         {read, nil, []string{"--io-limit=" + disk + ",rbps=1Mi"}},
		"bytes read, pod":         {read, []string{"--io-limit=all,rbps=1Mi"}, nil},
		"bytes written, app":      {write, nil, []string{"--io-limit=" + disk + ",wbps=1Mi"}},
		"operations read, app":    {read, nil, []string{"--io-limit=" + disk + ",riops=16"}},
		"operations written, app": {write, nil, []string{"--io-limit=" + disk + ",wiops=16"}},
		"block-bandwidth, app":    {read, nil, []string{`--isolator=resource/block-bandwidth={"default":true,"limit":"1Mi"}`}},
		"block-iops, pod":         {write, []string{`--isolator=resource/block-iops={"default":true,"limit":"16"}`}, nil},
	} {
		pods[name] = start(c.script, c.pod, c.app)
	}
	for name, p := range pods {
		if bound := took(p); bound < 3*time.Second {
			t.Errorf("%s: 4 MiB in 64 parts took %s", name, bound)
		}
	}
}

// diskOf is the whole disk that a file lies on.
func diskOf(t *testing.T, file string) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		t.Fatal(err)
	}
	sys, err := filepath.EvalSymlinks(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		t.Skipf("%s is on no disk of its own: %v", file, err)
	}
	if _, err := os.Stat(filepath.Join(sys, "partition")); err == nil {
		sys = filepath.Dir(sys)
	}
	number, err := os.ReadFile(filepath.Join(sys, "dev"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(number))
}

// TestProcessLimits asks the app itself.
func TestProcessLimits(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	const ask = `ulimit -n; ulimit -Hn; ulimit -c; cat /proc/self/oom_score_adj; cut -d" " -f19 /proc/self/stat; df -k /dev/shm | tail -n 1 | awk '{print $2}'; grep NoNewPrivs /proc/self/status`
	p := h.start([]string{"--shm-size=4Mi"}, app{name: "x", script: ask, flags: []string{
		"--ulimit=nofile=100:200", "--ulimit=core=0", "--oom-score-adj=900", "--nice=7", "--no-new-privileges",
	}})
	res := p.wait()
	if got := strings.Join(strings.Fields(res.stdout), " "); res.code != 0 || got != "100 200 0 900 7 4096 NoNewPrivs: 1" {
		t.Errorf("%s", res)
	}
	text := h.must("status", p.uuid())
	for _, want := range []string{
		"isolator=enforced: shm-size 4Mi (of the pod)", "app-x-isolator=enforced: ulimit nofile=100:200", "app-x-isolator=enforced: ulimit core=0:0",
		"app-x-isolator=enforced: oom-score-adj 900", "app-x-isolator=enforced: nice 7", "app-x-isolator=enforced: no-new-privileges true",
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

// TestStrictIsolators: what is rounded, or can't be had, is told, and refused
// if nothing but exactly that is wanted.
func TestStrictIsolators(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	x := app{name: "x", script: "echo ran", flags: []string{"--memory=33554433"}}
	p := h.start(nil, x)
	res := p.wait()
	const rounded = "changed: memory 33554433, is 33554432: memory is counted in whole pages"
	if res.code != 0 || strings.Count(res.stderr, "run: app x: "+rounded+"\n") != 1 {
		t.Error(res)
	}
	if text := h.must("status", p.uuid()); !strings.Contains(text, "app-x-isolator="+rounded+"\n") {
		t.Error(text)
	}
	for name, c := range map[string]struct {
		pod, app []string
		want     string
	}{
		"rounded": {[]string{"--strict-isolators"}, x.flags, "isolator " + rounded},
		"unknown": {[]string{"--strict-isolators", "--isolator=example.com/x=1"}, nil, "isolator ignored: example.com/x"},
		"app":     {nil, []string{"--hugetlb=3MB=6Mi"}, "isolator ignored: hugetlb 3MB 6291456: "},
		"pod":     {[]string{"--hugetlb=3MB=6Mi"}, nil, "isolator ignored: hugetlb 3MB 6291456 (of the pod): "},
		"cpus":    {nil, []string{"--cpuset=4000"}, "isolator ignored: cpuset 4000: 4000 is not among what there is here"},
		"disk":    {nil, []string{"--io-limit=/dev/null,rbps=1"}, "isolator ignored: io-limit /dev/null rbps=1: /dev/null: not a block device"},
	} {
		res := h.start(c.pod, app{name: "x", script: "echo ran", flags: c.app}).wait()
		if res.code != 254 || res.stdout != "" || !strings.Contains(res.stderr, c.want) {
			t.Errorf("%s: %s", name, res)
		}
	}
}

// TestPriorities: two pods share the memory of the cgroup above them. Whoever
// of them wants too much, and whichever was first: that of the lower class is
// killed, and the other goes on.
func TestPriorities(t *testing.T) {
	rounds := 30
	if testing.Short() {
		rounds = 6
	}
	h := newHost(t)
	for round := range rounds {
		priorityRound(t, h, round, "batch", "critical")
	}
	for round := range rounds / 3 {
		priorityRound(t, h, round, "batch", "normal")
		priorityRound(t, h, round, "normal", "critical")
	}
}

func priorityRound(t *testing.T, h *host, round int, low, high string) {
	t.Helper()
	dir := t.TempDir()
	// Each holds 24 MiB, and one of them another 24 once the file is there.
	script := func(greedy bool) string {
		if !greedy {
			return "echo up; " + hold(24)
		}
		return "echo up; (" + hold(24) + ") & while [ ! -e /v/go ]; do usleep 20000; done; " + hold(24)
	}
	run := func(class string, greedy bool) *pod {
		p := h.start([]string{"--net=none", "--priority=" + class, "--volume=v,kind=host,source=" + dir, "--mount=volume=v,target=/v"}, app{name: "x", script: script(greedy)})
		p.running()
		return p
	}
	var loser, winner *pod
	greedyLoser := round%2 == 0
	if round%4 < 2 {
		loser, winner = run(low, greedyLoser), run(high, !greedyLoser)
	} else {
		winner, loser = run(high, !greedyLoser), run(low, greedyLoser)
	}
	limitStore(t, h.record(loser.uuid()), 64<<20)
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if res := loser.wait(); res.code != 137 || !loser.statuses()["x"].OOMKilled {
		t.Errorf("round %d: %s beside %s: %s", round, low, high, res)
	}
	if s := h.status(winner.uuid()); s.State != "running" {
		t.Errorf("round %d: %s beside %s is %s: %+v", round, high, low, s.State, winner.statuses())
	}
	h.rkt("stop", "--force", winner.uuid())
	winner.wait()
}

// limitStore bounds the memory of all pods of the store.
func limitStore(t *testing.T, rec poddir.Cgroup, bytes int) {
	t.Helper()
	for _, p := range rec.Paths {
		store := filepath.Dir(p.Path)
		for _, file := range []string{"memory.max", "memory.limit_in_bytes"} {
			if _, err := os.Stat(filepath.Join(store, file)); err != nil {
				continue
			}
			if err := os.WriteFile(filepath.Join(store, file), []byte(fmt.Sprint(bytes)), 0); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("no cgroup of the store counts memory")
}

// TestWhereLimitsAre: the app's processes are in the cgroup that is bounded,
// and nothing above the pod's has got a limit.
func TestWhereLimitsAre(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.start([]string{"--memory=64Mi"}, app{name: "x", script: "echo up; sleep 1000", flags: []string{"--pids=77", "--memory=32Mi", "--cpu=1"}})
	pid := p.running().Apps[0].Status.PID
	rec := h.record(p.uuid())
	host, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	group, err := host.Group(cgroup.AppPath(rec, "x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := group.Holds(pid); err != nil {
		t.Error(err)
	}
	limit := regexp.MustCompile(`^(77|33554432|67108864|100000|100000 100000)$`)
	found := 0
	for _, path := range rec.Paths {
		for dir := filepath.Dir(path.Path); strings.Contains(dir, "/rkt-"); dir = filepath.Dir(dir) {
			for _, file := range []string{"memory.max", "memory.limit_in_bytes", "pids.max", "cpu.max", "cpu.cfs_quota_us"} {
				if data, err := os.ReadFile(filepath.Join(dir, file)); err == nil && limit.Match([]byte(strings.TrimSpace(string(data)))) {
					t.Errorf("%s/%s is %s", dir, file, data)
				}
				if data, err := os.ReadFile(filepath.Join(path.Path, cgroup.Apps, "x", file)); err == nil && limit.Match([]byte(strings.TrimSpace(string(data)))) {
					found++
				}
			}
		}
	}
	if found < 3 {
		t.Errorf("%d limits found in the app's cgroup", found)
	}
	h.must("stop", "--force", p.uuid())
}

// TestLabels: a label is the process's, or the start is refused by its name:
// where the host has no such module, and where it does not know the label.
func TestLabels(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	const selinux = `--isolator=os/linux/selinux-context={"user":"u","role":"r","type":"t","level":"s0"}`
	profile := func(name string) string { return `--isolator=os/linux/apparmor-profile={"profile":"` + name + `"}` }
	x := app{name: "x", script: "cat /proc/self/attr/current"}
	if _, err := os.Stat("/sys/fs/selinux/enforce"); err != nil {
		if res := h.start([]string{selinux}, x).wait(); res.code != 254 || !strings.Contains(res.stderr, "u:r:t:s0: this host has no SELinux") {
			t.Errorf("SELinux: %s", res)
		}
	}
	if on, err := os.ReadFile("/sys/module/apparmor/parameters/enabled"); err != nil || strings.TrimSpace(string(on)) != "Y" {
		if res := h.start([]string{profile("some")}, x).wait(); res.code != 254 || !strings.Contains(res.stderr, "some: this host has no AppArmor") {
			t.Errorf("AppArmor: %s", res)
		}
		return
	}
	p := h.start([]string{profile("unconfined")}, x)
	if res := p.wait(); res.code != 0 || res.stdout != "unconfined\n" {
		t.Errorf("AppArmor: %s", res)
	}
	if text := h.must("status", p.uuid()); !strings.Contains(text, "app-x-isolator=enforced: apparmor-profile unconfined\n") {
		t.Errorf("AppArmor: %s", text)
	}
	if res := h.start([]string{profile("nosuch")}, x).wait(); res.code != 254 || res.stdout != "" || !strings.Contains(res.stderr, "nosuch") {
		t.Errorf("a profile that is not loaded: %s", res)
	}
}
