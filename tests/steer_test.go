package tests

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSteerApps: an app is started anew, gets a signal, and is stopped; the
// pod is frozen and goes on.
func TestSteerApps(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.start([]string{"--exit-policy=all", "--pod-name=shop", "--label=tier=web"},
		app{name: "a", script: `trap 'echo usr1' USR1; ` + serve}, app{name: "b", script: serve})
	p.running()
	p.logged("a", "up")
	p.logged("b", "up")
	first := p.attempts("a")[0].PID
	h.must("app", "restart", "shop", "--app=a")
	if list := p.attempts("a"); len(list) != 2 || list[0].Reason != "Stopped" || list[1].State != "running" || list[1].PID == first {
		t.Errorf("executions of a: %+v", list)
	}
	until(t, "the second a is up", func() bool { return strings.Count(h.must("logs", "--app=a", "shop"), "up\n") == 2 })
	h.must("kill", "--signal=USR1", "--app=a", "shop")
	p.logged("a", "usr1")

	h.must("pause", "shop")
	if text := h.must("status", "shop"); !strings.Contains(text, "reason=paused\n") || !strings.Contains(text, "name=shop\n") {
		t.Errorf("status of a paused pod:\n%s", text)
	}
	frozen := filepath.Join(h.record(p.uuid()).Paths[0].Path, "apps", "cgroup.events")
	if data, err := os.ReadFile(frozen); err != nil || !strings.Contains(string(data), "frozen 1") {
		t.Errorf("%s: %q, %v", frozen, data, err)
	}
	if res := h.rkt("enter", "--app=a", "shop", "/bin/true"); res.code != 254 || !strings.Contains(res.stderr, "paused") {
		t.Errorf("%s", res)
	}
	h.must("unpause", "shop")

	h.must("stop", "--app=b", "shop")
	if list := p.attempts("b"); list[0].State != "exited" || list[0].Reason != "Stopped" {
		t.Errorf("b: %+v", list)
	}
	for _, bad := range [][]string{
		{"app", "restart", "shop", "--app=z"}, {"kill", "--app=b", "shop"}, {"stop", "--app=z", "shop"}, {"stop", "--app=a", "--force", "shop"}, {"kill", "--signal=NOPE", "shop"},
	} {
		if res := h.rkt(bad...); res.code != 254 {
			t.Errorf("%s", res)
		}
	}
	h.must("pause", "shop")
	h.must("stop", "--time=20s", "--signal=TERM", "shop") // it goes on for that
	if res := p.wait(); res.code != 0 {
		t.Errorf("%s", res)
	}
}

func itoa(n int) string { return strings.TrimSpace(strings.Join(strings.Fields(jsonOf(n)), "")) }

