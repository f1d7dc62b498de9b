package pod

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/network"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

// releaseDeadline bounds the release of one pod's network.
const releaseDeadline = 2 * time.Minute

// Network reads the pod's network record. The error of a pod that has none is
// fs.ErrNotExist.
func (p Pods) Network(dir poddir.Dir) (poddir.NetRecord, error) {
	var rec poddir.NetRecord
	err := atomicfile.ReadJSON(dir.Network(), &rec)
	if err == nil && rec.ContainerID != poddir.ContainerID(p.StoreID, dir.UUID()) {
		// Another pod's would be released.
		err = fmt.Errorf("%s: is of container %q", dir.Network(), rec.ContainerID)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return rec, err
	}
	return rec, damaged(err)
}

// releaseNetwork gives back what a supervisor that died could not. Without a
// record there is nothing, since that came first.
func (p Pods) releaseNetwork(dir poddir.Dir) error {
	rec, err := p.Network(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		// What an unreadable record was about is found by the pod's name.
		rec = poddir.NetRecord{ContainerID: poddir.ContainerID(p.StoreID, dir.UUID())}
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseDeadline)
	defer cancel()
	if err := network.Release(ctx, rec, network.Released{}); err != nil {
		return fmt.Errorf("release the network: %w", err)
	}
	return nil
}
