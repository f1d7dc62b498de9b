package plan

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/limits"
)

// The isolators that are enforced.
const (
	isoRetain     = "os/linux/capabilities-retain-set"
	isoRemove     = "os/linux/capabilities-remove-set"
	isoNoNewPrivs = "os/linux/no-new-privileges"
	isoSecRetain  = "os/linux/seccomp-retain-set"
	isoSecRemove  = "os/linux/seccomp-remove-set"
	isoOOM        = "os/linux/oom-score-adj"
)

// isolator is what one asks for. The image's own is the image maker's doing:
// what can't be had of it is noted. What the user asks for can't be left out.
type isolator struct {
	value json.RawMessage
	image bool
}

// ofImage says whether the image itself asks for exactly that: stage0 copies
// the image's isolators that nobody replaces into the pod manifest.
func ofImage(iso appc.Isolator, original *appc.App) bool {
	if original == nil {
		return false
	}
	var mine any
	if json.Unmarshal(iso.Value, &mine) != nil {
		return false
	}
	return slices.ContainsFunc(original.Isolators, func(o appc.Isolator) bool {
		var theirs any
		return o.Name == iso.Name && json.Unmarshal(o.Value, &theirs) == nil && reflect.DeepEqual(mine, theirs)
	})
}

// known returns the names that is has a meaning for.
func known(app *App, name string, iso isolator, what string, names []string, is func(string) bool) ([]string, error) {
	var list []string
	for _, n := range names {
		switch {
		case is(n):
			list = append(list, n)
		case iso.image:
			app.result(name, limits.Ignored, n, "the image's "+what+" is unknown")
		default:
			return nil, errs.Newf(errs.Usage, "isolator %s: %s %q: unknown", name, what, n)
		}
	}
	return list, nil
}

// isolate fills in what isolators ask for, and says what became of each but
// for those that only the kernel can tell of.
func isolate(app *App, in Input, list []appc.Isolator, original *appc.App) error {
	found := map[string]isolator{}
	for _, iso := range list {
		if err := iso.CheckKeys(); err != nil {
			if !ofImage(iso, original) {
				return err
			}
			app.result(iso.Name, limits.Ignored, "", "a part of what the image asks for: "+err.Error())
		}
		switch iso.Name {
		case isoRetain, isoRemove, isoNoNewPrivs, isoSecRetain, isoSecRemove, isoOOM:
			if _, twice := found[iso.Name]; twice && iso.Name != isoNoNewPrivs {
				return errs.Newf(errs.Usage, "isolator %s: given twice", iso.Name)
			}
			found[iso.Name] = isolator{iso.Value, ofImage(iso, original)}
			switch overridden := in.Options.InsecureCaps && (iso.Name == isoRetain || iso.Name == isoRemove) ||
				in.Options.InsecureSeccmp && (iso.Name == isoSecRetain || iso.Name == isoSecRemove); {
			case overridden:
				app.result(iso.Name, limits.Changed, setText(iso.Value), "--insecure-options lets all of them through")
			case iso.Name != isoOOM:
				app.result(iso.Name, limits.Enforced, setText(iso.Value), "")
			}
		default:
			if reason := notOfAnApp(iso.Name); reason != "" {
				app.result(iso.Name, limits.Ignored, "", reason)
			}
		}
	}
	if v, ok := found[isoNoNewPrivs]; ok {
		if err := decode(isoNoNewPrivs, v.value, &app.NoNewPrivs); err != nil {
			return err
		}
	}
	if err := capabilities(app, in, found); err != nil {
		return err
	}
	if err := bound(app, in, list, original); err != nil {
		return err
	}
	if err := oomScore(app, in, found); err != nil {
		return err
	}
	return filter(app, in, found)
}

