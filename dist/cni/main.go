// Command rkt-cni is the stock network plugins of containernetworking/plugins
// as one program, which is as many of them as it has names: each alone is its
// own copy of the Go runtime and of the netlink library.
//
// Their sources are taken as they are, at the version in go.mod, except that
// "package main" and "func main" become names that can be imported; the build
// script beside does it in memory, by go build's overlay.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	name := filepath.Base(os.Args[0])
	run := plugins[name]
	if run == nil {
		fmt.Fprintf(os.Stderr, "%s: no network plugin; this program is run as one of: %s\n", name, strings.Join(names(), ", "))
		os.Exit(1)
	}
	run()
}

func names() []string {
	var list []string
	for name := range plugins {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}
