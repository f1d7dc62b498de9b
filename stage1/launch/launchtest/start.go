package launchtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/launch/cell"
)

func testExitCodes(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	for _, code := range []int{0, 1, 125, 126, 127, 254, 255} {
		r, err := p.run(p.app("/bin/sh", "-c", "echo out; echo err >&2; exit "+strconv.Itoa(code)))
		p.must(err)
		if !r.exit.Status.Exited() || r.exit.Status.ExitStatus() != code {
			t.Errorf("exit %d: %v", code, r)
		}
		if r.stdout != "out\n" || r.stderr != "err\n" {
			t.Errorf("exit %d: %v", code, r)
		}
		if r.exit.OOMKilled || r.exit.CPU <= 0 {
			t.Errorf("exit %d: usage %+v", code, r.exit)
		}
	}
	for _, sig := range []unix.Signal{unix.SIGKILL, unix.SIGSEGV, unix.SIGTERM} {
		r, err := p.run(p.app("/bin/sh", "-c", "kill -"+strconv.Itoa(int(sig))+" $$"))
		p.must(err)
		if !r.exit.Status.Signaled() || r.exit.Status.Signal() != sig {
			t.Errorf("signal %d: %v", sig, r)
		}
	}
}

func testProgramErrors(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	write := func(name, text string, mode os.FileMode) {
		p.must(os.WriteFile(filepath.Join(p.rootfs, name), []byte(text), mode))
	}
	write("bin/plain", "#!/bin/sh\n", 0o644)
	write("bin/garbage", "\x00\x01garbage", 0o755)
	write("bin/lost", "#!/bin/nosuch\n", 0o755)
	for _, c := range []struct {
		argv0 string
		code  int
		text  string
	}{
		{"/bin/nosuch", 127, "app web: program /bin/nosuch: no such file or directory"},
		{"nosuch", 127, "app web: program nosuch: executable file not found in $PATH"},
		{"/bin/plain", 126, "app web: program /bin/plain: permission denied"},
		{"/bin", 126, "app web: program /bin: is a directory"},
		// These get past every look-up: only execve(2) finds out.
		{"/bin/garbage", 126, "app web: program /bin/garbage: exec format error"},
		{"/bin/lost", 127, "app web: program /bin/lost: no such file or directory"},
	} {
		r, err := p.run(p.app(c.argv0))
		var start *launch.StartError
		if !errors.As(err, &start) || start.ExitCode != c.code || err.Error() != c.text {
			t.Errorf("%s: %v (want %d, %q)", c.argv0, err, c.code, c.text)
		}
		if r.stdout+r.stderr != "" {
			t.Errorf("%s: written to the app's streams: %v", c.argv0, r)
		}
		p.checkClean()
	}
}

func testSetupErrors(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	for name, c := range map[string]struct {
		change func(*launch.App)
		text   string
	}{
		"volume": {func(a *launch.App) {
			a.Mounts[0].Type, a.Mounts[0].Source, a.Mounts[0].Options = "bind", "/nosuch/volume", nil
			a.Mounts[0].Target = "/data"
		}, "/nosuch/volume"},
		"capability": {func(a *launch.App) { a.Capabilities = []string{"CAP_NOSUCH"} },
			"set up app web: capability CAP_NOSUCH: unknown to this kernel"},
		"user": {func(a *launch.App) { a.UID = -1 }, "set up app web: user -1, group 0: not resolved"},
		"folder": {func(a *launch.App) { a.Cwd = "/bin/busybox/x" },
			"set up app web: mkdir /bin/busybox: not a directory"},
	} {
		app := p.app("/bin/true")
		c.change(&app)
		_, err := p.run(app)
		var start *launch.StartError
		if err == nil || errors.As(err, &start) || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		p.checkClean()
	}
}

// testBeyond asks for more than this process may have: refused by name, or
// given where the host allows it.
func testBeyond(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	exceed, err := cell.MayExceed()
	p.must(err)
	var nofile unix.Rlimit
	p.must(unix.Getrlimit(unix.RLIMIT_NOFILE, &nofile))
	// Room for one more, also where the limit was the highest there can be.
	nofile.Max--
	nofile.Cur = min(nofile.Cur, nofile.Max)
	p.must(unix.Setrlimit(unix.RLIMIT_NOFILE, &nofile))
	adj, err := cell.OOMScoreAdjOf("self")
	p.must(err)
	adj--
	for name, c := range map[string]struct {
		change func(*launch.App)
		text   string
	}{
		"limit": {func(a *launch.App) {
			a.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 1000, Hard: nofile.Max + 1}}
		}, "set up app web: limit RLIMIT_NOFILE: "},
		"oom":        {func(a *launch.App) { a.OOMScoreAdj = &adj }, "set up app web: oom_score_adj: "},
		"capability": {func(a *launch.App) { a.Capabilities = []string{"CAP_SYS_RESOURCE"} }, "set up app web: capability CAP_SYS_RESOURCE: "},
	} {
		app := p.app("/bin/true")
		c.change(&app)
		r, err := p.run(app)
		if exceed && (err != nil || r.exit.Status != 0) {
			t.Errorf("%s: %v, %v", name, r, err)
		}
		if !exceed && (!errs.Is(err, errs.Unsupported) || !strings.HasPrefix(err.Error(), c.text)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	app := p.app("/bin/true")
	app.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 1000, Hard: cell.NROpen() + 1}}
	if _, err := p.run(app); !errs.Is(err, errs.Unsupported) || !strings.HasPrefix(err.Error(), "set up app web: limit RLIMIT_NOFILE: ") {
		t.Errorf("more than any process may: %v", err)
	}
}

// testParallel starts apps of one pod at the same time.
func testParallel(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	const n = 6
	var apps []launch.App
	for i := range n {
		app := p.app("/bin/sh", "-c", "exit "+strconv.Itoa(i))
		app.Name = "app" + strconv.Itoa(i)
		app.CgroupPath = p.rel + "/apps/" + app.Name
		apps = append(apps, app)
	}
	results := make(chan error, n)
	for i, app := range apps {
		go func() {
			proc, err := p.launcher.Start(t.Context(), app)
			if err != nil {
				results <- err
				return
			}
			exit, err := proc.Wait()
			if err == nil && exit.Status.ExitStatus() != i {
				err = fmt.Errorf("%s: status %#x", app.Name, exit.Status)
			}
			results <- errors.Join(err, proc.Destroy())
		}()
	}
	for range n {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// testSignal reaches the main process alone, not its children.
func testSignal(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	proc := p.start(p.app("/bin/sh", "-c", `
		sh -c 'trap "exit 9" TERM; while :; do sleep 0.01; done' & child=$!
		trap 'kill -0 $child && exit 3; exit 4' TERM
		echo up; while :; do sleep 0.01; done`))
	p.must(proc.Signal(unix.SIGTERM))
	exit, err := proc.Wait()
	p.must(err)
	p.must(proc.Destroy())
	if exit.Status.ExitStatus() != 3 {
		t.Errorf("status %#x", exit.Status)
	}
}

// testStreams has an app of another user open its streams again by name.
func testStreams(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	app := p.app("/bin/sh", "-c", "echo out >/dev/stdout; echo err >/dev/stderr")
	app.UID, app.GID = 1000, 1000
	r, err := p.run(app)
	p.must(err)
	if r.stdout != "out\n" || r.stderr != "err\n" {
		t.Error(r)
	}
}
