//go:build fault

package supervise

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/poddir"
)

// TestRecordsThatFail writes each record of an end badly once, in a process of
// its own, for passes are counted there: the pod's code is never the app's.
func TestRecordsThatFail(t *testing.T) {
	if os.Getenv("RKT_FAULT") != "" {
		tp := newTestPod(t, poddir.RunOptions{}, "", spec{name: "a", script: "exit 0"})
		code, err := tp.run()
		fmt.Printf("code %d, error %v, told %v\n", code, err, tp.notified)
		return
	}
	reached := 0
	for _, step := range []string{"write.status.json", "write.exit.json"} {
		for n := 1; n < 20; n++ {
			for _, errno := range []string{"EIO", "EROFS"} { // a full disk has a reserve
				cmd := exec.Command(os.Args[0], "-test.run=^TestRecordsThatFail$")
				cmd.Env = append(os.Environ(), fmt.Sprintf("RKT_FAULT=%s@%d:%s", step, n, errno))
				out, _ := cmd.CombinedOutput() // what it printed is looked at
				if strings.Contains(string(out), "code 0, error <nil>, told []") {
					n = 20 // the pod has not so many passes
					break
				}
				reached++
				if !strings.Contains(string(out), "code 254") || !strings.Contains(string(out), "fault injected at "+step) {
					t.Errorf("%s@%d:%s: %s", step, n, errno, out)
				}
			}
		}
	}
	if reached < 10 {
		t.Errorf("only %d records failed", reached)
	}
}
