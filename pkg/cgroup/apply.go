package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/limits"
)

// Apply writes the limits and says of each what the kernel made of it. What
// this host can't give is a result, and so is a value that the kernel rounded;
// whoever calls decides whether that may be. An error of class Busy means that
// more is in use than the limit allows: then it is as it was.
//
// On v1 a pod's CPU limit lowers those of its apps that are above it, and
// raising it does not raise them again.
func (g Group) Apply(want limits.Set) ([]limits.Result, error) {
	a := &applier{group: g}
	for _, step := range []func(limits.Set) error{a.memory, a.cpu, a.pids, a.cpuset, a.ioWeight, a.io, a.hugetlb} {
		if err := step(want); err != nil {
			return a.results, err
		}
	}
	return a.results, nil
}

// Apply is Group.Apply for a path relative to each hierarchy's root.
func Apply(rel string, want limits.Set) ([]limits.Result, error) {
	if want.Empty() {
		return nil, nil
	}
	h, err := Detect()
	if err != nil {
		return nil, err
	}
	g, err := h.Group(rel)
	if err != nil {
		return nil, err
	}
	return g.Apply(want)
}

type applier struct {
	group   Group
	results []limits.Result
}

func (a *applier) add(r limits.Result) { a.results = append(a.results, r) }

func (a *applier) ignore(name, asked, why string) {
	a.add(limits.Result{Name: name, State: limits.Ignored, Asked: asked, Why: why})
}

// ignored takes an error that means that this host can't do it, and returns
// any other.
func (a *applier) ignored(name, asked string, err error) error {
	var m *missing
	switch {
	case errors.As(err, &m):
		a.ignore(name, asked, m.why)
	case errors.Is(err, fs.ErrNotExist):
		a.ignore(name, asked, "this kernel does not know it: "+pathOf(err))
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ERANGE), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENODEV),
		errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EROFS):
		a.ignore(name, asked, "the kernel refuses it: "+err.Error())
	case errors.Is(err, unix.EBUSY):
		return errs.WithHint(errs.Newf(errs.Busy, "%s %s: more than that is in use: %w", name, asked, err), "stop something in the pod first, or allow more")
	default:
		return fmt.Errorf("%s %s: %w", name, asked, err)
	}
	return nil
}

func pathOf(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return filepath.Base(p.Path)
	}
	return err.Error()
}

