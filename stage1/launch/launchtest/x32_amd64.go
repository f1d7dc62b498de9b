package launchtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// x32Program calls getpid(2) by its number of the x32 architecture, and exits
// with the errno.
const x32Program = `
void _start(void) {
	long r;
	__asm__ volatile("syscall" : "=a"(r) : "a"(0x40000000L + 39) : "rcx", "r11", "memory");
	__asm__ volatile("syscall" : : "a"(60L), "D"(-r) : "rcx", "r11", "memory");
}
`

// testX32 sees that the filter leaves no way around it by the second set of
// numbers that x86-64 has.
func testX32(t *testing.T, launcher func() launch.Launcher) {
	p := newPod(t, launcher)
	source := filepath.Join(t.TempDir(), "x32.c")
	p.must(os.WriteFile(source, []byte(x32Program), 0o644))
	build := exec.Command("gcc", "-static", "-nostdlib", "-ffreestanding", "-o", filepath.Join(p.rootfs, "bin/x32"), source)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	app := p.app("/bin/x32")
	app.Seccomp = plan.DefaultFilter("amd64", app.Capabilities)
	r, err := p.run(app)
	p.must(err)
	if !r.exit.Status.Signaled() || r.exit.Status.Signal() != unix.SIGSYS {
		t.Errorf("%v", r)
	}
}

func archTests() []test { return []test{{"X32", testX32}} }
