package libexec

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/testkit"
)

// TestMain is also the program that is started.
func TestMain(m *testing.M) {
	if os.Args[0] != "child" {
		os.Exit(m.Run())
	}
	if len(os.Args) > 1 {
		select {} // until it is killed
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	dir, _ := os.Getwd()
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		// Go's runtime looks at its cgroup.
		if err == nil && strings.HasPrefix(target, "/") && target != "/dev/null" && !strings.HasPrefix(target, "/sys/fs/cgroup/") && target != "/proc/"+strconv.Itoa(os.Getpid())+"/fd" {
			os.Stdout.WriteString("open " + target + "\n")
		}
	}
	os.Stdout.WriteString(string(status) + "env " + strings.Join(os.Environ(), ",") + "\ndir " + dir + "\n")
	os.Exit(0)
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestWithoutRights asks the program itself what it may do. Its file lies where
// nobody can't go.
func TestWithoutRights(t *testing.T) {
	data, err := os.ReadFile(self(t))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "program")
	testkit.Program(t, path, data)
	var out bytes.Buffer
	p, err := Start(t.Context(), "child", path, nil, func(cmd *exec.Cmd) { cmd.Stdout = &out })
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if p.Err() != nil {
		t.Fatal(p.Err())
	}
	want := []string{"NoNewPrivs:\t1\n", "CapEff:\t0000000000000000\n", "CapPrm:\t0000000000000000\n", "CapInh:\t0000000000000000\n", "CapAmb:\t0000000000000000\n", "env \n", "dir /\n"}
	if os.Geteuid() == 0 {
		want = append(want, "CapBnd:\t0000000000000000\n", "Uid:\t65534\t65534\t65534\t65534\n", "Gid:\t65534\t65534\t65534\t65534\n", "Groups:\t \n")
	}
	for _, w := range want {
		if !strings.Contains(out.String(), w) {
			t.Errorf("lacks %q", w)
		}
	}
	if strings.Contains(out.String(), "open ") || t.Failed() {
		t.Errorf("%s", out.String())
	}
	// This thread has kept what the other one gave up.
	if status, err := os.ReadFile("/proc/thread-self/status"); err != nil || !strings.Contains(string(status), "NoNewPrivs:\t0\n") {
		t.Errorf("%s, %v", status, err)
	}
}

func TestEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p, err := Start(ctx, "child", self(t), []string{"wait"}, func(*exec.Cmd) {})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	<-p.Done()
	if p.Err() == nil {
		t.Error("it ended by itself")
	}
	p, err = Start(t.Context(), "child", self(t), []string{"wait"}, func(*exec.Cmd) {})
	if err != nil {
		t.Fatal(err)
	}
	p.Kill()
	if err := unix.Kill(p.Cmd.Process.Pid, 0); err != unix.ESRCH {
		t.Errorf("%v", err)
	}
}

func TestNotThere(t *testing.T) {
	if _, err := Find("no-such-program"); !errs.Is(err, errs.NotFound) || len(errs.Hints(err)) == 0 {
		t.Errorf("%v", err)
	}
	if _, err := Start(t.Context(), "child", "/no/such/program", nil, func(*exec.Cmd) {}); !errs.Is(err, errs.NotFound) || !strings.Contains(err.Error(), "start child: open /no/such/program") {
		t.Errorf("%v", err)
	}
	if _, err := Start(t.Context(), "child", "/etc/passwd", nil, func(*exec.Cmd) {}); !errs.Is(err, errs.Unavailable) {
		t.Errorf("%v", err)
	}
}
