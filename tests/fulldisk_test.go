package tests

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/tests/images"
)

// TestFullDisk: on a disk that is really full an import fails, says so and leaves
// nothing; when there is space again it works. An app may fill the rest, and
// ends with its own code.
func TestFullDisk(t *testing.T) {
	p := newPlace(t, `truncate -s 24M "$DIR/disk"; mkfs.ext4 -q -m 0 "$DIR/disk"; mkdir "$DIR/mnt"; mount -o loop "$DIR/disk" "$DIR/mnt"
		head -c 8M /dev/urandom >"$DIR/mnt/ballast"`, `umount "$DIR/mnt"`)
	data := p.dir + "/mnt/data"
	rkt := p.rkt(data)
	p.must(rkt + "image gc")
	// Random bytes, since those that repeat may take no space.
	body := make([]byte, 12<<20)
	rand.NewChaCha8([32]byte{'d', 'i', 's', 'k'}).Read(body)
	large := writeImage(t, "example.com/large:1", []images.Entry{images.File("large", 0o644, string(body))})

	// Made by a first command, so that the folders are no difference.
	p.must(rkt + "fetch " + image("busybox.oci"))
	before := tree(t, p.host(data))
	refused(t, p.sh(rkt+"fetch "+large), "no space left on device")
	// The class is for programs; only --debug shows it.
	if debug := p.sh(rkt + "--debug fetch " + large); debug.code != 254 || !strings.Contains(debug.stderr, "fetch: class unavailable\n") {
		t.Errorf("want class unavailable: %s", debug)
	}
	if after := tree(t, p.host(data)); !slices.Equal(before, after) {
		t.Errorf("left of the image: %v", lacking(after, before))
	}
	p.must("rm $DIR/mnt/ballast")
	p.must(rkt + "fetch " + large)
	if out := p.must(rkt + "run example.com/large:1 --exec=/bin/wc -- -c /large"); !strings.HasPrefix(out, "12582912 ") {
		t.Errorf("the large file: %s", out)
	}
	p.must(rkt + "image verify --all")

	fills := p.sh(rkt + `run example.com/large:1 --exec=/bin/sh -- -c 'dd if=/dev/urandom of=/fill bs=64k 2>/dev/null && exit 1; echo full; exit 7'`)
	if fills.code != 7 || fills.stdout != "full\n" {
		t.Errorf("want 7: %s", fills)
	}
	p.must(rkt + "list")
	p.collect(data)
	p.must(rkt + "image verify --all")
}
