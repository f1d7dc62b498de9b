package tests

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/testkit"
	"github.com/rkt-pods/rkt/tests/hostcheck"
)

// faultRun is a command whose steps are killed and failed, and what there has
// to be before it. A word "POD" of args stands for the only pod.
type faultRun struct {
	name  string
	setup [][]string
	args  []string
	want  string // what stdout has to be when it ends with 0
	// new says that only steps that no command before it has matter, which
	// bounds the time.
	new bool
	// again says that the same command goes on with what it left, and says
	// what it was to say.
	again bool
}

const faultImage = "example.com/busybox:1.0"

// faultRuns are the commands that change the disk or the kernel.
func faultRuns() []faultRun {
	fetch := []string{"fetch", image("busybox.oci")}
	apps := []string{"--volume=d,kind=empty,uid=5", "--set-env=A=b", faultImage, "--mount=volume=d,target=/mnt", "--exec=/bin/echo", "--", "hello"}
	run, prepare := append([]string{"run", "--net=none"}, apps...), append([]string{"prepare", "--quiet"}, apps...)
	volumes := []string{
		"run", "--net=none", "--volume=n,kind=named,source=db", "--volume=s,kind=secret,source=/etc/passwd", "--volume=m,kind=tmpfs", "--volume=i,kind=image,source=" + faultImage,
		"--sysctl=kernel.domainname=x", faultImage, "--mount=volume=n,target=/home", "--mount=volume=s,target=/secret", "--mount=volume=m,target=/m",
		"--mount=volume=i,target=/i,subPath=home", "--device=/dev/zero:/dev/nought", "--exec=/bin/ls", "--", "/home",
	}
	const said = "hello\n"
	restarts := []string{
		"run", "--net=none", "--pod-name=x", "--log-prefix=never", "--volume=d,kind=empty", faultImage, "--mount=volume=d,target=/mnt", "--restart=on-failure", "--restart-keep-rootfs",
		"--ready=notify", "--exec=/bin/sh", "--", "-c", "[ ! -e /mnt/x ] || { [ -e /x ] && echo hello; exit; }; touch /mnt/x /x; exit 1",
		"---", faultImage, "--name=y", "--restart=on-failure", "--mount=volume=d,target=/mnt", "--exec=/bin/sh", "--", "-c", "[ -e /mnt/y ] || { touch /mnt/y; exit 1; }",
	}
	return []faultRun{
		{name: "fetch", args: fetch},
		{name: "fetch of blobs", args: []string{"fetch", "--keep-blobs", image("busybox.oci.tar")}, new: true},
		{name: "fetch of an aci", args: []string{"fetch", image("busybox.aci")}, new: true},
		{name: "prepare", setup: [][]string{fetch}, args: prepare},
		{name: "run", setup: [][]string{fetch}, args: run, want: said},
		{name: "run-prepared", setup: [][]string{fetch, prepare}, args: []string{"run-prepared", "--net=none", "POD"}, want: said},
		{name: "rm", setup: [][]string{fetch, run}, args: []string{"rm", "POD"}},
		{name: "gc", setup: [][]string{fetch, run}, args: []string{"gc", "--grace-period=0s"}},
		{name: "run with volumes", setup: [][]string{fetch}, args: volumes, want: "app\n", new: true, again: true},
		{name: "run with restarts", setup: [][]string{fetch}, args: restarts, want: said, new: true},
		{name: "volume create", args: []string{"volume", "create", "db"}, new: true},
		{name: "volume rm", setup: [][]string{{"volume", "create", "db"}}, args: []string{"volume", "rm", "db"}, new: true},
		{name: "gc of volumes", setup: [][]string{{"volume", "create", "db"}}, args: []string{"gc", "--volumes", "--grace-period=0s"}, new: true},
		{name: "image rm", setup: [][]string{fetch}, args: []string{"image", "rm", faultImage}},
		{name: "image gc", setup: [][]string{fetch}, args: []string{"image", "gc", "--grace-period=0s"}},
	}
}

// faultTexts are what the kernel's errors are called.
var faultTexts = map[string]string{
	"ENOSPC": unix.ENOSPC.Error(), "EIO": unix.EIO.Error(), "EMFILE": unix.EMFILE.Error(),
}

