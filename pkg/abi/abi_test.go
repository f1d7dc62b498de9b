package abi

import (
	"reflect"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/limits"
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
	soon := 1500 * time.Millisecond
	how := Stopping{Signal: 3, Timeout: &soon}
	for _, want := range []Stop{{Pod: pod}, {Pod: pod, Force: true}, {Pod: pod, App: "a", Stopping: how}} {
		got, err := ParseStop(want.Argv()[1:])
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	wantRestart := Restart{Pod: pod, App: "a", Stopping: how}
	if got, err := ParseRestart(wantRestart.Argv()[1:]); err != nil || !reflect.DeepEqual(got, wantRestart) {
		t.Errorf("got %+v, %v, want %+v", got, err, wantRestart)
	}
	wantSignal := Signal{Pod: pod, App: "a", Signal: 9}
	if got, err := ParseSignal(wantSignal.Argv()[1:]); err != nil || got != wantSignal {
		t.Errorf("got %+v, %v, want %+v", got, err, wantSignal)
	}
	wantUpdate := Update{Pod: pod, App: "a", Limits: limits.Set{Memory: new(int64(limits.None)), CPUs: "0-1"}, Force: true}
	if got, err := ParseUpdate(wantUpdate.Argv()[1:]); err != nil || !reflect.DeepEqual(got, wantUpdate) {
		t.Errorf("got %+v, %v, want %+v", got, err, wantUpdate)
	}
	wantPause := Pause{Pod: pod, Off: true}
	if got, err := ParsePause(wantPause.Argv()[1:]); err != nil || got != wantPause {
		t.Errorf("got %+v, %v, want %+v", got, err, wantPause)
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
