package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rkt-pods/rkt/pkg/abi"
	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/limits"
	"github.com/rkt-pods/rkt/stage0/handoff"
	"github.com/rkt-pods/rkt/stage0/pod"
)

func newUpdate(g *globals) *cobra.Command {
	var uuidFile, format string
	var call abi.Update
	cmd := &cobra.Command{
		Use:   "update [FLAGS] UUID",
		Short: "Change limits of a running pod or app",
		Long: `Changes limits while the pod runs, without a restart, and prints what the kernel
holds then. With --app they are that app's, otherwise those of all apps together.
They are kept when an app is started anew. "max" lifts a limit.

A memory or pids limit below what is in use is refused unless it is forced. What
this host can't give is an error, and nothing changes.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runUpdate(cmd.Context(), g, call, format, args, uuidFile)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&uuidFile, "uuid-file", "", "file with the pod's UUID")
	fs.StringVar(&format, "format", "", "json or json-pretty")
	fs.StringVar(&call.App, "app", "", "the limits of this app")
	fs.BoolVar(&call.Force, "force", false, "also below what is in use: the kernel may kill for it")
	updateFlags(fs, &call.Limits)
	return cmd
}

func updateFlags(fs *pflag.FlagSet, to *limits.Set) {
	for _, f := range []struct {
		name, typ, usage string
		to               **int64
		read             func(string) (int64, error)
	}{
		{"memory", "QUANTITY", "memory limit, such as 512Mi", &to.Memory, limits.Bytes},
		{"memory-low", "QUANTITY", "memory that is reclaimed only after that of others", &to.MemoryLow, limits.Bytes},
		{"memory-high", "QUANTITY", "memory beyond which it is reclaimed and the app is slowed down", &to.MemoryHigh, limits.Bytes},
		{"swap", "QUANTITY", "swap beside the memory limit", &to.Swap, limits.Bytes},
		{"cpu", "QUANTITY", "CPU limit in cores, such as 1.5 or 500m", &to.CPU, readMilli},
		{"cpu-shares", "N", "weight for the CPU, 2 to 262144, where 1024 is usual", &to.CPUShares, between(2, 262144)},
		{"pids", "N", "number of processes and threads", &to.Pids, between(1, 1<<22)},
		{"io-weight", "N", "weight for disks, 1 to 10000, where 100 is usual", &to.IOWeight, between(1, 10000)},
	} {
		value(fs, f.name, f.typ, f.usage, func(v string) error {
			n := int64(limits.None)
			if v != limits.Lifted {
				var err error
				if n, err = f.read(v); err != nil {
					return err
				}
			}
			if f.to == &to.Memory && n != limits.None && n < limits.MinMemory {
				return errs.Newf(errs.Usage, "%q: less than a page; a unit such as Mi may be missing", v)
			}
			*f.to = &n
			return nil
		})
	}
	for _, f := range []struct {
		name, usage string
		to          *string
		isolator    func(list string) appc.CPUSet
	}{
		{"cpuset", "CPUs to run on, such as 0-3,6", &to.CPUs, func(l string) appc.CPUSet { return appc.CPUSet{CPUs: l} }},
		{"cpuset-mems", "memory nodes to use", &to.Mems, func(l string) appc.CPUSet { return appc.CPUSet{Mems: l} }},
	} {
		value(fs, f.name, "LIST", f.usage, func(v string) error {
			*f.to = v
			if v == limits.Lifted {
				return nil
			}
			return checkIsolator(appc.NewIsolator(appc.IsoCPUSet, f.isolator(v)))
		})
	}
	keyed := func(name, typ, usage string, read func(string) (limits.Set, error)) {
		value(fs, name, typ, usage, func(v string) error {
			s, err := read(v)
			*to = s.Over(*to)
			return err
		})
	}
	keyed("io-limit", "DEVICE,rbps=RATE,…", "rates a second of a disk, given by path, MAJOR:MINOR or as all: rbps=, wbps= in bytes, riops=, wiops= in operations", newIOLimit)
	keyed("hugetlb", "SIZE=QUANTITY", "huge pages of a size, such as 2MB=64Mi", newHugetlb)
}

// newIOLimit reads DEVICE,key=RATE|max,….
func newIOLimit(v string) (limits.Set, error) {
	device, rates, order, err := keyValues(v)
	if err == nil && (device == "" || len(order) == 0) {
		err = errs.Newf(errs.Usage, "%q: not DEVICE,rbps=RATE and the like", v)
	}
	if err != nil {
		return limits.Set{}, err
	}
	var lifted limits.IO
	for i, key := range limits.IOKeys() {
		if rates[key] == limits.Lifted {
			*lifted.Values()[i] = new(int64(limits.None))
			delete(rates, key)
		}
	}
	set := limits.Set{IO: map[string]limits.IO{device: lifted}}
	if len(rates) == 0 {
		return set, nil
	}
	given, err := limits.Parse([]appc.Isolator{appc.NewIsolator(appc.IsoIOLimits, map[string]map[string]string{device: rates})})
	return given.Over(set), err
}

// newHugetlb reads SIZE=QUANTITY|max.
func newHugetlb(v string) (limits.Set, error) {
	size, q, err := pair(v)
	if err != nil {
		return limits.Set{}, err
	}
	if q == limits.Lifted {
		return limits.Set{Hugetlb: map[string]int64{size: limits.None}}, nil
	}
	return limits.Parse([]appc.Isolator{appc.NewIsolator(appc.IsoHugetlb, map[string]string{size: q})})
}

func readMilli(v string) (int64, error) {
	q, err := appc.ParseQuantity(v)
	if err != nil {
		return 0, err
	}
	n, err := q.Milli()
	if err == nil && n < 1 {
		err = errs.Newf(errs.Usage, "%q: no CPU at all", v)
	}
	return n, err
}

func between(least, most int64) func(string) (int64, error) {
	return func(v string) (int64, error) {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < least || n > most {
			return 0, errs.Newf(errs.Usage, "%q: not a number from %d to %d", v, least, most)
		}
		return n, nil
	}
}

func runUpdate(ctx context.Context, g *globals, call abi.Update, format string, args []string, uuidFile string) error {
	if err := checkFormat(format); err != nil {
		return err
	}
	if call.Limits.Empty() {
		return errs.Newf(errs.Usage, "no limit is given")
	}
	if err := g.needRoot(); err != nil {
		return err
	}
	h, found, err := g.onePod(ctx, args, uuidFile)
	if err != nil {
		return err
	}
	if found.State != pod.Running {
		return errs.Newf(errs.Usage, "pod %s: is %s, not running", found.UUID, found.State)
	}
	r, err := g.running(ctx, h, found)
	if err != nil {
		return err
	}
	results, err := changeLimits(ctx, r, call)
	if err != nil {
		return err
	}
	if format != "" {
		return printJSON(g.stdout, format, results)
	}
	for _, result := range results {
		fmt.Fprintln(g.stdout, result)
	}
	return nil
}

func changeLimits(ctx context.Context, r *handoff.Running, call abi.Update) ([]limits.Result, error) {
	results, err := r.Update(ctx, call)
	return results, closeWith(r, err)
}
