package handoff

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/abi"
	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/proc"
	"github.com/rkt-pods/rkt/pkg/testkit"
	"github.com/rkt-pods/rkt/stage0/pod"
)

func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stage1")
	testkit.Program(t, path, []byte("#!/bin/sh\n"+text+"\n"))
	return path
}

func TestFindNamed(t *testing.T) {
	good := fmt.Sprintf(`[ "$*" = version ] && echo '{"interface":%d,"flavour":"x","features":["%s"]}'`, abi.InterfaceVersion, abi.FeatureDiesWithSupervisor)
	if path, err := Find(t.Context(), script(t, good)); err != nil || !filepath.IsAbs(path) {
		t.Errorf("%q, %v", path, err)
	}
	for text, want := range map[string]string{
		"exit 1":  "ask for its version",
		"echo hi": "version",
		"echo {}": "interface",
		fmt.Sprintf(`echo '{"interface":%d}'`, abi.InterfaceVersion): abi.FeatureDiesWithSupervisor,
	} {
		if _, err := Find(t.Context(), script(t, text)); !errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := Find(t.Context(), "/no/such/stage1"); err == nil {
		t.Error("a missing program was found")
	}
	// Beside a test there is none.
	if _, err := Find(t.Context(), ""); !errs.Is(err, errs.NotFound) || len(errs.Hints(err)) == 0 {
		t.Errorf("beside: %v", err)
	}
}

// TestExecFails: the pod's end is on disk and its lock is free.
func TestExecFails(t *testing.T) {
	pods := pod.Pods{Data: t.TempDir(), StoreID: "feedfeedfeedfeed"}
	made, err := pods.Create(poddir.Refs{CreatedAt: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	run, err := made.Start()
	if err != nil {
		t.Fatal(err)
	}
	err = Exec(run, "/no/such/stage1", abi.Run{Pod: abi.Pod{UUID: run.UUID(), Data: pods.Data, PodDir: string(run.Dir()), StoreID: pods.StoreID}})
	if err == nil || !strings.Contains(err.Error(), "/no/such/stage1") {
		t.Fatal(err)
	}
	one, err := pods.Get(run.UUID())
	if err != nil || one.State != pod.Exited {
		t.Fatalf("%+v, %v", one, err)
	}
	var end poddir.Exit
	if err := atomicfile.ReadJSON(one.Dir.Exit(), &end); err != nil || end.Cause != poddir.CauseSetup || end.Code != 254 || end.FinishedAt.IsZero() {
		t.Errorf("%+v, %v", end, err)
	}
}

// TestOpen: only the very process that is on record is taken for the
// supervisor.
func TestOpen(t *testing.T) {
	self, err := proc.Self()
	if err != nil {
		t.Fatal(err)
	}
	f := pod.Facts{Pod: pod.Pod{UUID: "aaaa0000-0000-0000-0000-000000000001", Dir: "/x", State: pod.Running}}
	pods := pod.Pods{Data: "/x", StoreID: "y"}
	if _, err := Open(pods, f, false); !errs.Is(err, errs.Busy) {
		t.Errorf("without a record: %v", err)
	}
	f.Supervisor = &poddir.Supervisor{ID: self}
	r, err := Open(pods, f, false)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.Stat("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.Stat(r.path()); err != nil || !os.SameFile(got, want) {
		t.Errorf("another program: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	f.Supervisor.Start++
	if _, err := Open(pods, f, false); !errs.Is(err, errs.Busy) {
		t.Errorf("another process of that pid: %v", err)
	}
}
