package limits

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/rkt-pods/rkt/pkg/appc"
)

func TestRestore(t *testing.T) {
	n := func(n int64) *int64 { return &n }
	base := Set{Memory: n(100), CPU: n(500), CPUs: "0-3"}
	got := Set{Memory: n(200), Pids: n(7), CPUs: "1"}.Restore(base)
	if want := (Set{Memory: n(100), Pids: n(None), CPUs: "0-3"}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}

// TestOverlay: what is written is read again, and the rest stays.
func TestOverlay(t *testing.T) {
	n := func(n int64) *int64 { return &n }
	list := []appc.Isolator{
		appc.NewIsolator(appc.IsoMemory, map[string]string{"limit": "1Gi"}),
		appc.NewIsolator(appc.IsoPids, 5),
		appc.NewIsolator(appc.IsoNoNewPrivs, true),
	}
	s := Set{Memory: n(64 << 20), CPU: n(1500), Pids: n(None), CPUShares: n(2048), MemoryHigh: n(32 << 20), CPUs: "0"}
	out := Overlay(list, s)
	got, err := Parse(out)
	want := s
	want.Pids = nil
	if err != nil || jsonOf(t, got) != jsonOf(t, want) {
		t.Errorf("got %s, %v, want %s", jsonOf(t, got), err, jsonOf(t, want))
	}
	if out[0].Name != appc.IsoNoNewPrivs || len(list) != 3 {
		t.Errorf("the others: %v of %v", out, list)
	}
}

func TestMerge(t *testing.T) {
	list := []Result{{Name: "memory", Value: "1"}, {Name: "memory", Pod: true, Value: "9"}}
	got := Merge(list, []Result{{Name: "memory", Value: "2"}, {Name: "cpu", Value: "3"}})
	want := []Result{{Name: "memory", Value: "2"}, {Name: "memory", Pod: true, Value: "9"}, {Name: "cpu", Value: "3"}}
	if !reflect.DeepEqual(got, want) || list[0].Value != "1" {
		t.Errorf("got %+v", got)
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
