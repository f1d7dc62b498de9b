package cell

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/moby/sys/capability"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/proc"
)

// Capabilities are the numbers of the named ones, which this process must have
// itself. An app gets them as bounding, permitted and effective, none of them
// inheritable or ambient, so that a user other than root has none after exec
// and a file's capabilities don't add up with inheritable ones.
func Capabilities(names []string) ([]int, error) {
	own, err := ownCapabilities()
	if err != nil {
		return nil, err
	}
	supported, err := capability.ListSupported()
	if err != nil {
		return nil, fmt.Errorf("capabilities: %w", err)
	}
	known := map[string]capability.Cap{}
	for _, c := range supported {
		known["CAP_"+strings.ToUpper(c.String())] = c
	}
	var all []int
	for _, name := range names {
		c, ok := known[name]
		if !ok {
			return nil, errs.Newf(errs.Unsupported, "capability %s: unknown to this kernel", name)
		}
		if !own.Get(capability.BOUNDING, c) || !own.Get(capability.PERMITTED, c) {
			return nil, errs.WithHint(
				errs.Newf(errs.Unsupported, "capability %s: rkt itself does not have it", name),
				"this host, or the container rkt runs in, withholds it: leave it out")
		}
		all = append(all, int(c))
	}
	return all, nil
}

// Permitted are the capabilities that this process has, as bits.
func Permitted() (uint64, error) {
	own, err := ownCapabilities()
	if err != nil {
		return 0, err
	}
	var set uint64
	for _, c := range capability.ListKnown() {
		if own.Get(capability.PERMITTED, c) {
			set |= 1 << uint(c)
		}
	}
	return set, nil
}

func ownCapabilities() (capability.Capabilities, error) {
	own, err := capability.NewPid2(0)
	if err == nil {
		err = own.Load()
	}
	if err != nil {
		return nil, fmt.Errorf("capabilities: %w", err)
	}
	return own, nil
}

// MayExceed says whether limits above this process's own can be set.
func MayExceed() (bool, error) {
	own, err := ownCapabilities()
	return err == nil && proc.HostUsers() && own.Get(capability.EFFECTIVE, capability.CAP_SYS_RESOURCE), err
}

// Rlimit is one limit of setrlimit(2).
type Rlimit struct {
	Type       int
	Hard, Soft uint64
}

// rlimitNumber finds a limit by its name in small letters, without RLIMIT_.
func rlimitNumber(name string) (int, bool) {
	n, ok := proc.Rlimits()["RLIMIT_"+strings.ToUpper(name)]
	return n, ok
}

// NROpen is the number of open files that no process can be allowed to exceed.
func NROpen() uint64 {
	data, err := os.ReadFile("/proc/sys/fs/nr_open")
	if err == nil {
		var n uint64
		if n, err = strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64); err == nil {
			return n
		}
	}
	return unix.RLIM_INFINITY // then the kernel says it
}

// Rlimits checks an app's limits against what this process may set.
func Rlimits(list []specs.POSIXRlimit) ([]Rlimit, error) {
	if len(list) == 0 {
		return nil, nil
	}
	exceed, err := MayExceed()
	if err != nil {
		return nil, err
	}
	known := proc.Rlimits()
	var all []Rlimit
	for _, l := range list {
		n, ok := known[l.Type]
		if !ok {
			return nil, errs.Newf(errs.Unsupported, "limit %s: unknown", l.Type)
		}
		var own unix.Rlimit
		if err := unix.Getrlimit(n, &own); err != nil {
			return nil, fmt.Errorf("limit %s: %w", l.Type, err)
		}
		if l.Hard > own.Max && !exceed {
			return nil, errs.Newf(errs.Unsupported, "limit %s: %d is above rkt's own %d, which takes CAP_SYS_RESOURCE", l.Type, l.Hard, own.Max)
		}
		if most := NROpen(); n == unix.RLIMIT_NOFILE && l.Hard > most {
			return nil, errs.Newf(errs.Unsupported, "limit %s: %d is above this host's %d (fs.nr_open)", l.Type, l.Hard, most)
		}
		if l.Soft > l.Hard {
			return nil, errs.Newf(errs.Usage, "limit %s: soft limit %d is above the hard limit %d", l.Type, l.Soft, l.Hard)
		}
		all = append(all, Rlimit{Type: n, Soft: l.Soft, Hard: l.Hard})
	}
	return all, nil
}

