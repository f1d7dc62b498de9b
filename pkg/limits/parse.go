package limits

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
)

// The names that limits have in results: those of the flags.
const (
	NameMemory     = "memory"
	NameMemoryLow  = "memory-low"
	NameMemoryHigh = "memory-high"
	NameSwap       = "swap"
	NameCPU        = "cpu"
	NameCPUShares  = "cpu-shares"
	NamePids       = "pids"
	NameCPUSet     = "cpuset"
	NameIOWeight   = "io-weight"
	NameIOLimit    = "io-limit"
	NameHugetlb    = "hugetlb"
	NameNetwork    = "network-bandwidth" // of interfaces, not of a cgroup
)

// names has, for each isolator that bounds a cgroup, what its limits are called.
var names = map[string][]string{
	appc.IsoMemory:         {NameMemory, NameMemoryLow},
	appc.IsoCPU:            {NameCPU, NameCPUShares},
	appc.IsoCPUShares:      {NameCPUShares},
	appc.IsoBlockBandwidth: {NameIOLimit},
	appc.IsoBlockIOPS:      {NameIOLimit},
	appc.IsoPids:           {NamePids},
	appc.IsoCPUSet:         {NameCPUSet},
	appc.IsoMemoryLow:      {NameMemoryLow},
	appc.IsoMemoryHigh:     {NameMemoryHigh},
	appc.IsoSwap:           {NameSwap},
	appc.IsoIOWeight:       {NameIOWeight},
	appc.IsoIOLimits:       {NameIOLimit},
	appc.IsoHugetlb:        {NameHugetlb},
}

// Names returns what the limits of an isolator are called; nothing if it is
// none that bounds a cgroup.
func Names(isolator string) []string { return names[isolator] }

// maxCPU is the largest CPU limit: more cores than any host has, and the quota
// of it is still a number for the kernel.
const maxCPU = 1 << 30

// Parse reads the isolators that bound a cgroup; others are left alone. Of
// several of one name the last one counts.
func Parse(list []appc.Isolator) (Set, error) {
	if err := appc.CheckIsolators(list); err != nil {
		return Set{}, errs.Newf(errs.Usage, "%w", err)
	}
	var asked, implied Set
	for _, iso := range list {
		if names[iso.Name] == nil {
			continue
		}
		if err := read(&asked, &implied, iso); err != nil {
			return Set{}, errs.WithClass(errs.Usage, fmt.Errorf("isolator %s: %w", iso.Name, err))
		}
	}
	// A request is a weight, or a protection, unless one is named.
	set := asked.Over(implied)
	if set.Swap != nil && set.Memory == nil {
		return Set{}, errs.WithHint(errs.Newf(errs.Usage, "isolator %s: there is no memory limit beside it", appc.IsoSwap), "bound the memory as well")
	}
	return set, nil
}

func read(asked, implied *Set, iso appc.Isolator) error {
	switch iso.Name {
	case appc.IsoMemory, appc.IsoCPU, appc.IsoBlockBandwidth, appc.IsoBlockIOPS:
		var v appc.Resource
		if err := json.Unmarshal(iso.Value, &v); err != nil {
			return err
		}
		return resource(asked, implied, iso.Name, v)
	case appc.IsoCPUShares:
		return json.Unmarshal(iso.Value, &asked.CPUShares)
	case appc.IsoPids:
		return json.Unmarshal(iso.Value, &asked.Pids)
	case appc.IsoIOWeight:
		return json.Unmarshal(iso.Value, &asked.IOWeight)
	case appc.IsoMemoryLow:
		return quantity(&asked.MemoryLow, iso.Value)
	case appc.IsoMemoryHigh:
		return quantity(&asked.MemoryHigh, iso.Value)
	case appc.IsoSwap:
		return quantity(&asked.Swap, iso.Value)
	case appc.IsoCPUSet:
		var v appc.CPUSet
		err := json.Unmarshal(iso.Value, &v)
		asked.CPUs, asked.Mems = v.CPUs, v.Mems
		return err
	case appc.IsoHugetlb:
		return hugetlb(asked, iso.Value)
	case appc.IsoIOLimits:
		return ioLimits(asked, iso.Value)
	}
	return nil
}

