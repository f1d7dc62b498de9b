package limits

import (
	"slices"

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
		undo.CPUs = base.CPUs
	}
	if s.Mems != "" {
		undo.Mems = base.Mems
	}
	return undo
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
	if s.CPUs != "" || s.Mems != "" {
		list = slices.DeleteFunc(list, func(iso appc.Isolator) bool { return iso.Name == appc.IsoCPUSet })
		list = append(list, appc.NewIsolator(appc.IsoCPUSet, appc.CPUSet{CPUs: s.CPUs, Mems: s.Mems}))
	}
	return list
}

// Merge returns the results with those of an update in place of the ones of the
// same name.
func Merge(list, update []Result) []Result {
	list = slices.Clone(list)
	for _, r := range update {
		i := slices.IndexFunc(list, func(o Result) bool { return o.Name == r.Name && o.Pod == r.Pod })
		if i < 0 {
			list = append(list, r)
		} else {
			list[i] = r
		}
	}
	return list
}
