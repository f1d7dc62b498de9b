package plan

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/limits"
)

// class is what a pod's priority means in values.
type class struct {
	score  int   // added to the share of memory in use, both in thousandths
	weight int64 // of disks
}

// The kernel kills the process with the highest sum of its score and the
// thousandths of memory that it uses. The scores of batch and critical are
// 1000 and more apart, so no use of memory changes their order.
const (
	scoreCritical = -999 // -1000 would never be killed, not even at the pod's own limit
	scoreBatch    = 1000
)

// classOf is a class on this host. Without CAP_SYS_RESOURCE no score can be
// below rkt's own: then that is the critical one, and normal is half way to
// batch. There a critical pod that uses half of the memory more than a normal
// one is killed before it.
func classOf(name string, host Host) (class, bool) {
	critical, normal := scoreCritical, max(host.OOMScoreAdj, 0)
	if !host.SysResource {
		critical, normal = host.OOMScoreAdj, (max(host.OOMScoreAdj, 0)+scoreBatch)/2
	}
	switch name {
	case "critical":
		return class{critical, 400}, true
	case "normal":
		return class{normal, 100}, true
	case "batch":
		return class{scoreBatch, 25}, true
	}
	return class{}, false
}

// prioritize gives the apps that have no score of their own that of the pod,
// and the pod its weights beside others.
func prioritize(pod *Pod, in Input) error {
	iso := appc.GetIsolator(in.Pod.Isolators, appc.IsoPriority)
	if iso == nil {
		return nil
	}
	var name appc.Text
	if err := json.Unmarshal(iso.Value, &name); err != nil {
		return errs.Newf(errs.Usage, "isolator %s: %w", iso.Name, err)
	}
	c, named := classOf(string(name), in.Host)
	if !named {
		n, err := strconv.Atoi(string(name))
		if err != nil || n < -1000 || n > 1000 {
			return errs.Newf(errs.Usage, "isolator %s: %q: not critical, normal, batch or a number from -1000 to 1000", iso.Name, string(name))
		}
		if n < in.Host.OOMScoreAdj && !in.Host.SysResource {
			return errs.Newf(errs.Denied, "isolator %s: %d: below rkt's own score %d, which needs CAP_SYS_RESOURCE", iso.Name, n, in.Host.OOMScoreAdj)
		}
		c.score = n
	}
	value := fmt.Sprintf("oom-score-adj %d", c.score)
	if named {
		// No weight for the CPU: a process that was killed needs it to give its
		// memory back, and if a critical pod had it instead the kernel would
		// find that next.
		pod.Weights = limits.Set{IOWeight: &c.weight}
		protect(pod, string(name))
	}
	if c.score < in.Host.OOMScoreAdj {
		// Its end would be that of the apps. It is never killed sooner than
		// they for what they use.
		pod.Score = &c.score
	}
	pod.Results = append(pod.Results, limits.Result{Name: namePriority, Pod: true, State: limits.Enforced, Asked: string(name), Value: value})
	for i := range pod.Apps {
		if pod.Apps[i].OOMScoreAdj == nil {
			pod.Apps[i].OOMScoreAdj = &c.score
		}
	}
	return nil
}

// protect has a critical pod's memory reclaimed last, all of it that it may
// use. The cgroup above bounds that, as it does with every protection.
func protect(pod *Pod, name string) {
	if name != "critical" || pod.Limits.MemoryLow != nil {
		return
	}
	low := int64(limits.None)
	if pod.Limits.Memory != nil {
		low = *pod.Limits.Memory
	}
	pod.Weights.MemoryLow = &low
}
