package tests

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestFolder: which data folders work, and what is said of those that don't.
func TestFolder(t *testing.T) {
	const tmpfs, umount = `mount -t tmpfs tmpfs "$DIR"`, `umount "$DIR"`
	for _, c := range []struct {
		name, setup, teardown string
		data                  string   // below $DIR, or relative to it
		fetch, run            []string // what they are refused with, nil: they work
	}{
		{name: "tmpfs", setup: tmpfs, teardown: umount, data: "/data"},
		{name: "blanks", setup: `mkdir "$DIR/a b"`, data: "/a b/data  folder,x=y:z"},
		{name: "symlink", setup: `mkdir "$DIR/real"; ln -s real "$DIR/link"`, data: "/link"},
		{name: "below a symlink", setup: `mkdir "$DIR/real"; ln -s real "$DIR/link"`, data: "/link/data"},
		{name: "relative", setup: `:`, data: "rel/data"},
		{
			name: "overlay", setup: tmpfs + `; cd "$DIR"; mkdir l u w o; mount -t overlay -o lowerdir=l,upperdir=u,workdir=w overlay o`,
			teardown: `cd /; umount "$DIR/o"; ` + umount, data: "/o/data",
			run: []string{"mount overlay: upper folder: ", "not supported as upperdir"},
		},
		{
			// Where the kernel has no vfat, one that runs as a process mounts it.
			name: "vfat", setup: `truncate -s 40M "$DIR/image"; mkfs.vfat "$DIR/image" >/dev/null; mkdir "$DIR/fat"
				if grep -qw vfat /proc/filesystems || modprobe -q vfat; then mount -o loop "$DIR/image" "$DIR/fat"
				else fusefat -o rw+ "$DIR/image" "$DIR/fat" >/dev/null; fi`,
			teardown: `umount "$DIR/fat"`, data: "/fat/data",
			fetch: []string{"fat)", "can't keep"}, run: []string{"fat)", "can't keep"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPlace(t, c.setup, c.teardown)
			data, cd := c.data, "cd "+p.dir+"; "
			if filepath.IsAbs(data) {
				data, cd = p.dir+data, ""
			}
			fetch := p.sh(cd + p.rkt(data) + "fetch " + image("busybox.oci"))
			run := p.sh(cd + p.rkt(data) + "run " + faultImage + " --exec=/bin/echo -- hello")
			if c.fetch != nil {
				refused(t, fetch, c.fetch...)
			} else if fetch.code != 0 {
				t.Errorf("%s", fetch)
			}
			if c.run != nil {
				refused(t, run, c.run...)
			} else if run.code != 0 || run.stdout != "hello\n" {
				t.Errorf("%s", run)
			}
			p.must(cd + p.rkt(data) + "list")
			p.must(cd + p.rkt(data) + "image verify --all")
			if !filepath.IsAbs(data) {
				data = filepath.Join(p.dir, data)
			}
			p.collect(data)
		})
	}
}

// TestFolderReadOnly: a data folder that can't be written is shown, and nothing
// else is done with it.
func TestFolderReadOnly(t *testing.T) {
	p := newPlace(t, `mount -t tmpfs tmpfs "$DIR"`, `umount "$DIR"`)
	data := p.dir + "/data"
	rkt := p.rkt(data)
	p.must(rkt + "fetch " + image("busybox.oci"))
	id := strings.TrimSpace(p.must(rkt + "prepare --quiet " + faultImage + " --exec=/bin/true"))
	p.must(rkt + "run " + faultImage + " --exec=/bin/sh -- -c 'exit 0'")
	p.must(`mount -o remount,ro "$DIR"`)
	for _, command := range []string{"fetch " + image("busybox.oci"), "run " + faultImage, "prepare " + faultImage, "run-prepared " + id, "rm " + id, "gc", "image rm " + faultImage} {
		refused(t, p.sh(rkt+command), "read-only file system")
	}
	if res := p.sh(rkt + "image gc --grace-period=0s"); res.code != 10 || !strings.Contains(res.stderr, "read-only file system\nimage gc: hint: ") {
		t.Errorf("want 10: %s", res)
	}
	refused(t, p.sh(p.rkt(p.dir+"/none")+"fetch "+image("busybox.oci")), "read-only file system")
	if list := p.must(rkt + "list --full"); !strings.Contains(list, id) || !strings.Contains(list, "prepared") || !strings.Contains(list, "exited") {
		t.Errorf("list: %s", list)
	}
	if status := p.must(rkt + "status " + id); !strings.HasPrefix(status, "state=prepared\n") {
		t.Errorf("status: %s", status)
	}
	if list := p.must(rkt + "image list"); !strings.Contains(list, faultImage) {
		t.Errorf("image list: %s", list)
	}
	p.must(`mount -o remount,rw "$DIR"`)
	if out := p.must(rkt + "run-prepared " + id); out != "" {
		t.Errorf("run-prepared: %s", out)
	}
	p.collect(data)
}
