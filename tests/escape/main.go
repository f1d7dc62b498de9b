// Command escape tries ways out of a pod, from inside, as an app. Each of its
// arguments names an attack, which may have arguments of its own behind colons;
// for each thing that it tries it prints a line, with `refused` and why, or
// `WORKED` and what it got. Nothing is changed where one works: to have a file
// open for writing is enough.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// attack tries several things.
type attack func(r *report, args []string)

var attacks = map[string]attack{
	"cgroup":      cgroups,
	"calls":       calls,
	"descriptors": descriptors,
	"devices":     devices,
	"flip":        flip,
	"hunt":        hunt,
	"kernel":      kernel,
	"keyrings":    keyrings,
	"mounts":      mounts,
	"namespaces":  namespaces,
	"processes":   processes,
	"read":        read,
	"trace":       trace,
	"whoami":      whoami,
	"write":       write,
}

func main() {
	// Who traces is one thread, and /proc/self is that of the first.
	runtime.LockOSThread()
	r := &report{}
	for _, word := range os.Args[1:] {
		parts := strings.Split(word, ":")
		a, ok := attacks[parts[0]]
		if !ok {
			fmt.Fprintf(os.Stderr, "escape: %s: unknown\n", parts[0])
			os.Exit(2)
		}
		r.name = parts[0]
		a(r, parts[1:])
	}
}

// report tells what was tried.
type report struct{ name string }

// tried prints a line: the thing worked if there is no error.
func (r *report) tried(what string, err error, got ...string) {
	word := "WORKED: " + strings.Join(got, " ")
	if err != nil {
		word = "refused: " + err.Error()
	}
	fmt.Printf("%s %s\t%s\n", r.name, what, strings.ReplaceAll(word, "\n", " "))
}

// found prints a line of something that should not be there at all.
func (r *report) found(what string, list []string) {
	if len(list) == 0 {
		r.tried(what, errNone)
		return
	}
	r.tried(what, nil, list...)
}

var errNone = fmt.Errorf("none")

// say prints what is no attempt.
func say(format string, args ...any) { fmt.Printf("# "+format+"\n", args...) }
