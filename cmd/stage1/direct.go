//go:build !libcontainer

package main

import (
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/launch/direct"
)

func initLauncher() {}

func newLauncher() launch.Launcher { return direct.New(direct.Options{}) }