func quantity(into **int64, data json.RawMessage) error {
	var s appc.Text
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	n, err := Bytes(string(s))
	*into = &n
	return err
}

// Bytes reads a quantity of whole units, rounded up.
func Bytes(s string) (int64, error) {
	q, err := appc.ParseQuantity(s)
	if err != nil {
		return 0, err
	}
	return q.Ceil()
}

// resource reads a request and a limit as the specification has them.
func resource(asked, implied *Set, name string, v appc.Resource) error {
	limit, err := amount(name, v.Limit)
	if err != nil {
		return fmt.Errorf("limit: %w", err)
	}
	request, err := amount(name, v.Request)
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	if limit != nil && request != nil && *request > *limit {
		return errs.Newf(errs.Usage, "request: above the limit")
	}
	if limit != nil && *limit < 1 {
		return errs.Newf(errs.Usage, "limit: %q: nothing could run with it", string(*v.Limit))
	}
	switch name {
	case appc.IsoMemory:
		if limit != nil && *limit < MinMemory {
			return errs.WithHint(errs.Newf(errs.Usage, "limit: %d bytes: no program can run with less than %d", *limit, MinMemory),
				"a unit may be missing: 16Mi or 16M rather than 16")
		}
		asked.Memory, implied.MemoryLow = limit, request
	case appc.IsoCPU:
		asked.CPU = limit
		if request != nil && *request > 0 {
			implied.CPUShares = new(min(max(*request*1024/1000, 2), 262144))
		}
	case appc.IsoBlockBandwidth:
		all := asked.IO[AllDevices]
		all.ReadBps, all.WriteBps = limit, limit
		asked.setIO(AllDevices, all)
	case appc.IsoBlockIOPS:
		all := asked.IO[AllDevices]
		all.ReadIops, all.WriteIops = limit, limit
		asked.setIO(AllDevices, all)
	}
	return nil
}

// amount is a quantity in the unit that the limit is kept in.
func amount(name string, s *appc.Text) (*int64, error) {
	if s == nil {
		return nil, nil
	}
	q, err := appc.ParseQuantity(string(*s))
	if err != nil {
		return nil, err
	}
	n, err := q.Ceil()
	if name == appc.IsoCPU {
		if n, err = q.Milli(); err == nil && n > maxCPU {
			err = errs.Newf(errs.Usage, "%q: more cores than any host has", string(*s))
		}
	}
	return &n, err
}

func (s *Set) setIO(device string, v IO) {
	if s.IO == nil {
		s.IO = map[string]IO{}
	}
	s.IO[device] = v
}

func hugetlb(asked *Set, data json.RawMessage) error {
	var v map[string]appc.Text
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	asked.Hugetlb = map[string]int64{}
	for size, s := range v {
		n, err := Bytes(string(s))
		if err != nil {
			return fmt.Errorf("%s: %w", size, err)
		}
		asked.Hugetlb[size] = n
	}
	return nil
}

func ioLimits(asked *Set, data json.RawMessage) error {
	var v map[string]map[string]appc.Text
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	for dev, bounds := range v {
		io := asked.IO[dev]
		for i, into := range io.Values() {
			s, ok := bounds[IOKeys()[i]]
			if !ok {
				continue
			}
			n, err := Bytes(string(s))
			if err != nil {
				return fmt.Errorf("%s: %w", dev, err)
			}
			// Counts of operations are held in 32 bits.
			if i >= 2 && n > math.MaxUint32 {
				return errs.Newf(errs.Usage, "%s: %s: %d: too large", dev, IOKeys()[i], n)
			}
			*into = &n
		}
		asked.setIO(dev, io)
	}
	return nil
}
