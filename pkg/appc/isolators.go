package appc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// The isolators of the specification and of its schema.
const (
	IsoCapsRetain       = "os/linux/capabilities-retain-set"
	IsoCapsRemove       = "os/linux/capabilities-remove-set"
	IsoNoNewPrivs       = "os/linux/no-new-privileges"
	IsoSeccompRemove    = "os/linux/seccomp-remove-set"
	IsoSeccompRetain    = "os/linux/seccomp-retain-set"
	IsoSELinux          = "os/linux/selinux-context"
	IsoAppArmor         = "os/linux/apparmor-profile"
	IsoOOMScoreAdj      = "os/linux/oom-score-adj"
	IsoCPUShares        = "os/linux/cpu-shares"
	IsoSysctl           = "os/unix/sysctl"
	IsoCPU              = "resource/cpu"
	IsoMemory           = "resource/memory"
	IsoBlockBandwidth   = "resource/block-bandwidth"
	IsoBlockIOPS        = "resource/block-iops"
	IsoNetworkBandwidth = "resource/network-bandwidth"
)

// StringSet is the value of the capability and seccomp isolators.
type StringSet struct {
	Set   []string `json:"set"`
	Errno string   `json:"errno,omitempty"` // seccomp only
}

// Resource is the value of the resource isolators.
type Resource struct {
	Default bool      `json:"default,omitempty"`
	Request *jsonText `json:"request,omitempty"`
	Limit   *jsonText `json:"limit,omitempty"`
}

// jsonText is a string, or a bare number taken as one: both occur.
type jsonText string

func (t *jsonText) UnmarshalJSON(data []byte) error {
	var s string
	if err := json.Unmarshal(data, &s); err == nil {
		*t = jsonText(s)
		return nil
	}
	var n json.Number
	if err := json.Unmarshal(data, &n); err != nil {
		return err
	}
	*t = jsonText(n)
	return nil
}

// NewIsolator returns an isolator whose value is v as JSON. v comes from the
// program, never from outside, so that it can always be written.
func NewIsolator(name string, v any) Isolator {
	data, err := json.Marshal(v)
	if err != nil {
		panic("isolator " + name + ": " + err.Error())
	}
	return Isolator{Name: name, Value: data}
}

// Decode reads the isolator's value, which must be there.
func (i Isolator) Decode(v any) error { return decode(i.Value, v) }

// GetIsolator returns the last isolator of the name, which is the one that
// counts, nil if there is none.
func GetIsolator(list []Isolator, name string) *Isolator {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

// CheckIsolators checks the values of the isolators that the specification
// knows, and which may not occur twice or together. Others are kept as they
// are: the executor reports them.
func CheckIsolators(list []Isolator) error {
	seen := map[string]bool{}
	for i, iso := range list {
		if err := CheckIdentifier(iso.Name); err != nil {
			return fmt.Errorf("isolators[%d].name: %w", i, err)
		}
		if seen[iso.Name] && !mayRepeat(iso.Name) {
			return errs.Newf(errs.Usage, "isolators[%d].name: %s: there are two of them", i, iso.Name)
		}
		seen[iso.Name] = true
		if err := checkValue(iso); err != nil {
			return errs.Newf(errs.Usage, "isolators[%d]: %s: %w", i, iso.Name, err)
		}
	}
	for _, pair := range [][2]string{{IsoCapsRetain, IsoCapsRemove}, {IsoSeccompRetain, IsoSeccompRemove}} {
		if seen[pair[0]] && seen[pair[1]] {
			return errs.Newf(errs.Usage, "isolators: %s and %s exclude each other", pair[0], pair[1])
		}
	}
	return nil
}

// mayRepeat follows the reference schema: of these the last one counts.
func mayRepeat(name string) bool {
	switch name {
	case IsoCapsRetain, IsoCapsRemove, IsoNoNewPrivs:
		return true
	case IsoSeccompRetain, IsoSeccompRemove, IsoSELinux, IsoAppArmor, IsoOOMScoreAdj, IsoCPUShares, IsoSysctl:
		return false
	}
	return !strings.HasPrefix(name, "rkt/")
}

func checkValue(iso Isolator) error {
	switch iso.Name {
	case IsoCapsRetain, IsoCapsRemove, IsoSeccompRetain, IsoSeccompRemove:
		var v StringSet
		if err := decode(iso.Value, &v); err != nil {
			return err
		}
		if len(v.Set) == 0 {
			return fmt.Errorf("value.set: missing")
		}
		return nil
	case IsoNoNewPrivs:
		var v bool
		return decode(iso.Value, &v)
	case IsoOOMScoreAdj:
		return between(iso.Value, -1000, 1000)
	case IsoCPUShares:
		return between(iso.Value, 2, 262144)
	case IsoSysctl:
		var v map[string]string
		return decode(iso.Value, &v)
	case IsoCPU, IsoMemory, IsoBlockBandwidth, IsoBlockIOPS, IsoNetworkBandwidth:
		return checkResource(iso)
	}
	return checkOwn(iso)
}

func checkResource(iso Isolator) error {
	var v Resource
	if err := decode(iso.Value, &v); err != nil {
		return err
	}
	wantDefault := iso.Name != IsoCPU && iso.Name != IsoMemory
	switch {
	case v.Default != wantDefault:
		return fmt.Errorf("value.default: must be %t", wantDefault)
	case wantDefault && v.Request != nil:
		return fmt.Errorf("value.request: not allowed")
	case v.Request == nil && v.Limit == nil:
		return fmt.Errorf("value.limit: missing")
	}
	for name, q := range map[string]*jsonText{"request": v.Request, "limit": v.Limit} {
		if q == nil {
			continue
		}
		if _, err := ParseQuantity(string(*q)); err != nil {
			return fmt.Errorf("value.%s: %w", name, err)
		}
	}
	return nil
}

func between(data json.RawMessage, low, high int64) error {
	var n int64
	if err := decode(data, &n); err != nil {
		return err
	}
	if n < low || n > high {
		return fmt.Errorf("value: %d: not in %d…%d", n, low, high)
	}
	return nil
}

// CheckKeys refuses a key of the isolator's value that has no meaning there,
// where a slip would be passed over. Images are read without: theirs may be of
// a later specification.
func (i Isolator) CheckKeys() error {
	var v any
	switch i.Name {
	case IsoCapsRetain, IsoCapsRemove, IsoSeccompRetain, IsoSeccompRemove:
		v = &StringSet{}
	case IsoCPU, IsoMemory, IsoBlockBandwidth, IsoBlockIOPS, IsoNetworkBandwidth:
		v = &Resource{}
	case IsoSELinux:
		v = &struct{ User, Role, Type, Level string }{}
	case IsoAppArmor:
		v = &struct{ Profile string }{}
	case IsoCPUSet:
		v = &CPUSet{}
	case IsoRlimits:
		v = &map[string]Rlimit{}
	default:
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(i.Value))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return errs.Newf(errs.Usage, "isolator %s: value: %s", i.Name, strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// decode refuses null, which encoding/json takes for any type.
func decode(data json.RawMessage, v any) error {
	if len(data) == 0 || strings.TrimSpace(string(data)) == "null" {
		return fmt.Errorf("value: missing")
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("value: %w", err)
	}
	return nil
}
