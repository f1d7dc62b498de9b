package network

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/lock"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

// NamesDir has a file for each network by which its pods find each other: a
// line "ADDRESS NAME CONTAINER-ID" for each address. It is replaced whole,
// under a lock, and whoever wants to know watches the folder.
var NamesDir = filepath.Join(poddir.NetDir(), "names")

// lockFile is removed with the folder when nobody is left.
var lockFile = filepath.Join(poddir.NetDir(), "lock")

// Name is one line of a network's file.
type Name struct {
	Addr, Name, Owner string
}

// Names reads the names on a network, in a fixed order.
func Names(network string) ([]Name, error) {
	data, err := os.ReadFile(filepath.Join(NamesDir, network))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []Name
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) == 3 {
			list = append(list, Name{f[0], f[1], f[2]})
		}
	}
	return list, nil
}

// announce adds a pod's addresses to its networks' names.
func announce(ctx context.Context, rec poddir.NetRecord) error {
	for _, a := range rec.Attachments {
		var add []Name
		for _, ip := range a.IPs {
			if p, err := netip.ParsePrefix(ip); err == nil {
				add = append(add, Name{p.Addr().String(), rec.PodName, rec.ContainerID})
			}
		}
		err := changeNames(ctx, a.Name, add, func(owner string) bool { return owner == rec.ContainerID })
		if err != nil {
			return err
		}
	}
	return nil
}

// changeNames takes out the lines of those owners that are meant, and adds
// some.
func changeNames(ctx context.Context, network string, add []Name, meant func(owner string) bool) error {
	file := filepath.Join(NamesDir, network)
	if _, err := os.Stat(file); len(add) == 0 && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	l, err := exclusive(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	list, err := Names(network)
	if err != nil {
		return err
	}
	before := len(list)
	list = slices.DeleteFunc(list, func(n Name) bool { return meant(n.Owner) })
	if len(add) == 0 && len(list) == before {
		return nil
	}
	if err := fault.Step("network.names"); err != nil {
		return err
	}
	if len(list)+len(add) == 0 {
		err := os.Remove(file)
		_ = os.Remove(NamesDir) // if it was the last
		return err
	}
	var b strings.Builder
	for _, n := range append(list, add...) {
		b.WriteString(n.Addr + " " + n.Name + " " + n.Owner + "\n")
	}
	if err := os.MkdirAll(NamesDir, 0o755); err != nil {
		return err
	}
	return atomicfile.Write(file, []byte(b.String()), 0o644, atomicfile.Renamed)
}

// exclusive is the lock for what more than one step changes for all pods.
func exclusive(ctx context.Context) (*lock.Lock, error) { return locked(ctx, lock.Exclusive) }

// shared is the lock for one step that must not come between those of another.
func shared(ctx context.Context) (*lock.Lock, error) { return locked(ctx, lock.Shared) }

func locked(ctx context.Context, take func(context.Context, string) (*lock.Lock, error)) (*lock.Lock, error) {
	for {
		var l *lock.Lock
		err := os.MkdirAll(poddir.NetDir(), 0o755)
		if err == nil {
			l, err = take(ctx, lockFile)
		}
		if errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil {
			continue // the empty folder, or that above it, was just removed
		}
		return l, err
	}
}
