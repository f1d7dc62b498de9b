package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// TestRelabel: the attribute can be set on a host without SELinux as well.
func TestRelabel(t *testing.T) {
	const label = "system_u:object_r:container_file_t:s0:c1,c2"
	f := newFixture(t)
	outside := f.layer("secret=1")
	src := f.layer("a/b/c=1", "d/", "out -> "+outside, "a/up -> ../../..")
	f.must(os.Link(filepath.Join(src, "a/b/c"), filepath.Join(src, "twice")))
	v := plan.Volume{Name: "v", Kind: "host", Source: src, Label: label}
	p, err := Open(Config{Plan: plan.Pod{Volumes: []plan.Volume{v}}, Dir: f.dir, RunDir: f.runDir})
	f.must(err)
	f.must(p.Close())
	of := func(name string) string {
		buf := make([]byte, 256)
		n, err := unix.Lgetxattr(name, labelAttr, buf)
		if err != nil {
			return err.Error()
		}
		return string(buf[:n])
	}
	for _, name := range []string{"", "a", "a/b", "a/b/c", "d", "out", "a/up", "twice"} {
		if got := of(filepath.Join(src, name)); got != label {
			t.Errorf("%s has %q", name, got)
		}
	}
	for _, name := range []string{outside, filepath.Join(outside, "secret"), filepath.Dir(src)} {
		if got := of(name); got == label {
			t.Errorf("%s, outside, has the label", name)
		}
	}
	// What has it is left as it is.
	var before, after unix.Stat_t
	f.must(unix.Stat(src, &before))
	p, err = Open(Config{Plan: plan.Pod{Volumes: []plan.Volume{v}}, Dir: f.dir, RunDir: f.runDir})
	f.must(err)
	f.must(p.Close())
	f.must(unix.Stat(src, &after))
	if before.Ctim != after.Ctim {
		t.Error("written to again")
	}
	v.Source = "/etc"
	_, err = Open(Config{Plan: plan.Pod{Volumes: []plan.Volume{v}}, Dir: f.dir, RunDir: f.runDir})
	if !errs.Is(err, errs.Denied) || !strings.Contains(err.Error(), "/etc: a folder of the system") || of("/etc") == label {
		t.Errorf("of /etc: %v", err)
	}
}
