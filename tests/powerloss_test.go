package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
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

// TestPowerLossAtEachStep takes what has reached the disk when a fetch was killed at
// each of its steps: whatever is there of it, the next fetch works.
func TestPowerLossAtEachStep(t *testing.T) {
	programs := buildFaulty(t)
	dir := t.TempDir()
	publish(t, filepath.Join(dir, "app"), images.Image{Name: "1", Layers: layers(t, 5, 30<<10), Pack: images.Gzip})
	s := newServing(t, dir)
	p := newPlace(t, `mkdir "$DIR/mnt" "$DIR/then"`, `for m in mnt then; do if mountpoint -q "$DIR/$m"; then umount "$DIR/$m"; fi; done`)
	rkt := func(mount, args string) string {
		return programs + `/rkt --dir="$DIR/` + mount + `/data" --insecure-options=image,http ` + args
	}
	fetch := "fetch --quiet docker://" + s.at + "/app:1"
	const fresh = `rm -f "$DIR/disk"; truncate -s 64M "$DIR/disk"; mkfs.ext4 -q "$DIR/disk"; mount -o loop "$DIR/disk" "$DIR/mnt"`
	p.must(fresh + "\n" + `RKT_FAULT_TRACE="$DIR/trace" ` + rkt("mnt", fetch) + "\n" + `umount "$DIR/mnt"`)
	raw, err := os.ReadFile(filepath.Join(p.dir, "trace"))
	if err != nil {
		t.Fatal(err)
	}
	last := map[string]int{}
	for _, step := range strings.Fields(string(raw)) {
		last[step]++
	}
	if len(last) < 15 || last["store.layer.rename"] == 0 {
		t.Fatalf("steps %v", last)
	}
	for step, times := range last {
		for _, n := range slices.Compact([]int{1, times}) {
			at := fmt.Sprintf("%s@%d", step, n)
			p.must(fresh)
			// How often a step is passed depends on how the layers share a sync.
			if res := p.sh("RKT_FAULT=" + at + ":KILL " + rkt("mnt", fetch)); res.code != 137 && (n == 1 || res.code != 0) {
				t.Errorf("%s: %s", at, res)
			}
			p.must(`cp --sparse=always "$DIR/disk" "$DIR/copy"; umount "$DIR/mnt"; mount -o loop "$DIR/copy" "$DIR/then"`)
			for _, args := range []string{fetch, "image verify --all", "image rm " + s.at + "/app:1", "gc --grace-period=0s", "image gc --grace-period=0s"} {
				if res := p.sh(rkt("then", args)); res.code != 0 {
					t.Errorf("%s, then: %s", at, res)
				}
			}
			if left := p.must(`cd "$DIR/then/data/store"; ls -A layers images names tmp blobs/*`); strings.Contains(left, "-") {
				t.Errorf("%s: left in the store: %s", at, left)
			}
			p.must(`umount "$DIR/then"`)
		}
	}
}