// limitNames are the limits as /proc/<pid>/limits names them.
var limitNames = map[string]int{
	"Max address space":     unix.RLIMIT_AS,
	"Max core file size":    unix.RLIMIT_CORE,
	"Max cpu time":          unix.RLIMIT_CPU,
	"Max data size":         unix.RLIMIT_DATA,
	"Max file size":         unix.RLIMIT_FSIZE,
	"Max file locks":        unix.RLIMIT_LOCKS,
	"Max locked memory":     unix.RLIMIT_MEMLOCK,
	"Max msgqueue size":     unix.RLIMIT_MSGQUEUE,
	"Max nice priority":     unix.RLIMIT_NICE,
	"Max open files":        unix.RLIMIT_NOFILE,
	"Max processes":         unix.RLIMIT_NPROC,
	"Max resident set":      unix.RLIMIT_RSS,
	"Max realtime priority": unix.RLIMIT_RTPRIO,
	"Max realtime timeout":  unix.RLIMIT_RTTIME,
	"Max pending signals":   unix.RLIMIT_SIGPENDING,
	"Max stack size":        unix.RLIMIT_STACK,
}

// RlimitsOf are the limits a process has now, lowered to what this process may
// set. prlimit(2) would need CAP_SYS_RESOURCE to tell another user's.
func RlimitsOf(pid int) ([]Rlimit, error) {
	exceed, err := MayExceed()
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/limits")
	if err != nil {
		return nil, err
	}
	var all []Rlimit
	for line := range strings.Lines(string(data)) {
		now, ok := parseLimit(line)
		if !ok {
			continue
		}
		if !exceed {
			var own unix.Rlimit
			if err := unix.Getrlimit(now.Type, &own); err != nil {
				return nil, fmt.Errorf("limits: %w", err)
			}
			now.Hard = min(now.Hard, own.Max)
			now.Soft = min(now.Soft, now.Hard)
		}
		all = append(all, now)
	}
	if len(all) != len(limitNames) {
		return nil, errs.Newf(errs.Internal, "limits of process %d: %d understood, not %d", pid, len(all), len(limitNames))
	}
	return all, nil
}

// parseLimit reads one line: a name of several words, then soft and hard limit.
func parseLimit(line string) (Rlimit, bool) {
	for name, n := range limitNames {
		rest, ok := strings.CutPrefix(line, name+" ")
		if !ok {
			continue
		}
		f := strings.Fields(rest)
		if len(f) < 2 {
			return Rlimit{}, false
		}
		soft, ok1 := limitValue(f[0])
		hard, ok2 := limitValue(f[1])
		return Rlimit{Type: n, Soft: soft, Hard: hard}, ok1 && ok2
	}
	return Rlimit{}, false
}

func limitValue(s string) (uint64, bool) {
	if s == "unlimited" {
		return unix.RLIM_INFINITY, true
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil
}

// OOMScoreAdj checks an app's score against what this process may set.
func OOMScoreAdj(want *int) (*int, error) {
	if want == nil {
		return nil, nil
	}
	own, err := OOMScoreAdjOf("self")
	if err != nil {
		return nil, err
	}
	exceed, err := MayExceed()
	if err != nil {
		return nil, err
	}
	if *want < own && !exceed {
		return nil, errs.Newf(errs.Unsupported, "oom_score_adj: %d is below rkt's own %d, which takes CAP_SYS_RESOURCE", *want, own)
	}
	return want, nil
}

// OOMScoreAdjOf is the score of a process, "self" for this one.
func OOMScoreAdjOf(pid string) (int, error) {
	data, err := os.ReadFile("/proc/" + pid + "/oom_score_adj")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(data)))
}

// BesideScore is the score for a process beside another: the other's, as far
// as this process may give it.
func BesideScore(pid int) (*int, error) {
	adj, err := OOMScoreAdjOf(strconv.Itoa(pid))
	if err != nil {
		return nil, err
	}
	own, err := OOMScoreAdjOf("self")
	if err != nil {
		return nil, err
	}
	exceed, err := MayExceed()
	if err != nil {
		return nil, err
	}
	if !exceed {
		adj = max(adj, own)
	}
	return &adj, nil
}
