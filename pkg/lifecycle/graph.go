package lifecycle

import (
	"maps"
	"slices"
	"strings"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// need is one app's wait for another.
type need struct {
	app       *app
	condition Condition
}

// met says whether the wait is over.
func (n need) met() bool {
	switch n.condition {
	case OnStarted:
		return n.app.wasStarted
	case OnReady:
		return n.app.wasReady
	case OnSucceeded:
		return n.app.phase == ended && n.app.end.Code == 0
	default:
		return n.app.phase == ended
	}
}

// hopeless says whether the wait can never be over.
func (n need) hopeless() bool { return n.app.phase == ended && !n.met() }

// connect finds who waits for whom: what the apps say, and what their roles
// say. Inits and sidecars come one after the other, and the apps after them.
func (m *Machine) connect() error {
	var before []need
	for _, a := range m.apps {
		for _, after := range a.After {
			on, err := m.named(a, "after", after)
			if err != nil {
				return err
			}
			a.needs = append(a.needs, need{on, after.Condition})
		}
		for _, b := range a.Before {
			waits, err := m.named(a, "before", b)
			if err != nil {
				return err
			}
			waits.needs = append(waits.needs, need{a, b.Condition})
		}
		switch a.Role {
		case RoleInit:
			if a.Restart.Mode == Always {
				return errs.Newf(errs.Usage, "app %s: an init has to finish: restart %s", a.Name, Always)
			}
			a.needs = append(a.needs, before...)
			before = append(before, need{a, OnSucceeded})
		case RoleSidecar:
			a.needs = append(a.needs, before...)
			before = append(before, need{a, OnStarted})
		default:
		}
	}
	for _, a := range m.apps {
		if a.Role == RoleApp {
			a.needs = append(a.needs, before...)
		}
	}
	return m.checkCycles()
}

func (m *Machine) named(a *app, word string, x After) (*app, error) {
	if other := m.find(x.App); other != nil {
		return other, nil
	}
	return nil, errs.WithHint(errs.Newf(errs.Usage, "app %s: %s %s: no such app in the pod", a.Name, word, x.App),
		"the apps are %s", m.names())
}

func (m *Machine) names() string {
	var names []string
	for _, a := range m.apps {
		names = append(names, a.Name)
	}
	return strings.Join(names, ", ")
}

// checkCycles walks depth first, so that what is below an app is known when it
// is left; what it meets again on its own path is a cycle.
func (m *Machine) checkCycles() error {
	done := map[*app]bool{}
	var path []*app
	var visit func(a *app) error
	visit = func(a *app) error {
		if i := slices.Index(path, a); i >= 0 {
			return cycle(append(path[i:], a))
		}
		if done[a] {
			return nil
		}
		path = append(path, a)
		for _, n := range a.needs {
			if err := visit(n.app); err != nil {
				return err
			}
		}
		a.below = map[*app]bool{}
		for _, n := range a.needs {
			a.below[n.app] = true
			maps.Copy(a.below, n.app.below)
		}
		path, done[a] = path[:len(path)-1], true
		return nil
	}
	for _, a := range m.apps {
		if err := visit(a); err != nil {
			return err
		}
	}
	return nil
}

func cycle(path []*app) error {
	var names []string
	roles := false
	for _, a := range path {
		names = append(names, a.Name)
		roles = roles || a.Role != RoleApp
	}
	err := errs.Newf(errs.Usage, "app %s: waits for itself: %s", names[0], strings.Join(names, " after "))
	if roles {
		return errs.WithHint(err, "apps come after all inits and sidecars, and these one after the other")
	}
	return err
}

// needed says whether an app that has not ended waited for a, be it through
// others that have ended by now.
func (m *Machine) needed(a *app) bool {
	return slices.ContainsFunc(m.apps, func(o *app) bool { return o.phase != ended && o.below[a] })
}

// Wait says what an app that has not started waits for.
type Wait struct {
	App, For  string
	Condition Condition
}

// Awaiting returns what the pod waits for on its way to be ready: conditions
// of apps that are not started, and with For empty the apps that run and are
// not ready.
func (m *Machine) Awaiting() []Wait {
	var list []Wait
	for _, a := range m.apps {
		switch {
		case a.phase == waiting:
			for _, n := range a.needs {
				if !n.met() {
					list = append(list, Wait{a.Name, n.app.Name, n.condition})
				}
			}
		case !a.fine():
			list = append(list, Wait{App: a.Name, Condition: OnReady})
		}
	}
	return list
}

// Stage are apps that wait for nothing but those of earlier stages.
type Stage []string

// Stages returns the apps in the order in which they can start at the
// earliest. They stop the other way round.
func (m *Machine) Stages() []Stage {
	depth := map[*app]int{}
	var of func(a *app) int
	of = func(a *app) int {
		if d, known := depth[a]; known {
			return d
		}
		d := 0
		for _, n := range a.needs {
			d = max(d, of(n.app)+1)
		}
		depth[a] = d
		return d
	}
	var stages []Stage
	for _, a := range m.apps {
		for of(a) >= len(stages) {
			stages = append(stages, nil)
		}
		stages[of(a)] = append(stages[of(a)], a.Name)
	}
	return stages
}

// Needs returns what the app waits for, by its own word or by its role.
func (m *Machine) Needs(name string) []Wait {
	var list []Wait
	if a := m.find(name); a != nil {
		for _, n := range a.needs {
			list = append(list, Wait{a.Name, n.app.Name, n.condition})
		}
	}
	return list
}