// write is one limit given to the kernel.
func write(dir, file, value string) error {
	if err := fault.Step("cgroup.limit"); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// counted is a limit that is one number in one file.
type counted struct {
	name       string
	controller string
	v1, v2     string // the files; empty: there is none
	want       *int64
	lift       string // what v1 takes for no limit
}

func (a *applier) count(c counted) error {
	if c.want == nil {
		return nil
	}
	asked := limits.Number(*c.want)
	dir, v2, err := a.group.control(c.controller)
	if err != nil {
		return a.ignored(c.name, asked, err)
	}
	file, value := c.v1, asked
	if v2 {
		file = c.v2
	} else if *c.want == limits.None {
		value = c.lift
	}
	if file == "" {
		a.ignore(c.name, asked, "cgroup v1 has no such limit")
		return nil
	}
	if err := write(dir, file, value); err != nil {
		return a.ignored(c.name, asked, err)
	}
	return a.back(c.name, *c.want, filepath.Join(dir, file))
}

// back compares with what the kernel holds now.
func (a *applier) back(name string, want int64, file string) error {
	got, err := number(file)
	if err != nil {
		return fmt.Errorf("%s: read back: %w", name, err)
	}
	r := limits.Result{Name: name, State: limits.Enforced, Asked: limits.Number(want), Value: limits.Number(got)}
	if got != want {
		r.State, r.Why = limits.Changed, "the kernel holds another value"
		if page := int64(os.Getpagesize()); want > 0 && got == want/page*page {
			r.Why = "memory is counted in whole pages"
		}
	}
	a.add(r)
	return nil
}

func (a *applier) pids(want limits.Set) error {
	return a.count(counted{limits.NamePids, "pids", "pids.max", "pids.max", want.Pids, "max"})
}

func (a *applier) memory(want limits.Set) error {
	low, high := want.MemoryLow, want.MemoryHigh
	if err := a.count(counted{limits.NameMemoryHigh, "memory", "", "memory.high", high, ""}); err != nil {
		return err
	}
	if err := a.memoryAndSwap(want); err != nil {
		return err
	}
	if err := a.count(counted{limits.NameMemoryLow, "memory", "memory.soft_limit_in_bytes", "memory.low", low, "-1"}); err != nil || low == nil {
		return err
	}
	r := &a.results[len(a.results)-1]
	if r.State == limits.Ignored {
		return nil
	}
	if _, v1 := a.group.v1("memory"); v1 {
		r.State, r.Why = limits.Changed, "cgroup v1 protects nothing, it reclaims beyond this first (soft limit)"
		return nil
	}
	a.protection(r, *low)
	return nil
}

// protection finds the cgroup above the group that is protected least: it
// bounds what is below. Those that are not the pod's are left alone.
func (a *applier) protection(r *limits.Result, low int64) {
	if !a.group.host.recursive && low != 0 {
		r.State, r.Value, r.Why = limits.Changed, "0", "the cgroup2 hierarchy is mounted without memory_recursiveprot"
		return
	}
	if low == limits.None {
		low = 1<<63 - 1
	}
	least, where := low, ""
	for rel := filepath.Dir(a.group.rel); rel != "/"; rel = filepath.Dir(rel) {
		file := filepath.Join(a.group.host.Unified, rel, "memory.low")
		n, err := number(file)
		if err != nil {
			continue
		}
		if n != limits.None && n < least {
			least, where = n, rel
		}
	}
	if where != "" {
		r.State, r.Value = limits.Changed, strconv.FormatInt(least, 10)
		r.Why = fmt.Sprintf("cgroup %s above is protected no more than that (memory.low)", where)
	}
}

// memoryAndSwap writes both limits in an order that the kernel takes: v1 bounds
// the sum, which may never be below the memory's own.
func (a *applier) memoryAndSwap(want limits.Set) error {
	memory := counted{limits.NameMemory, "memory", "memory.limit_in_bytes", "memory.max", want.Memory, "-1"}
	dir, v1 := a.group.v1("memory")
	if !v1 || want.Swap == nil && want.Memory == nil {
		if err := a.count(memory); err != nil {
			return err
		}
		return a.count(counted{limits.NameSwap, "memory", "", "memory.swap.max", want.Swap, ""})
	}
	const both = "memory.memsw.limit_in_bytes"
	held, err := number(filepath.Join(dir, both))
	if want.Swap == nil {
		// An earlier limit of both must not stand in the way of a higher one.
		if err == nil && held != limits.None && want.Memory != nil && (*want.Memory == limits.None || *want.Memory > held) {
			if err := write(dir, both, limits.Number(*want.Memory)); err != nil {
				return a.ignored(memory.name, limits.Number(*want.Memory), err)
			}
		}
		return a.count(memory)
	}
	sum := int64(limits.None)
	if *want.Swap != limits.None && want.Memory != nil && *want.Memory != limits.None {
		if sum = *want.Swap + *want.Memory; sum < 0 {
			sum = limits.None
		}
	}
	swap := func() error { return a.swapV1(dir, both, *want.Swap, sum) }
	first, second := func() error { return a.count(memory) }, swap
	if err == nil && held != limits.None && (sum == limits.None || sum > held) {
		first, second = second, first
	}
	if err := first(); err != nil {
		return err
	}
	return second()
}

func (a *applier) swapV1(dir, file string, swap, sum int64) error {
	asked := limits.Number(swap)
	if err := mkdirAll(dir); err != nil {
		return err
	}
	value := limits.Number(sum)
	if sum == limits.None {
		value = "-1"
	}
	if err := write(dir, file, value); err != nil {
		return a.ignored(limits.NameSwap, asked, err)
	}
	got, err := number(filepath.Join(dir, file))
	if err != nil {
		return fmt.Errorf("%s: read back: %w", limits.NameSwap, err)
	}
	r := limits.Result{Name: limits.NameSwap, State: limits.Enforced, Asked: asked, Value: asked}
	if page := int64(os.Getpagesize()); got != sum {
		r.State, r.Value, r.Why = limits.Changed, limits.Number(got), "of memory and swap together"
		if sum > 0 && got == sum/page*page {
			r.Value, r.Why = limits.Number(swap/page*page), "memory is counted in whole pages"
		}
	}
	a.add(r)
	return nil
}

func (a *applier) hugetlb(want limits.Set) error {
	for size, n := range want.Hugetlb {
		c := counted{limits.NameHugetlb + " " + size, "hugetlb", "hugetlb." + size + ".limit_in_bytes", "hugetlb." + size + ".max", &n, "-1"}
		if err := a.count(c); err != nil {
			return err
		}
	}
	return nil
}

func (a *applier) cpu(want limits.Set) error {
	if want.CPUShares != nil {
		if err := a.shares(*want.CPUShares); err != nil {
			return err
		}
	}
	if want.CPU == nil {
		return nil
	}
	asked := limits.Cores(*want.CPU)
	dir, v2, err := a.group.control("cpu")
	if err != nil {
		return a.ignored(limits.NameCPU, asked, err)
	}
	why := ""
	if v2 {
		err = write(dir, "cpu.max", quotaV2(*want.CPU))
	} else {
		why, err = setQuotaV1(dir, *want.CPU)
	}
	if err != nil {
		return a.ignored(limits.NameCPU, asked, err)
	}
	got, err := milli(dir, v2)
	if err != nil {
		return fmt.Errorf("%s: read back: %w", limits.NameCPU, err)
	}
	r := limits.Result{Name: limits.NameCPU, State: limits.Enforced, Asked: asked, Value: limits.Cores(got)}
	if got != *want.CPU {
		r.State, r.Why = limits.Changed, why
	}
	a.add(r)
	return nil
}

func (a *applier) shares(n int64) error {
	asked := limits.Number(n)
	dir, v2, err := a.group.control("cpu")
	if err != nil {
		return a.ignored(limits.NameCPUShares, asked, err)
	}
	if !v2 {
		if err := write(dir, "cpu.shares", asked); err != nil {
			return a.ignored(limits.NameCPUShares, asked, err)
		}
		return a.back(limits.NameCPUShares, n, filepath.Join(dir, "cpu.shares"))
	}
	weight, exact := limits.Weight(n)
	if err := write(dir, "cpu.weight", strconv.FormatInt(weight, 10)); err != nil {
		return a.ignored(limits.NameCPUShares, asked, err)
	}
	got, err := number(filepath.Join(dir, "cpu.weight"))
	if err != nil {
		return fmt.Errorf("%s: read back: %w", limits.NameCPUShares, err)
	}
	r := limits.Result{Name: limits.NameCPUShares, State: limits.Enforced, Asked: asked, Value: fmt.Sprintf("weight %d", got)}
	if !exact || got != weight {
		r.State, r.Why = limits.Changed, "weights of cgroup v2 go from 1 to 10000, with 100 for 1024 shares"
	}
	a.add(r)
	return nil
}

func quotaV2(milli int64) string {
	if milli == limits.None {
		return "max"
	}
	quota, period := limits.Quota(milli)
	return fmt.Sprintf("%d %d", quota, period)
}

// milli reads a CPU limit, in thousandths of a core.
func milli(dir string, v2 bool) (int64, error) {
	if !v2 {
		quota, err := number(filepath.Join(dir, "cpu.cfs_quota_us"))
		if err != nil {
			return 0, err
		}
		period, err := number(filepath.Join(dir, "cpu.cfs_period_us"))
		return limits.MilliOf(quota, period), err
	}
	data, err := os.ReadFile(filepath.Join(dir, "cpu.max"))
	if err != nil {
		return 0, err
	}
	first, second, _ := strings.Cut(strings.TrimSpace(string(data)), " ")
	quota, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		return limits.None, nil
	}
	period, err := strconv.ParseInt(second, 10, 64)
	return limits.MilliOf(quota, period), err
}
