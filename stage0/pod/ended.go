package pod

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

// bury leaves behind how a pod has ended that is being removed, for whoever
// waits for it. One that never ran leaves nothing.
func (p Pods) bury(dir poddir.Dir, name string) error {
	var e poddir.Exit
	err := damaged(atomicfile.ReadJSON(dir.Exit(), &e))
	if errors.Is(err, fs.ErrNotExist) || errs.Is(err, errs.Corrupt) {
		info, serr := os.Stat(dir.Supervisor())
		if serr != nil {
			return nil
		}
		e = poddir.Exit{Code: AbortedCode, Cause: poddir.CauseAborted, FinishedAt: info.ModTime().UTC(), Derived: true}
	} else if err != nil {
		return err
	}
	end := poddir.Ended{UUID: dir.UUID(), Name: name, Exit: e, RemovedAt: time.Now().UTC()}
	for {
		if err := os.MkdirAll(poddir.EndedDir(p.Data), 0o700); err != nil {
			return err
		}
		err := atomicfile.WriteJSON(filepath.Join(poddir.EndedDir(p.Data), dir.UUID()), end, 0o600, atomicfile.Renamed)
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		// A gc has just removed the folder, which was empty.
	}
}

// FindEnded returns how a removed pod has ended whose id begins with the
// argument, or whose name it was; of several of that name, the last. The error
// is NoMatch if nothing is known of any.
func (p Pods) FindEnded(arg string) (poddir.Ended, error) {
	entries, err := os.ReadDir(poddir.EndedDir(p.Data))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return poddir.Ended{}, err
	}
	var byID, byName []poddir.Ended
	for _, e := range entries {
		uuid, err := poddir.ParseUUID(e.Name())
		if err != nil {
			continue // somebody is writing it
		}
		var end poddir.Ended
		if err := atomicfile.ReadJSON(filepath.Join(poddir.EndedDir(p.Data), uuid), &end); err != nil {
			continue // swept just now, or torn: then nothing is known
		}
		switch {
		case end.Name == arg && arg != "":
			byName = append(byName, end)
		case arg != "" && strings.HasPrefix(uuid, strings.ToLower(arg)):
			byID = append(byID, end)
		}
	}
	last := poddir.Ended{}
	for _, end := range byName {
		if end.RemovedAt.After(last.RemovedAt) {
			last = end
		}
	}
	switch {
	case len(byName) > 0:
		return last, nil
	case len(byID) > 1:
		return last, Ambiguous(len(byID))
	case len(byID) == 1:
		return byID[0], nil
	}
	return last, NoMatch(arg)
}

// SweepEnded forgets the removed pods whose end is as long ago as the grace
// period.
func (p Pods) SweepEnded(grace time.Duration, now time.Time) error {
	entries, err := os.ReadDir(poddir.EndedDir(p.Data))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var all error
	for _, e := range entries {
		path := filepath.Join(poddir.EndedDir(p.Data), e.Name())
		var end poddir.Ended
		if err := atomicfile.ReadJSON(path, &end); err == nil && end.Exit.Age(now) < grace {
			continue
		}
		if info, err := e.Info(); err == nil && end.UUID == "" && info.ModTime().Add(grace+time.Minute).After(now) {
			continue // being written
		}
		if err := fault.Step("ended.remove"); err != nil {
			return err
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			all = errors.Join(all, fmt.Errorf("forget a removed pod: %w", err))
		}
	}
	// With the last of them; somebody may just write another one.
	_ = os.Remove(poddir.EndedDir(p.Data))
	return all
}
