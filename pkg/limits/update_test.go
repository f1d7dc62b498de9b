package limits

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/rkt-pods/rkt/pkg/appc"
)

func TestRestore(t *testing.T) {
	n := func(n int64) *int64 { return &n }
	base := Set{
		Memory: n(100), CPU: n(500), CPUs: "0-3", Hugetlb: map[string]int64{"2MB": 5},
		IO: map[string]IO{"8:0": {ReadBps: n(7), WriteBps: n(8)}, "8:16": {ReadBps: n(9)}},
	}
	got := Set{
		Memory: n(200), Pids: n(7), CPUs: "1", Mems: "0", Hugetlb: map[string]int64{"2MB": 6, "1GB": 7},
		IO: map[string]IO{"8:0": {ReadBps: n(1), ReadIops: n(2)}},
	}.Restore(base)
	want := Set{
		Memory: n(100), Pids: n(None), CPUs: "0-3", Mems: Lifted, Hugetlb: map[string]int64{"2MB": 5, "1GB": None},
		IO: map[string]IO{"8:0": {ReadBps: n(7), ReadIops: n(None)}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %s, want %s", jsonOf(t, got), jsonOf(t, want))
	}
	got = Set{IO: map[string]IO{AllDevices: {ReadBps: n(1)}}}.Restore(base)
	want = Set{IO: map[string]IO{AllDevices: {ReadBps: n(None)}, "8:0": base.IO["8:0"], "8:16": base.IO["8:16"]}}
	if !reflect.DeepEqual(got, want) || got.Devices()[0] != AllDevices {
		t.Errorf("of all disks: %s, want %s", jsonOf(t, got), jsonOf(t, want))
	}
}

// TestOverlayParts: of limits that are given in parts an update changes those
// that it names, and lifted ones go.
func TestOverlayParts(t *testing.T) {
	n := func(n int64) *int64 { return &n }
	list := []appc.Isolator{
		appc.NewIsolator(appc.IsoCPUSet, appc.CPUSet{CPUs: "0-3", Mems: "0"}),
		appc.NewIsolator(appc.IsoBlockBandwidth, map[string]any{"default": true, "limit": "1M"}),
		appc.NewIsolator(appc.IsoIOLimits, map[string]map[string]string{"8:0": {"riops": "5", "rbps": "9"}}),
		appc.NewIsolator(appc.IsoHugetlb, map[string]string{"2MB": "4Mi", "1GB": "1Gi"}),
	}
	for _, c := range []struct{ update, want Set }{
		{Set{CPUs: "1"}, Set{CPUs: "1", Mems: "0"}},
		{Set{CPUs: Lifted}, Set{Mems: "0"}},
		{Set{CPUs: Lifted, Mems: Lifted}, Set{}},
		{
			Set{IO: map[string]IO{"8:0": {ReadIops: n(None), WriteBps: n(3)}, "8:16": {ReadBps: n(None)}}},
			Set{IO: map[string]IO{AllDevices: {ReadBps: n(1e6), WriteBps: n(1e6)}, "8:0": {ReadBps: n(9), WriteBps: n(3)}}},
		},
		{Set{Hugetlb: map[string]int64{"2MB": 8 << 20, "1GB": None}}, Set{Hugetlb: map[string]int64{"2MB": 8 << 20}}},
		{Set{Hugetlb: map[string]int64{"2MB": None, "1GB": None}}, Set{}},
	} {
		got, err := Parse(Overlay(list, c.update))
		want := c.want
		if c.update.CPUs == "" && c.update.Mems == "" {
			got.CPUs, got.Mems = "", ""
		}
		if len(c.update.IO) == 0 {
			got.IO = nil
		}
		if len(c.update.Hugetlb) == 0 {
			got.Hugetlb = nil
		}
		if err != nil || jsonOf(t, got) != jsonOf(t, want) {
			t.Errorf("%s: %s, %v, want %s", jsonOf(t, c.update), jsonOf(t, got), err, jsonOf(t, want))
		}
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
	disks := []Result{{Name: NameIOLimit, Asked: "8:0 rbps=1"}, {Name: NameIOLimit, Asked: "8:1 rbps=1"}}
	got = Merge(disks, []Result{{Name: NameIOLimit, Asked: "8:1 rbps=2"}})
	if want := []Result{disks[0], {Name: NameIOLimit, Asked: "8:1 rbps=2"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("of disks: %+v", got)
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
