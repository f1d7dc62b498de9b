package poddir

import (
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/limits"
)

// TestUpdates: lines are read back, a torn one is ignored and swallows none,
// and only what was done counts.
func TestUpdates(t *testing.T) {
	dir := Dir(t.TempDir())
	if list, err := dir.ReadUpdates(); list != nil || err != nil {
		t.Errorf("no file: %v, %v", list, err)
	}
	n := func(n int64) *int64 { return &n }
	at := time.Unix(1, 0).UTC()
	lines := []Update{
		{Time: at, App: "a", Limits: limits.Set{Memory: n(1), Pids: n(5)}},
		{Time: at, App: "a", Limits: limits.Set{Memory: n(1), Pids: n(5)}, Done: true, Results: []limits.Result{{Name: "memory"}}},
		{Time: at, App: "a", Limits: limits.Set{Memory: n(2)}, Done: true},
		{Time: at, App: "a", Limits: limits.Set{Memory: n(3)}, Error: "no"},
		{Time: at, Limits: limits.Set{CPU: n(4)}, Done: true},
	}
	for i, u := range lines {
		if i == 3 {
			f, err := os.OpenFile(dir.Updates(), os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteString(`{"time":"20`); err != nil {
				t.Fatal(err)
			}
			if list, err := dir.ReadUpdates(); err != nil || len(list) != 3 {
				t.Errorf("with a torn line: %v, %v", list, err)
			}
			_ = f.Close()
		}
		if err := dir.AppendUpdate(u); err != nil {
			t.Fatal(err)
		}
	}
	list, err := dir.ReadUpdates()
	if err != nil || !reflect.DeepEqual(list, lines) {
		t.Errorf("read %+v, %v", list, err)
	}
	want := map[string]limits.Set{"a": {Memory: n(2), Pids: n(5)}, "": {CPU: n(4)}}
	if got := Effective(list); !reflect.DeepEqual(got, want) {
		t.Errorf("effective %+v", got)
	}
}
