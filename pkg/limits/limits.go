// Package limits says in values what an app, or a whole pod, may use: how
// isolators are read, how one set of limits goes over another, and how a value
// and what the kernel made of it are told. It touches no file: pkg/cgroup
// writes limits, and stage1/plan decides which hold.
package limits

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// None is the value of a limit that was lifted.
const None = -1

// Lifted is the same for a list of CPUs or memory nodes.
const Lifted = "max"

// MinMemory is the smallest memory limit: a page, with which nothing runs
// either. Smaller ones are a forgotten unit.
const MinMemory = 4096

// Set is what one app, or all apps of a pod together, may use. What is nil was
// not asked for; None lifts a limit that an update takes away.
type Set struct {
	Memory     *int64 `json:"memory,omitempty"`     // bytes; the OOM killer comes beyond
	MemoryLow  *int64 `json:"memoryLow,omitempty"`  // bytes that are reclaimed from others first
	MemoryHigh *int64 `json:"memoryHigh,omitempty"` // bytes beyond which it is reclaimed from, and slowed down
	Swap       *int64 `json:"swap,omitempty"`       // bytes of swap, beside the memory
	CPU        *int64 `json:"cpu,omitempty"`        // thousandths of a core
	CPUShares  *int64 `json:"cpuShares,omitempty"`  // weight, 1024 is the usual one
	Pids       *int64 `json:"pids,omitempty"`       // processes and threads
	CPUs       string `json:"cpus,omitempty"`       // list of CPUs such as 0-3,6; or Lifted
	Mems       string `json:"mems,omitempty"`       // list of memory nodes; or Lifted
	IOWeight   *int64 `json:"ioWeight,omitempty"`   // 1 to 10000, 100 is the usual one
	// IO bounds devices by the path or the MAJOR:MINOR of each; AllDevices
	// stands for every disk of the host.
	IO      map[string]IO    `json:"io,omitempty"`
	Hugetlb map[string]int64 `json:"hugetlb,omitempty"` // bytes by page size, such as 2MB
}

// AllDevices is the name of all disks in Set.IO.
const AllDevices = "all"

// IO bounds one device, each value a second; nil: no bound was asked for.
type IO struct {
	ReadBps   *int64 `json:"readBps,omitempty"`
	WriteBps  *int64 `json:"writeBps,omitempty"`
	ReadIops  *int64 `json:"readIops,omitempty"`
	WriteIops *int64 `json:"writeIops,omitempty"`
}

// Empty says whether no limit is asked for.
func (s Set) Empty() bool {
	for _, v := range s.values() {
		if *v != nil {
			return false
		}
	}
	return s.CPUs == "" && s.Mems == "" && len(s.IO) == 0 && len(s.Hugetlb) == 0
}

func (s *Set) values() []**int64 {
	return []**int64{
		&s.Memory, &s.MemoryLow, &s.MemoryHigh, &s.Swap, &s.CPU, &s.CPUShares, &s.Pids, &s.IOWeight,
	}
}

// Over returns the set with what base says where it says nothing itself.
func (s Set) Over(base Set) Set {
	mine, below := s.values(), base.values()
	for i := range mine {
		if *mine[i] == nil {
			*mine[i] = *below[i]
		}
	}
	if s.CPUs == "" {
		s.CPUs = base.CPUs
	}
	if s.Mems == "" {
		s.Mems = base.Mems
	}
	io := maps.Clone(base.IO)
	for dev, v := range s.IO {
		if io == nil {
			io = map[string]IO{}
		}
		io[dev] = v.over(io[dev])
	}
	s.IO = io
	huge := maps.Clone(base.Hugetlb)
	for size, v := range s.Hugetlb {
		if huge == nil {
			huge = map[string]int64{}
		}
		huge[size] = v
	}
	s.Hugetlb = huge
	return s
}

// Values are the bounds in a fixed order, to be filled in too.
func (v *IO) Values() []**int64 {
	return []**int64{&v.ReadBps, &v.WriteBps, &v.ReadIops, &v.WriteIops}
}

func (v IO) over(base IO) IO {
	mine, below := v.Values(), base.Values()
	for i := range mine {
		if *mine[i] == nil {
			*mine[i] = *below[i]
		}
	}
	return v
}

// IOKeys are the names of an IO's values as the kernel spells them, in the
// order of Values.
func IOKeys() []string { return []string{"rbps", "wbps", "riops", "wiops"} }

// String writes the bounds as `rbps=1048576 wbps=max`.
func (v IO) String() string {
	var parts []string
	keys := IOKeys()
	for i, n := range v.Values() {
		if *n != nil {
			parts = append(parts, keys[i]+"="+Number(**n))
		}
	}
	return strings.Join(parts, " ")
}

// Number writes a limit, None as the kernel's word for it.
func Number(n int64) string {
	if n == None {
		return "max"
	}
	return strconv.FormatInt(n, 10)
}

// Cores writes thousandths of a core as the quantity they came from.
func Cores(milli int64) string {
	switch {
	case milli == None:
		return "max"
	case milli%1000 == 0:
		return strconv.FormatInt(milli/1000, 10)
	}
	return strconv.FormatInt(milli, 10) + "m"
}

// MinPeriod and MaxPeriod bound the kernel's CPU period, and MinPeriod the
// time in it, all in microseconds.
const (
	MinPeriod   = 1000
	UsualPeriod = 100000
	MaxPeriod   = 1000000
)

// Quota is a CPU limit as the kernel wants it: microseconds in each period. A
// small limit gets the longest period, for the kernel refuses less than a
// millisecond of time in one.
func Quota(milli int64) (quota, period int64) {
	if milli*UsualPeriod/1000 >= MinPeriod {
		return milli * UsualPeriod / 1000, UsualPeriod
	}
	return max(milli*MaxPeriod/1000, MinPeriod), MaxPeriod
}

// MilliOf is the CPU limit behind a quota.
func MilliOf(quota, period int64) int64 {
	if quota < 0 || period <= 0 {
		return None
	}
	return quota * 1000 / period
}

// Weight is a cgroup v2 weight with the same proportions as shares: 1024 are
// 100. exact is false if rounding or the bounds of weights changed them.
func Weight(shares int64) (weight int64, exact bool) {
	n := shares * 100
	weight = min(max((n+512)/1024, 1), 10000)
	return weight, weight*1024 == n
}

// Shares is the other way round.
func Shares(weight int64) int64 { return max(weight*1024/100, 2) }

// Devices lists the devices of Set.IO in order. All of them together come
// first, so that what is said of a single one holds for that.
func (s Set) Devices() []string {
	return slices.SortedFunc(maps.Keys(s.IO), func(a, b string) int {
		switch {
		case a == AllDevices:
			return -1
		case b == AllDevices:
			return 1
		}
		return strings.Compare(a, b)
	})
}
