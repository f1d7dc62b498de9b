//go:build libcontainer

package main

import (
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/launch/libcontainer"
)

// initLauncher becomes the program of an app if the library has started this
// process for that: `stage1 init`.
func initLauncher() { libcontainer.InitMain() }

func newLauncher() launch.Launcher { return libcontainer.New(libcontainer.Options{}) }
