package activation

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestGiven(t *testing.T) {
	for _, c := range []struct {
		pid, fds, names string
		want            []string
		err             string
	}{
		{"", "", "", nil, ""},
		{"7", "2", "", []string{"", ""}, ""},
		{"7", "2", "web:dns", []string{"web", "dns"}, ""},
		{"7", "0", "", []string{}, ""},
		{"8", "2", "web:dns", nil, ""}, // another's
		{"8", "many", "", nil, ""},
		{"7", "", "", nil, ""},
		{"7", "many", "", nil, `LISTEN_FDS: "many": not a number of descriptors`},
		{"7", "-1", "", nil, "not a number"},
		{"7", "99999999", "", nil, "not a number"},
		{"7", "2", "web", nil, "LISTEN_FDNAMES: 1 names for 2 descriptors"},
	} {
		env := map[string]string{PID: c.pid, FDs: c.fds, Names: c.names}
		got, err := Given(func(name string) string { return env[name] }, 7)
		if c.err == "" && (err != nil || !slices.Equal(got, c.want)) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%v: %q, %v; want %q, %q", env, got, err, c.want, c.err)
		}
	}
	for name, want := range map[string]bool{"LISTEN_PID": true, "LISTEN_FDS": true, "LISTEN_FDNAMES": true, "LISTEN": false, "PATH": false} {
		if Variable(name) != want {
			t.Errorf("%s: is one of the protocol's: %v", name, !want)
		}
	}
}

// TestClaim looks at what the kernel has of the descriptors, in a process of
// its own: here the numbers may be somebody's.
func TestClaim(t *testing.T) {
	if os.Getenv("LISTEN_FDS") == "" {
		null, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer null.Close()
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestClaim$")
		cmd.Env, cmd.ExtraFiles = append(os.Environ(), "LISTEN_FDS=2"), []*os.File{null, null}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return
	}
	flags := func() (list [2]int) {
		for i := range list {
			var err error
			if list[i], err = unix.FcntlInt(uintptr(First+i), unix.F_GETFD, 0); err != nil {
				t.Fatal(err)
			}
		}
		return list
	}
	if err := Claim(2); err != nil || flags() != [2]int{unix.FD_CLOEXEC, unix.FD_CLOEXEC} {
		t.Errorf("claimed: %v, %v", err, flags())
	}
	if err := Pass(2); err != nil || flags() != [2]int{} {
		t.Errorf("passed on: %v, %v", err, flags())
	}
	own, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	for _, n := range []int{int(own.Fd()) - First + 1, 1000} {
		if err := Claim(n); err == nil || !strings.Contains(err.Error(), " was not given") {
			t.Errorf("claim %d: %v", n, err)
		}
	}
}

func TestEnvironment(t *testing.T) {
	if got := Environment([]string{"web", "dns"}); !slices.Equal(got, []string{"LISTEN_FDS=2", "LISTEN_FDNAMES=web:dns"}) {
		t.Errorf("%q", got)
	}
}
