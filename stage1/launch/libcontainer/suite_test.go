package libcontainer

import (
	"os"
	"testing"

	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/launch/launchtest"
)

func init() { InitMain() }

func launcherOf() launch.Launcher { return New(Options{}) }

func TestMain(m *testing.M) {
	os.Exit(launchtest.Main(m, launcherOf, func() (func(), error) { return func() {}, nil }))
}

func TestSuite(t *testing.T) { launchtest.Run(t, launcherOf) }
