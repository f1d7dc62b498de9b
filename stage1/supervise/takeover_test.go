package supervise

import (
	"errors"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/abi"
	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

func retain(caps ...string) []appc.Isolator {
	return []appc.Isolator{appc.NewIsolator(appc.IsoCapsRetain, appc.StringSet{Set: caps})}
}

// What an app that may trace others left behind must be gone before a handler
// is sent in beside it.
func TestNothingRunsBesideAHandler(t *testing.T) {
	for _, c := range []struct {
		caps   string
		stuck  bool
		stdout string
	}{
		{"CAP_SYS_PTRACE", false, "main\nafter\n"},
		{"CAP_SYS_PTRACE", true, ""},
		{"CAP_KILL", true, "main\nafter\n"},
	} {
		tp := newTestPod(t, poddir.RunOptions{}, "", spec{
			name: "a", script: "echo main", iso: retain(c.caps),
			handler: []appc.EventHandler{{Name: appc.PostStop, Exec: []string{"/bin/sh", "-c", "echo after"}}},
		})
		if c.stuck {
			tp.kernel.fail["clear"] = errors.New("cgroup: not empty")
		}
		code, err := tp.run()
		if err != nil || tp.stdout != c.stdout || (code == 0) != (c.stdout != "") {
			t.Errorf("%+v: code %d, %v, stdout %q", c, code, err, tp.stdout)
		}
		if c.stdout == "" && (len(tp.notified) == 0 || !strings.Contains(tp.notified[0].Error(), "CAP_SYS_PTRACE")) {
			t.Errorf("%+v: told %v", c, tp.notified)
		}
	}
}

// No process is sent into a pod in which one could take it over.
func TestEnterIsRefused(t *testing.T) {
	for _, c := range []struct {
		iso     []appc.Isolator
		options poddir.RunOptions
		refused string
	}{
		{retain("CAP_SYS_PTRACE"), poddir.RunOptions{}, "CAP_SYS_PTRACE"},
		{retain("cap_kill", "sys_admin"), poddir.RunOptions{}, "CAP_SYS_ADMIN"},
		{retain("CAP_PERFMON"), poddir.RunOptions{}, "CAP_PERFMON"},
		{retain("CAP_SYS_PTRACE"), poddir.RunOptions{InsecureCaps: true}, ""},
		{retain("CAP_KILL", "CAP_CHOWN"), poddir.RunOptions{}, ""},
		{nil, poddir.RunOptions{}, ""},
	} {
		// The app that may is another than the one to be entered.
		tp := newTestPod(t, c.options, "", spec{name: "a", script: "exit"}, spec{name: "b", script: "exit", iso: c.iso})
		if err := tp.records.begin(); err != nil {
			t.Fatal(err)
		}
		if err := tp.records.change("a", func(s *poddir.Status) { s.State = poddir.Running }); err != nil {
			t.Fatal(err)
		}
		tp.runDir = t.TempDir()
		_, err := Enter(t.Context(), abi.Enter{Pod: abi.Pod{PodDir: string(tp.records.dir)}, App: "a", Exec: []string{"/bin/true"}}, Env{
			Launcher: tp.launcher, Stdin: tp.stdin, Stdout: tp.stdin, Stderr: tp.stdin,
		})
		switch {
		case c.refused == "" && err != nil:
			t.Errorf("%+v: %v", c, err)
		case c.refused != "" && (!errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), "app b: "+c.refused) || len(errs.Hints(err)) == 0):
			t.Errorf("%+v: %v", c, err)
		}
	}
}
