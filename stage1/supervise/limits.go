package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/rkt-pods/rkt/pkg/cgroup"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/limits"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/plan"
	"github.com/rkt-pods/rkt/stage1/sandbox"
	"github.com/rkt-pods/rkt/stage1/scope"
)

// limit bounds all apps together, before there is one.
func (g *podGroups) limit(p plan.Pod) ([]limits.Result, error) {
	if _, err := cgroup.Apply(g.rec.Rel, p.Weights); err != nil {
		return nil, err // what this host can't weigh it gives to all pods alike
	}
	results, err := cgroup.Apply(cgroup.AppPath(g.rec, ""), p.Limits)
	for i := range results {
		results[i].Pod = true
	}
	if err == nil {
		err = limits.Refuse(results, p.Strict, func(name string) bool { return slices.Contains(p.Optional, name) })
	}
	return append(slices.Clone(p.Results), results...), err
}

// startScope asks systemd for the pod's cgroup if that is what is planned.
func (g *podGroups) startScope() error {
	if g.rec.Scope == "" {
		return nil
	}
	program, err := sandbox.InitProgram()
	if err != nil {
		return err
	}
	g.scope, err = scope.Start(context.Background(), g.rec, program)
	return err
}

// adopt puts pod init where the supervisor's children are born otherwise. From
// then on the scope has a process as long as the pod lives.
func (g *podGroups) adopt(podInit int) error {
	if g.scope == nil {
		return nil
	}
	err := cgroup.Attach(g.rec, cgroup.Supervisor, podInit)
	g.scope.Close()
	return err
}

// limitPod bounds the pod, and tells the user what is not as it was asked for.
func (p *pod) limitPod(planned plan.Pod) error {
	results, err := p.groups.limit(planned)
	if err != nil {
		return err
	}
	if planned.Score != nil {
		if err := fault.Step("oom.score"); err != nil {
			return err
		}
		if err := os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(*planned.Score)), 0); err != nil {
			return fmt.Errorf("priority: %w", err)
		}
	}
	p.isolators, p.bound = results, planned.Limits
	p.tellChanges("", results)
	return nil
}

// tellChanges says which isolators of an app, or of the pod, are not enforced
// as they were asked for: once, however often the app is started.
func (p *pod) tellChanges(app string, results []limits.Result) {
	for _, r := range results {
		if r.State == limits.Enforced {
			continue
		}
		text := r.String()
		if app != "" {
			text = "app " + app + ": " + text
		}
		p.reportOnce(text, errors.New(text))
	}
}

// isolated notes what became of the app's isolators, and the pod's.
func (a *app) isolated(process launch.Process) []limits.Result {
	results := process.Isolators()
	a.pod.tellChanges(a.plan.Name, results)
	return append(slices.Clone(a.pod.isolators), results...)
}
