package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/limits"
)

// What isolators without a cgroup are called in results: as their flags are.
const (
	nameOOM      = "oom-score-adj"
	nameUlimit   = "ulimit"
	nameNice     = "nice"
	nameShmSize  = "shm-size"
	namePriority = "priority"
	nameDelegate = "cgroup-delegate"
	nameSELinux  = "selinux-context"
	nameAppArmor = "apparmor-profile"
)

// shortNames are those of the specification's isolators that have a flag.
var shortNames = map[string]string{
	isoRetain: "caps-retain", isoRemove: "caps-remove", isoNoNewPrivs: "no-new-privileges",
	isoSecRetain: "seccomp retain", isoSecRemove: "seccomp remove",
}

// result notes what became of an isolator.
func (a *App) result(name string, state limits.State, asked, why string) {
	if short, ok := shortNames[name]; ok {
		name = short
	}
	a.Results = append(a.Results, limits.Result{Name: name, State: state, Asked: asked, Why: why})
}

// exact notes an isolator with a value, which was changed if there is a reason.
func (a *App) exact(name, asked, value, why string) {
	r := limits.Result{Name: name, State: limits.Enforced, Asked: asked, Value: value, Why: why}
	if why != "" {
		r.State = limits.Changed
	}
	a.Results = append(a.Results, r)
}

// setText writes a value of few words as it is, and a set by its number.
func setText(value json.RawMessage) string {
	var set appc.StringSet
	if json.Unmarshal(value, &set) != nil {
		return string(value)
	}
	if len(set.Set) > 4 {
		return fmt.Sprintf("%d of them", len(set.Set))
	}
	return strings.Join(set.Set, ",")
}

// podOnly are isolators that have no meaning for one app.
var podOnly = []string{appc.IsoSysctl, appc.IsoShmSize, appc.IsoPriority}

// appOnly are isolators that have no meaning for the whole pod.
var appOnly = []string{
	isoRetain, isoRemove, isoNoNewPrivs, isoSecRetain, isoSecRemove, isoOOM,
	appc.IsoRlimits, appc.IsoNice, appc.IsoDelegate,
}

// boundHere says whether bound or boundPod takes care of the isolator.
func boundHere(name string) bool {
	switch name {
	case appc.IsoRlimits, appc.IsoNice, appc.IsoDelegate, appc.IsoShmSize, appc.IsoPriority,
		appc.IsoSELinux, appc.IsoAppArmor, appc.IsoNetworkBandwidth:
		return true
	}
	return limits.Names(name) != nil
}

// notOfAnApp is why an isolator of an app is ignored, "" if it isn't.
func notOfAnApp(name string) string {
	switch {
	case slices.Contains(podOnly, name):
		return "it is for the whole pod, not for an app"
	case !boundHere(name):
		return "unknown"
	}
	return ""
}

// bound fills in what limits the app's cgroup and its processes.
func bound(app *App, in Input, list []appc.Isolator, original *appc.App) error {
	var mine []appc.Isolator
	byUser := map[string]bool{}
	for _, iso := range list {
		if !boundHere(iso.Name) || slices.Contains(podOnly, iso.Name) {
			continue
		}
		mine = append(mine, iso)
		image := ofImage(iso, original)
		for _, name := range limits.Names(iso.Name) {
			byUser[name] = byUser[name] || !image
		}
		if err := app.single(in.Host, iso, image); err != nil {
			return errs.WithClass(errs.ClassOf(err), wrap("isolator "+iso.Name, err))
		}
	}
	if err := app.labels(in, list); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(byUser)) {
		if !byUser[name] {
			app.Optional = append(app.Optional, name)
		}
	}
	app.Strict = in.Options.StrictIsolators
	var err error
	app.Limits, err = limits.Parse(mine)
	return err
}

// labels gives the app those of the pod that it has no own of.
func (a *App) labels(in Input, own []appc.Isolator) error {
	for _, name := range []string{appc.IsoSELinux, appc.IsoAppArmor} {
		iso := appc.GetIsolator(in.Pod.Isolators, name)
		if iso == nil || appc.GetIsolator(own, name) != nil {
			continue
		}
		if err := a.single(in.Host, *iso, false); err != nil {
			return errs.WithClass(errs.ClassOf(err), wrap("isolator "+name, err))
		}
	}
	return nil
}

