package network

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/limits"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// Bound limits what each of the pod's interfaces sends and gets, and says what
// the kernel made of it. What is sent is shaped at the pod's end, what it gets
// at the host's end of a pair of interfaces: any other kind has no place of the
// host's that only this pod's packets pass.
func (a *Attached) Bound(b plan.Bandwidth) (limits.Result, error) {
	r := limits.Result{Name: limits.NameNetwork, Pod: true, Asked: strconv.FormatInt(b.Rate, 10), State: limits.Enforced, Why: b.Why}
	host, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return r, fmt.Errorf("netlink: %w", err)
	}
	defer host.Close()
	pod, err := netlink.NewHandleAt(netns.NsHandle(a.netns), unix.NETLINK_ROUTE)
	if err != nil {
		return r, fmt.Errorf("netlink in the pod: %w", err)
	}
	defer pod.Close()
	links, err := pod.LinkList()
	if err != nil {
		return r, fmt.Errorf("interfaces of the pod: %w", err)
	}
	least := b.Rate
	for _, l := range links {
		if l.Attrs().Flags&unix.IFF_LOOPBACK != 0 || !attached(a, l.Attrs().Name) {
			continue
		}
		ends := []end{{pod, l}}
		if peer := peerOf(host, l); peer != nil {
			ends = append(ends, end{host, peer})
		} else {
			r.Why = "what comes in by " + l.Attrs().Name + " can't be bounded: it is no pair with an interface of the host"
		}
		for _, e := range ends {
			rate, err := e.shape(b.Rate)
			if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
				r.State, r.Why = limits.Ignored, "this kernel can't shape traffic (tbf): "+err.Error()
				return r, nil
			}
			if err != nil {
				return r, fmt.Errorf("bandwidth of %s: %w", e.link.Attrs().Name, err)
			}
			least = min(least, rate)
		}
	}
	r.Value = strconv.FormatInt(least, 10)
	if least != b.Rate && r.Why == "" {
		r.Why = "the network's own configuration bounds it more"
	}
	if r.Why != "" {
		r.State = limits.Changed
	}
	return r, nil
}

func attached(a *Attached, name string) bool {
	for _, at := range a.rec.Attachments {
		if at.IfName == name {
			return true
		}
	}
	return false
}

// peerOf is the host's end of a pair of interfaces, nil if there is none.
func peerOf(host *netlink.Handle, l netlink.Link) netlink.Link {
	if l.Type() != "veth" {
		return nil
	}
	peer, err := host.LinkByIndex(l.Attrs().ParentIndex)
	if err != nil || peer.Type() != "veth" || peer.Attrs().ParentIndex != l.Attrs().Index {
		return nil
	}
	return peer
}

// end is one interface, and how it is spoken of.
type end struct {
	handle *netlink.Handle
	link   netlink.Link
}

// The bytes that may pass at once, and the time that others wait for at most
// before they are dropped.
const (
	leastBurst = 32 << 10 // several packets, at the lowest rate
	waiting    = 4        // a quarter of a second
)

// shape bounds what the interface sends, unless it is bounded more already,
// and reads back the rate.
func (e end) shape(rate int64) (int64, error) {
	if now, err := e.rate(); err != nil || now > 0 && now <= rate {
		return now, err
	}
	burst := max(rate/100, leastBurst)
	tbf := &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: e.link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       uint64(rate),
		Limit:      uint32(min(burst+rate/waiting, math.MaxUint32)),
		Buffer:     netlink.Xmittime(uint64(rate), uint32(min(burst, math.MaxUint32))),
	}
	if err := step("network.bandwidth", func() error { return e.handle.QdiscReplace(tbf) }); err != nil {
		return 0, err
	}
	return e.rate()
}

// rate is how the interface is bounded by a token bucket, 0 if it isn't.
func (e end) rate() (int64, error) {
	list, err := e.handle.QdiscList(e.link)
	if err != nil {
		return 0, err
	}
	for _, q := range list {
		if tbf, ok := q.(*netlink.Tbf); ok && q.Attrs().Parent == netlink.HANDLE_ROOT {
			return int64(min(tbf.Rate, math.MaxInt64)), nil
		}
	}
	return 0, nil
}
