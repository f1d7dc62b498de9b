package main

import (
	"slices"
	"strings"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage0/pod"
)

// listFilter is what all pods of a list have in common.
type listFilter []func(view) bool

// add takes one --filter.
func (f *listFilter) add(s string) error {
	key, val, err := pair(s)
	if err != nil {
		return err
	}
	var holds func(view) bool
	switch key {
	case "state":
		if !slices.Contains(pod.States(), pod.State(val)) {
			return errs.WithHint(errs.Newf(errs.Usage, "%q: no state of a pod", val), "the states are %s", strings.Join(stateNames(), ", "))
		}
		holds = func(v view) bool { return string(v.state) == val }
	case "name":
		holds = func(v view) bool { return v.name == val }
	case "app":
		holds = func(v view) bool { return slices.Contains(v.appNames(), val) }
	case "label":
		name, want, exact := strings.Cut(val, "=")
		holds = func(v view) bool {
			got, there := v.labels[name]
			return there && (!exact || got == want)
		}
	default:
		return errs.Newf(errs.Usage, "%q is none of state, name, app, label", key)
	}
	*f = append(*f, holds)
	return nil
}

func stateNames() (names []string) {
	for _, s := range pod.States() {
		names = append(names, string(s))
	}
	return names
}

func (f listFilter) apply(views []view) []view {
	return slices.DeleteFunc(views, func(v view) bool {
		return slices.ContainsFunc(f, func(holds func(view) bool) bool { return !holds(v) })
	})
}
