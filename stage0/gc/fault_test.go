//go:build fault

package gc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/stage0/pod"
	"github.com/rkt-pods/rkt/stage0/prepare"
	"github.com/rkt-pods/rkt/stage0/store"
)

// TestMain is the lives of two pods when it is run as a child.
func TestMain(m *testing.M) {
	data := os.Getenv("RKT_TEST_DATA")
	if data == "" {
		os.Exit(m.Run())
	}
	if err := lives(context.Background(), data); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// lives takes one pod from its making through a run, whose supervisor dies, to
// its collection, and makes and removes another.
func lives(ctx context.Context, data string) error {
	s, err := store.Open(data)
	if err != nil {
		return err
	}
	pods := pod.Pods{Data: s.Data(), StoreID: s.ID()}
	first, err := fill(ctx, s, pods)
	if err != nil {
		return err
	}
	run, err := first.Start()
	if err != nil {
		return errors.Join(err, first.Close())
	}
	if err := run.Close(); err != nil {
		return err
	}
	for _, grace := range []time.Duration{time.Hour, 0} {
		if err := collect(ctx, s, pods, grace); err != nil {
			return err
		}
	}
	second, err := fill(ctx, s, pods)
	if err != nil {
		return err
	}
	ready, err := second.Ready()
	if err != nil {
		return errors.Join(err, second.Close())
	}
	if err := ready.Close(); err != nil {
		return err
	}
	return pods.Collect(ctx, ready.UUID())
}

func fill(ctx context.Context, s *store.Store, pods pod.Pods) (*pod.PreparingPod, error) {
	spec, err := podspec.Parse([]byte(manifest))
	if err != nil {
		return nil, err
	}
	hold, err := s.Hold(ctx)
	if err != nil {
		return nil, err
	}
	img := prepare.Image{Record: image.Record{ID: imageID}, Manifest: &image.Manifest{Name: "example.com/a"}}
	return prepare.Fill(ctx, hold, prepare.Input{Pods: pods, Layers: s, Manifest: spec, Images: map[string]prepare.Image{"a": img}})
}

func collect(ctx context.Context, s *store.Store, pods pod.Pods, grace time.Duration) error {
	plan, err := Make(s, pods, Options{GracePeriod: grace, ExpirePrepared: 0, Now: time.Now()})
	if err != nil {
		return err
	}
	var all error
	for _, f := range plan.Execute(ctx, func(Step) {}).Failures {
		all = errors.Join(all, f.Err)
	}
	return all
}

func child(data string, env ...string) ([]byte, error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(env, "RKT_TEST_DATA="+data)...)
	return cmd.CombinedOutput()
}

// TestEveryStepMayFail kills the lives of two pods at each step, or has the
// step fail: the next gc needs no repair, says nothing and leaves nothing.
func TestEveryStepMayFail(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "trace")
	data := filepath.Join(t.TempDir(), "data")
	if out, err := child(data, "RKT_FAULT_TRACE="+trace); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	nothingLeft(t, "no fault", data)
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, step := range strings.Fields(string(text)) {
		if count[step]++; count[step] > 3 {
			continue
		}
		for _, action := range []string{"KILL", "EIO"} {
			fault := fmt.Sprintf("%s@%d:%s", step, count[step], action)
			data := filepath.Join(t.TempDir(), "data")
			out, err := child(data, "RKT_FAULT="+fault)
			if action == "KILL" && !killed(err) || action == "EIO" && err == nil {
				t.Errorf("%s: %v\n%s", fault, err, out)
			}
			if action == "EIO" && !strings.Contains(string(out), "fault injected at "+step) {
				t.Errorf("%s: not reported:\n%s", fault, out)
			}
			nothingLeft(t, fault, data)
		}
	}
	for _, step := range []string{"pod.mkdir", "write.refs.json.rename", "pod.prepare", "pod.start", "pod.exited", "write.exit.json", "pod.garbage", "pod.remove-refs.json", "pod.rmdir", "pod.sync", "pod.ready"} {
		if count[step] == 0 {
			t.Errorf("step %s was not taken: %v", step, slices.Sorted(maps.Keys(count)))
		}
	}
}

func killed(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	return ok && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
}

// nothingLeft collects as a user would, and looks for what stays.
func nothingLeft(t *testing.T, fault, data string) {
	t.Helper()
	s, err := store.Open(data)
	if err != nil {
		t.Fatalf("%s: %v", fault, err)
	}
	pods := pod.Pods{Data: s.Data(), StoreID: s.ID()}
	if all, err := pods.List(); err != nil {
		t.Errorf("%s: list: %v", fault, err)
	} else {
		for _, one := range all {
			if _, err := pods.Facts(one); err != nil && one.State.HasRun() {
				t.Errorf("%s: %v", fault, err)
			}
		}
	}
	if err := collect(t.Context(), s, pods, 0); err != nil {
		t.Errorf("%s: gc: %v", fault, err)
	}
	left, err := filepath.Glob(filepath.Join(data, "pods", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{filepath.Join(data, "store", "tmp", "*"), filepath.Dir(poddir.RunDir(s.ID(), "x"))} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, more...)
	}
	if len(left) > 0 {
		t.Errorf("%s: left %v", fault, left)
	}
}
