package supervise

import (
	"math"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/stage1/plan"
)

// TestPatience: times that are as long as can be said do not add up to none.
func TestPatience(t *testing.T) {
	long := plan.App{StopTimeout: math.MaxInt64, PostStop: []string{"/bin/true"}}
	apps := []*app{{plan: long}, {plan: long}, {plan: plan.App{StopTimeout: time.Second}}}
	if got, least := (request{}).patience(apps), 4*maxPatience+time.Second; got < least || got > least+time.Minute {
		t.Errorf("%s, want %s and a little", got, least)
	}
	// As the caller gives it.
	r := request{TimeoutMs: new(int64(math.MaxInt64 / 1_000_000))}
	if got, least := r.patience(apps[2:]), maxPatience; got < least || got > least+time.Minute {
		t.Errorf("%s, want %s and a little", got, least)
	}
}
