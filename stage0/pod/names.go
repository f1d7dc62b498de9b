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
// A name whose holder is gone, or never got so far, is taken over.
func (p Pods) ClaimName(ctx context.Context, name, uuid string) error {
	if err := podspec.CheckPodName(name); err != nil {
		return err
	}
	if _, err := poddir.ParseUUID(name); err == nil {
		return errs.Newf(errs.Usage, "pod name %q: is a UUID", name)
	}
	if err := os.MkdirAll(poddir.NamesDir(p.Data), 0o700); err != nil {
		return err
	}
	return p.withNames(ctx, func() error {
		holder, err := p.nameHolder(name)
		switch {
		case err == nil && holder.UUID != uuid && !holder.Folder.IsGarbage():
			err := errs.Newf(errs.Busy, "pod name %q: pod %s has it, which is %s", name, holder.UUID, holder.State)
			return errs.WithHint(err, "\"rkt rm %s\" frees the name, once that pod has ended", name)
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return err
		}
		return atomicfile.Write(filepath.Join(poddir.NamesDir(p.Data), name), []byte(uuid+"\n"), 0o600, atomicfile.Renamed)
	})
}

// releaseName frees the name that the pod's references say it has, if it is
// still this pod's.
func (p Pods) releaseName(name, uuid string) error {
	if name == "" {
		return nil
	}
	return p.withNames(context.Background(), func() error {
		holder, err := p.nameRecord(name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && holder != uuid {
			return nil
		}
		if err == nil {
			err = fault.Step("name.release")
		}
		if err != nil {
			return err
		}
		return os.Remove(filepath.Join(poddir.NamesDir(p.Data), name))
	})
}

// withNames keeps out everybody else who gives or takes a name.
func (p Pods) withNames(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, namesDeadline)
	defer cancel()
	l, err := lock.Exclusive(ctx, filepath.Join(poddir.NamesDir(p.Data), ".lock"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // no pod ever had a name
	}
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
	data, err := atomicfile.ReadFile(filepath.Join(poddir.NamesDir(p.Data), name))
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
