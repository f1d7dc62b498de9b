package supervise

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/rkt-pods/rkt/pkg/limits"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/stage1/network"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// attach gives the pod its networks, and its files what they say. The apps'
// root file systems are made meanwhile; none of them starts before.
func (p *pod) attach(in *inputs, planned plan.Pod) error {
	if len(planned.Network.Attachments) == 0 {
		return nil
	}
	storeID := filepath.Base(filepath.Dir(p.runDir))
	var err error
	ctx, finish := p.interruptible()
	p.network, err = network.Setup(ctx, network.Config{
		Plan: planned.Network, Dir: p.records.dir, StoreID: storeID, NetNS: p.box.netns(),
	})
	if finish() && err != nil {
		return errInterrupted
	}
	if err != nil {
		return err
	}
	p.records.summary.Addresses, p.records.dirty = p.network.Public(), true
	if b := planned.Network.Bandwidth; b != nil {
		if err := p.boundNetwork(*b, planned.Strict); err != nil {
			return err
		}
	}
	if f := plan.NetResolv(in.options, p.network.DNS()); f != nil {
		if err := p.box.replaceFile(*f); err != nil {
			return err
		}
	}
	others, err := p.network.Others()
	if err != nil {
		return err
	}
	hosts := func(others []poddir.HostEntry) error {
		f := plan.HostsFile(in.options, planned.Hostname, p.network.Addresses(), others)
		if f == nil {
			return nil
		}
		return p.box.replaceFile(*f)
	}
	if err := hosts(others); err != nil {
		return err
	}
	watched, cancel := context.WithCancel(p.ctx)
	p.unwatch = cancel
	p.beside.Go(func() {
		if err := p.network.Watch(watched, hosts); err != nil {
			p.report(fmt.Errorf("/etc/hosts is not kept current: %w", err))
		}
	})
	p.trace("attached to %s", strings.Join(in.options.Net, ", "))
	return nil
}

// boundNetwork bounds what the pod's interfaces carry.
func (p *pod) boundNetwork(b plan.Bandwidth, strict bool) error {
	r, err := p.network.Bound(b)
	if err != nil {
		return err
	}
	list := []limits.Result{r}
	if err := limits.Refuse(list, strict, func(string) bool { return b.Optional }); err != nil {
		return err
	}
	p.isolators = append(p.isolators, r)
	p.tellChanges("", list)
	return nil
}

// detach gives everything back once no process of the pod is left.
func (p *pod) detach() error {
	ctx, finish := p.interruptible()
	defer func() { p.stopped = finish() || p.stopped }()
	if p.stopped {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, stoppedRelease)
		defer cancel()
	}
	if err := p.network.Release(ctx); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	return nil
}
