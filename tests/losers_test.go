package tests

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// TestConcurrentLosers: of several commands that want one prepared pod one gets
// it, and each other one hears who that was, or what became of the pod, and
// what to do.
func TestConcurrentLosers(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.must("--insecure-options=image", "fetch", image("busybox.aci"))
	told := regexp.MustCompile(`^(run-prepared|rm): (pod \S+: (\S+/lock: locked by "rkt (run-prepared|rm)", pid \d+, for \d+s|is (running|exited|deleting|exited deleting|garbage)(, not prepared)?|somebody else has just started or removed it)|no matches found for "\S+")\n`)
	const rivals = 6
	for round := range 5 {
		uuid := strings.TrimSpace(h.must("prepare", "--quiet", "example.com/busybox:1.0", "--exec=/bin/true"))
		command := []string{"run-prepared", "rm"}[round%2]
		results := make([]result, rivals)
		var all sync.WaitGroup
		for i := range rivals {
			all.Go(func() { results[i] = h.rkt(command, uuid) })
		}
		all.Wait()
		won := 0
		for _, res := range results {
			switch {
			case res.code == 0:
				won++
			case res.code != 254 || !told.MatchString(res.stderr) || !strings.Contains(res.stderr, fmt.Sprintf("\n%s: hint: ", command)):
				t.Errorf("%s", res)
			}
		}
		if won == 0 || command == "run-prepared" && won > 1 {
			t.Errorf("%s: %d have won", command, won)
		}
	}
}
