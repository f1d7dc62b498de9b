package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/lock"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

// seedDeadline is how long a pod waits for another one that fills the same
// new volume.
const seedDeadline = 5 * time.Minute

// seedNamed fills a fresh named volume. It outlives the pod, so it must never
// be half filled, however this ends:
//
//	copy to seed.new ─ rename to seed ─ move its entries to data ─ remove fresh
//
// A copy that was cut off is thrown away, a move is gone on with. Two pods
// that find the volume fresh do this one after the other.
func (v *volume) seedNamed(dir poddir.NamedDir, r *root) error {
	if !exists(dir.Fresh()) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), seedDeadline)
	defer cancel()
	l, err := lock.Exclusive(ctx, dir.Lock())
	if err != nil {
		return err
	}
	defer l.Close()
	if !exists(dir.Fresh()) {
		return nil
	}
	if !exists(dir.Seed()) {
		if err := v.copySeed(dir, r); err != nil {
			return err
		}
	}
	if err := moveSeed(dir); err != nil {
		return err
	}
	// What the mark's absence says must be so after a power loss too.
	if err := atomicfile.SyncFS(string(dir)); err != nil {
		return err
	}
	if err := fault.Step("volume.seeded"); err != nil {
		return err
	}
	if err := os.Remove(dir.Fresh()); err != nil {
		return err
	}
	return atomicfile.SyncDir(string(dir))
}

// copySeed makes the whole copy beside the volume's files, none if there is
// nothing to copy, or somebody has put files into the volume already.
func (v *volume) copySeed(dir poddir.NamedDir, r *root) error {
	fd, err := r.open(v.SeedPath, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	src := os.NewFile(uintptr(fd), v.SeedPath)
	defer src.Close()
	if names, err := os.ReadDir(dir.Files()); err != nil || len(names) > 0 {
		return err
	}
	if err := os.RemoveAll(dir.SeedNew()); err != nil {
		return err
	}
	if err := fault.Step("volume.seed"); err != nil {
		return err
	}
	if err := os.Mkdir(dir.SeedNew(), 0o700); err != nil {
		return err
	}
	dst, err := os.Open(dir.SeedNew())
	if err != nil {
		return err
	}
	defer dst.Close()
	c := copier{links: map[inode]string{}, top: dir.SeedNew()}
	if v.IDMap {
		c.ids = v.ids
	}
	if err := c.dir(src, dst, ""); err != nil {
		return err
	}
	return atomicfile.Rename("volume.seed-whole", dir.SeedNew(), dir.Seed(), atomicfile.Renamed)
}

// moveSeed brings the copy in. What an app, that did not wait for this one,
// wrote under the same name stays.
func moveSeed(dir poddir.NamedDir) error {
	from, err := os.Open(dir.Seed())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.Open(dir.Files())
	if err != nil {
		return err
	}
	defer to.Close()
	entries, err := from.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range entries {
		if err := fault.Step("volume.seed-move"); err != nil {
			return err
		}
		err := unix.Renameat2(int(from.Fd()), name, int(to.Fd()), name, unix.RENAME_NOREPLACE)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("move %s: %w", filepath.Join(dir.Files(), name), err)
		}
	}
	// The folder's own properties last, as the copy has them.
	if err := copyMeta(int(from.Fd()), int(to.Fd()), nil); err != nil {
		return err
	}
	return os.RemoveAll(dir.Seed())
}
