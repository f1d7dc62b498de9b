package kube

import (
	"slices"
	"strconv"
	"strings"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/stage0/podplan"
)

// maxID is the highest number of a user or group.
const maxID = 1<<32 - 2

// allCaps is every capability there is.
const allCaps = "ALL"

// noFilter is the wildcard of appc's retain-set that means every system call.
const noFilter = "@appc.io/all"

func (r *reader) podSecurity(s *podSecurity) {
	at := "spec.securityContext"
	if s == nil {
		return
	}
	r.id(at+".runAsUser", s.RunAsUser)
	r.id(at+".runAsGroup", s.RunAsGroup)
	r.id(at+".fsGroup", s.FSGroup)
	for i := range s.Groups {
		r.id(at+".supplementalGroups["+strconv.Itoa(i)+"]", &s.Groups[i])
	}
	if r.oneOf(at+".supplementalGroupsPolicy", s.GroupsPolicy, "", "Merge", "Strict") && s.GroupsPolicy == "Strict" {
		r.unsupported(at+".supplementalGroupsPolicy", "Strict is not supported: the image's groups are joined")
	}
	// Only volumes of a cluster would have their files changed.
	r.oneOf(at+".fsGroupChangePolicy", s.FSGroupPolicy, "", "Always", "OnRootMismatch")
	r.appArmor(at, s.AppArmor)
	r.seccompType(at, s.Seccomp)
	r.sysctls(at+".sysctls", s.Sysctls)
}

// sysctls: which of them a pod can have of its own is known where it starts.
func (r *reader) sysctls(at string, list []sysctl) {
	values := map[string]string{}
	for i, s := range list {
		at := at + "[" + strconv.Itoa(i) + "].name"
		switch _, twice := values[s.Name]; {
		case s.Name == "":
			r.bad(at, "missing")
		case twice:
			r.bad(at, "%q: given twice", s.Name)
		}
		values[s.Name] = s.Value
	}
	if len(values) > 0 {
		r.out.Isolators = append(r.out.Isolators, appc.NewIsolator(appc.IsoSysctl, values))
	}
}

func (r *reader) id(at string, n *int64) {
	if n != nil && (*n < 0 || *n > maxID) {
		r.bad(at, "%d: not an id", *n)
	}
}

// security joins what the pod says with what the container says, which counts.
func (r *reader) security(at string, s *containerSecurity, app *podplan.App) {
	pod := r.spec.SecurityContext
	if pod == nil {
		pod = &podSecurity{}
	}
	if s == nil {
		s = &containerSecurity{}
	}
	r.id(at+".runAsUser", s.RunAsUser)
	r.id(at+".runAsGroup", s.RunAsGroup)
	r.user(at, s, pod, app)
	app.ReadOnlyRootFS = s.ReadOnlyRootFS
	r.capabilities(at+".capabilities", s.Capabilities, app)
	if s.Privileged {
		r.unsupported(at+".privileged", "not supported: name the capabilities and devices that are needed")
	}
	if s.Escalation != nil && !*s.Escalation {
		if s.Capabilities != nil && slices.ContainsFunc(s.Capabilities.Add, func(c string) bool { return capName(c) == "CAP_SYS_ADMIN" }) {
			r.bad(at+".allowPrivilegeEscalation", "false, and capabilities.add has SYS_ADMIN")
		}
		app.Isolators = append(app.Isolators, appc.NewIsolator(appc.IsoNoNewPrivs, true))
	}
	r.appArmor(at, s.AppArmor)
	r.seccompType(at, s.Seccomp)
	profile := first(s.Seccomp, pod.Seccomp)
	if profile != nil && profile.Type == "Unconfined" {
		app.Isolators = append(app.Isolators, appc.NewIsolator(appc.IsoSeccompRetain, appc.StringSet{Set: []string{noFilter}}))
	}
	if r.oneOf(at+".procMount", s.ProcMount, "", "Default", "Unmasked") && s.ProcMount == "Unmasked" {
		r.unsupported(at+".procMount", "Unmasked is not supported")
	}
}

func first[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

// user is who the container runs as. A user without a group has the groups
// that the image's files give it.
func (r *reader) user(at string, s *containerSecurity, pod *podSecurity, app *podplan.App) {
	user, group := first(s.RunAsUser, pod.RunAsUser), first(s.RunAsGroup, pod.RunAsGroup)
	if user != nil {
		app.User = strconv.FormatInt(*user, 10)
		app.Groups = podspec.OwnGroups
	}
	if group != nil {
		app.Group = strconv.FormatInt(*group, 10)
		app.Groups = podspec.MoreGroups
	}
	for _, gid := range pod.Groups {
		app.GIDs = append(app.GIDs, int(gid))
	}
	if pod.FSGroup != nil {
		app.GIDs = append(app.GIDs, int(*pod.FSGroup))
	}
	nonRoot := first(s.RunAsNonRoot, pod.RunAsNonRoot)
	app.NonRoot = nonRoot != nil && *nonRoot
	if app.NonRoot && user != nil && *user == 0 {
		r.bad(at+".runAsNonRoot", "true, and runAsUser is 0")
	}
}

// capabilities: what is added and dropped is added to and dropped from the
// default set, or all, or none.
func (r *reader) capabilities(at string, c *capabilities, app *podplan.App) {
	if c == nil || len(c.Add)+len(c.Drop) == 0 {
		return
	}
	def := appc.DefaultCapabilities()
	set := slices.Clone(def)
	if slices.Contains(c.Drop, allCaps) {
		set = nil
	}
	for i, name := range c.Add {
		if name == allCaps {
			r.unsupported(at+".add["+strconv.Itoa(i)+"]", "ALL is not supported: name those that are needed")
			continue
		}
		r.checkCap(at+".add["+strconv.Itoa(i)+"]", name)
		set = append(set, capName(name))
	}
	for i, name := range c.Drop {
		if name == allCaps {
			continue
		}
		r.checkCap(at+".drop["+strconv.Itoa(i)+"]", name)
		set = slices.DeleteFunc(set, func(have string) bool { return have == capName(name) })
	}
	slices.Sort(set)
	set = slices.Compact(set)
	gone := slices.DeleteFunc(slices.Clone(def), func(have string) bool { return slices.Contains(set, have) })
	// An empty set can't be retained, but its opposite can be removed.
	if len(set)+len(gone) > len(def) || len(gone) == 0 {
		app.Isolators = append(app.Isolators, appc.NewIsolator(appc.IsoCapsRetain, appc.StringSet{Set: set}))
		return
	}
	app.Isolators = append(app.Isolators, appc.NewIsolator(appc.IsoCapsRemove, appc.StringSet{Set: gone}))
}

func (r *reader) checkCap(at, name string) {
	if !appc.IsCapability(capName(name)) {
		r.bad(at, "%q: no such capability", name)
	}
}

func capName(s string) string { return "CAP_" + strings.TrimPrefix(strings.ToUpper(s), "CAP_") }

func (r *reader) seccompType(at string, s *seccompProfile) {
	at += ".seccompProfile"
	if s != nil && r.oneOf(at+".type", s.Type, "RuntimeDefault", "Unconfined", "Localhost") && s.Type == "Localhost" {
		r.unsupported(at+".type", "Localhost is not supported")
	}
}

func (r *reader) appArmor(at string, a *appArmor) {
	at += ".appArmorProfile"
	if a != nil && r.oneOf(at+".type", a.Type, "RuntimeDefault", "Unconfined", "Localhost") && a.Type != "Unconfined" {
		r.unsupported(at+".type", "%s is not supported", a.Type)
	}
}
