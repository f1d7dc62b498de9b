package plan

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/limits"
)

// Bandwidth bounds what each interface of the pod but the loopback sends, and
// what it gets.
type Bandwidth struct {
	Rate     int64  // bytes a second
	Optional bool   // only an image asks for it
	Why      string // why it does not bound all that was asked for, "" if it does
}

// minBandwidth is the smallest rate: with less a single packet takes seconds.
const minBandwidth = 1024

// readBandwidth reads the rate of the isolator.
func readBandwidth(value json.RawMessage) (int64, error) {
	var v appc.Resource
	if err := json.Unmarshal(value, &v); err != nil {
		return 0, errs.WithClass(errs.Usage, err)
	}
	n, err := limits.Bytes(string(*v.Limit))
	if err != nil {
		return 0, errs.WithClass(errs.Usage, err)
	}
	if n < minBandwidth {
		return 0, errs.WithHint(errs.Newf(errs.Usage, "limit: %d bytes a second: nothing gets through with less than %d", n, minBandwidth),
			"a unit may be missing: 16Mi or 16M rather than 16")
	}
	return n, nil
}

// bandwidth takes the pod's bound, or that of its only app: apps share the
// pod's interfaces, where nothing tells whose a packet is.
func bandwidth(pod *Pod, in Input) error {
	var b *Bandwidth
	if iso := appc.GetIsolator(in.Pod.Isolators, appc.IsoNetworkBandwidth); iso != nil {
		rate, err := readBandwidth(iso.Value)
		if err != nil {
			return wrap("isolator "+iso.Name, err)
		}
		b = &Bandwidth{Rate: rate}
	}
	for i := range pod.Apps {
		mine := pod.Apps[i].bandwidth
		switch {
		case mine == nil:
		case len(pod.Apps) == 1:
			if b == nil || mine.Rate < b.Rate {
				b = mine
			}
		case mine.Optional:
			pod.Apps[i].result(limits.NameNetwork, limits.Ignored, strconv.FormatInt(mine.Rate, 10), "the apps of a pod share its interfaces")
		default:
			return errs.WithHint(errs.Newf(errs.Unsupported, "app %s: isolator %s: the apps of a pod share its interfaces", pod.Apps[i].Name, appc.IsoNetworkBandwidth),
				"before any image it bounds the whole pod")
		}
	}
	if b == nil {
		return nil
	}
	r := limits.Result{Name: limits.NameNetwork, Pod: true, Asked: strconv.FormatInt(b.Rate, 10)}
	switch {
	case pod.Network.Host:
		r.State, r.Why = limits.Ignored, "the pod has the host's network"
		if !b.Optional {
			return limits.Refuse([]limits.Result{r}, false, nil)
		}
	case len(pod.Network.Attachments) == 0:
		r.State, r.Value = limits.Enforced, r.Asked // there is nothing but the loopback
	default:
		if i := slices.IndexFunc(pod.Apps, func(a App) bool { return slices.Contains(a.Capabilities, "CAP_NET_ADMIN") }); i >= 0 {
			b.Why = "app " + pod.Apps[i].Name + " has CAP_NET_ADMIN, with which it can lift the bound of what is sent"
		}
		pod.Network.Bandwidth = b
		return nil // only the kernel can tell
	}
	pod.Results = append(pod.Results, r)
	return nil
}
