//go:build fault

package libcontainer

import (
	"testing"

	"github.com/rkt-pods/rkt/stage1/launch/launchtest"
)

func TestFaults(t *testing.T) { launchtest.Faults(t, launcherOf) }
