// Mkimage writes a small image made of a static busybox, as an ACI, an OCI
// image layout or a docker archive. The demo and the scripts use it.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/rkt-pods/rkt/tests/images"
)

type options struct {
	format, name, out, compress, busybox string
	argv                                 []string
	files                                []string
}

func main() {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	}
	if err == nil {
		err = write(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mkimage:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	o := options{argv: []string{"/bin/sh"}}
	fs := flag.NewFlagSet("mkimage", flag.ContinueOnError)
	fs.StringVar(&o.format, "format", "aci", "aci, oci, oci-tar or docker")
	fs.StringVar(&o.name, "name", "example.com/busybox:1.0", "name and version")
	fs.StringVar(&o.out, "out", "", "file to write; a folder for oci")
	fs.StringVar(&o.compress, "compress", "none", "none, gzip, bzip2, xz; for oci also zstd")
	fs.StringVar(&o.busybox, "busybox", "/bin/busybox", "a static busybox")
	fs.Func("exec", "the app's command, a JSON array", func(s string) error {
		o.argv = nil
		return json.Unmarshal([]byte(s), &o.argv)
	})
	fs.Func("file", "SRC:/DST, a file to add; may be given several times", func(s string) error {
		o.files = append(o.files, s)
		return nil
	})
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if o.out == "" || fs.NArg() > 0 {
		return o, errors.New("give -out and no other arguments")
	}
	return o, nil
}

func write(o options) error {
	entries, err := images.Busybox(o.busybox)
	if err != nil {
		return err
	}
	for _, f := range o.files {
		src, dst, ok := strings.Cut(f, ":")
		if !ok {
			return fmt.Errorf("-file %s: not SRC:/DST", f)
		}
		if entries, err = images.AddFile(entries, src, dst); err != nil {
			return err
		}
	}
	pack := images.Compression(o.compress)
	if o.format == "aci" {
		name, version, _ := strings.Cut(o.name, ":")
		data, err := images.ACI(images.Manifest(name, version, o.argv), entries)
		if err != nil {
			return err
		}
		return writePacked(o.out, pack, data)
	}
	layer, err := images.Tar(entries)
	if err != nil {
		return err
	}
	image := images.Image{Name: o.name, Layers: [][]byte{layer}, Pack: pack, Config: map[string]any{
		"Cmd": o.argv, "Env": []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
	}}
	return writeImage(o, pack, image)
}

func writeImage(o options, pack images.Compression, image images.Image) error {
	var files images.Files
	var err error
	switch o.format {
	case "docker":
		files = images.Docker(image)
	case "oci", "oci-tar":
		if files, err = images.OCI(image); err != nil {
			return err
		}
		if o.format == "oci" {
			return files.WriteDir(o.out)
		}
		pack = images.None // of the layers, not of the whole
	default:
		return fmt.Errorf("unknown format %q", o.format)
	}
	data, err := files.Tar()
	if err != nil {
		return err
	}
	return writePacked(o.out, pack, data)
}

func writePacked(path string, pack images.Compression, data []byte) error {
	packed, err := images.Compress(pack, data)
	if err != nil {
		return err
	}
	return os.WriteFile(path, packed, 0o644)
}
