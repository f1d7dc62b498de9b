package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/limits"
)

// limitFlags bound the app that they follow; before any image, the whole pod.
func (a *appArgs) limitFlags(fs *pflag.FlagSet) {
	limit := func(name, typ, usage, isolator string, read func(string) (any, error)) {
		value(fs, name, typ, usage+"; before any image: of the whole pod", func(v string) error {
			x, err := read(v)
			if err != nil {
				return err
			}
			return addIsolator(a.isolators(), appc.NewIsolator(isolator, x))
		})
	}
	resource := func(v string) (any, error) { return map[string]string{"limit": v}, nil }
	text := func(v string) (any, error) { return v, nil }
	limit("memory", "QUANTITY", "memory limit, such as 512Mi", appc.IsoMemory, resource)
	limit("cpu", "QUANTITY", "CPU limit in cores, such as 1.5 or 500m", appc.IsoCPU, resource)
	limit("cpu-shares", "N", "weight for the CPU, 2 to 262144, where 1024 is usual", appc.IsoCPUShares, readNumber)
	limit("pids", "N", "number of processes and threads", appc.IsoPids, readNumber)
	limit("cpuset", "LIST", "CPUs to run on, such as 0-3,6", appc.IsoCPUSet, func(v string) (any, error) { return appc.CPUSet{CPUs: v}, nil })
	limit("cpuset-mems", "LIST", "memory nodes to use", appc.IsoCPUSet, func(v string) (any, error) { return appc.CPUSet{Mems: v}, nil })
	limit("memory-low", "QUANTITY", "memory that is reclaimed only after that of others", appc.IsoMemoryLow, text)
	limit("memory-high", "QUANTITY", "memory beyond which it is reclaimed and the app is slowed down", appc.IsoMemoryHigh, text)
	limit("swap", "QUANTITY", "swap beside the memory of --memory", appc.IsoSwap, text)
	limit("io-weight", "N", "weight for disks, 1 to 10000, where 100 is usual", appc.IsoIOWeight, readNumber)
	limit("io-limit", "DEVICE,rbps=RATE,…", "rates a second of a disk, given by path, MAJOR:MINOR or as all: rbps=, wbps= in bytes, riops=, wiops= in operations", appc.IsoIOLimits, readIOLimit)
	limit("network-bandwidth", "QUANTITY", "bytes a second that each network interface sends, and gets, such as 10Mi", appc.IsoNetworkBandwidth, func(v string) (any, error) {
		return map[string]any{"default": true, "limit": v}, nil
	})
	limit("hugetlb", "SIZE=QUANTITY", "huge pages of a size, such as 2MB=64Mi", appc.IsoHugetlb, func(v string) (any, error) {
		size, q, err := pair(v)
		return map[string]string{size: q}, err
	})
	value(fs, "isolator", "NAME=JSON", "any isolator by its name; before any image: of the whole pod", func(v string) error {
		name, text, err := pair(v)
		if err == nil && !json.Valid([]byte(text)) {
			err = errs.Newf(errs.Usage, "%q: not JSON", text)
		}
		if err != nil {
			return err
		}
		return addIsolator(a.isolators(), appc.Isolator{Name: name, Value: json.RawMessage(text)})
	})
}

// processFlags are for the processes of one app.
func (a *appArgs) processFlags(fs *pflag.FlagSet) {
	add := func(p *appArg, name string, v any) error {
		return addIsolator(&p.plan.Isolators, appc.NewIsolator(name, v))
	}
	a.value(fs, "ulimit", "NAME=SOFT[:HARD]", "limit of each process as setrlimit(2) has it, such as nofile=1024:4096; numbers or unlimited", func(p *appArg, v string) error {
		limit, err := readUlimit(v)
		if err != nil {
			return err
		}
		return add(p, appc.IsoRlimits, limit)
	})
	a.value(fs, "nice", "N", "how much the app leaves to others of the CPU, -20 to 19", func(p *appArg, v string) error {
		n, err := readNumber(v)
		if err != nil {
			return err
		}
		return add(p, appc.IsoNice, n)
	})
	a.value(fs, "oom-score-adj", "N", "how readily the kernel kills the app when memory runs out, -1000 to 1000", func(p *appArg, v string) error {
		n, err := readNumber(v)
		if err != nil {
			return err
		}
		return add(p, appc.IsoOOMScoreAdj, n)
	})
	for _, f := range []struct{ name, usage, isolator string }{
		{"no-new-privileges", "let no program of the app gain rights, by setuid for instance", appc.IsoNoNewPrivs},
		{"cgroup-delegate", "let the app make cgroups below its own", appc.IsoDelegate},
	} {
		value(fs, f.name, "bool", f.usage, func(v string) error {
			on, err := strconv.ParseBool(v)
			if err != nil {
				return errs.Newf(errs.Usage, "%q: neither true nor false", v)
			}
			p, err := a.last(f.name)
			if err != nil {
				return err
			}
			return add(p, f.isolator, on)
		}).NoOptDefVal = "true"
	}
}

