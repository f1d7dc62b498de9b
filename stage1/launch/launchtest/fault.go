//go:build fault

package launchtest

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/stage1/launch"
)

// passes counts how often the step was passed in this process up to now.
func passes(t *testing.T, step string) int {
	t.Helper()
	data, err := os.ReadFile(os.Getenv(traceEnv))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(data)) {
		if strings.TrimSpace(line) == step {
			n++
		}
	}
	return n
}

// Faults fails each step of a start in turn: the error comes back and
// nothing is left. The steps that clean up are failed as well, and done again.
// The further steps are a launcher's own, which both ways pass.
func Faults(t *testing.T, launcher func() launch.Launcher, further ...string) {
	p := newPod(t, launcher)
	main := p.start(p.app("/bin/sh", "-c", "echo up; exec sleep 1000"))
	id := "web-" + strconv.Itoa(p.starts)
	start := func() error {
		app := p.app("/bin/true")
		app.Name, app.CgroupPath = "other", p.rel+"/apps/other"
		_, err := p.run(app)
		return err
	}
	run := func() error {
		_, err := p.exec(id, launch.Exec{Argv: []string{"true"}})
		return err
	}
	// A launcher may write a state for one of them only.
	both := func() error { return errors.Join(start(), run()) }
	type attempt struct {
		step string
		try  func() error
	}
	attempts := []attempt{
		{"launch.create", start}, {"launch.start", start}, {"launch.release", start},
		{"launch.leaf", run}, {"launch.state", both}, {"launch.start", run},
	}
	for _, step := range further {
		attempts = append(attempts, attempt{step, start}, attempt{step, run})
	}
	for _, c := range attempts {
		t.Setenv("RKT_FAULT", c.step+"@"+strconv.Itoa(passes(t, c.step)+1)+":EIO")
		if err := c.try(); !errors.Is(err, unix.EIO) {
			t.Errorf("%s: its failure did not come back: %v", c.step, err)
		}
		if err := c.try(); err != nil {
			t.Errorf("after %s failed: %v", c.step, err)
		}
	}
	for _, step := range []string{"launch.destroy", "cgroup.kill"} {
		proc, err := p.launcher.Exec(t.Context(), p.stateDir, id, launch.Exec{Argv: []string{"true"}})
		p.must(err)
		_, err = proc.Wait()
		p.must(err)
		t.Setenv("RKT_FAULT", step+"@"+strconv.Itoa(passes(t, step)+1)+":EIO")
		if err := proc.Destroy(); !errors.Is(err, unix.EIO) {
			t.Errorf("%s: its failure did not come back: %v", step, err)
		}
		p.must(proc.Destroy())
	}
	t.Setenv("RKT_FAULT", "")
	p.end(main)
	p.checkClean()
}
