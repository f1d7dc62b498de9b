package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/network"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

// settle is how long after a change of names the files follow: pods often come
// and go in groups, and a start must not wait for all that run already.
const settle = 200 * time.Millisecond

// Others are the entries of the pods on the same networks, each by its name.
func (a *Attached) Others() ([]poddir.HostEntry, error) {
	var list []poddir.HostEntry
	for _, at := range a.rec.Attachments {
		names, err := network.Names(at.Name)
		if err != nil {
			return nil, err
		}
		for _, n := range names {
			if n.Owner != a.rec.ContainerID {
				list = append(list, poddir.HostEntry{IP: n.Addr, Names: []string{n.Name}})
			}
		}
	}
	return list, nil
}

// Watch calls changed with the entries of Others whenever they are other ones,
// until ctx ends. The pod's own name keeps the watched folder in place.
func (a *Attached) Watch(ctx context.Context, changed func([]poddir.HostEntry) error) error {
	if len(a.Addresses()) == 0 {
		return nil // it has no name there, and nobody is near
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch names: %w", err)
	}
	f := os.NewFile(uintptr(fd), "names")
	defer f.Close()
	stop := context.AfterFunc(ctx, func() { _ = f.Close() })
	defer stop()
	if _, err := unix.InotifyAddWatch(fd, network.NamesDir, unix.IN_MOVED_TO|unix.IN_DELETE); err != nil {
		return fmt.Errorf("watch names: %w", err)
	}
	var last []poddir.HostEntry
	buf := make([]byte, 64<<10)
	for {
		now, err := a.Others()
		if err == nil && !slices.EqualFunc(now, last, sameEntry) {
			err = changed(now)
			last = now
		}
		if err == nil {
			_, err = f.Read(buf)
		}
		if ctx.Err() != nil || errors.Is(err, os.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("names: %w", err)
		}
		select {
		case <-time.After(settle):
		case <-ctx.Done():
			return nil
		}
	}
}

func sameEntry(a, b poddir.HostEntry) bool { return a.IP == b.IP && slices.Equal(a.Names, b.Names) }
