package tests

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// suite are tests of one package that run on the booted system. There they are
// as slow as emulation, so not all do.
type suite struct {
	name, folder string
	within       string // the test that the tests are subtests of, if they are
	tests        []string
}

var suites = []suite{
	{"cgroup", "../pkg/cgroup", "", []string{"Test.*"}},
	{"launch", "../stage1/launch/direct", "TestSuite", []string{
		"ExitCodes", "OOM", "Beyond", "Destroy.*", "PodInitDies", "Cancel", "Paths", "Devices", "Exec", "ExecAsRoot", "Parallel",
	}},
	{"pods", ".", "", []string{
		"TestExitCodes", "TestSetUpFailure", "TestRunRm",
		"TestStop", "TestStopMainProcessOnly", "TestStopCommand", "TestSecondSignal",
		"TestKilledSupervisor", "TestConcurrentRunsAndGC", "TestTwoDataFolders", "TestGCOfNothing", "TestOrdinaryUser",
		"TestEnterKilled", "TestLogsComplete", "TestBytesUntouched", "TestPrefixes",
		"TestMountTargets", "TestFileVolume", "TestNothingOfTheHost", "TestNetHost",
		"TestUnit.*", // systemd_test.go
	}},
	{"networks", ".", "", []string{"TestNetPorts", "TestNetFlushed", "TestNetMacvlan", "TestNetworkBandwidth"}},
	{"escapes", ".", "", []string{
		"TestEscape(Proc|Namespaces|Processes|Devices|Keyrings|Kernel|Cgroups|Trace|Setuid|NullDevice|Masks|Mounts)", "TestDoors",
	}},
	{"users", ".", "", []string{"TestPrivateUsers", "TestPrivateUsersVolumes", "TestPrivateUsersPod", "TestEscapeUsers", "TestRootless", "TestScopeOfUser"}},
	{"limits", ".", "", []string{
		"TestMemoryLimit.*", "TestPidsLimit", "TestCPULimit", "TestCPUSet", "TestIOLimit", "TestProcessLimits", "TestLabels", "TestStrictIsolators", "TestWhereLimitsAre", "TestPriorities", "TestNested",
	}},
	{"life", ".", "", []string{
		"TestUpdateLimits", "TestBackoff", "TestForgottenExecutions", "TestLivenessProbeThatHangs", "TestOrphansAreReaped", "TestSteerApps", "TestWaitReady",
	}},
	{"clock", ".", "", []string{"TestClockIsSet"}},
}

// TestVM runs tests in a virtual machine with systemd as PID 1 and nothing but
// cgroup v2, neither of which the machine of the other tests must have. What
// happens to a test there happens to the subtest of its name here.
func TestVM(t *testing.T) {
	t.Parallel()
	setUpVM(t)
	src := guestFiles(t)
	for _, s := range suites {
		t.Run(s.name, func(t *testing.T) { s.run(t, src) })
	}
}

func (s suite) run(t *testing.T, src string) {
	s.build(t, filepath.Join(src, "tests.test"))
	run := "^(" + strings.Join(s.tests, "|") + ")$"
	if s.within != "" {
		run = "^" + s.within + "$/" + run
	}
	cmd := exec.Command("vm/vm-run", "--quiet", "--timeout", "1200", "--src", src,
		"--env", "RKT_TEST_VM=1", "--env", "RKT_TEST_BIN=/root/t/bin", "--env", "RKT_TEST_IMAGES=/root/t/images",
		"--script", `cp -r /mnt/src /root/t && cd /root/t && exec ./tests.test -test.v=test2json -test.short -test.parallel=3 -test.run="$1"`,
		run)
	if s.name == "pods" {
		// Units are in the network of the system, so that is where gc has to be.
		cmd.Args = slices.Insert(cmd.Args, 1, "--env", networkEnv+"=1")
	}
	guest := &guestTest{children: map[string]*guestTest{}}
	err := guest.read(cmd)
	for _, name := range guest.names {
		t.Run(name, guest.children[name].replay)
	}
	names := guest.names
	if s.within != "" {
		names = guest.find(s.within).names
	}
	for _, want := range s.tests {
		whole := regexp.MustCompile("^" + want + "$")
		if !slices.ContainsFunc(names, whole.MatchString) {
			t.Errorf("no test %s ran in the guest", want)
		}
	}
	if err != nil {
		t.Errorf("the guest: %v\n%s", err, strings.Join(guest.output, ""))
	}
}

