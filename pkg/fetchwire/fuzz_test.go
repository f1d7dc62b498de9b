package fetchwire

import (
	"encoding/json"
	"testing"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// FuzzMessage: whatever rkt-fetch sends is a message or is refused, and the
// errors in it have nothing that a terminal obeys.
func FuzzMessage(f *testing.F) {
	for _, m := range every {
		data, err := json.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := (&Conn{bare: true}).message(data, 0, nil)
		if err != nil {
			if !errs.Is(err, errs.Corrupt) {
				t.Errorf("%v", err)
			}
			return
		}
		if m.End == nil {
			return
		}
		if err := m.End.Failure.Err(); err != nil && clean(err.Error()) != err.Error() && len(err.Error()) <= maxText {
			t.Errorf("%q", err)
		}
	})
}