// podLimitFlags are for the pod wherever they stand.
func (a *appArgs) podLimitFlags(fs *pflag.FlagSet) {
	value(fs, "priority", "critical|normal|batch|N", "which pods lose first when memory is short; a number is an OOM score, -1000 to 1000", func(v string) error {
		return addIsolator(&a.bounds, appc.NewIsolator(appc.IsoPriority, v))
	})
	value(fs, "shm-size", "QUANTITY", "size of the pod's /dev/shm (default: half of the memory)", func(v string) error {
		return addIsolator(&a.bounds, appc.NewIsolator(appc.IsoShmSize, v))
	})
}

// isolators are those of the image before the flag, or of the pod.
func (a *appArgs) isolators() *[]appc.Isolator {
	if len(a.list) == 0 {
		return &a.bounds
	}
	return &a.list[len(a.list)-1].plan.Isolators
}

// addIsolator adds one that is right by itself. Of those that are given in
// parts, such as limits of several devices, the parts are joined.
func addIsolator(list *[]appc.Isolator, iso appc.Isolator) error {
	for i := range *list {
		if old := &(*list)[i]; old.Name == iso.Name {
			joined, ok := join(*old, iso)
			if !ok {
				return errs.Newf(errs.Usage, "isolators[%d]: %s is set twice", i, iso.Name)
			}
			*old = joined
			return checkIsolator(joined)
		}
	}
	*list = append(*list, iso)
	if err := checkIsolator(iso); err != nil {
		return err
	}
	return appc.CheckIsolators(*list)
}

// checkIsolator knows also what is only a matter of sense, such as a memory
// limit without its unit.
func checkIsolator(iso appc.Isolator) error {
	if err := iso.CheckKeys(); err != nil {
		return err
	}
	if iso.Name == appc.IsoSwap { // alone it has no sense, but the rest may follow
		return appc.CheckIsolators([]appc.Isolator{iso})
	}
	_, err := limits.Parse([]appc.Isolator{iso})
	return err
}

// join makes one isolator of two with different keys.
func join(a, b appc.Isolator) (appc.Isolator, bool) {
	if !slices.Contains([]string{appc.IsoCPUSet, appc.IsoIOLimits, appc.IsoHugetlb, appc.IsoRlimits}, a.Name) {
		return a, false
	}
	var one, other map[string]json.RawMessage
	if json.Unmarshal(a.Value, &one) != nil || json.Unmarshal(b.Value, &other) != nil {
		return a, false
	}
	for key := range other {
		if _, twice := one[key]; twice {
			return a, false
		}
	}
	maps.Copy(one, other)
	return appc.NewIsolator(a.Name, one), true
}

func readNumber(v string) (any, error) {
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		return nil, errs.Newf(errs.Usage, "%q: not a number", v)
	}
	return n, nil
}

// readIOLimit reads DEVICE,key=RATE,….
func readIOLimit(v string) (any, error) {
	device, rates, order, err := keyValues(v)
	if err == nil && (device == "" || len(order) == 0) {
		err = errs.Newf(errs.Usage, "%q: not DEVICE,rbps=RATE and the like", v)
	}
	return map[string]map[string]string{device: rates}, err
}

// readUlimit reads NAME=SOFT[:HARD].
func readUlimit(v string) (map[string]appc.Rlimit, error) {
	name, text, err := pair(v)
	if err != nil {
		return nil, err
	}
	soft, hard, two := strings.Cut(text, ":")
	if !two {
		hard = soft
	}
	var l appc.Rlimit
	for i, into := range []*appc.Unlimited{&l.Soft, &l.Hard} {
		s := []string{soft, hard}[i]
		n, err := strconv.ParseUint(s, 10, 64)
		if s == "unlimited" {
			n, err = uint64(appc.Infinity), nil
		}
		if err != nil {
			return nil, errs.Newf(errs.Usage, "%q: neither a number nor unlimited", s)
		}
		*into = appc.Unlimited(n)
	}
	return map[string]appc.Rlimit{strings.TrimPrefix(strings.ToLower(name), "rlimit_"): l}, nil
}