// build compiles the suite's test program. The guest has another C library.
func (s suite) build(t *testing.T, file string) {
	t.Helper()
	cmd := exec.Command("go", "test", "-c", "-tags=vm,netgo,osusergo", "-o", file, s.folder)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}

// setUpVM builds the machine if it is not there. A host that can't, without
// Debian's package mirror above all, skips the test and says why.
func setUpVM(t *testing.T) {
	t.Helper()
	out, err := exec.Command("vm/vm-run", "--setup").CombinedOutput()
	exit, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case ok && exit.ExitCode() == 125:
		t.Skipf("no virtual machine can be set up here:\n%s", out)
	case err != nil:
		t.Fatalf("set up the virtual machine: %v\n%s", err, out)
	}
}

// guestFiles makes the folder that the guest sees: programs and images, as it
// has neither a network nor Go.
func guestFiles(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for from, to := range map[string]string{bin: "bin", imageDir: "images", "../dist/systemd": "systemd"} {
		if out, err := exec.Command("cp", "-rH", from, filepath.Join(dir, to)).CombinedOutput(); err != nil {
			t.Fatalf("copy %s: %v\n%s", from, err, out)
		}
	}
	return dir
}

// guestTest is a test as the guest reported it; the one without a name holds all.
type guestTest struct {
	result   string // as go test -json calls it; empty if the test did not end
	output   []string
	names    []string // of children, in their order
	children map[string]*guestTest
}

// read runs the machine and takes in what its test program prints.
func (g *guestTest) read(cmd *exec.Cmd) error {
	convert := exec.Command("go", "tool", "test2json")
	var messages, events bytes.Buffer
	cmd.Stderr = &messages
	convert.Stdout = &events
	pipe, err := convert.StdinPipe()
	if err != nil {
		return err
	}
	cmd.Stdout = pipe
	if err := convert.Start(); err != nil {
		return err
	}
	err = cmd.Run()
	err = errors.Join(err, pipe.Close(), convert.Wait(), g.take(&events))
	g.output = append(g.output, messages.String())
	return err
}

func (g *guestTest) take(events io.Reader) error {
	scan := bufio.NewScanner(events)
	scan.Buffer(nil, 16<<20)
	for scan.Scan() {
		var e struct{ Action, Test, Output string }
		if err := json.Unmarshal(scan.Bytes(), &e); err != nil {
			return fmt.Errorf("test2json: %q: %w", scan.Text(), err)
		}
		at := g.find(e.Test)
		switch e.Action {
		case "output":
			at.output = append(at.output, e.Output)
		case "pass", "fail", "skip":
			at.result = e.Action
		}
	}
	return scan.Err()
}

// find returns a test by its full name, made if it is new.
func (g *guestTest) find(name string) *guestTest {
	if name == "" {
		return g
	}
	parent := g
	if dir := path.Dir(name); dir != "." {
		parent = g.find(dir)
	}
	base := path.Base(name)
	if parent.children[base] == nil {
		parent.names = append(parent.names, base)
		parent.children[base] = &guestTest{children: map[string]*guestTest{}}
	}
	return parent.children[base]
}

// replay gives the test's result as that of a test here.
func (g *guestTest) replay(t *testing.T) {
	for _, name := range g.names {
		t.Run(name, g.children[name].replay)
	}
	t.Logf("in the guest:\n%s", strings.Join(g.output, ""))
	switch g.result {
	case "pass":
	case "skip":
		t.SkipNow()
	case "fail":
		t.Fail()
	default:
		t.Error("the test did not end")
	}
}
