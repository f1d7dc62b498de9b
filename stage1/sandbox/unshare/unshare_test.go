//go:build cgo

package unshare

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "run" || os.Args[1] == "version") {
		ns, _ := os.Readlink("/proc/self/ns/mnt")
		mounts, _ := os.ReadFile("/proc/self/mountinfo")
		fmt.Printf("%s shared=%d", ns, strings.Count(string(mounts), " shared:"))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestOnlyRunGetsItsOwnMountNamespace(t *testing.T) {
	if os.Getuid() != 0 {
		if os.Getenv("RKT_TEST_UNPRIVILEGED") != "" {
			t.Skip("needs root")
		}
		t.Fatal("needs root; RKT_TEST_UNPRIVILEGED=1 leaves it out")
	}
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	for word, other := range map[string]bool{"run": true, "version": false} {
		out, err := exec.Command("/proc/self/exe", word).Output()
		if err != nil {
			t.Fatal(err)
		}
		ns, rest, _ := strings.Cut(string(out), " ")
		if (ns != own) != other {
			t.Errorf("%s runs in %s, the test in %s", word, ns, own)
		}
		if other && rest != "shared=0" {
			t.Errorf("%s: %s mounts", word, rest)
		}
	}
}
