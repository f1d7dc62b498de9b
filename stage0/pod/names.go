package pod

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/lock"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

// namesDeadline bounds the wait for the lock of the names, which nobody holds
// for longer than it takes to write one.
const namesDeadline = 10 * time.Second

// ClaimName gives the name to the pod, whose references name it already. Another
// pod that has it keeps it until it is garbage: the error is of class Busy then.
// A name whose holder is gone, or was never prepared to the end, is taken over.
func (p Pods) ClaimName(ctx context.Context, name, uuid string) error {
	if err := podspec.CheckPodName(name); err != nil {
		return err
	}
	if _, err := poddir.ParseUUID(name); err == nil {
		return errs.Newf(errs.Usage, "pod name %q: is a UUID", name)
	}
	for {
		if err := os.MkdirAll(poddir.NamesDir(p.Data), 0o700); err != nil {
			return err
		}
		err := p.withNames(ctx, func() error { return p.claimName(name, uuid) })
		if !errors.Is(err, fs.ErrNotExist) || ctx.Err() != nil {
			return err
		}
		// A gc has just removed the folder, which was empty.
	}
}

func (p Pods) claimName(name, uuid string) error {
	holder, err := p.nameHolder(name)
	switch {
	case err == nil && holder.UUID != uuid && !holder.Folder.IsGarbage() && holder.State != AbortedPrepare:
		err := errs.Newf(errs.Busy, "pod name %q: pod %s has it, which is %s", name, holder.UUID, holder.State)
		return errs.WithHint(err, "\"rkt rm %s\" frees the name, once that pod has ended", name)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return atomicfile.Write(p.namePath(name), []byte(uuid+"\n"), 0o600, atomicfile.Renamed)
}

func (p Pods) namePath(name string) string { return filepath.Join(poddir.NamesDir(p.Data), name) }

// releaseName frees the name that the pod's references say it has, if it is
// still this pod's.
func (p Pods) releaseName(name, uuid string) error {
	if name == "" {
		return nil
	}
	err := p.withNames(context.Background(), func() error {
		holder, err := p.nameRecord(name)
		if err != nil || holder != uuid {
			return err
		}
		if err := fault.Step("name.release"); err != nil {
			return err
		}
		return os.Remove(p.namePath(name))
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// SweepNames removes what killed commands have left among the names, and with
// the last name their folder.
func (p Pods) SweepNames(ctx context.Context) error {
	err := p.withNames(ctx, func() error {
		entries, err := os.ReadDir(poddir.NamesDir(p.Data))
		left := 0
		for _, e := range entries {
			if e.Name() == namesLock {
				continue
			}
			if _, herr := p.nameHolder(e.Name()); !errors.Is(herr, fs.ErrNotExist) {
				left++
				continue
			}
			if err := fault.Step("name.sweep"); err != nil {
				return err
			}
			err = errors.Join(err, os.Remove(p.namePath(e.Name())))
		}
		if left > 0 || err != nil {
			return err
		}
		if err := fault.Step("names.remove"); err != nil {
			return err
		}
		// Who waits for the lock finds that it is gone, and starts over: if that
		// has made it anew already, the folder stays.
		err = errors.Join(os.Remove(p.namePath(namesLock)), os.Remove(poddir.NamesDir(p.Data)))
		if errors.Is(err, unix.ENOTEMPTY) {
			return nil
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// StaleNames lists the names whose pod is gone.
func (p Pods) StaleNames() ([]string, error) {
	entries, err := os.ReadDir(poddir.NamesDir(p.Data))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var stale []string
	for _, e := range entries {
		if e.Name() == namesLock {
			continue
		}
		if _, err := p.nameHolder(e.Name()); errors.Is(err, fs.ErrNotExist) {
			stale = append(stale, e.Name())
		}
	}
	return stale, err
}

// namesLock is the file among the names that is locked; no name begins so.
const namesLock = ".lock"

// withNames keeps out everybody else who gives or takes a name. The error wraps
// fs.ErrNotExist if there is no folder of names.
func (p Pods) withNames(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, namesDeadline)
	defer cancel()
	l, err := lock.Exclusive(ctx, p.namePath(namesLock))
	if err != nil {
		return fmt.Errorf("pod names: %w", err)
	}
	return errors.Join(f(), l.Close())
}

// nameRecord reads which pod has, or had, the name.
func (p Pods) nameRecord(name string) (uuid string, err error) {
	if podspec.CheckPodName(name) != nil {
		return "", fs.ErrNotExist
	}
	data, err := atomicfile.ReadFile(p.namePath(name))
	if err != nil {
		return "", err
	}
	uuid, err = poddir.ParseUUID(strings.TrimSpace(string(data)))
	if err != nil {
		return "", fs.ErrNotExist // torn by a power loss: nobody's
	}
	return uuid, nil
}

// nameHolder returns the pod of the name, whatever has become of it. The error
// wraps fs.ErrNotExist if no pod has it.
func (p Pods) nameHolder(name string) (Pod, error) {
	uuid, err := p.nameRecord(name)
	if err != nil {
		return Pod{}, err
	}
	return p.Get(uuid)
}