// single takes an isolator that is no limit of a cgroup. Its value is checked
// here, as Parse comes later.
func (a *App) single(host Host, iso appc.Isolator, image bool) error {
	if err := appc.CheckIsolators([]appc.Isolator{iso}); err != nil {
		return errs.Newf(errs.Usage, "%w", err)
	}
	switch iso.Name {
	case appc.IsoRlimits:
		return a.rlimits(host, iso.Value, image)
	case appc.IsoNice:
		return a.nice(host, iso.Value, image)
	case appc.IsoDelegate:
		if err := json.Unmarshal(iso.Value, &a.Delegate); err != nil {
			return errs.WithClass(errs.Usage, err)
		}
		a.exact(nameDelegate, strconv.FormatBool(a.Delegate), "", "")
	case appc.IsoSELinux:
		return a.selinux(host, iso.Value, image)
	case appc.IsoAppArmor:
		return a.apparmor(host, iso.Value, image)
	case appc.IsoNetworkBandwidth:
		rate, err := readBandwidth(iso.Value)
		if err != nil {
			return err
		}
		a.bandwidth = &Bandwidth{Rate: rate, Optional: image}
	}
	return nil
}

// rlimits: above rkt's own hard limit is only what CAP_SYS_RESOURCE gives.
func (a *App) rlimits(host Host, value json.RawMessage, image bool) error {
	var list map[string]appc.Rlimit
	if err := json.Unmarshal(value, &list); err != nil {
		return errs.WithClass(errs.Usage, err)
	}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		kernel := "RLIMIT_" + strings.ToUpper(name)
		soft, hard, why := uint64(list[name].Soft), uint64(list[name].Hard), ""
		asked := rlimitText(name, soft, hard)
		if most, known := host.Rlimits[kernel]; known && hard > most && !host.SysResource {
			if !image {
				return errs.Newf(errs.Denied, "%s: above rkt's own %s, which needs CAP_SYS_RESOURCE", asked, rlimitValue(most))
			}
			soft, hard, why = min(soft, most), most, "more than rkt's own takes CAP_SYS_RESOURCE"
		}
		a.Rlimits = append(a.Rlimits, specs.POSIXRlimit{Type: kernel, Soft: soft, Hard: hard})
		a.exact(nameUlimit, asked, rlimitText(name, soft, hard), why)
	}
	return nil
}

func rlimitText(name string, soft, hard uint64) string {
	return name + "=" + rlimitValue(soft) + ":" + rlimitValue(hard)
}

func rlimitValue(n uint64) string {
	if n == math.MaxUint64 {
		return "unlimited"
	}
	return strconv.FormatUint(n, 10)
}

// nice: a process without CAP_SYS_NICE can only become nicer.
func (a *App) nice(host Host, value json.RawMessage, image bool) error {
	var n int
	if err := json.Unmarshal(value, &n); err != nil {
		return errs.WithClass(errs.Usage, err)
	}
	asked, why := strconv.Itoa(n), ""
	if n < host.Nice && !host.SysNice {
		if !image {
			return errs.Newf(errs.Denied, "%d: below rkt's own %d, which needs CAP_SYS_NICE", n, host.Nice)
		}
		n, why = host.Nice, "less than rkt's own takes CAP_SYS_NICE"
	}
	a.Nice = &n
	a.exact(nameNice, asked, strconv.Itoa(n), why)
	return nil
}

func (a *App) selinux(host Host, value json.RawMessage, image bool) error {
	var v struct{ User, Role, Type, Level string }
	if err := json.Unmarshal(value, &v); err != nil {
		return errs.WithClass(errs.Usage, err)
	}
	label := strings.Join([]string{v.User, v.Role, v.Type, v.Level}, ":")
	switch {
	case v.User == "" || v.Role == "" || v.Type == "" || v.Level == "" || strings.ContainsAny(v.User+v.Role+v.Type, ":") || strings.ContainsAny(label, "\x00\n"):
		return errs.Newf(errs.Usage, "%q: not user, role, type and level", label)
	case host.SELinux:
		a.ProcessLabel = label
		a.exact(nameSELinux, label, label, "")
	case image:
		a.result(nameSELinux, limits.Ignored, label, "this host has no SELinux")
	default:
		return errs.Newf(errs.Unsupported, "%s: this host has no SELinux", label)
	}
	return nil
}

func (a *App) apparmor(host Host, value json.RawMessage, image bool) error {
	var v struct{ Profile string }
	if err := json.Unmarshal(value, &v); err != nil {
		return errs.WithClass(errs.Usage, err)
	}
	switch {
	case v.Profile == "" || strings.ContainsAny(v.Profile, "\x00\n"):
		return errs.Newf(errs.Usage, "%q: not a profile", v.Profile)
	case host.AppArmor:
		a.AppArmor = v.Profile
		a.exact(nameAppArmor, v.Profile, v.Profile, "")
	case image:
		a.result(nameAppArmor, limits.Ignored, v.Profile, "this host has no AppArmor")
	default:
		return errs.Newf(errs.Unsupported, "%s: this host has no AppArmor", v.Profile)
	}
	return nil
}

