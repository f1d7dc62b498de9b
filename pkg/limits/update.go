package limits

import (
	"cmp"
	"slices"
	"strings"

	"github.com/rkt-pods/rkt/pkg/appc"
)

// Restore is the set that undoes s where base held before: what base does not
// have is lifted.
func (s Set) Restore(base Set) Set {
	var undo Set
	mine, below, back := s.values(), base.values(), undo.values()
	for i := range mine {
		switch {
		case *mine[i] == nil:
		case *below[i] == nil:
			*back[i] = new(int64(None))
		default:
			*back[i] = *below[i]
		}
	}
	if s.CPUs != "" {
		undo.CPUs = cmp.Or(base.CPUs, Lifted)
	}
	if s.Mems != "" {
		undo.Mems = cmp.Or(base.Mems, Lifted)
	}
	for device, v := range s.IO {
		undo.setIO(device, v.restore(base.IO[device]))
	}
	if _, all := s.IO[AllDevices]; all { // which has changed the single ones too
		for device, v := range base.IO {
			undo.setIO(device, v.over(undo.IO[device]))
		}
	}
	for size := range s.Hugetlb {
		if undo.Hugetlb == nil {
			undo.Hugetlb = map[string]int64{}
		}
		undo.Hugetlb[size] = None
		if n, ok := base.Hugetlb[size]; ok {
			undo.Hugetlb[size] = n
		}
	}
	return undo
}

func (v IO) restore(base IO) IO {
	mine, below := v.Values(), base.Values()
	for i := range mine {
		switch {
		case *mine[i] == nil:
		case *below[i] == nil:
			*mine[i] = new(int64(None))
		default:
			*mine[i] = *below[i]
		}
	}
	return v
}

// Overlay returns the isolators with the limits of a set in place of those
// that they have. A limit that was lifted leaves no isolator.
func Overlay(list []appc.Isolator, s Set) []appc.Isolator {
	list = slices.Clone(list)
	put := func(name string, n *int64, value func(int64) any) {
		if n == nil {
			return
		}
		list = slices.DeleteFunc(list, func(iso appc.Isolator) bool { return iso.Name == name })
		if *n != None {
			list = append(list, appc.NewIsolator(name, value(*n)))
		}
	}
	bytes := func(n int64) any { return Number(n) }
	limit := func(n int64) any { return map[string]string{"limit": Number(n)} }
	count := func(n int64) any { return n }
	put(appc.IsoMemory, s.Memory, limit)
	put(appc.IsoCPU, s.CPU, func(n int64) any { return map[string]string{"limit": Cores(n)} })
	put(appc.IsoCPUShares, s.CPUShares, count)
	put(appc.IsoPids, s.Pids, count)
	put(appc.IsoMemoryLow, s.MemoryLow, bytes)
	put(appc.IsoMemoryHigh, s.MemoryHigh, bytes)
	put(appc.IsoSwap, s.Swap, bytes)
	put(appc.IsoIOWeight, s.IOWeight, count)
	list = overlayCPUSet(list, s)
	list = overlayIO(list, s.IO)
	return overlayHugetlb(list, s.Hugetlb)
}

// cut takes the isolators of the names away, and returns what they say together.
func cut(list []appc.Isolator, names ...string) (rest []appc.Isolator, held Set) {
	was := func(iso appc.Isolator) bool { return slices.Contains(names, iso.Name) }
	for _, iso := range list {
		if was(iso) {
			// The manifest was checked when the pod was prepared.
			_ = read(&held, &Set{}, iso)
		}
	}
	return slices.DeleteFunc(list, was), held
}

func overlayCPUSet(list []appc.Isolator, s Set) []appc.Isolator {
	if s.CPUs == "" && s.Mems == "" {
		return list
	}
	list, held := cut(list, appc.IsoCPUSet)
	v := appc.CPUSet{CPUs: cmp.Or(s.CPUs, held.CPUs), Mems: cmp.Or(s.Mems, held.Mems)}
	for _, l := range []*string{&v.CPUs, &v.Mems} {
		if *l == Lifted {
			*l = ""
		}
	}
	if v == (appc.CPUSet{}) {
		return list
	}
	return append(list, appc.NewIsolator(appc.IsoCPUSet, v))
}

func overlayIO(list []appc.Isolator, io map[string]IO) []appc.Isolator {
	if len(io) == 0 {
		return list
	}
	list, held := cut(list, appc.IsoIOLimits, appc.IsoBlockBandwidth, appc.IsoBlockIOPS)
	value := map[string]map[string]string{}
	keys := IOKeys()
	for device, v := range (Set{IO: io}).Over(held).IO {
		for i, n := range v.Values() {
			if *n == nil || **n == None {
				continue
			}
			if value[device] == nil {
				value[device] = map[string]string{}
			}
			value[device][keys[i]] = Number(**n)
		}
	}
	if len(value) == 0 {
		return list
	}
	return append(list, appc.NewIsolator(appc.IsoIOLimits, value))
}

func overlayHugetlb(list []appc.Isolator, huge map[string]int64) []appc.Isolator {
	if len(huge) == 0 {
		return list
	}
	list, held := cut(list, appc.IsoHugetlb)
	value := map[string]string{}
	for size, n := range (Set{Hugetlb: huge}).Over(held).Hugetlb {
		if n != None {
			value[size] = Number(n)
		}
	}
	if len(value) == 0 {
		return list
	}
	return append(list, appc.NewIsolator(appc.IsoHugetlb, value))
}

// Merge returns the results with those of an update in place of the ones about
// the same.
func Merge(list, update []Result) []Result {
	list = slices.Clone(list)
	for _, r := range update {
		i := slices.IndexFunc(list, func(o Result) bool { return o.about() == r.about() && o.Pod == r.Pod })
		if i < 0 {
			list = append(list, r)
		} else {
			list[i] = r
		}
	}
	return list
}

// about is what a result is of: of disks each has its own.
func (r Result) about() string {
	if r.Name == NameIOLimit {
		device, _, _ := strings.Cut(r.Asked, " ")
		return r.Name + " " + device
	}
	return r.Name
}
