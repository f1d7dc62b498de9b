package sealed

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// TestProgramNotMoved starts a program by its descriptor while the child's
// files have higher numbers than the pipe that Go's fork makes: what stands
// right above them is replaced then.
func TestProgramNotMoved(t *testing.T) {
	high := func(from int) *os.File {
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer null.Close()
		fd, err := unix.FcntlInt(null.Fd(), unix.F_DUPFD_CLOEXEC, from)
		if err != nil {
			t.Fatal(err)
		}
		return os.NewFile(uintptr(fd), os.DevNull)
	}
	null, remote := high(200), high(201)
	defer null.Close()
	defer remote.Close()
	program, err := Copy("true", "/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(program)
	start := func(exe int, err error) error {
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(exe)
		cmd := exec.Cmd{Path: Path(exe), Args: []string{"true"}, Stdin: null, Stdout: null, Stderr: null, ExtraFiles: []*os.File{remote}}
		return cmd.Run()
	}
	if err := start(Clear(program, null, remote)); err != nil {
		t.Error(err)
	}
	if err := start(unix.FcntlInt(uintptr(program), unix.F_DUPFD_CLOEXEC, int(remote.Fd())+1)); err == nil {
		t.Logf("this Go's fork leaves descriptor %d alone", remote.Fd()+1)
	}
}
