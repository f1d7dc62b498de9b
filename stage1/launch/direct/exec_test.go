package direct

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/proc"
	"github.com/rkt-pods/rkt/stage1/sealed"
)

// TestOpenProgram takes applaunch from the supervisor, and nothing else that
// has its number.
func TestOpenProgram(t *testing.T) {
	self, err := proc.Self()
	if err != nil {
		t.Fatal(err)
	}
	program, err := sealed.Copy("true", "/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(program)
	fd, err := state{Supervisor: self, Program: program}.openProgram()
	if err != nil {
		t.Fatal(err)
	}
	var a, b unix.Stat_t
	if err := unix.Fstat(fd, &a); err != nil {
		t.Error(err)
	}
	if err := unix.Fstat(program, &b); err != nil || a.Ino != b.Ino {
		t.Errorf("another file: %v", err)
	}
	_ = unix.Close(fd)
	open, err := memoryFile([]byte("changeable"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	file, err := os.Open("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	other := self
	other.Start++
	for name, s := range map[string]state{
		"not sealed":         {Supervisor: self, Program: int(open.Fd())},
		"no memory file":     {Supervisor: self, Program: int(file.Fd())},
		"another supervisor": {Supervisor: other, Program: program},
	} {
		if fd, err := s.openProgram(); !errs.Is(err, errs.Unavailable) {
			t.Errorf("%s: %d, %v", name, fd, err)
		}
	}
}
