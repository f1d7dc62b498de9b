//go:build vm

package tests

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/lock"
)

// gcUnits installs the units of the timer for the data folder of a host.
func gcUnits(t *testing.T, h *host) *unit {
	t.Helper()
	u := &unit{pod: &pod{host: h}, name: "rkt-gc.service"}
	var files []string
	for _, name := range []string{"rkt-gc.service", "rkt-gc.timer"} {
		data, err := os.ReadFile(filepath.Join("systemd", name))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(data), "@PREFIX@/bin/rkt", execLine(filepath.Join(bin, "rkt"), "--dir="+h.dir))
		file := filepath.Join("/run/systemd/system", name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	u.systemctl("daemon-reload")
	t.Cleanup(func() {
		u.systemctl("stop", "rkt-gc.timer")
		_ = exec.Command("systemctl", "reset-failed", u.name).Run() // an error if it hasn't failed
		if err := errors.Join(os.Remove(files[0]), os.Remove(files[1])); err != nil {
			t.Error(err)
		}
		u.systemctl("daemon-reload")
	})
	if out, err := exec.Command("systemd-analyze", append([]string{"verify", "--man=no"}, files...)...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	return u
}

// TestUnitGC: the timer's service gives back what a killed pod held, fails where
// something that was due stays, and does not where another gc is at work.
func TestUnitGC(t *testing.T) {
	h := newHost(t)
	u := gcUnits(t, h)
	// The tests have a network of their own, in which no unit is.
	p := h.start([]string{"--net=none"}, app{name: "x", script: "echo up; sleep 1000"})
	id := p.uuid()
	p.running()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	h.must("status", "--wait", id)
	u.systemctl("start", "rkt-gc.service")
	if got := u.show("Result", "ExecMainStatus"); got != "Result=success ExecMainStatus=0" {
		t.Errorf("gc: %s\n%s", got, u.journal())
	}
	if found := h.orphans(); len(found) > 0 {
		t.Errorf("after the service: %+v", found)
	}
	l, err := lock.TryExclusive(filepath.Join(h.dir, "store", "gc.lock"))
	if err != nil {
		t.Fatal(err)
	}
	drop := filepath.Join("/run/systemd/system", "rkt-gc.service.d")
	if err := errors.Join(os.Mkdir(drop, 0o755), os.WriteFile(filepath.Join(drop, "now.conf"),
		[]byte("[Service]\nExecStart=\nExecStart="+execLine(filepath.Join(bin, "rkt"), "--dir="+h.dir, "gc")+"\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(drop); err != nil {
			t.Error(err)
		}
	})
	u.systemctl("daemon-reload")
	u.systemctl("start", "rkt-gc.service")
	// systemd forgets the status of a unit that did not fail.
	if !strings.Contains(u.journal(), "another gc is at work") || u.show("Result") != "Result=success" {
		t.Errorf("beside another gc: %s", u.journal())
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(h.dir, "pods", "exited-garbage", id)
	for _, name := range []string{"refs.json", "pod"} {
		if err := os.WriteFile(filepath.Join(broken, name), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := exec.Command("systemctl", "start", "rkt-gc.service").Run(); err == nil {
		t.Error("gc with a damaged pod: no error")
	}
	if got := u.show("Result", "ExecMainStatus"); got != "Result=exit-code ExecMainStatus=10" {
		t.Errorf("gc with a damaged pod: %s\n%s", got, u.journal())
	}
	if out, err := exec.Command("systemctl", "--failed", "--plain", "--no-legend").Output(); err != nil || !strings.Contains(string(out), "rkt-gc.service") {
		t.Errorf("systemctl --failed: %s, %v", out, err)
	}
	h.must("rm", id)
	u.systemctl("start", "rkt-gc.timer")
	if out, err := exec.Command("systemctl", "list-timers", "--no-legend", "rkt-gc.timer").Output(); err != nil || !strings.Contains(string(out), "rkt-gc.service") {
		t.Errorf("list-timers: %s, %v", out, err)
	}
}
