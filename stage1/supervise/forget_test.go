package supervise

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

// TestForget: of an app that is restarted again and again the last executions
// stay, so many or as many as the size of a log allows, and its status counts
// the others.
func TestForget(t *testing.T) {
	for name, c := range map[string]struct {
		options poddir.RunOptions
		keep    int
		first   int // that is left, of those from 0 to 4
	}{
		"by number":            {poddir.RunOptions{}, 2, 2},
		"by size":              {poddir.RunOptions{LogMaxSize: 1000, LogMaxFiles: 3}, 50, 2},
		"however large":        {poddir.RunOptions{LogMaxSize: 10, LogMaxFiles: 1}, 50, 3},
		"one at least, of any": {poddir.RunOptions{}, 0, 3},
	} {
		t.Run(name, func(t *testing.T) {
			// About 1100 bytes of log in two lines.
			tp := newTestPod(t, c.options, "", spec{
				name: "a", script: `echo begin; printf '%01000d\n' 7; exit 3`, ann: annotations(podspec.AnnRestart, "on-failure:4"),
			})
			tp.pod.keep = c.keep
			tp.wantCode(3)
			s := tp.attemptOf("a", 4)
			if f := s.Forgotten; f == nil || f.Executions != c.first || f.LogLines == 0 || f.LogLines > uint64(2*c.first) {
				t.Errorf("status %s, want %d executions to be forgotten", text(s), c.first)
			}
			attempts, err := tp.records.dir.App("a").Attempts()
			if err != nil || len(attempts) != 5-c.first || attempts[0] != c.first {
				t.Errorf("executions %v, %v, want those from %d", attempts, err, c.first)
			}
			if left, _ := filepath.Glob(tp.records.dir.App("a").Dropped(0) + "*"); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// TestForgetSpares an execution whose root file system could not be replaced: the
// next one may still have to take it over.
func TestForgetSpares(t *testing.T) {
	tp := newTestPod(t, poddir.RunOptions{}, "", spec{
		name: "a", script: `exit 3`, ann: annotations(podspec.AnnRestart, "on-failure:4", podspec.AnnKeepRootFS, "true"),
	})
	tp.pod.keep = 1
	tp.kernel.fail["release"] = errors.New("still in use")
	tp.wantCode(254)
	if s := tp.attemptOf("a", 4); s.Forgotten != nil || tp.attemptOf("a", 0).State != poddir.Exited {
		t.Errorf("status %s", text(s))
	}
}
