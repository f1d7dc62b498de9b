package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/tests/images"
)

// TestPowerLoss takes what has reached the disk in the middle of a fetch, as a
// power loss would leave it: the next fetch from there works, and asks for no
// layer that was said to be there.
func TestPowerLoss(t *testing.T) {
	dir := t.TempDir()
	list := layers(t, 5, 300<<10)
	publish(t, filepath.Join(dir, "app"), images.Image{Name: "1", Layers: list})
	s := newServing(t, dir)
	p := newPlace(t, `truncate -s 64M "$DIR/disk"; mkfs.ext4 -q "$DIR/disk"; mkdir "$DIR/mnt" "$DIR/then"; mount -o loop "$DIR/disk" "$DIR/mnt"`,
		`umount "$DIR/mnt"; if mountpoint -q "$DIR/then"; then umount "$DIR/then"; fi`)
	fetch := "--insecure-options=http fetch docker://" + s.at + "/app:1"
	last := sum(list[4])
	s.HoldBlob(last)
	p.must(p.rkt(p.dir+"/mnt/data") + fetch + ` 2>"$DIR/err" >/dev/null & echo $! >"$DIR/pid"`)
	// A line for a layer comes when it is on the disk.
	until(t, "four layers are there", func() bool {
		said, err := os.ReadFile(filepath.Join(p.dir, "err"))
		return err == nil && strings.Count(string(said), "fetch: layer ") == 4
	})
	p.must(`cp "$DIR/disk" "$DIR/copy"; kill -KILL $(cat "$DIR/pid"); mount -o loop "$DIR/copy" "$DIR/then"`)
	s.Release()
	s.Take()
	rkt := p.rkt(p.dir + "/then/data")
	p.must(rkt + "gc")
	p.must(rkt + fetch)
	requests, _ := s.Take()
	for _, q := range requests {
		for _, l := range list[:4] {
			if strings.HasSuffix(q, sum(l)) {
				t.Errorf("a layer that was there was asked for: %s", q)
			}
		}
	}
	p.must(rkt + "image verify --all")
	p.collect(p.dir + "/then/data")
	p.collect(p.dir + "/mnt/data")
}
