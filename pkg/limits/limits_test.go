package limits

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
)

func iso(name, value string) []appc.Isolator {
	return []appc.Isolator{{Name: name, Value: json.RawMessage(value)}}
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{appc.IsoMemory, `{"limit":"16Mi"}`, `{"memory":16777216}`},
		{appc.IsoMemory, `{"limit":"1.5G","request":"1G"}`, `{"memory":1500000000,"memoryLow":1000000000}`},
		{appc.IsoMemory, `{"limit":50000}`, `{"memory":50000}`},
		{appc.IsoCPU, `{"limit":"500m"}`, `{"cpu":500}`},
		{appc.IsoCPU, `{"limit":"2","request":"0.25"}`, `{"cpu":2000,"cpuShares":256}`},
		{appc.IsoCPU, `{"limit":"0.0001","request":0}`, `{"cpu":1}`},
		{appc.IsoCPUShares, `2`, `{"cpuShares":2}`},
		{appc.IsoBlockBandwidth, `{"default":true,"limit":"1M"}`, `{"io":{"all":{"readBps":1000000,"writeBps":1000000}}}`},
		{appc.IsoBlockIOPS, `{"default":true,"limit":"100"}`, `{"io":{"all":{"readIops":100,"writeIops":100}}}`},
		{appc.IsoPids, `64`, `{"pids":64}`},
		{appc.IsoCPUSet, `{"cpus":"0-1,3","mems":"0"}`, `{"cpus":"0-1,3","mems":"0"}`},
		{appc.IsoMemoryHigh, `"1Ki"`, `{"memoryHigh":1024}`},
		{appc.IsoIOWeight, `10000`, `{"ioWeight":10000}`},
		{appc.IsoIOLimits, `{"/dev/vda":{"rbps":"1Mi","wiops":5}}`, `{"io":{"/dev/vda":{"readBps":1048576,"writeIops":5}}}`},
		{appc.IsoHugetlb, `{"2MB":"4Mi"}`, `{"hugetlb":{"2MB":4194304}}`},
		{"example.com/x", `{"any":1}`, `{}`},
	} {
		set, err := Parse(iso(c.name, c.value))
		if err != nil {
			t.Errorf("%s %s: %v", c.name, c.value, err)
			continue
		}
		got, _ := json.Marshal(set)
		if string(got) != c.want {
			t.Errorf("%s %s: got %s, want %s", c.name, c.value, got, c.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ name, value string }{
		{appc.IsoMemory, `{"limit":"4095"}`},
		{appc.IsoMemory, `{"limit":"0"}`},
		{appc.IsoMemory, `{"limit":"-1Mi"}`},
		{appc.IsoMemory, `{"limit":"16Ei"}`},
		{appc.IsoMemory, `{"limit":"1e99"}`},
		{appc.IsoMemory, `{"limit":"16Mi","request":"17Mi"}`},
		{appc.IsoMemory, `{}`},
		{appc.IsoMemory, `null`},
		{appc.IsoMemory, `"16Mi"`},
		{appc.IsoCPU, `{"limit":"0"}`},
		{appc.IsoCPU, `{"limit":"9999999999"}`},
		{appc.IsoCPU, `{"limit":"five"}`},
		{appc.IsoCPUShares, `1`},
		{appc.IsoCPUShares, `"1024"`},
		{appc.IsoBlockBandwidth, `{"limit":"1M"}`},
		{appc.IsoBlockBandwidth, `{"default":true,"limit":"0"}`},
		{appc.IsoPids, `0`},
		{appc.IsoPids, `1.5`},
		{appc.IsoCPUSet, `{"cpus":"a"}`},
		{appc.IsoCPUSet, `{}`},
		{appc.IsoSwap, `"1Mi"`}, // without a memory limit
		{appc.IsoIOWeight, `10001`},
		{appc.IsoIOLimits, `{"/etc/passwd":{"rbps":1}}`},
		{appc.IsoIOLimits, `{"/dev/vda":{"speed":1}}`},
		{appc.IsoIOLimits, `{"/dev/vda":{"wiops":"5G"}}`},
		{appc.IsoIOLimits, `{"/dev/vda":{}}`},
		{appc.IsoHugetlb, `{"2":"1"}`},
		{appc.IsoNice, `20`},
		{appc.IsoRlimits, `{"nofile":{"soft":2,"hard":1}}`},
		{appc.IsoRlimits, `{"files":{"soft":1,"hard":1}}`},
		{appc.IsoRlimits, `{"nofile":{"soft":-1,"hard":1}}`},
		{appc.IsoRlimits, `{"nofile":{"hard":1}}`},
		{appc.IsoPriority, `"urgent"`},
		{appc.IsoPriority, `1001`},
	} {
		if _, err := Parse(iso(c.name, c.value)); !errs.Is(err, errs.Usage) || !strings.Contains(err.Error(), c.name) {
			t.Errorf("%s %s: %v", c.name, c.value, err)
		}
	}
	if _, err := Parse(iso(appc.IsoMemory, `{"limit":"16"}`)); len(errs.Hints(err)) == 0 || !strings.Contains(errs.Hints(err)[0], "16Mi") {
		t.Errorf("no hint: %v", errs.Hints(err))
	}
}

// TestRequestGivesWay: what is said by name counts before what a request implies.
func TestRequestGivesWay(t *testing.T) {
	set, err := Parse(append(iso(appc.IsoCPUShares, "100"), iso(appc.IsoCPU, `{"request":"1"}`)...))
	if err != nil || set.CPUShares == nil || *set.CPUShares != 100 {
		t.Errorf("got %v, %v", set.CPUShares, err)
	}
}

func TestOver(t *testing.T) {
	base := Set{Memory: new(int64(1)), Pids: new(int64(2)), IO: map[string]IO{"a": {ReadBps: new(int64(3)), WriteBps: new(int64(4))}}}
	top := Set{Memory: new(int64(None)), CPUs: "1", IO: map[string]IO{"a": {ReadBps: new(int64(5))}, "b": {}}, Hugetlb: map[string]int64{"2MB": 6}}
	want := Set{Memory: new(int64(None)), Pids: new(int64(2)), CPUs: "1", Hugetlb: map[string]int64{"2MB": 6}, IO: map[string]IO{"a": {ReadBps: new(int64(5)), WriteBps: new(int64(4))}, "b": {}}}
	if got := top.Over(base); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	if *base.IO["a"].ReadBps != 3 {
		t.Error("the base was changed")
	}
	if !(Set{}).Over(Set{}).Empty() || want.Empty() {
		t.Error("Empty")
	}
}

// TestQuota: every limit is one that the kernel takes, and comes back exactly.
func TestQuota(t *testing.T) {
	for milli := int64(1); milli <= 100000; milli++ {
		quota, period := Quota(milli)
		if quota < MinPeriod || period > MaxPeriod || MilliOf(quota, period) != milli {
			t.Fatalf("%dm: %d of %d is %dm", milli, quota, period, MilliOf(quota, period))
		}
	}
}

func TestWeight(t *testing.T) {
	for shares, want := range map[int64]int64{2: 1, 10: 1, 512: 50, 1024: 100, 2048: 200, 262144: 10000} {
		if got, _ := Weight(shares); got != want {
			t.Errorf("%d: %d, want %d", shares, got, want)
		}
	}
	if _, exact := Weight(1000); exact {
		t.Error("1000 shares are no whole weight")
	}
}

func TestRefuse(t *testing.T) {
	list := []Result{{Name: NamePids, State: Enforced}, {Name: NameMemory, State: Changed, Asked: "5000", Value: "4096"}, {Name: NameSwap, State: Ignored, Why: "none here"}}
	image := func(string) bool { return true }
	for _, c := range []struct {
		strict   bool
		optional func(string) bool
		want     string
	}{{false, image, ""}, {false, nil, "isolator ignored: swap: none here"}, {true, image, "isolator changed: memory 5000, is 4096"}} {
		err := Refuse(list, c.strict, c.optional)
		if c.want == "" && err != nil || c.want != "" && (!errs.Is(err, errs.Unsupported) || err.Error() != c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// FuzzParse: whatever stands in an isolator is an error or a set that can be
// written down and holds no negative number.
func FuzzParse(f *testing.F) {
	f.Add(appc.IsoMemory, `{"limit":"16Mi","request":4}`)
	f.Add(appc.IsoCPU, `{"limit":"1e9"}`)
	f.Add(appc.IsoIOLimits, `{"all":{"rbps":"1"},"8:0":{"wiops":2}}`)
	f.Add(appc.IsoHugetlb, `{"2MB":"1"}`)
	f.Add(appc.IsoCPUSet, `{"cpus":"0-99999"}`)
	f.Fuzz(func(t *testing.T, name, value string) {
		set, err := Parse(iso(name, value))
		if err != nil {
			return
		}
		for _, v := range set.values() {
			if *v != nil && **v < 0 {
				t.Fatalf("%s %s: %d", name, value, **v)
			}
		}
		if set.CPU != nil {
			if quota, period := Quota(*set.CPU); quota < MinPeriod || MilliOf(quota, period) != *set.CPU {
				t.Fatalf("%s %s: quota %d of %d", name, value, quota, period)
			}
		}
		data, err := json.Marshal(set)
		if err != nil {
			t.Fatal(err)
		}
		var again Set
		if err := json.Unmarshal(data, &again); err != nil || !reflect.DeepEqual(set.Over(Set{}), again.Over(Set{})) {
			t.Fatalf("%s: %v", data, err)
		}
	})
}
