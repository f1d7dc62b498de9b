package podspec

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/idrange"
)

// Parse reads and validates a pod manifest.
func Parse(data []byte) (*Pod, error) {
	var p Pod
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, errs.Newf(errs.Corrupt, "pod manifest: %w", err)
	}
	if err := p.Validate(); err != nil {
		return nil, errs.Newf(errs.Usage, "pod manifest: %w", err)
	}
	return &p, nil
}

// Marshal writes a pod manifest that Parse accepts.
func (p *Pod) Marshal() ([]byte, error) {
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("pod manifest: %w", err)
	}
	return json.Marshal(p)
}

// Validate checks everything that the specification says of a pod manifest;
// the error begins with the path of what is wrong.
func (p *Pod) Validate() error {
	if p.ACKind != Kind {
		return errs.Newf(errs.Usage, "acKind: %q: not %s", p.ACKind, Kind)
	}
	if err := appc.CheckVersion(p.ACVersion); err != nil {
		return fmt.Errorf("acVersion: %w", err)
	}
	volumes, err := p.checkVolumes()
	if err != nil {
		return err
	}
	if len(p.Apps) == 0 {
		return errs.Newf(errs.Usage, "apps: missing")
	}
	seen := map[string]bool{}
	for i := range p.Apps {
		a := &p.Apps[i]
		if seen[a.Name] {
			return errs.Newf(errs.Usage, "apps[%d].name: %q: there twice", i, a.Name)
		}
		seen[a.Name] = true
		if err := a.validate(volumes); err != nil {
			return fmt.Errorf("apps[%d].%w", i, err)
		}
	}
	if err := appc.CheckIsolators(p.Isolators); err != nil {
		return err
	}
	if err := p.Annotations.Validate(); err != nil {
		return err
	}
	if err := checkLifecycle(p.Annotations, AnnExitPolicy); err != nil {
		return err
	}
	if s, ok := p.Annotations.Get(AnnExitPolicy); ok {
		if err := CheckExitPolicy(s); err != nil {
			return fmt.Errorf("annotations: %s: %w", AnnExitPolicy, err)
		}
	}
	if s, ok := p.Annotations.Get(AnnPodName); ok {
		if err := CheckPodName(s); err != nil {
			return fmt.Errorf("annotations: %s: %w", AnnPodName, err)
		}
	}
	if s, ok := p.Annotations.Get(AnnUsers); ok {
		if _, err := idrange.Parse(s); err != nil {
			return fmt.Errorf("annotations: %s: %w", AnnUsers, err)
		}
	}
	return p.checkPorts()
}

// CheckExitPolicy says whether s is one of the exit policies.
func CheckExitPolicy(s string) error {
	switch s {
	case "all", "any", "anyOnFailure":
		return nil
	}
	return errs.Newf(errs.Usage, "%q: not all, any or anyOnFailure", s)
}

// CheckPodName says whether s can be a pod's name: a lower-case word that is
// a file name, and can't be taken for a flag.
func CheckPodName(s string) error {
	if err := appc.StrictName(s); err != nil || len(s) > maxPodName {
		return errs.WithHint(errs.Newf(errs.Usage, "pod name %q: not lower-case letters, digits and single hyphens between them, %d at the most", s, maxPodName),
			"a name such as shop-db will do")
	}
	return nil
}

// maxPodName leaves room for what a file name may need beside it.
const maxPodName = 200

func (p *Pod) checkVolumes() (map[string]bool, error) {
	seen := map[string]bool{}
	for i := range p.Volumes {
		v := &p.Volumes[i]
		if seen[v.Name] {
			return nil, errs.Newf(errs.Usage, "volumes[%d].name: %q: there twice", i, v.Name)
		}
		seen[v.Name] = true
		if err := v.Validate(); err != nil {
			return nil, fmt.Errorf("volumes[%d].%w", i, err)
		}
	}
	return seen, nil
}

func (a *App) validate(volumes map[string]bool) error {
	if err := appc.CheckName(a.Name); err != nil {
		return fmt.Errorf("name: %w", err)
	}
	if err := appc.CheckImageID(a.Image.ID); err != nil {
		return fmt.Errorf("image.id: %w", err)
	}
	if a.Image.Name != "" {
		if err := appc.CheckIdentifier(a.Image.Name); err != nil {
			return fmt.Errorf("image.name: %w", err)
		}
	}
	if err := a.Image.Labels.Validate(); err != nil {
		return fmt.Errorf("image.%w", err)
	}
	if a.App != nil {
		if err := a.App.Validate(); err != nil {
			return fmt.Errorf("app.%w", err)
		}
	}
	if err := a.checkMounts(volumes); err != nil {
		return err
	}
	return a.checkAnnotations()
}

