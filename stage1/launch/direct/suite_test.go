package direct

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rkt-pods/rkt/pkg/testkit"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/launch/launchtest"
)

func launcherOf() launch.Launcher { return New(Options{}) }

func TestMain(m *testing.M) { os.Exit(launchtest.Main(m, launcherOf, build)) }

func TestSuite(t *testing.T) { launchtest.Run(t, launcherOf) }

// TestOldKernel does without mount_setattr(2), as before Linux 5.12.
func TestOldKernel(t *testing.T) {
	launchtest.Run(t, func() launch.Launcher {
		l := newLauncher(Options{})
		l.setAttr = false
		return l
	}, "Paths", "FlatMounts", "Links", "ReadOnlyRootFS", "TTY")
}

// build puts applaunch beside the test's own program.
func build() (func(), error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	program := filepath.Join(filepath.Dir(self), "applaunch")
	if _, err := os.Stat(program); err == nil {
		return func() {}, nil
	}
	if bin := os.Getenv("RKT_TEST_BIN"); bin != "" { // of a machine without a compiler
		data, err := os.ReadFile(filepath.Join(bin, "applaunch"))
		if err != nil {
			return nil, err
		}
		return func() { os.Remove(program) }, testkit.WriteProgram(program, data)
	}
	cmd := exec.Command("gcc", "-Os", "-static", "-nostdlib", "-nostartfiles", "-ffreestanding", "-fno-stack-protector",
		"-fno-builtin", "-fno-pie", "-no-pie", "-Wall", "-Wextra", "-Werror", "-s", "-o", program, "../../applaunch/applaunch.c")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build applaunch: %w\n%s", err, out)
	}
	return func() { os.Remove(program) }, nil
}
