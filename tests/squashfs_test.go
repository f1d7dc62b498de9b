package tests

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/tests/images"
)

// TestSquashfsStore: a store that was packed into a squashfs is used where it is
// mounted. Nothing of it is copied, and a file system that can't be written to at
// all is no obstacle.
func TestSquashfsStore(t *testing.T) {
	need(t, "mksquashfs")
	p := newPlace(t, `mkdir "$DIR/mnt" "$DIR/config" "$DIR/config/paths.d"`,
		`if mountpoint -q "$DIR/mnt"; then umount "$DIR/mnt"; fi`)
	fraction := images.File("f", 0o4750, "content").Owned(70000, 80000).XAttr("user.note", "kept")
	fraction.ModTime = time.Unix(1_000_000_000, 250_000_000)
	layer := must(images.Tar([]images.Entry{images.Dir("d", 0o2711), fraction, images.Link("d/g", "f"), images.Symlink("s", "f")}))
	publish(t, filepath.Join(p.dir, "layout"), images.Image{Name: "example.com/odd:1", Layers: [][]byte{layer, must(images.Tar([]images.Entry{images.Whiteout("s")}))}})
	made := p.rkt(p.dir + "/made")
	p.must(made + "fetch " + image("busybox.oci") + ` "$DIR/layout"`)
	p.must(`touch "$DIR/made/store/frozen"
		mksquashfs "$DIR/made/store" "$DIR/store.squashfs" -quiet -no-progress -xattrs
		rm -r "$DIR/made"
		mount -t squashfs -o loop,ro "$DIR/store.squashfs" "$DIR/mnt"`)
	config := fmt.Sprintf(`{"rktKind":"paths","rktVersion":"v1","stores":["%s/mnt"]}`, p.dir)
	p.must("echo '" + config + `' >"$DIR/config/paths.d/stores.json"`)
	own := p.rkt(p.dir+"/own") + `--local-config="$DIR/config" `
	if got := p.must(own + "image list --no-legend --fields=name,store"); strings.Count(got, p.dir+"/mnt") != 2 {
		t.Errorf("listed: %s", got)
	}
	run := own + "run --net=none example.com/busybox:1.0 --exec=/bin/sh -- -c "
	if res := p.sh(run + `'echo hello >/new && cat /new && exit 5'`); res.code != 5 || res.stdout != "hello\n" {
		t.Errorf("run: %s", res)
	}
	p.must(own + "image verify --all")
	p.must(own + `image render --rootfs-only example.com/odd:1 "$DIR/rendered"`)
	if got := p.must(`cd "$DIR/rendered"; stat -c "%n %a %u:%g %h" f d d/g; ls -A`); got != "f 4750 70000:80000 2\nd 2711 0:0 2\nd/g 4750 70000:80000 2\nd\nf\n" {
		t.Errorf("rendered: %q", got)
	}
	// Fetched again, it takes the layers that are there.
	p.must(own + "fetch " + image("busybox.oci"))
	if got := p.must(`ls "$DIR/own/store/layers"`); got != "" {
		t.Errorf("copied: %s", got)
	}
	p.must(run + "true")
	// The store has to stay as long as the image.
	pod := strings.TrimSpace(p.must(own + "prepare --quiet example.com/busybox:1.0 --exec=/bin/true"))
	p.must(`umount "$DIR/mnt"`)
	refused(t, p.sh(own+"run-prepared --net=none "+pod), "additional store "+p.dir+"/mnt: no store is there")
	p.must(`mount -t squashfs -o loop,ro "$DIR/store.squashfs" "$DIR/mnt"`)
	p.must(own + "run-prepared --net=none " + pod)
	p.collect(p.dir + "/own")
}
