package tests

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestStoreUnderAllAtOnce runs and imports the same images in loops beside others
// that remove and collect them: nothing fails but what has to, and no layer is lost.
func TestStoreUnderAllAtOnce(t *testing.T) {
	h := newHost(t)
	length := time.Minute
	if testing.Short() {
		length = 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	oci, aci := filepath.Join(imageDir, "busybox.oci"), filepath.Join(imageDir, "busybox.aci")
	far := "docker://" + newServing(t, imageDir).at + "/busybox.oci:1.0"
	type loop struct {
		args  []string
		codes []int    // besides 0
		texts []string // with 254: what stderr has to say
	}
	inUse := []string{"in use by pod", "not in the store", "no image IDs found"}
	gone := []string{"not in the store", "no image IDs found"}
	loops := []loop{
		{args: []string{"run", "--rm", oci, "--exec=/bin/true"}},
		{args: []string{"run", "--rm", oci, "--exec=/bin/true"}},
		{args: []string{"run", aci, "--exec=/bin/true"}},
		{args: []string{"run", oci, "--name=a", "--exec=/bin/true", "---", aci, "--name=b", "--exec=/bin/true"}},
		{args: []string{"fetch", oci}}, {args: []string{"fetch", oci}}, {args: []string{"fetch", aci}}, {args: []string{"fetch", "--keep-blobs", oci}},
		{args: []string{"fetch", far}}, {args: []string{"run", "--rm", "--pull-policy=update", far, "--exec=/bin/true"}},
		{args: []string{"image", "rm", "example.com/busybox:1.0"}, codes: []int{254}, texts: inUse},
		{args: []string{"image", "rm", "example.com/busybox"}, codes: []int{254}, texts: inUse},
		{args: []string{"image", "gc", "--grace-period=0s"}}, {args: []string{"image", "gc", "--grace-period=0s", "--keep=1"}},
		{args: []string{"gc", "--grace-period=0s"}, codes: []int{11}},
		{args: []string{"image", "verify", "--all"}},
		{args: []string{"image", "export", "example.com/busybox:1.0", "-"}, codes: []int{254}, texts: gone},
	}
	if out, err := exec.Command(filepath.Join(bin, "rkt"), "--dir="+h.dir, "--insecure-options=image", "fetch", aci).CombinedOutput(); err != nil {
		t.Fatalf("fetch: %v\n%s", err, out)
	}
	var wg sync.WaitGroup
	for _, l := range loops {
		wg.Go(func() {
			n := 0
			for ; ctx.Err() == nil && !t.Failed(); n++ {
				var stderr bytes.Buffer
				cmd := exec.Command(filepath.Join(bin, "rkt"), append([]string{"--dir=" + h.dir, "--insecure-options=image,http"}, l.args...)...)
				cmd.Stderr = &stderr
				err := cmd.Run()
				var ee *exec.ExitError
				if err != nil && !errors.As(err, &ee) {
					t.Errorf("rkt %q: %v", l.args, err)
					return
				}
				code, text := cmd.ProcessState.ExitCode(), stderr.String()
				said := len(l.texts) == 0 || slices.ContainsFunc(l.texts, func(s string) bool { return strings.Contains(text, s) })
				if code != 0 && (!slices.Contains(l.codes, code) || !said) {
					t.Errorf("rkt %q: code %d\n%s", l.args, code, text)
				}
			}
			t.Logf("%d × rkt %s", n, strings.Join(l.args[:2], " "))
		})
	}
	wg.Wait()
	if out, err := exec.Command(filepath.Join(bin, "rkt"), "--dir="+h.dir, "image", "verify", "--all").CombinedOutput(); err != nil {
		t.Errorf("verify: %v\n%s", err, out)
	}
}
