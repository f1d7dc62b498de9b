package abi

import (
	"reflect"
	"testing"

	"github.com/rkt-pods/rkt/pkg/errs"
)

var pod = Pod{UUID: "u", Data: "/d", PodDir: "/d/pods/run/u", StoreID: "s", Debug: true}

func TestRoundTrip(t *testing.T) {
	for _, want := range []Run{
		{Pod: pod, LockFD: 7},
		{Pod: pod, LockFD: 0, Then: []string{"/usr/bin/rkt", "--dir=/d", "rm-after", "--", "-x"}},
	} {
		got, err := ParseRun(want.Argv()[1:])
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	for _, want := range []Enter{
		{Pod: pod, App: "web", Exec: []string{"--help", "--", ""}},
		{Pod: pod, App: "web", TTY: true, Exec: []string{"/bin/sh"}},
		{Pod: pod, App: "web", User: "app:1000", Cwd: "/srv", Env: []string{"A=b=c", "B="}, Exec: []string{"/bin/sh"}},
	} {
		got, err := ParseEnter(want.Argv()[1:])
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	for _, want := range []Stop{{Pod: pod}, {Pod: pod, Force: true}} {
		got, err := ParseStop(want.Argv()[1:])
		if err != nil || got != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
}

func TestRefused(t *testing.T) {
	for name, call := range map[string]func() error{
		"no pod":        func() error { _, err := ParseRun([]string{"--lock-fd=3"}); return err },
		"unknown flag":  func() error { _, err := ParseRun(append(pod.argv(), "--lock=3")); return err },
		"then, nothing": func() error { _, err := ParseRun(append(pod.argv(), "--then")); return err },
		"nothing, then": func() error { _, err := ParseRun(append(pod.argv(), "--", "x")); return err },
		"no command":    func() error { _, err := ParseEnter(append(pod.argv(), "--app=a")); return err },
		"too much":      func() error { _, err := ParseStop(append(pod.argv(), "x")); return err },
	} {
		if err := call(); !errs.Is(err, errs.Usage) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
