package images

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"testing"
)

func TestSameInputSameBytes(t *testing.T) {
	build := func() [][]byte {
		rootfs, err := Busybox("/bin/busybox")
		if err != nil {
			t.Fatal(err)
		}
		if rootfs, err = AddFile(rootfs, "images_test.go", "/opt/x/test"); err != nil {
			t.Fatal(err)
		}
		aci, err := ACI(Manifest("example.com/busybox", "1.0", []string{"/bin/sh"}), rootfs)
		if err != nil {
			t.Fatal(err)
		}
		layer, err := Tar(rootfs)
		if err != nil {
			t.Fatal(err)
		}
		out := [][]byte{aci}
		for _, c := range []Compression{Gzip, Bzip2, XZ, Zstd} {
			packed, err := Compress(c, aci)
			if err != nil {
				t.Fatal(err)
			}
			files, err := OCI(Image{Name: "example.com/busybox:1.0", Layers: [][]byte{layer}, Pack: c})
			if err != nil {
				t.Fatal(err)
			}
			archive, err := files.Tar()
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, packed, archive)
		}
		docker, err := Docker(Image{Name: "busybox:1.0", Layers: [][]byte{layer}}).Tar()
		if err != nil {
			t.Fatal(err)
		}
		return append(out, docker)
	}
	first, second := build(), build()
	for i := range first {
		if !bytes.Equal(first[i], second[i]) {
			t.Errorf("image %d differs", i)
		}
	}
	checkEntries(t, first[0])
}

func checkEntries(t *testing.T, aci []byte) {
	t.Helper()
	seen := map[string]int64{}
	r := tar.NewReader(bytes.NewReader(aci))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := seen[h.Name]; ok {
			t.Errorf("%s is there twice", h.Name)
		}
		seen[h.Name] = h.Mode
	}
	for name, mode := range map[string]int64{
		"manifest": 0o644, "rootfs": 0o755, "rootfs/tmp/": 0o1777, "rootfs/root/": 0o700, "rootfs/bin/busybox": 0o755, "rootfs/bin/sh": 0o777, "rootfs/opt/x/": 0o755,
	} {
		got, ok := seen[name]
		if name == "rootfs" {
			got, ok = seen["rootfs/"]
		}
		if !ok || got != mode {
			t.Errorf("%s: mode %o, there: %v", name, got, ok)
		}
	}
}
