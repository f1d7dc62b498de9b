package launchtest

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage1/launch"
)

// largeEnv is n variables of 120,000 bytes: one may have 128 KiB.
func largeEnv(n int) []string {
	var env []string
	for i := range n {
		env = append(env, "V"+strconv.Itoa(i)+"="+strings.Repeat("x", 120_000))
	}
	return env
}

// testLarge gives programs so much that the garbage collector works between
// the start of the process and the program's: it must not close a descriptor
// of the app.
func testLarge(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	const script = `cat; cd /proc/self/fd; for fd in *; do [ -e $fd ] && echo -n "$fd "; done; echo err >&2; echo $#`
	argv := []string{"/bin/sh", "-c", script, "sh"}
	many := slices.Concat(argv, slices.Repeat([]string{"argument"}, 50_000))
	// The shell's own folder listing needs no descriptor once the loop runs.
	const fds = "0 1 2 "
	main := p.start(p.app("/bin/sh", "-c", "echo up; exec sleep 1000"))
	defer p.end(main)
	id := "web-" + strconv.Itoa(p.starts)
	for _, c := range []struct {
		name string
		env  []string
		argv []string
		want string
	}{
		{"environment", largeEnv(12), argv, "in" + fds + "0\n"},
		{"arguments", nil, many, "in" + fds + "50000\n"},
	} {
		for range 5 {
			stdin := func(s *launch.Stdio) func() {
				r, w, err := os.Pipe()
				p.must(err)
				_, err = w.WriteString("in")
				p.must(errors.Join(err, w.Close()))
				s.Stdin = r
				return func() { r.Close() }
			}
			r, err := p.output(func(s launch.Stdio) (launch.Process, error) {
				defer stdin(&s)()
				app := p.app(c.argv...)
				app.Name, app.CgroupPath = "other", p.rel+"/apps/other"
				app.Env, app.Stdio = append(app.Env, c.env...), s
				return p.launcher.Start(t.Context(), app)
			})
			if err != nil || r.stdout != c.want || r.stderr != "err\n" || r.exit.Status != 0 {
				t.Errorf("start, %s: %v, %.200v, want %q", c.name, err, r, c.want)
			}
			r, err = p.output(func(s launch.Stdio) (launch.Process, error) {
				defer stdin(&s)()
				return p.launcher.Exec(t.Context(), p.stateDir, id, launch.Exec{Argv: c.argv, Env: c.env, Stdio: s})
			})
			if err != nil || r.stdout != c.want || r.stderr != "err\n" || r.exit.Status != 0 {
				t.Errorf("exec, %s: %v, %.200v, want %q", c.name, err, r, c.want)
			}
		}
	}
}

// testTooLarge goes beyond the kernel's limits of execve(2).
func testTooLarge(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	for name, change := range map[string]func(*launch.App){
		"one argument":   func(a *launch.App) { a.Argv = append(a.Argv, strings.Repeat("x", 128<<10)) },
		"all variables":  func(a *launch.App) { a.Env = append(a.Env, largeEnv(60)...) },
		"many arguments": func(a *launch.App) { a.Argv = append(a.Argv, slices.Repeat([]string{"x"}, 1_000_000)...) },
	} {
		app := p.app("/bin/true")
		change(&app)
		_, err := p.run(app)
		start, ok := errors.AsType[*launch.StartError](err)
		const text = "app web: program /bin/true: argument list too long"
		if !ok || start.ExitCode != 126 || err.Error() != text || len(errs.Hints(err)) != 1 {
			t.Errorf("%s: %.300v, want %q", name, err, text)
		}
		p.checkClean()
	}
}

// testSignalsInherited starts programs from a thread that blocks signals, in a
// process that ignores some, as rkt's caller may.
func testSignalsInherited(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	main := p.start(p.app("/bin/sh", "-c", "echo up; exec sleep 1000"))
	defer p.end(main)
	id := "web-" + strconv.Itoa(p.starts)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var old unix.Sigset_t
	all := unix.Sigset_t{Val: [16]uint64{1<<64 - 1}}
	p.must(unix.PthreadSigmask(unix.SIG_SETMASK, &all, &old))
	defer func() { p.must(unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil)) }()
	script := []string{"/bin/grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"}
	want := func(what, got string, hup bool) {
		t.Helper()
		ignored := "0000000000000000"
		if hup {
			ignored = "0000000000000001"
		}
		if got != "SigBlk:\t0000000000000000\nSigIgn:\t"+ignored+"\n" {
			t.Errorf("%s: %q", what, got)
		}
	}
	for _, hup := range []bool{false, true} {
		list := []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGPIPE, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU}
		if hup {
			list = append(list, unix.SIGHUP)
		}
		signal.Ignore(list...)
		// Not Reset, which leaves an ignored signal so. The channel is read by
		// nobody: what matters is that the programs of other tests get them.
		defer signal.Notify(make(chan os.Signal, 1), list...)
		for range 5 {
			app := p.app(script...)
			app.Name, app.CgroupPath = "other", p.rel+"/apps/other"
			r, err := p.run(app)
			p.must(err)
			want("start", r.stdout, hup)
			r, err = p.exec(id, launch.Exec{Argv: script})
			p.must(err)
			want("exec", r.stdout, hup)
			// From a process that begins that way, as `enter` does.
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = []string{
				partEnv + "=" + partExec, execStateEnv + "=" + p.stateDir, execIDEnv + "=" + id,
				execArgvEnv + "=" + strings.Join(script, "\n"), execHideEnv + "=" + filepath.Dir(p.rootfs),
			}
			cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
			out, err := cmd.Output()
			p.must(err)
			want("enter", string(out), hup)
		}
	}
}
