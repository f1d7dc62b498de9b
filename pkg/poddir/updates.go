package poddir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/limits"
)

// Update is one line of updates.jsonl: what was asked of a running pod, before
// it is done, and again with what became of it.
type Update struct {
	Time    time.Time       `json:"time"`
	App     string          `json:"app,omitempty"` // "" means the pod
	Limits  limits.Set      `json:"limits"`
	Force   bool            `json:"force,omitempty"`
	Done    bool            `json:"done,omitempty"` // this is the outcome, and it holds
	Results []limits.Result `json:"results,omitempty"`
	Error   string          `json:"error,omitempty"` // this is the outcome, and nothing has changed
}

// Updates is the record of what was changed while the pod ran.
func (d Dir) Updates() string { return d.join("updates.jsonl") }

// AppendUpdate writes a line, which survives power loss.
func (d Dir) AppendUpdate(u Update) error {
	data, err := json.Marshal(u)
	if err != nil {
		return err
	}
	if err := fault.Step("updates.append"); err != nil {
		return err
	}
	f, err := os.OpenFile(d.Updates(), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	err = appendLine(f, data)
	return errors.Join(err, f.Close())
}

func appendLine(f *os.File, data []byte) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	last := []byte{'\n'}
	if info.Size() > 0 {
		if _, err := f.ReadAt(last, info.Size()-1); err != nil {
			return err
		}
	}
	if last[0] != '\n' {
		data = append([]byte{'\n'}, data...) // behind a line that was torn
	}
	if _, err := f.Write(append(data, '\n')); err != nil {
		// Half a line must not swallow the next one.
		return errors.Join(err, f.Truncate(info.Size()))
	}
	return f.Sync()
}

// ReadUpdates returns the lines that are whole.
func (d Dir) ReadUpdates() ([]Update, error) {
	data, err := atomicfile.ReadFile(d.Updates())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("updates: %w", err)
	}
	var list []Update
	for line := range bytes.Lines(data) {
		var u Update
		if line[len(line)-1] == '\n' && json.Unmarshal(line, &u) == nil {
			list = append(list, u)
		}
	}
	return list, nil
}

// Effective is what the updates that hold have made of limits, by app, "" for
// the pod's.
func Effective(updates []Update) map[string]limits.Set {
	sets := map[string]limits.Set{}
	for _, u := range updates {
		if u.Done {
			sets[u.App] = u.Limits.Over(sets[u.App])
		}
	}
	return sets
}
