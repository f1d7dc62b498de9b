package lifecycle

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

// ParsePolicy returns the policy of the name; "" means AnyOnFailure.
func ParsePolicy(s string) (Policy, error) {
	switch p := Policy(s); p {
	case "":
		return AnyOnFailure, nil
	case All, Any, AnyOnFailure:
		return p, nil
	}
	return "", errs.WithHint(errs.Newf(errs.Usage, "exit policy: %q: unknown", s),
		"the policies are all, any and anyOnFailure")
}

// ParseRole returns the role of the name; "" means RoleApp.
func ParseRole(s string) (Role, error) {
	switch r := Role(s); r {
	case "":
		return RoleApp, nil
	case RoleApp, RoleInit, RoleSidecar:
		return r, nil
	}
	return "", errs.WithHint(errs.Newf(errs.Usage, "role: %q: unknown", s), "the roles are app, init and sidecar")
}

// ParseAfter understands app[:condition],….
func ParseAfter(s string) ([]After, error) {
	var list []After
	for item := range strings.SplitSeq(s, ",") {
		name, condition, found := strings.Cut(strings.TrimSpace(item), ":")
		a := After{App: name, Condition: OnStarted}
		if found {
			a.Condition = Condition(condition)
		}
		switch a.Condition {
		case OnStarted, OnReady, OnSucceeded, OnExited:
		default:
			return nil, errs.WithHint(errs.Newf(errs.Usage, "after: %q: condition %q: unknown", item, condition),
				"the conditions are started, ready, succeeded and exited")
		}
		if name == "" {
			return nil, errs.Newf(errs.Usage, "after: %q: no app", s)
		}
		list = append(list, a)
	}
	return list, nil
}

// ParseRestart understands never, on-failure[:max] and always[:max].
func ParseRestart(s string) (Restart, error) {
	mode, limit, found := strings.Cut(s, ":")
	r := Restart{Mode: RestartMode(mode)}
	bad := errs.WithHint(errs.Newf(errs.Usage, "restart: %q: unknown", s), "say never, on-failure, always, or with a maximum such as on-failure:5")
	switch {
	case r.Mode != Never && r.Mode != OnFailure && r.Mode != Always, r.Mode == Never && found:
		return Restart{}, bad
	case found:
		n, err := strconv.ParseUint(limit, 10, 31)
		if err != nil || n == 0 {
			return Restart{}, bad
		}
		r.Max = int(n)
	}
	return r, nil
}

// String is what ParseRestart and ParseCodes read.
func (r Restart) String() string {
	s := string(r.Mode)
	switch r.Mode {
	case OnCodes:
		codes := make([]string, len(r.Codes))
		for i, c := range r.Codes {
			codes[i] = strconv.Itoa(c)
		}
		s = "on " + strings.Join(codes, ",")
	case "":
		s = string(Never)
	case Never, OnFailure, Always:
	}
	if r.Max > 0 {
		s += ":" + strconv.Itoa(r.Max)
	}
	return s
}

// ParseCodes understands a list of exit codes such as 0,3,137.
func ParseCodes(s string) ([]int, error) {
	var codes []int
	for item := range strings.SplitSeq(s, ",") {
		n, err := strconv.ParseUint(strings.TrimSpace(item), 10, 8)
		if err != nil {
			return nil, errs.Newf(errs.Usage, "restart on: %q: not an exit code from 0 to 255", item)
		}
		if !slices.Contains(codes, int(n)) {
			codes = append(codes, int(n))
		}
	}
	return codes, nil
}

// Of reads from a pod's manifest what the machine has to know, and refuses a
// pod that could never run. Stop signals are not filled in.
func Of(p *podspec.Pod) (Policy, []App, error) {
	text, _ := p.Annotations.Get(podspec.AnnExitPolicy)
	policy, err := ParsePolicy(text)
	if err != nil {
		return "", nil, err
	}
	var apps []App
	for i := range p.Apps {
		a, err := appOf(&p.Apps[i])
		if err != nil {
			return "", nil, fmt.Errorf("app %s: %w", p.Apps[i].Name, err)
		}
		apps = append(apps, a)
	}
	_, err = New(policy, apps)
	return policy, apps, err
}

func appOf(m *podspec.App) (a App, err error) {
	get := func(name string) string {
		v, _ := m.Annotations.Get(name)
		return v
	}
	a.Name = m.Name
	if a.Role, err = ParseRole(get(podspec.AnnRole)); err != nil {
		return a, err
	}
	for name, list := range map[string]*[]After{podspec.AnnAfter: &a.After, podspec.AnnBefore: &a.Before} {
		if v := get(name); v != "" {
			if *list, err = ParseAfter(v); err != nil {
				return a, err
			}
		}
	}
	if a.Restart, err = restartOf(a.Role, get(podspec.AnnRestart), get(podspec.AnnRestartOn)); err != nil {
		return a, err
	}
	// What a post-start handler or a startup probe has not finished is not ready.
	a.Checked = get(podspec.AnnReady) != "" || get(podspec.AnnPostStart) != "" || get(podspec.AnnStartup) != ""
	return a, nil
}

func restartOf(role Role, mode, codes string) (r Restart, err error) {
	r.Mode = Never
	if role == RoleSidecar {
		r.Mode = Always
	}
	if mode != "" {
		if r, err = ParseRestart(mode); err != nil {
			return r, err
		}
	}
	if codes != "" {
		// A maximum stays; when it is restarted is what the codes say.
		r.Mode = OnCodes
		r.Codes, err = ParseCodes(codes)
	}
	return r, err
}