// TestFault kills each command at each of its steps, and lets each step fail:
// the next commands work without a repair, gc leaves nothing, and no image is
// damaged. With RKT_TEST_LONG=1 each step fails in each way, at its second and
// its last pass too; else each is killed, and fails in one way of three.
func TestFault(t *testing.T) {
	programs := buildFaulty(t)
	before, err := hostcheck.Take(programs)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("at", func(t *testing.T) {
		clean := cleanStore(t)
		known := map[string]bool{}
		for i, run := range faultRuns() {
			sweep := faultSweep{programs: programs, run: run, clean: clean, turn: i, passes: map[string]int{}}
			for _, step := range traced(t, programs, run) {
				if !run.new || !known[step] || faultLong() {
					sweep.passes[step]++
				}
			}
			for step := range sweep.passes {
				known[step] = true
			}
			t.Run(run.name, func(t *testing.T) {
				t.Parallel()
				sweep.all(t)
			})
		}
	})
	after, err := hostcheck.Take(programs)
	if err != nil {
		t.Fatal(err)
	}
	if left := hostcheck.Left(before, after, usedStores()); len(left) > 0 {
		t.Errorf("left on the host:\n  %s", strings.Join(left, "\n  "))
	}
}

// TestFaultReleased: what is installed doesn't read RKT_FAULT.
func TestFaultReleased(t *testing.T) {
	programs := buildFaulty(t)
	for _, run := range faultRuns() {
		first := traced(t, programs, run)[0]
		h := faultHost(t)
		arrange(t, h, run)
		trace := filepath.Join(t.TempDir(), "trace")
		res := h.faulted(bin, run.args, "RKT_FAULT="+first+":KILL", "RKT_FAULT_TRACE="+trace)
		if res.code != 0 {
			t.Errorf("RKT_FAULT=%s:KILL: %s", first, res)
		}
		if _, err := os.Stat(trace); err == nil {
			t.Errorf("%s: RKT_FAULT_TRACE was obeyed", run.name)
		}
		h.clean()
	}
}

