package supervise

import (
	"errors"
	"fmt"
	"time"

	"github.com/rkt-pods/rkt/pkg/cgroup"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/limits"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

func (g *podGroups) use(app string) (cgroup.Use, error) {
	return cgroup.InUse(cgroup.AppPath(g.rec, app))
}

func (g *podGroups) rebound(app string, want limits.Set) ([]limits.Result, error) {
	results, err := cgroup.Apply(cgroup.AppPath(g.rec, app), want)
	for i := range results {
		results[i].Pod = app == ""
	}
	return results, err
}

// update changes limits while the pod runs: the intent is on disk first, then
// the kernel is told and asked, then the outcome is on disk. What can't be had
// as it was asked for, beyond the rounding to pages, leaves all as it was.
func (p *pod) update(r request) ([]limits.Result, error) {
	if r.Limits == nil || r.Limits.Empty() {
		return nil, errs.Newf(errs.Usage, "no limit to change")
	}
	bound := &p.bound
	if r.App != "" {
		a, err := p.named(r.App)
		if err != nil {
			return nil, err
		}
		if p.records.status[r.App].State == poddir.Starting {
			return nil, errs.WithHint(errs.Newf(errs.Busy, "app %s: is just starting", r.App), "try again when it runs")
		}
		bound = &a.plan.Limits
	}
	want := *r.Limits
	if want.Swap != nil && want.Memory == nil {
		want.Memory = bound.Memory // v1 bounds the sum of both
	}
	line := poddir.Update{Time: time.Now().UTC(), App: r.App, Limits: want, Force: r.Force}
	if !r.Force {
		if err := p.roomFor(r.App, want); err != nil {
			return nil, err
		}
	}
	if err := p.records.dir.AppendUpdate(line); err != nil {
		return nil, fmt.Errorf("updates: %w", err)
	}
	results, err := p.groups.rebound(r.App, want)
	if err == nil {
		err = limits.Refuse(results, false, nil)
	}
	if err != nil {
		_, uerr := p.groups.rebound(r.App, want.Restore(*bound))
		line.Error = errors.Join(err, uerr).Error()
	}
	line.Done, line.Results, line.Time = err == nil, results, time.Now().UTC()
	if rerr := p.records.dir.AppendUpdate(line); rerr != nil {
		// Unrecorded it must not hold: the next execution would be bound
		// otherwise than "rkt status" says.
		_, uerr := p.groups.rebound(r.App, want.Restore(*bound))
		return nil, errors.Join(err, fmt.Errorf("updates: %w", rerr), uerr)
	}
	if err != nil {
		return nil, err
	}
	*bound = want.Over(*bound)
	p.showLimits(r.App, results)
	return results, nil
}

// roomFor refuses limits below what is in use now: the kernel would kill for
// one, and let nothing start for the other.
func (p *pod) roomFor(app string, want limits.Set) error {
	use, err := p.groups.use(app)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		name string
		want *int64
		have int64
	}{{limits.NameMemory, want.Memory, use.Memory}, {limits.NamePids, want.Pids, use.Pids}} {
		if c.want != nil && *c.want != limits.None && *c.want < c.have {
			err := errs.Newf(errs.Busy, "%s %d: %d is in use", c.name, *c.want, c.have)
			return errs.WithHint(err, "--force does it all the same; the kernel may kill processes of the app for it")
		}
	}
	return nil
}

// showLimits puts the results into the statuses of those that they are about.
func (p *pod) showLimits(app string, results []limits.Result) {
	if app == "" {
		p.isolators = limits.Merge(p.isolators, results)
	}
	for _, a := range p.apps {
		if app != "" && a.plan.Name != app {
			continue
		}
		s := p.records.status[a.plan.Name]
		if s.State == poddir.Exited || s.State == poddir.Waiting {
			continue // final, or told when it starts
		}
		p.write(a, func(s *poddir.Status) { s.Isolators = limits.Merge(s.Isolators, results) })
	}
}
