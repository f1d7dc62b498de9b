package oci

import (
	"encoding/json"
	"errors"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// Parse reads one of the JSON files of this package. Its errors, of class Corrupt,
// say what is wrong in terms of the file.
func Parse(raw []byte, to any) error {
	err := json.Unmarshal(raw, to)
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case err == nil:
		return nil
	case ok && wrong.Field != "":
		return errs.Newf(errs.Corrupt, "%s: a wrong value: %s", wrong.Field, wrong.Value)
	case ok:
		return errs.Newf(errs.Corrupt, "not what it should be, but: %s", wrong.Value)
	default:
		return errs.Newf(errs.Corrupt, "not valid JSON: %w", err)
	}
}