// buildFaulty builds the programs that obey RKT_FAULT.
func buildFaulty(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, args := range [][]string{
		{"-tags", "fault", "-o", filepath.Join(dir, "rkt"), "../cmd/rkt"},
		{"-tags", "netgo osusergo fault", "-ldflags", "-linkmode external -extldflags -static", "-o", filepath.Join(dir, "stage1"), "../cmd/stage1"},
	} {
		if out, err := exec.Command("go", append([]string{"build", "-trimpath", "-buildvcs=false"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("go build %v: %v\n%s", args, err, out)
		}
	}
	for _, name := range []string{"podinit", "applaunch", "rkt-fetch", "rkt-verify"} {
		if err := os.Link(filepath.Join(bin, name), filepath.Join(dir, name)); err != nil {
			data, err := os.ReadFile(filepath.Join(bin, name))
			if err == nil {
				err = testkit.WriteProgram(filepath.Join(dir, name), data)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// faultSweep is one command to be stopped everywhere.
type faultSweep struct {
	programs string
	run      faultRun
	clean    []string // what an emptied data folder holds
	turn     int      // which error is first
	passes   map[string]int
}

// faultLong says that time doesn't matter.
func faultLong() bool { return os.Getenv("RKT_TEST_LONG") == "1" }

// all stops the command at each of its steps.
func (s faultSweep) all(t *testing.T) {
	long, steps := faultLong(), slices.Sorted(maps.Keys(s.passes))
	errnos := []string{"ENOSPC", "EIO", "EMFILE"}
	n := 0
	for i, step := range steps {
		actions := []string{"KILL", errnos[(i+s.turn)%len(errnos)]}
		if long {
			actions = append([]string{"KILL"}, errnos...)
		}
		for _, action := range actions {
			at := []int{1}
			if long {
				at = slices.Compact([]int{1, min(2, s.passes[step]), s.passes[step]})
			}
			for _, pass := range at {
				n++
				s.stop(t, step, pass, action)
			}
		}
	}
	t.Logf("%d steps, %d times stopped", len(steps), n)
}

// stop lets the command end at a step, and looks at what is left of it.
func (s faultSweep) stop(t *testing.T, step string, pass int, action string) {
	h := faultHost(t)
	defer os.RemoveAll(filepath.Dir(h.dir))
	arrange(t, h, s.run)
	trace := filepath.Join(filepath.Dir(h.dir), "trace")
	res := h.faulted(s.programs, s.run.args, fmt.Sprintf("RKT_FAULT=%s@%d:%s", step, pass, action), "RKT_FAULT_TRACE="+trace)
	fail := func(format string, args ...any) {
		t.Helper()
		t.Errorf("%s at %s@%d: %s\nit was: %s", action, step, pass, fmt.Sprintf(format, args...), res)
	}
	passed, err := os.ReadFile(trace)
	switch text := faultTexts[action]; {
	case err != nil:
		fail("%v", err)
	case len(slices.DeleteFunc(strings.Fields(string(passed)), func(w string) bool { return w != step })) < pass:
		fail("the step wasn't reached")
	case res.code == 0 && action == "KILL":
		t.Logf("survives %s", step)
	case res.code == 0 && s.run.want != "" && res.stdout != s.run.want:
		fail("it succeeds and says %q", res.stdout)
	case res.code != 0 && text != "" && !strings.Contains(res.stderr, text):
		fail("the cause is not told")
	}
	once, twice := []string{"run", faultImage, "--exec=/bin/echo", "--", "again"}, "again\n"
	if s.run.again {
		once, twice = s.run.args, s.run.want
	}
	for _, next := range []struct {
		args []string
		want string
	}{
		{[]string{"fetch", image("busybox.oci")}, ""},
		{once, twice},
		{[]string{"image", "verify", "--all"}, ""},
		{[]string{"gc", "--grace-period=0s", "--expire-prepared=0s", "--volumes"}, ""},
	} {
		got := h.faulted(bin, next.args)
		if got.code != 0 || next.want != "" && got.stdout != next.want {
			fail("then %s", got)
		}
	}
	if err := leftovers(h.dir); err != nil {
		fail("%v", err)
	}
	if got := h.faulted(bin, []string{"image", "gc", "--grace-period=0s"}); got.code != 0 {
		fail("then %s", got)
	}
	if more := lacking(tree(t, h.dir), s.clean); len(more) > 0 {
		fail("left of the images: %v", more)
	}
}

// traced are the steps that a command passes, in their order.
func traced(t *testing.T, programs string, run faultRun) []string {
	t.Helper()
	h := faultHost(t)
	arrange(t, h, run)
	trace := filepath.Join(t.TempDir(), "trace")
	if res := h.faulted(programs, run.args, "RKT_FAULT_TRACE="+trace); res.code != 0 || run.want != "" && res.stdout != run.want {
		t.Fatal(res)
	}
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	h.faulted(bin, []string{"gc", "--grace-period=0s", "--expire-prepared=0s"})
	if err := leftovers(h.dir); err != nil {
		t.Error(err)
	}
	return strings.Fields(string(text))
}

// faultHost is a data folder that is not collected by itself.
func faultHost(t *testing.T) *host {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	return &host{t: t, dir: filepath.Join(dir, "data")}
}

// arrange makes what has to be there before a command.
func arrange(t *testing.T, h *host, run faultRun) {
	t.Helper()
	for _, args := range run.setup {
		if res := h.faulted(bin, args); res.code != 0 {
			t.Fatal(res)
		}
	}
}

// faulted runs the rkt of a folder with more variables, and gives it a minute.
func (h *host) faulted(programs string, args []string, env ...string) result {
	h.t.Helper()
	args = slices.Clone(args)
	if i := slices.Index(args, "POD"); i >= 0 {
		pods, err := filepath.Glob(filepath.Join(h.dir, "pods", "*", "*-*"))
		if err != nil || len(pods) != 1 {
			h.t.Fatalf("want one pod: %v, %v", pods, err)
		}
		args[i] = filepath.Base(pods[0])
	}
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(programs, "rkt"), append([]string{"--dir=" + h.dir, "--insecure-options=image"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		h.t.Errorf("rkt %q with %q: not done in a minute", args, env)
	}
	return h.finish(cmd, args, err, &stdout, &stderr)
}

// cleanStore lists what a data folder holds when all was removed from it.
func cleanStore(t *testing.T) []string {
	t.Helper()
	h := faultHost(t)
	for _, args := range [][]string{
		{"fetch", image("busybox.oci")},
		{"run", faultImage, "--exec=/bin/true"},
		{"gc", "--grace-period=0s"},
		{"image", "gc", "--grace-period=0s"},
	} {
		if res := h.faulted(bin, args); res.code != 0 {
			t.Fatal(res)
		}
	}
	if err := leftovers(h.dir); err != nil {
		t.Error(err)
	}
	return tree(t, h.dir)
}

// tree lists all paths below a folder.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var paths []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		paths = append(paths, strings.TrimPrefix(path, dir))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// lacking are the words of list that known doesn't have.
func lacking(list, known []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(known, s) })
}