func (a *App) checkMounts(volumes map[string]bool) error {
	seen := map[string]bool{}
	for i, m := range a.Mounts {
		if err := appc.CheckAbs(m.Path); err != nil {
			return fmt.Errorf("mounts[%d].path: %w", i, err)
		}
		if seen[m.Path] {
			return errs.Newf(errs.Usage, "mounts[%d].path: %q: there twice", i, m.Path)
		}
		seen[m.Path] = true
		if m.SubPath != "" {
			if err := checkSubPath(m.SubPath); err != nil {
				return fmt.Errorf("mounts[%d].subPath: %w", i, err)
			}
		}
		if m.AppVolume != nil {
			if err := m.AppVolume.Validate(); err != nil {
				return fmt.Errorf("mounts[%d].appVolume.%w", i, err)
			}
			continue
		}
		if !volumes[m.Volume] {
			return errs.Newf(errs.Usage, "mounts[%d].volume: %q: no such volume", i, m.Volume)
		}
	}
	return nil
}

func (a *App) checkAnnotations() error {
	if err := a.Annotations.Validate(); err != nil {
		return err
	}
	if err := a.checkOwn(); err != nil {
		return err
	}
	err := checkLifecycle(a.Annotations, AnnStopSignal, AnnStopTimeout, AnnRole, AnnRestart, AnnRestartOn, AnnKeepRootFS,
		AnnAfter, AnnBefore, AnnReady, AnnLive, AnnStartup, AnnPostStart, AnnPreStop)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		name  string
		check func(string) error
	}{
		{AnnStopTimeout, checkStopTimeout},
		{AnnStopSignal, func(s string) error { return second(ParseSignal(s)) }},
		{AnnReady, func(s string) error { return second(ParseReady(s)) }},
		{AnnLive, func(s string) error { return second(ParseLive(s)) }},
		{AnnStartup, func(s string) error { return second(ParseLive(s)) }},
		{AnnPostStart, func(s string) error { return second(ParseHook(s)) }},
		{AnnPreStop, func(s string) error { return second(ParseHook(s)) }},
		{AnnKeepRootFS, checkBool},
		{AnnGroups, func(s string) error { return second(ParseGroups(s)) }},
	} {
		if s, ok := a.Annotations.Get(c.name); ok {
			if err := c.check(s); err != nil {
				return fmt.Errorf("annotations: %s: %w", c.name, err)
			}
		}
	}
	return nil
}

// checkLifecycle refuses what is spelled as one of rkt's own annotations and is
// none: whoever wrote it would wait in vain for what it asks.
func checkLifecycle(list appc.Annotations, known ...string) error {
	for _, a := range list {
		if strings.HasPrefix(a.Name, lifecyclePrefix) && !slices.Contains(known, a.Name) {
			err := errs.Newf(errs.Usage, "annotations: %q: unknown here", a.Name)
			return errs.WithHint(err, "here there are %s", strings.Join(known, ", "))
		}
	}
	return nil
}

func second[T any](_ T, err error) error { return err }

func checkStopTimeout(s string) error {
	if d, err := time.ParseDuration(s); err != nil || d < 0 {
		return errs.Newf(errs.Usage, "%q: not a duration such as 10s", s)
	}
	return nil
}

func checkBool(s string) error {
	if s != "true" && s != "false" {
		return errs.Newf(errs.Usage, "%q: neither true nor false", s)
	}
	return nil
}

func (p *Pod) checkPorts() error {
	seen := map[string]bool{}
	for i, e := range p.Ports {
		if err := appc.CheckName(e.Name); err != nil {
			return fmt.Errorf("ports[%d].name: %w", i, err)
		}
		if seen[e.Name] {
			return errs.Newf(errs.Usage, "ports[%d].name: %q: there twice", i, e.Name)
		}
		seen[e.Name] = true
		if e.HostPort < 1 || e.HostPort > 65535 {
			return errs.Newf(errs.Usage, "ports[%d].hostPort: %d: not in 1…65535", i, e.HostPort)
		}
		if e.HostIP != "" {
			if ip, err := netip.ParseAddr(e.HostIP); err != nil || ip.Zone() != "" {
				return errs.Newf(errs.Usage, "ports[%d].hostIP: %q: not an IP address", i, e.HostIP)
			}
		}
		if e.PodPort == nil {
			continue
		}
		if err := e.PodPort.Validate(); err != nil {
			return fmt.Errorf("ports[%d].podPort.%w", i, err)
		}
	}
	return nil
}
