package supervise

import (
	"errors"
	"syscall"
	"testing"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/limits"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

// TestUpdate: what was changed is recorded before and after, shown, and kept for
// the next execution; what can't be leaves everything as it was.
func TestUpdate(t *testing.T) {
	tp := newTestPod(t, poddir.RunOptions{}, "", spec{
		name: "a", script: `echo up; sleep 1000`, ann: annotations(podspec.AnnRestart, "always"),
	})
	n := func(n int64) *int64 { return &n }
	ask := func(r request) error {
		r.Op = opUpdate
		_, err := tp.ask(r)
		return err
	}
	memory := func(mib int64) *limits.Set { return &limits.Set{Memory: n(mib << 20)} }
	tp.whenRunning("a", func() {
		defer func() { tp.signals <- syscall.SIGQUIT }()
		tp.kernel.results = []limits.Result{{Name: "memory", State: limits.Enforced, Value: "104857600"}}
		if err := ask(request{App: "a", Limits: memory(100)}); err != nil {
			t.Error(err)
		}
		if s := tp.statusOf("a"); text(s.Isolators) != text(tp.kernel.results) {
			t.Errorf("status %s", text(s))
		}
		// Below the 50 MiB that the fake says are in use.
		if err := ask(request{App: "a", Limits: memory(40)}); !errs.Is(err, errs.Busy) || len(errs.Hints(err)) != 1 {
			t.Error(err)
		}
		if err := ask(request{App: "a", Limits: memory(40), Force: true}); err != nil {
			t.Error(err)
		}
		tp.kernel.results = []limits.Result{{Name: "pids", State: limits.Ignored, Why: "no controller"}}
		if err := ask(request{Limits: &limits.Set{Pids: n(9)}}); !errs.Is(err, errs.Unsupported) {
			t.Error(err)
		}
		tp.kernel.results, tp.kernel.fail["rebound"] = nil, errors.New("EBUSY")
		if err := ask(request{App: "a", Limits: memory(30), Force: true}); err == nil {
			t.Error("an error was no error")
		}
		delete(tp.kernel.fail, "rebound")
		for _, bad := range []request{{App: "z", Limits: memory(1)}, {App: "a"}, {App: "a", Limits: &limits.Set{}}} {
			if err := ask(bad); err == nil {
				t.Errorf("%+v was done", bad)
			}
		}
		if _, err := tp.ask(request{Op: opRestart, App: "a"}); err != nil {
			t.Error(err)
		}
	})
	if code, err := tp.run(); code != 137 || err != nil {
		t.Fatalf("code %d, %v", code, err)
	}
	if got := tp.find("a").plan.Limits.Memory; got == nil || *got != 40<<20 {
		t.Errorf("the next execution's limit: %v", got)
	}
	want := `["a {\"memory\":104857600}","a {\"memory\":41943040}"," {\"pids\":9}"," {\"pids\":-1}","a {\"memory\":31457280}","a {\"memory\":41943040}"]`
	if got := text(tp.kernel.rebounds); got != want {
		t.Errorf("the kernel was told\n%s, want\n%s", got, want)
	}
	list, err := tp.records.dir.ReadUpdates()
	if err != nil || len(list) != 8 || !list[1].Done || list[0].Done || list[5].Error == "" || list[7].Error == "" {
		t.Errorf("updates %s, %v", text(list), err)
	}
}