func jsonOf(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// TestWaitReady: it returns as soon as the pod is ready, with 124 when that
// takes too long, and with an error when it never will be.
func TestWaitReady(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	word := t.TempDir() // what is touched there lets the apps go on
	given := []string{"--volume=word,kind=host,source=" + word, "--mount=volume=word,target=/word"}
	p := h.start(append(given, "--pod-name=slow"), app{name: "x", script: `sleep 1000`, flags: []string{"--ready=exec:test -e /word/ready"}})
	p.running()
	if res := h.rkt("status", "--wait-ready=100ms", "slow"); res.code != 124 || !strings.Contains(res.stderr, "waits for x (running)") {
		t.Errorf("%s", res)
	}
	touch(t, word, "ready")
	if text := h.must("status", "--wait-ready=5m", "slow"); !strings.Contains(text, "ready=true\n") || !strings.Contains(text, "app-x-state=ready\n") {
		t.Errorf("status:\n%s", text)
	}
	h.must("stop", "--force", "slow")
	p.wait()
	never := h.start(append(given, "--pod-name=never"), app{name: "x", script: `while [ ! -e /word/end ]; do sleep 0.1; done`, flags: []string{"--ready=tcp:1"}})
	never.running()
	touch(t, word, "end")
	if res := h.rkt("status", "--wait-ready", "never"); res.code != 254 || !strings.Contains(res.stderr, "ended before it was ready") {
		t.Errorf("%s", res)
	}
	never.wait()
}

// TestWaitAndRemoved: wait gives the code of a pod that runs, has ended, was
// removed, or is removed meanwhile; gc forgets it when the grace period is over.
func TestWaitAndRemoved(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.start([]string{"--pod-name=job"}, app{name: "x", script: `sleep 1; exit 7`})
	p.running()
	if res := h.rkt("wait", "job"); res.code != 7 || res.stdout != p.uuid()+" 7\n" {
		t.Errorf("%s", res)
	}
	p.wait()
	h.must("rm", "job")
	for _, word := range []string{"job", p.uuid(), p.uuid()[:8]} {
		if res := h.rkt("wait", word); res.code != 7 || res.stdout != p.uuid()+" 7\n" {
			t.Errorf("%s", res)
		}
	}
	h.must("gc", "--grace-period=1h")
	if res := h.rkt("wait", "--format=json", "--uuid-file="+p.uuidFile); res.code != 7 || !strings.Contains(res.stdout, `"cause":"policy"`) {
		t.Errorf("%s", res)
	}
	removed := h.start([]string{"--rm", "--pod-name=job"}, app{name: "x", script: `sleep 1; exit 3`})
	removed.running()
	if res := h.rkt("wait", "job"); res.code != 3 {
		t.Errorf("%s", res)
	}
	removed.wait()
	if res := h.rkt("wait", removed.uuid(), p.uuid()); res.code != 3 || strings.Count(res.stdout, "\n") != 2 {
		t.Errorf("%s", res)
	}
	killed := h.start(nil, app{name: "x", script: `sleep 1000`})
	killed.running()
	if res := h.rkt("wait", killed.uuid(), "no-such-pod"); res.code != 254 || res.stdout != "" || !strings.Contains(res.stderr, `no matches found for "no-such-pod"`) {
		t.Errorf("%s", res)
	}
	if res := h.rkt("wait", "--timeout=100ms", killed.uuid(), p.uuid()); res.code != 124 || res.stdout != p.uuid()+" 7\n" || !strings.Contains(res.stderr, "still running after 100ms") || !strings.Contains(res.stderr, `"rkt stop `+killed.uuid()+`"`) {
		t.Errorf("%s", res)
	}
	if err := killed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if res := h.rkt("wait", "--timeout=1m", killed.uuid()); res.code != 254 || res.stdout != killed.uuid()+" 254\n" {
		t.Errorf("%s", res)
	}
	h.must("rm", killed.uuid())
	if res := h.rkt("wait", killed.uuid()); res.code != 254 || res.stdout != killed.uuid()+" 254\n" {
		t.Errorf("%s", res)
	}
	h.must("gc", "--grace-period=0s")
	if res := h.rkt("wait", p.uuid()); res.code != 254 || res.stdout != "" {
		t.Errorf("%s", res)
	}
}

// TestPodNames: one name is one pod's as long as that is not garbage.
func TestPodNames(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	prepare := func(flags ...string) result {
		args := append([]string{"prepare", "--insecure-options=image", "--quiet"}, flags...)
		return h.rkt(append(args, image("busybox.aci"), "--exec=/bin/true")...)
	}
	first := prepare("--pod-name=db", "--label=tier=data", "--label=zone=1")
	if first.code != 0 {
		t.Fatal(first)
	}
	uuid := strings.TrimSpace(first.stdout)
	if res := prepare("--pod-name=db"); res.code != 254 || !strings.Contains(res.stderr, "pod "+uuid+" has it") {
		t.Errorf("a second db: %s", res)
	}
	for _, bad := range []string{"", "DB", "a/b", "..", uuid} {
		if res := prepare("--pod-name=" + bad); res.code != 254 {
			t.Errorf("the name %q: %s", bad, res)
		}
	}
	prepare("--label=tier=web")
	for filter, want := range map[string]bool{
		"name=db": true, "name=x": false, "label=tier": true, "label=tier=data": true, "label=tier=x": false, "state=prepared": true, "state=running": false, "app=busybox": true,
	} {
		text := h.must("list", "--full", "--filter="+filter)
		if strings.Contains(text, uuid) != want {
			t.Errorf("--filter=%s:\n%s", filter, text)
		}
	}
	for _, bad := range []string{"state=over", "size=3", "state"} {
		if res := h.rkt("list", "--filter="+bad); res.code != 254 || res.stdout != "" {
			t.Errorf("%s", res)
		}
	}
	if text := h.must("list", "--format=json", "--filter=label=tier", "--filter=label=zone=1"); strings.Count(text, `"uuid"`) != 1 || !strings.Contains(text, `"name":"db"`) {
		t.Errorf("two filters:\n%s", text)
	}
	if res := h.rkt("run-prepared", "db"); res.code != 0 {
		t.Fatal(res)
	}
	// Ended, and not yet garbage: the name is still its own.
	if res := prepare("--pod-name=db"); res.code != 254 {
		t.Errorf("a name of an exited pod: %s", res)
	}
	h.must("gc", "--mark-only", "--grace-period=1h")
	if text := h.must("status", "db"); !strings.Contains(text, "state=exited garbage\n") {
		t.Errorf("by its name in the garbage:\n%s", text)
	}
	second := prepare("--pod-name=db")
	if second.code != 0 {
		t.Fatal(second)
	}
	if text := h.must("status", "--format=json", "db"); !strings.Contains(text, strings.TrimSpace(second.stdout)) {
		t.Errorf("the name leads to\n%s", text)
	}
	// The first one's removal leaves it alone.
	h.must("rm", uuid)
	if text := h.must("status", "--format=json", "db"); !strings.Contains(text, strings.TrimSpace(second.stdout)) {
		t.Errorf("the name leads to\n%s", text)
	}
	h.must("rm", "db")
	if left, _ := filepath.Glob(filepath.Join(h.dir, "names", "[a-z]*")); len(left) > 0 {
		t.Errorf("names are left: %v", left)
	}
}

// TestManyLines: an app writes a million lines on both streams, with a slow
// terminal that is stopped for a while, with rotation, and with a follower that
// is killed: none is lost or counted twice.
func TestManyLines(t *testing.T) {
	t.Parallel()
	lines := 500_000
	if testing.Short() {
		lines = 20_000
	}
	h := newHost(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &pod{host: h, uuidFile: filepath.Join(t.TempDir(), "uuid")}
	p.cmd = h.command(runArgs(p.uuidFile, []string{"--log-max-size=4Mi", "--log-max-files=1000"},
		app{name: "x", script: `seq 1 ` + jsonOf(lines) + ` & seq 1 ` + jsonOf(lines) + ` >&2; wait`})...)
	p.cmd.Stdout, p.cmd.Stderr = w, w
	p.cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	var terminal bytes.Buffer
	read := make(chan struct{})
	go func() {
		time.Sleep(2 * time.Second) // nobody reads: the terminal is stopped
		_, _ = terminal.ReadFrom(r)
		close(read)
	}()
	uuid := p.uuid()
	follow := func() (*bytes.Buffer, func() error, func()) {
		var out bytes.Buffer
		cmd := h.command("logs", "-f", "--stream=stdout", uuid)
		cmd.Stdout = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return &out, cmd.Wait, func() { _ = cmd.Process.Kill() }
	}
	_, end, kill := follow()
	out, wait, _ := follow()
	time.Sleep(300 * time.Millisecond)
	kill()
	_ = end() // was killed
	if err := p.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	<-read
	if err := wait(); err != nil {
		t.Error(err)
	}
	if n := strings.Count(out.String(), "\n"); n != lines {
		t.Errorf("the follower saw %d lines, want %d", n, lines)
	}
	if n := strings.Count(terminal.String(), "\n") - strings.Count(terminal.String(), "run: "); n != 2*lines { // how the image came is told too
		t.Errorf("the terminal got %d lines, want %d", n, 2*lines)
	}
	res := h.rkt("logs", uuid)
	if a, b := strings.Count(res.stdout, "\n"), strings.Count(res.stderr, "\n"); a != lines || b != lines {
		t.Errorf("logs: %d and %d lines, want %d each", a, b, lines)
	}
	if text := h.must("logs", "--tail=3", "--stream=stdout", uuid); text != jsonOf(lines-2)+"\n"+jsonOf(lines-1)+"\n"+jsonOf(lines)+"\n" {
		t.Errorf("the last lines: %q", text)
	}
	if s := h.status(uuid); s.Apps[0].Status.LogLines != uint64(2*lines) {
		t.Errorf("logLines %d", s.Apps[0].Status.LogLines)
	}
	files, _ := filepath.Glob(filepath.Join(h.dir, "pods", "*", uuid, "apps", "x", "0", "log*"))
	if !testing.Short() && len(files) < 5 {
		t.Errorf("the log was not rotated: %v", files)
	}
}

// TestRotationDrops: what rotation has dropped is counted, and a line of
// 10 MiB and bytes that are no text survive.
func TestRotationDrops(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.start([]string{"--log-max-size=64Ki", "--log-max-files=2"}, app{name: "x", script: `seq 1 100000`})
	if res := p.wait(); res.code != 0 || strings.Count(res.stdout, "\n") != 100000 {
		t.Fatalf("exit %d, %d bytes", res.code, len(res.stdout))
	}
	left := strings.Count(h.must("logs", p.uuid()), "\n")
	var s struct {
		Apps []struct {
			Status struct {
				LogDropped int `json:"logDropped"`
			} `json:"status"`
		} `json:"apps"`
	}
	if err := json.Unmarshal([]byte(h.must("status", "--format=json", p.uuid())), &s); err != nil {
		t.Fatal(err)
	}
	// Of a line that was cut when its beginning was dropped the end is left.
	if dropped := s.Apps[0].Status.LogDropped; dropped == 0 || left+dropped != 100000 && left+dropped != 100001 {
		t.Errorf("%d lines are left, %d are said to be dropped", left, dropped)
	}
	long := h.start(nil, app{name: "x", script: `head -c 10485760 /dev/zero | tr '\0' 'x'; echo; printf 'a\377\000b'`})
	if res := long.wait(); res.code != 0 {
		t.Fatalf("exit %d", res.code)
	}
	if text := h.must("logs", long.uuid()); text != strings.Repeat("x", 10<<20)+"\na\xff\x00b" {
		t.Errorf("%d bytes", len(text))
	}
	h.must("gc", "--mark-only", "--grace-period=1h")
	if text := h.must("logs", "--tail=1", "--format=json", long.uuid()); !strings.Contains(text, `"data":"Yf8AYg==","partial":true`) {
		t.Errorf("%q", text)
	}
}

// TestEvents: they tell of restarts and ends as they come, and of removal.
func TestEvents(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	// A data folder to look at.
	h.rkt("prepare", "--insecure-options=image", "--quiet", image("busybox.aci"), "--exec=/bin/true")
	var out bytes.Buffer
	cmd := h.command("events", "-f", "--format=json", "--since=0s")
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	time.Sleep(500 * time.Millisecond)
	p := h.start([]string{"--pod-name=e"}, app{name: "x", script: `sleep 1; exit 3`, flags: []string{"--restart=on-failure:1", "--ready=exec:true"}})
	p.wait()
	time.Sleep(1500 * time.Millisecond)
	h.must("rm", "e")
	time.Sleep(1500 * time.Millisecond)
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		var e struct {
			UUID, Event, Name, App, Reason string
			Attempt                        int
			ExitCode                       *int
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if e.UUID == p.uuid() {
			got = append(got, strings.TrimSuffix(e.Event+" "+e.App+jsonOf(e.Attempt), " 0"))
		}
	}
	want := []string{
		"created", "started", "app-started x0", "app-ready x0", "app-exited x0", "app-started x1", "app-ready x1", "app-exited x1", "ended", "removed",
	}
	if jsonOf(got) != jsonOf(want) {
		t.Errorf("events %v, want %v", got, want)
	}
}

// TestListWatch prints the list again when a pod comes, ends and goes.
func TestListWatch(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.rkt("prepare", "--insecure-options=image", "--quiet", image("busybox.aci"), "--exec=/bin/true")
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := h.command("list", "--watch", "--no-legend", "--filter=name=w")
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	seen := func(what string) {
		t.Helper()
		until(t, "the list has "+what, func() bool {
			data, err := os.ReadFile(out.Name())
			return err == nil && strings.Contains(string(data), what)
		})
	}
	p := h.start([]string{"--pod-name=w"}, app{name: "x", script: `sleep 2`})
	seen("running")
	p.wait()
	seen("exited")
	h.must("gc", "--mark-only")
	seen("exited garbage")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestDryRun shows the order and makes nothing; a cycle is printed.
func TestDryRun(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	uuidFile := filepath.Join(t.TempDir(), "uuid")
	args := func(after string, flags ...string) []string {
		return runArgs(uuidFile, append([]string{"--dry-run"}, flags...),
			app{name: "web", script: "x", flags: []string{"--after=" + after, "--ready=http:80/x,period=2s"}},
			app{name: "db", script: "x", flags: []string{"--before=migrate:ready"}},
			app{name: "migrate", script: "x"}, app{name: "log", script: "x", flags: []string{"--role=sidecar"}})
	}
	text := h.must(args("migrate:succeeded")...)
	for _, want := range []string{"stop:         web, then migrate, then db, then log", "3  ", "migrate:succeeded,log:started", "ready=http:80/x,period=2s"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	var plan struct {
		Start [][]string `json:"start"`
		Apps  []struct {
			Name, Role, Restart string
		} `json:"apps"`
	}
	if err := json.Unmarshal([]byte(h.must(args("migrate:succeeded", "--format=json")...)), &plan); err != nil {
		t.Fatal(err)
	}
	if jsonOf(plan.Start) != `[["log"],["db"],["migrate"],["web"]]` || plan.Apps[3].Restart != "always" {
		t.Errorf("plan %s", jsonOf(plan))
	}
	cyclic := append(args("migrate"), "---", image("busybox.aci"), "--name=z", "--before=db", "--after=web")
	if res := h.rkt(cyclic...); res.code != 254 || !strings.Contains(res.stderr, "after web") || !strings.Contains(res.stderr, "waits for itself") {
		t.Errorf("%s", res)
	}
	if res := h.rkt(args("nobody")...); res.code != 254 || !strings.Contains(res.stderr, "after nobody: no such app in the pod") {
		t.Errorf("%s", res)
	}
	if _, err := os.Stat(uuidFile); err == nil || h.must("list", "--no-legend") != "" {
		t.Errorf("a pod was made: %s", h.must("list"))
	}
}

// TestUpdateLimits: memory goes up and down under load without a restart, the
// kernel holds what status shows, and a restart keeps it. The file in memory is
// in use at any moment, between two programs too.
func TestUpdateLimits(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.start([]string{"--pod-name=u"}, app{
		name: "x", script: `dd if=/dev/zero of=/dev/shm/held bs=1M count=24 2>/dev/null; echo up; while :; do dd if=/dev/zero of=/dev/null bs=24M count=8 2>/dev/null; done`, flags: []string{"--memory=96Mi"},
	})
	p.logged("x", "up")
	pid := p.running().Apps[0].Status.PID
	held := func(file, v1 string) string {
		t.Helper()
		data, err := os.ReadFile("/proc/" + itoa(pid) + "/cgroup")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			f := strings.SplitN(strings.TrimSpace(line), ":", 3)
			mount := "/sys/fs/cgroup"
			if f[1] != "" && f[1] != v1 {
				continue
			}
			if f[1] == v1 {
				mount = filepath.Join(mount, v1)
			}
			if data, err := os.ReadFile(filepath.Join(mount, filepath.Dir(f[2]), file)); err == nil {
				return strings.TrimSpace(string(data))
			}
		}
		return ""
	}
	memory := func() string { return held("memory.max", "-") + held("memory.limit_in_bytes", "memory") }
	for _, mib := range []int{200, 64, 128} {
		want := jsonOf(mib << 20)
		h.must("update", "u", "--app=x", "--memory="+jsonOf(mib)+"Mi")
		if got := memory(); got != want {
			t.Errorf("the kernel holds %s, want %s", got, want)
		}
		if text := h.must("status", "--format=json", "u"); !strings.Contains(text, `{"name":"memory","state":"enforced","asked":"`+want+`","value":"`+want+`"}`) {
			t.Errorf("status: %s", text)
		}
	}
	if s := h.status(p.uuid()); s.Apps[0].Status.PID != pid || s.Apps[0].Status.State != "running" {
		t.Errorf("after the updates: %+v", s.Apps[0].Status)
	}
	if res := h.rkt("update", "u", "--app=x", "--memory=1Mi"); res.code != 254 || !strings.Contains(res.stderr, "is in use") || !strings.Contains(res.stderr, "--force") {
		t.Errorf("%s", res)
	}
	if text := h.must("update", "u", "--app=x", "--pids=50", "--cpu=500m", "--format=json"); !strings.Contains(text, `"name":"pids"`) || !strings.Contains(text, `"value":"500m"`) && !strings.Contains(text, `"asked":"500m"`) {
		t.Errorf("%s", text)
	}
	h.must("update", "u", "--pids=200")
	if text := h.must("cat-manifest", "--effective", "--pretty-print=false", "u"); !strings.Contains(text, `{"name":"resource/memory","value":{"limit":"134217728"}}`) || strings.Count(text, `"rkt/pids"`) != 2 {
		t.Errorf("effective manifest: %s", text)
	}
	updatesOfParts(t, p, held)
	h.must("app", "restart", "u", "--time=1s")
	pid = p.attempts("x")[1].PID
	if got := memory(); got != jsonOf(128<<20) {
		t.Errorf("after a restart the kernel holds %s", got)
	}
	h.must("stop", "--force", "u")
	p.wait()
}

// updatesOfParts changes limits that are given in parts, and lifts them again.
// One that the host can't give leaves what was given beside it as it was.
func updatesOfParts(t *testing.T, p *pod, held func(file, v1 string) string) {
	t.Helper()
	disk := diskOf(t, p.dir)
	p.must("update", "u", "--app=x", "--cpuset=0", "--cpuset-mems=0", "--io-limit="+disk+",rbps=64Mi,wiops=900")
	shown := p.must("status", "u")
	for _, want := range []string{": cpuset 0\n", ": cpuset mems 0\n", ": io-limit " + disk + " rbps=67108864 wiops=900"} {
		if !strings.Contains(shown, want) {
			t.Errorf("no %q in\n%s", want, shown)
		}
	}
	if text := p.must("cat-manifest", "--effective", "--pretty-print=false", "u"); !strings.Contains(text, `{"`+disk+`":{"rbps":"67108864","wiops":"900"}}`) {
		t.Errorf("effective manifest: %s", text)
	}
	bps := func() string { return held("io.max", "-") + held("blkio.throttle.read_bps_device", "blkio") }
	before := bps()
	if res := p.rkt("update", "u", "--app=x", "--cpuset=max", "--io-limit="+disk+",rbps=1Mi", "--io-limit=/dev/null,rbps=1"); res.code != 254 || !strings.Contains(res.stderr, "/dev/null: not a block device") {
		t.Errorf("%s", res)
	}
	if cpus, now := held("cpuset.cpus", "cpuset"), bps(); cpus != "0" || now != before || !strings.Contains(now, "67108864") {
		t.Errorf("after a failed update: CPUs %q, rates %q, which were %q", cpus, now, before)
	}
	lifted := p.must("update", "u", "--app=x", "--cpuset=max", "--cpuset-mems=max", "--io-limit="+disk+",rbps=max,wiops=max")
	if strings.Count(lifted, "max") < 4 || strings.Contains(lifted, "ignored") || strings.Contains(bps(), "67108864") {
		t.Errorf("%s, rates %q", lifted, bps())
	}
	if text := p.must("cat-manifest", "--effective", "--pretty-print=false", "u"); strings.Contains(text, "rkt/io-limits") || strings.Contains(text, "rkt/cpuset") {
		t.Errorf("effective manifest: %s", text)
	}
	// Where the kernel counts huge pages, or the host says that it doesn't.
	switch res := p.rkt("update", "u", "--app=x", "--hugetlb=2MB=4Mi"); {
	case res.code == 0 && strings.Contains(res.stdout, "enforced: hugetlb 2MB 4194304"):
		p.must("update", "u", "--app=x", "--hugetlb=2MB=max")
	case res.code != 254 || !strings.Contains(res.stderr, "isolator ignored: hugetlb 2MB 4194304: "):
		t.Errorf("%s", res)
	}
}
