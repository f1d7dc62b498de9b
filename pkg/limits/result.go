package limits

import (
	"fmt"
	"strings"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// State says what became of something that was asked for.
type State string

// The states, as the appc specification calls them.
const (
	Enforced State = "enforced"
	Changed  State = "changed"
	Ignored  State = "ignored"
)

// Result is what became of one isolator.
type Result struct {
	Name  string `json:"name"`            // as the flag is called
	Pod   bool   `json:"pod,omitempty"`   // it bounds the whole pod
	State State  `json:"state"`           //
	Asked string `json:"asked,omitempty"` // the value that was asked for
	Value string `json:"value,omitempty"` // what the kernel holds
	Why   string `json:"why,omitempty"`   // why it is not what was asked for
}

// String is one line for the user.
func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", r.State, r.Name)
	if r.Asked != "" {
		b.WriteString(" " + r.Asked)
	}
	if r.Value != "" && r.Value != r.Asked {
		b.WriteString(", is " + r.Value)
	}
	if r.Pod {
		b.WriteString(" (of the pod)")
	}
	if r.Why != "" {
		b.WriteString(": " + r.Why)
	}
	return b.String()
}

// Refuse returns an error that names the first result that may not be: an
// ignored one that was asked for by the user, or, if strict, any that is not
// enforced. optional says whether only the image asks for the name.
func Refuse(list []Result, strict bool, optional func(name string) bool) error {
	for _, r := range list {
		switch {
		case r.State == Enforced:
			continue
		case !strict && (r.State == Changed || optional != nil && optional(r.Name)):
			continue
		}
		err := errs.Newf(errs.Unsupported, "isolator %s", r)
		if strict {
			return errs.WithHint(err, "without --strict-isolators it is noted")
		}
		return err
	}
	return nil
}
