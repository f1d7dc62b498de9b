package appc

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Isolators of rkt's own, for what the specification lacks.
const (
	IsoPids       = "rkt/pids"            // number of processes and threads
	IsoCPUSet     = "rkt/cpuset"          // {"cpus": list, "mems": list}
	IsoMemoryLow  = "rkt/memory-low"      // quantity
	IsoMemoryHigh = "rkt/memory-high"     // quantity
	IsoSwap       = "rkt/swap"            // quantity
	IsoIOWeight   = "rkt/io-weight"       // 1 to 10000
	IsoIOLimits   = "rkt/io-limits"       // {device: {"rbps": quantity, "wbps", "riops", "wiops"}}
	IsoHugetlb    = "rkt/hugetlb"         // {page size: quantity}
	IsoRlimits    = "rkt/rlimits"         // {name: {"soft": n, "hard": n}}, n a number or "unlimited"
	IsoNice       = "rkt/nice"            // -20 to 19
	IsoShmSize    = "rkt/shm-size"        // quantity; of the pod
	IsoPriority   = "rkt/priority"        // critical, normal, batch or an OOM score; of the pod
	IsoDelegate   = "rkt/cgroup-delegate" // bool
)

// CPUSet is the value of the cpuset isolator.
type CPUSet struct {
	CPUs string `json:"cpus,omitempty"`
	Mems string `json:"mems,omitempty"`
}

// Rlimit is one value of the rlimits isolator.
type Rlimit struct {
	Soft Unlimited `json:"soft"`
	Hard Unlimited `json:"hard"`
}

// Unlimited is a number, or the largest one there is, which is written as the
// word `unlimited`.
type Unlimited uint64

// Infinity is the value of `unlimited`.
const Infinity = Unlimited(1<<64 - 1)

// MarshalJSON implements json.Marshaler.
func (u Unlimited) MarshalJSON() ([]byte, error) {
	if u == Infinity {
		return []byte(`"unlimited"`), nil
	}
	return json.Marshal(uint64(u))
}

// UnmarshalJSON implements json.Unmarshaler.
func (u *Unlimited) UnmarshalJSON(data []byte) error {
	var s string
	if err := json.Unmarshal(data, &s); err == nil {
		if s != "unlimited" {
			return fmt.Errorf("%q: neither a number nor unlimited", s)
		}
		*u = Infinity
		return nil
	}
	return json.Unmarshal(data, (*uint64)(u))
}

// The limits that setrlimit(2) knows, without RLIMIT_ and in small letters.
var rlimitNames = []string{
	"as", "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc", "rss",
	"rtprio", "rttime", "sigpending", "stack",
}

// Text is a string of an isolator's value, or a bare number taken as one.
type Text = jsonText

// checkOwn checks the values of rkt's own isolators.
func checkOwn(iso Isolator) error {
	switch iso.Name {
	case IsoPids:
		return between(iso.Value, 1, 1<<22) // PID_MAX_LIMIT
	case IsoIOWeight:
		return between(iso.Value, 1, 10000)
	case IsoNice:
		return between(iso.Value, -20, 19)
	case IsoMemoryLow, IsoMemoryHigh, IsoSwap, IsoShmSize:
		return checkQuantity(iso.Value)
	case IsoDelegate:
		var v bool
		return decode(iso.Value, &v)
	case IsoPriority:
		return checkPriority(iso.Value)
	case IsoCPUSet:
		return checkCPUSet(iso.Value)
	case IsoHugetlb:
		return checkHugetlb(iso.Value)
	case IsoIOLimits:
		return checkIOLimits(iso.Value)
	case IsoRlimits:
		return checkRlimits(iso.Value)
	}
	return nil
}

func checkQuantity(data json.RawMessage) error {
	var s Text
	if err := decode(data, &s); err != nil {
		return err
	}
	_, err := bytesOf(s)
	return err
}

// bytesOf is a quantity in whole units.
func bytesOf(s Text) (int64, error) {
	q, err := ParseQuantity(string(s))
	if err != nil {
		return 0, err
	}
	return q.Ceil()
}

func checkPriority(data json.RawMessage) error {
	var s Text
	if err := decode(data, &s); err != nil {
		return err
	}
	if slices.Contains([]string{"critical", "normal", "batch"}, string(s)) {
		return nil
	}
	if between(json.RawMessage(s), -1000, 1000) != nil {
		return fmt.Errorf("%q: not critical, normal, batch or a number from -1000 to 1000", s)
	}
	return nil
}

var listForm = pattern(`^[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*$`)

func checkCPUSet(data json.RawMessage) error {
	var v CPUSet
	if err := decode(data, &v); err != nil {
		return err
	}
	if v.CPUs == "" && v.Mems == "" {
		return fmt.Errorf("value.cpus: missing")
	}
	for _, s := range []string{v.CPUs, v.Mems} {
		if s != "" && (len(s) > 4096 || !listForm().MatchString(s)) {
			return fmt.Errorf("%q: not a list such as 0-3,6", s)
		}
	}
	return nil
}

var pageSize = pattern(`^[0-9]{1,6}(KB|MB|GB)$`)

func checkHugetlb(data json.RawMessage) error {
	var v map[string]Text
	if err := decode(data, &v); err != nil {
		return err
	}
	for size, q := range v {
		if !pageSize().MatchString(size) {
			return fmt.Errorf("%q: not a page size such as 2MB", size)
		}
		if _, err := bytesOf(q); err != nil {
			return fmt.Errorf("%s: %w", size, err)
		}
	}
	return notEmpty(len(v))
}

var deviceForm = pattern(`^(all|[0-9]{1,7}:[0-9]{1,7}|/dev/[^\x00-\x20,]{1,250})$`)

func checkIOLimits(data json.RawMessage) error {
	var v map[string]map[string]Text
	if err := decode(data, &v); err != nil {
		return err
	}
	for dev, bounds := range v {
		if !deviceForm().MatchString(dev) {
			return fmt.Errorf("%q: not a device's path, MAJOR:MINOR or all", dev)
		}
		for key, q := range bounds {
			if !slices.Contains([]string{"rbps", "wbps", "riops", "wiops"}, key) {
				return fmt.Errorf("%s: %q: not rbps, wbps, riops or wiops", dev, key)
			}
			if n, err := bytesOf(q); err != nil || n < 1 {
				return fmt.Errorf("%s: %s: %q: not a rate", dev, key, q)
			}
		}
		if err := notEmpty(len(bounds)); err != nil {
			return fmt.Errorf("%s: %w", dev, err)
		}
	}
	return notEmpty(len(v))
}

func checkRlimits(data json.RawMessage) error {
	var v map[string]struct{ Soft, Hard *Unlimited }
	if err := decode(data, &v); err != nil {
		return err
	}
	for name, l := range v {
		switch {
		case !slices.Contains(rlimitNames, name):
			return fmt.Errorf("%q: not one of %s", name, strings.Join(rlimitNames, ", "))
		case l.Soft == nil || l.Hard == nil:
			return fmt.Errorf("%s: soft or hard: missing", name)
		case *l.Soft > *l.Hard:
			return fmt.Errorf("%s: the soft limit is above the hard one", name)
		}
	}
	return notEmpty(len(v))
}

func notEmpty(n int) error {
	if n == 0 {
		return fmt.Errorf("value: empty")
	}
	return nil
}