// capabilities: what is asked for by name is given or refused, of the default
// set this process may keep back what it doesn't have itself.
func capabilities(app *App, in Input, found map[string]isolator) error {
	retain, isRetain := found[isoRetain]
	remove, isRemove := found[isoRemove]
	switch {
	case isRetain && isRemove:
		return errs.Newf(errs.Usage, "isolators %s and %s: only one of them may be given", isoRetain, isoRemove)
	case in.Options.InsecureCaps:
		app.Capabilities = slices.Sorted(slices.Values(in.Host.Bounding))
		app.Notes = append(app.Notes, "changed: all of the host's capabilities are given")
		return nil
	case isRetain:
		set, err := capSet(isoRetain, retain.value)
		if err == nil {
			set, err = known(app, isoRetain, retain, "capability", set, appc.IsCapability)
		}
		if err != nil {
			return err
		}
		for _, c := range set {
			if !slices.Contains(in.Host.Bounding, c) {
				return errs.WithHint(errs.Newf(errs.Denied, "isolator %s: %s: this host can't give it", isoRetain, c),
					"rkt has %d capabilities itself; \"grep CapBnd /proc/self/status\" shows them", len(in.Host.Bounding))
			}
		}
		app.Capabilities = set
		return nil
	}
	set := appc.DefaultCapabilities()
	if isRemove {
		gone, err := capSet(isoRemove, remove.value)
		if err == nil {
			gone, err = known(app, isoRemove, remove, "capability", gone, appc.IsCapability)
		}
		if err != nil {
			return err
		}
		set = slices.DeleteFunc(set, func(c string) bool { return slices.Contains(gone, c) })
	}
	for _, c := range set {
		if slices.Contains(in.Host.Bounding, c) {
			app.Capabilities = append(app.Capabilities, c)
		} else {
			app.Notes = append(app.Notes, fmt.Sprintf("changed: default capability %s left out, rkt doesn't have it itself", c))
		}
	}
	return nil
}

// capSet reads {"set": [...]}, sorted, each once, in the kernel's spelling.
func capSet(name string, value json.RawMessage) ([]string, error) {
	var v struct {
		Set []string `json:"set"`
	}
	if err := decode(name, value, &v); err != nil {
		return nil, err
	}
	if len(v.Set) == 0 {
		return nil, errs.Newf(errs.Usage, "isolator %s: empty set", name)
	}
	for i, c := range v.Set {
		c = strings.ToUpper(c)
		if !strings.HasPrefix(c, "CAP_") {
			c = "CAP_" + c
		}
		v.Set[i] = c
	}
	slices.Sort(v.Set)
	return slices.Compact(v.Set), nil
}

// oomScore: the kernel lets a process without CAP_SYS_RESOURCE only raise it.
// An app's own score comes before what the pod's priority means.
func oomScore(app *App, in Input, found map[string]isolator) error {
	value, ok := found[isoOOM]
	if !ok {
		return nil
	}
	var n int
	if err := decode(isoOOM, value.value, &n); err != nil {
		return err
	}
	if n < -1000 || n > 1000 {
		return errs.Newf(errs.Usage, "isolator %s: %d: not in -1000..1000", isoOOM, n)
	}
	asked, why := strconv.Itoa(n), ""
	if least := in.Host.OOMScoreAdj; n < least && !in.Host.SysResource {
		if !value.image {
			return errs.Newf(errs.Denied, "isolator %s: %d: below rkt's own %d, which needs CAP_SYS_RESOURCE", isoOOM, n, least)
		}
		n, why = least, "a score below rkt's own takes CAP_SYS_RESOURCE"
	}
	app.OOMScoreAdj = &n
	app.exact(nameOOM, asked, strconv.Itoa(n), why)
	return nil
}

func decode(name string, value json.RawMessage, into any) error {
	if len(value) == 0 || string(value) == "null" {
		return errs.Newf(errs.Usage, "isolator %s: no value", name)
	}
	if err := json.Unmarshal(value, into); err != nil {
		return errs.Newf(errs.Usage, "isolator %s: %w", name, err)
	}
	return nil
}
