package launchtest

import (
	"slices"
	"testing"

	"github.com/rkt-pods/rkt/stage1/launch"
)

type test struct {
	name string
	run  func(t *testing.T, launcher func() launch.Launcher)
}

// Run runs the suite's tests, each as a subtest: those of the names, or all.
func Run(t *testing.T, launcher func() launch.Launcher, only ...string) {
	tests := []test{
		{"Privileges", testPrivileges},
		{"FileCapabilities", testFileCapabilities},
		{"Seccomp", testSeccomp},
		{"Paths", testPaths},
		{"Mounts", testMounts},
		{"FlatMounts", testFlatMounts},
		{"NullDevice", testNullDevice},
		{"Links", testLinks},
		{"ReadOnlyRootFS", testReadOnlyRootFS},
		{"Descriptors", testDescriptors},
		{"Devices", testDevices},
		{"HostNet", testHostNet},
		{"Keyring", testKeyring},
		{"ExitCodes", testExitCodes},
		{"ProgramErrors", testProgramErrors},
		{"SetupErrors", testSetupErrors},
		{"Beyond", testBeyond},
		{"Parallel", testParallel},
		{"Signal", testSignal},
		{"Streams", testStreams},
		{"Exec", testExec},
		{"ExecAsRoot", testExecAsRoot},
		{"ExecErrors", testExecErrors},
		{"ExecParallel", testExecParallel},
		{"ExecElsewhere", testExecElsewhere},
		{"DestroyDaemons", testDestroyDaemons},
		{"DestroyLeaves", testDestroyLeaves},
		{"PodInitDies", testPodInitDies},
		{"Cancel", testCancel},
		{"OOM", testOOM},
		{"TTY", testTTY},
		{"ExecTTY", testExecTTY},
		{"Large", testLarge},
		{"TooLarge", testTooLarge},
		{"SignalsInherited", testSignalsInherited},
		{"Leaks", testLeaks},
	}
	for _, c := range append(tests, archTests()...) {
		if len(only) > 0 && !slices.Contains(only, c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) { c.run(t, launcher) })
	}
}
