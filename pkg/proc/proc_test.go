package proc

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"testing"

	"github.com/rkt-pods/rkt/pkg/testkit"
)

func TestIdentity(t *testing.T) {
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	if !self.Alive() {
		t.Error("this process is not alive")
	}
	for _, other := range []ID{
		{self.BootID, self.PID, self.Start + 1},
		{"another boot", self.PID, self.Start},
		{self.BootID, 1 << 30, self.Start},
		{},
	} {
		if other.Alive() {
			t.Errorf("%+v is alive", other)
		}
		if _, err := other.Open(); err == nil {
			t.Errorf("%+v was opened", other)
		}
		if err := other.Kill(); err != nil && other.PID > 0 {
			t.Errorf("kill of %+v: %v", other, err)
		}
	}
}

func TestKillAndZombie(t *testing.T) {
	// A name with brackets and spaces must not confuse the parser of stat.
	dir := t.TempDir()
	name := dir + "/a) b ("
	data, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	testkit.Program(t, name, data)
	cmd := exec.Command(name, "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := id.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if id.Alive() {
		t.Error("alive after it was reaped")
	}
	if err := id.Kill(); err != nil {
		t.Errorf("second kill: %v", err)
	}
	if _, err := Of(cmd.Process.Pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
