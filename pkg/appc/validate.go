package appc

import (
	"fmt"
	"path"
	"unicode/utf8"

	"github.com/rkt-pods/rkt/pkg/errs"
)

var (
	semver      = pattern(`^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
	envName     = pattern(`^[A-Za-z_][A-Za-z_0-9.-]*$`)
	imageIDForm = pattern(`^sha512-[0-9a-f]{2,128}$`)
)

// CheckVersion checks an acVersion.
func CheckVersion(s string) error {
	if s == "" {
		return errs.Newf(errs.Usage, "missing")
	}
	if !semver().MatchString(s) {
		return errs.Newf(errs.Usage, "%q: not a version", s)
	}
	return nil
}

// CheckImageID checks an image id, which may be a prefix of one.
func CheckImageID(s string) error {
	if s == "" {
		return errs.Newf(errs.Usage, "missing")
	}
	if !imageIDForm().MatchString(s) {
		return errs.Newf(errs.Usage, "%q: not an image id (sha512- and hex digits)", s)
	}
	return nil
}

// CheckEnvName checks the name of an environment variable.
func CheckEnvName(s string) error {
	if !envName().MatchString(s) {
		return errs.Newf(errs.Usage, "%q: not a name of a variable", s)
	}
	return nil
}

// CheckAbs says whether the path is absolute and free of NUL.
func CheckAbs(p string) error {
	switch {
	case p == "":
		return errs.Newf(errs.Usage, "missing")
	case !path.IsAbs(p):
		return errs.Newf(errs.Usage, "%q: not an absolute path", p)
	case !utf8.ValidString(p):
		// JSON would hold another one.
		return errs.Newf(errs.Usage, "%q: not UTF-8, as a manifest has to be", p)
	}
	return checkNUL(p)
}

// Validate checks labels: unique names, none of them "name", and no endless values.
func (l Labels) Validate() error {
	seen := map[string]bool{}
	for i, x := range l {
		if err := CheckIdentifier(x.Name); err != nil {
			return fmt.Errorf("labels[%d].name: %w", i, err)
		}
		if x.Name == "name" || seen[x.Name] {
			return errs.Newf(errs.Usage, "labels[%d].name: %q: not allowed, or there twice", i, x.Name)
		}
		if len(x.Value) > MaxName {
			return errs.Newf(errs.Usage, "labels[%d].value: %q: longer than %d bytes", i, x.Value, MaxName)
		}
		seen[x.Name] = true
	}
	return nil
}

// Validate checks annotations: unique names.
func (a Annotations) Validate() error {
	seen := map[string]bool{}
	for i, x := range a {
		if err := CheckIdentifier(x.Name); err != nil {
			return fmt.Errorf("annotations[%d].name: %w", i, err)
		}
		if seen[x.Name] {
			return errs.Newf(errs.Usage, "annotations[%d].name: %q: there twice", i, x.Name)
		}
		seen[x.Name] = true
	}
	return nil
}

// Validate checks the app; the error begins with the path of what is wrong.
// exec may be empty, since it can come from elsewhere.
func (a *App) Validate() error {
	if a.User == "" {
		return errs.Newf(errs.Usage, "user: missing")
	}
	if a.Group == "" {
		return errs.Newf(errs.Usage, "group: missing")
	}
	for i, g := range a.SupplementaryGIDs {
		if g < 0 || int64(g) > 1<<32-2 {
			return errs.Newf(errs.Usage, "supplementaryGIDs[%d]: %d: not a group id", i, g)
		}
	}
	if a.WorkingDirectory != "" {
		if err := CheckAbs(a.WorkingDirectory); err != nil {
			return fmt.Errorf("workingDirectory: %w", err)
		}
	}
	for _, check := range []func() error{a.checkExec, a.checkEnv, a.checkMountPoints, a.checkPorts} {
		if err := check(); err != nil {
			return err
		}
	}
	return CheckIsolators(a.Isolators)
}

func (a *App) checkExec() error {
	for i, arg := range a.Exec {
		if err := checkNUL(arg); err != nil {
			return fmt.Errorf("exec[%d]: %w", i, err)
		}
	}
	seen := map[string]bool{}
	for i, h := range a.EventHandlers {
		switch {
		case h.Name != PreStart && h.Name != PostStop:
			return errs.Newf(errs.Usage, "eventHandlers[%d].name: %q: neither %s nor %s", i, h.Name, PreStart, PostStop)
		case seen[h.Name]:
			return errs.Newf(errs.Usage, "eventHandlers[%d].name: %s: there twice", i, h.Name)
		case len(h.Exec) == 0:
			return errs.Newf(errs.Usage, "eventHandlers[%d].exec: missing", i)
		}
		for j, arg := range h.Exec {
			if err := checkNUL(arg); err != nil {
				return fmt.Errorf("eventHandlers[%d].exec[%d]: %w", i, j, err)
			}
		}
		seen[h.Name] = true
	}
	return nil
}

func (a *App) checkEnv() error {
	seen := map[string]bool{}
	for i, e := range a.Environment {
		if err := CheckEnvName(e.Name); err != nil {
			return fmt.Errorf("environment[%d].name: %w", i, err)
		}
		if seen[e.Name] {
			return errs.Newf(errs.Usage, "environment[%d].name: %q: there twice", i, e.Name)
		}
		if err := checkNUL(e.Value); err != nil {
			return fmt.Errorf("environment[%d].value: %w", i, err)
		}
		seen[e.Name] = true
	}
	return nil
}

func (a *App) checkMountPoints() error {
	seen := map[string]bool{}
	for i, m := range a.MountPoints {
		if err := CheckName(m.Name); err != nil {
			return fmt.Errorf("mountPoints[%d].name: %w", i, err)
		}
		if seen[m.Name] {
			return errs.Newf(errs.Usage, "mountPoints[%d].name: %q: there twice", i, m.Name)
		}
		if err := CheckAbs(m.Path); err != nil {
			return fmt.Errorf("mountPoints[%d].path: %w", i, err)
		}
		seen[m.Name] = true
	}
	return nil
}

func (a *App) checkPorts() error {
	seen := map[string]bool{}
	for i, p := range a.Ports {
		if seen[p.Name] {
			return errs.Newf(errs.Usage, "ports[%d].name: %q: there twice", i, p.Name)
		}
		if err := p.Validate(); err != nil {
			return fmt.Errorf("ports[%d].%w", i, err)
		}
		seen[p.Name] = true
	}
	return nil
}

// Validate checks the port; the error begins with the field's name.
func (p *Port) Validate() error {
	if err := CheckName(p.Name); err != nil {
		return fmt.Errorf("name: %w", err)
	}
	count := max(p.Count, 1)
	switch {
	case p.Protocol == "":
		return errs.Newf(errs.Usage, "protocol: missing")
	case p.Port < 1 || p.Port > 65535:
		return errs.Newf(errs.Usage, "port: %d: not in 1…65535", p.Port)
	case count > 65536-p.Port:
		return errs.Newf(errs.Usage, "count: %d: goes beyond port 65535", p.Count)
	}
	return nil
}

func checkNUL(s string) error {
	for i := range len(s) {
		if s[i] == 0 {
			return errs.Newf(errs.Usage, "%q: a NUL byte can't be passed on", s)
		}
	}
	return nil
}
