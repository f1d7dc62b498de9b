package supervise

import (
	"fmt"
	"os"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/crilog"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

// keptExecutions is how many ended executions of an app are kept at most: an
// app may be restarted for years, and whoever reads its logs opens all of them.
const keptExecutions = 50

// forget drops the app's first executions before the one with the number next
// is made. What is left are the last ones, no more than are to be kept, whose
// logs together are no larger than one of them may become; the very last stays,
// however large. It is all a matter of space: what fails is told, and tried
// again the next time.
func (p *pod) forget(app string, next int) {
	dir, status := p.records.dir.App(app), p.records.status[app]
	var f poddir.Forgotten
	if status.Forgotten != nil {
		f = *status.Forgotten
	}
	for to := p.firstToKeep(dir, f.Executions, next); f.Executions < to; {
		n := f.Executions
		if dir.Attempt(n) == p.find(app).written {
			break // its root file system goes to the next execution
		}
		f.LogLines += linesOf(dir.Attempt(n))
		if err := p.drop(dir, n); err != nil {
			p.reportOnce("forget "+app, fmt.Errorf("app %s: remove an old execution: %w", app, err))
			return
		}
		f.Executions++
		status.Forgotten = new(f)
	}
}

func (p *pod) firstToKeep(dir poddir.AppDir, first, next int) int {
	room := p.logs.Total()
	for n := next - 1; n >= first; n-- {
		room -= crilog.Size(dir.Attempt(n).Log())
		if n < next-1 && (next-n > p.keep || room < 0) {
			return n + 1
		}
	}
	return first
}

// linesOf is how many lines there are in the log of an ended execution.
func linesOf(a poddir.AttemptDir) uint64 {
	var s poddir.Status
	if err := atomicfile.ReadJSON(a.Status(), &s); err != nil {
		return 0 // nobody knows then
	}
	return s.LogLines - s.LogDropped
}

// drop takes an execution out of the readers' sight at once; large files need
// their time. What a kill leaves of it goes with the pod.
func (p *pod) drop(dir poddir.AppDir, n int) error {
	if err := fault.Step("attempt.drop"); err != nil {
		return err
	}
	if err := os.Rename(string(dir.Attempt(n)), dir.Dropped(n)); err != nil {
		return err
	}
	p.beside.Go(func() {
		if err := os.RemoveAll(dir.Dropped(n)); err != nil {
			p.reportOnce("drop "+string(dir), fmt.Errorf("remove an old execution: %w", err))
		}
	})
	return nil
}