// delegate lets the app write to its part of the cgroup tree. Where controllers
// are on v1 it needs the cgroup2 hierarchy besides, to find and kill what it
// starts, and could lift the limits of disks, which v1 has in each leaf.
func delegate(pod *Pod, app *App, host Host) error {
	at := slices.IndexFunc(app.Mounts, func(m Mount) bool { return m.Type == "cgroup" })
	if !app.Delegate || at < 0 { // it may bring a /sys of its own
		return nil
	}
	m := &app.Mounts[at]
	m.Options = slices.DeleteFunc(slices.Clone(m.Options), func(o string) bool { return o == "ro" })
	m.ReadOnly = false
	if !host.Hybrid {
		return nil
	}
	if len(app.Limits.IO)+len(pod.Limits.IO) > 0 {
		return errs.WithHint(errs.Newf(errs.Denied, "app %s: %s: with %s the app could lift it on cgroup v1", app.Name, limits.NameIOLimit, nameDelegate),
			"leave one of the two out")
	}
	unified := Mount{Type: "cgroup2", Target: m.Target + "/unified", Options: []string{"nosuid", "noexec", "nodev", "relatime"}}
	app.Mounts = slices.Insert(app.Mounts, at+1, unified)
	return nil
}

// boundPod fills in what limits the pod as a whole.
func boundPod(pod *Pod, in Input) error {
	pod.Strict = in.Options.StrictIsolators
	note := func(name string, state limits.State, asked, why string) {
		pod.Results = append(pod.Results, limits.Result{Name: name, Pod: true, State: state, Asked: asked, Value: asked, Why: why})
	}
	for _, iso := range in.Pod.Isolators {
		if err := iso.CheckKeys(); err != nil {
			return err
		}
		switch {
		case iso.Name == appc.IsoSysctl:
			note("sysctl", limits.Enforced, "", "")
		case limits.Names(iso.Name) != nil:
			// Only the kernel can tell.
		case slices.Contains(appOnly, iso.Name):
			return errs.Newf(errs.Usage, "isolator %s: it is for an app, not for the whole pod", iso.Name)
		case iso.Name == appc.IsoShmSize:
			var s appc.Text
			err := errs.WithClass(errs.Usage, json.Unmarshal(iso.Value, &s))
			if err == nil {
				pod.ShmSize, err = limits.Bytes(string(s))
			}
			if err != nil || pod.ShmSize < limits.MinMemory {
				return errs.Newf(errs.Usage, "isolator %s: %q: not a size of %d bytes or more", iso.Name, iso.Value, limits.MinMemory)
			}
			note(nameShmSize, limits.Enforced, string(s), "")
		case iso.Name == appc.IsoPriority, iso.Name == appc.IsoNetworkBandwidth:
			// finishLimits takes them.
		case iso.Name == appc.IsoSELinux, iso.Name == appc.IsoAppArmor:
			// Each app has them that has none of its own.
		default:
			note(iso.Name, limits.Ignored, "", "unknown")
		}
	}
	var err error
	pod.Limits, err = limits.Parse(slices.DeleteFunc(slices.Clone(in.Pod.Isolators), func(iso appc.Isolator) bool { return !boundHere(iso.Name) }))
	return err
}

// finishLimits does what takes all apps: the pod's priority, and the part of
// its memory that has to be protected for an app's to be. It refuses what is
// known already not to be as asked, if nothing but that is wanted.
func finishLimits(pod *Pod, in Input) error {
	if err := prioritize(pod, in); err != nil {
		return err
	}
	if err := bandwidth(pod, in); err != nil {
		return err
	}
	for i := range pod.Apps {
		if err := delegate(pod, &pod.Apps[i], in.Host); err != nil {
			return err
		}
	}
	if pod.Limits.MemoryLow == nil {
		var sum int64
		for i := range pod.Apps {
			if low := pod.Apps[i].Limits.MemoryLow; low != nil && *low <= math.MaxInt64-sum {
				sum += *low
			}
		}
		if sum > 0 {
			pod.Limits.MemoryLow = &sum
			pod.Optional = append(pod.Optional, limits.NameMemoryLow)
		}
	}
	if !pod.Strict {
		return nil
	}
	if err := limits.Refuse(pod.Results, true, nil); err != nil {
		return err
	}
	for i := range pod.Apps {
		if err := limits.Refuse(pod.Apps[i].Results, true, nil); err != nil {
			return wrap("app "+pod.Apps[i].Name, err)
		}
	}
	return nil
}
