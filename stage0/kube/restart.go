package kube

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/rkt-pods/rkt/pkg/lifecycle"
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/stage0/podplan"
)

// codes says of each exit code whether the container is restarted after it.
type codes [256]bool

// restart finds the container's policy: its own, else the pod's. An init has to
// finish, so that Always means for it what OnFailure does.
func (r *reader) restart(at string, c *container, role lifecycle.Role, app *podplan.App) {
	policy := r.spec.RestartPolicy
	if c.RestartPolicy != "" && r.oneOf(at+".restartPolicy", c.RestartPolicy, always, onFailure, never) {
		policy = c.RestartPolicy
	}
	if len(c.RestartRules) > 0 && c.RestartPolicy == "" {
		r.bad(at+".restartPolicyRules", "need a restartPolicy of the container")
	}
	var set codes
	for code := range set {
		set[code] = policy == always && role != lifecycle.RoleInit || policy != never && code != 0
	}
	ruled := set
	// The first rule that fits counts, so that it is applied last.
	for i := len(c.RestartRules) - 1; i >= 0; i-- {
		r.rule(fmt.Sprintf("%s.restartPolicyRules[%d]", at, i), c.RestartRules[i], &ruled)
	}
	name, value := ruled.annotation()
	if role == lifecycle.RoleInit && ruled[0] {
		r.bad(at+".restartPolicyRules", "an init container has to finish: exit code 0 restarts it")
	}
	app.Annotations.Set(name, value)
}

// rule has one action that rkt can do, and its codes then restart the
// container whatever its policy says.
func (r *reader) rule(at string, rule restartRule, set *codes) {
	switch rule.Action {
	case "Restart":
	case "RestartAllContainers":
		r.unsupported(at+".action", "RestartAllContainers is not supported")
		return
	default:
		r.bad(at+".action", "%q: none of Restart, RestartAllContainers", rule.Action)
	}
	if rule.ExitCodes == nil {
		r.bad(at+".exitCodes", "missing")
		return
	}
	r.oneOf(at+".exitCodes.operator", rule.ExitCodes.Operator, "In", "NotIn")
	var named codes
	for i, v := range rule.ExitCodes.Values {
		if v < 0 || v > 255 {
			r.bad(fmt.Sprintf("%s.exitCodes.values[%d]", at, i), "%d: not an exit code from 0 to 255", v)
			continue
		}
		named[v] = true
	}
	for code := range set {
		set[code] = set[code] || named[code] == (rule.ExitCodes.Operator == "In")
	}
}

// annotation says the same as shortly as rkt can.
func (c *codes) annotation() (name, value string) {
	var list []string
	for code, on := range c {
		if on {
			list = append(list, strconv.Itoa(code))
		}
	}
	switch {
	case len(list) == 0:
		return podspec.AnnRestart, string(lifecycle.Never)
	case len(list) == len(c):
		return podspec.AnnRestart, string(lifecycle.Always)
	case len(list) == len(c)-1 && !c[0]:
		return podspec.AnnRestart, string(lifecycle.OnFailure)
	}
	return podspec.AnnRestartOn, strings.Join(list, ",")
}
