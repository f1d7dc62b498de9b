package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt-pods/rkt/tests/images"
)

// The names of the one small image, as each peer wants them.
const (
	rktImage    = "example.com/bench:1.0"
	podmanImage = "localhost/bench:1.0"
)

// The files of the images, in the folder of the bench.
const (
	smallACI    = "small.aci"
	smallDocker = "small.docker.tar"
	smallTar    = "small.tar"
	largeACI    = "large.aci"
)

// generate is the bench as a process that only makes an image. The measuring
// process must stay small: a child's peak memory begins with its parent's.
func generate(o options) error {
	switch o.generate {
	case "small":
		return smallImage(o.dir, o.busybox)
	case "large":
		return largeImage(filepath.Join(o.dir, largeACI))
	case "layouts":
		return writeLayouts(o.dir)
	default:
		return fmt.Errorf("generate: %s: no such image", o.generate)
	}
}

func (b *bench) generate(ctx context.Context, what string) error {
	return b.meter.quiet(ctx, command{argv: []string{b.self, "-generate", what, "-dir", b.dir, "-busybox", b.busybox}})
}

// smallImage writes the one root file system, made of busybox, in all forms:
// an ACI, a docker archive, and a tar for a bundle's folder.
func smallImage(dir, busybox string) error {
	rootfs, err := images.Busybox(busybox)
	if err != nil {
		return err
	}
	// nspawn takes a folder without /usr for no system at all, and mounts on /run.
	rootfs = append(rootfs, images.Dir("run", 0o755), images.Dir("usr", 0o755))
	name, version, _ := strings.Cut(rktImage, ":")
	aci, err := images.ACI(images.Manifest(name, version, []string{"/bin/true"}), rootfs)
	if err != nil {
		return err
	}
	layer, err := images.Tar(rootfs)
	if err != nil {
		return err
	}
	archive, err := images.Docker(images.Image{
		Name: podmanImage, Layers: [][]byte{layer}, Config: map[string]any{"Cmd": []string{"/bin/true"}},
	}).Tar()
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, smallACI), aci, 0o644),
		os.WriteFile(filepath.Join(dir, smallDocker), archive, 0o644),
		os.WriteFile(filepath.Join(dir, smallTar), layer, 0o644),
	)
}

// bundleConfig is what `runc spec` writes, for both OCI runtimes, but that
// there is no terminal and the program is true. As rkt does it, the container
// gets no network but loopback.
func (b *bench) bundleConfig(ctx context.Context) error {
	oci := b.peer("runc")
	if oci.missing != "" {
		oci = b.peer("crun")
	}
	if oci.missing != "" {
		return nil // nobody wants it
	}
	err := b.meter.quiet(ctx, sh("cd %s && exec %s spec", b.path("bundle"), oci.path).in(oci.place))
	if err != nil {
		return err
	}
	path := b.path("bundle/config.json")
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var config specs.Spec
	if err := json.Unmarshal(data, &config); err != nil {
		return fmt.Errorf("read: %s: %w", path, err)
	}
	if config.Process == nil || config.Root == nil || config.Linux == nil {
		return fmt.Errorf("read: %s: not complete", path)
	}
	config.Process.Terminal, config.Process.Args = false, []string{"/bin/true"}
	if err := writeJSON(path, config); err != nil {
		return err
	}
	if config.Linux.Seccomp, err = seccomp.GetDefaultProfile(&config); err != nil {
		return fmt.Errorf("make a system call filter: %w", err)
	}
	config.Root.Path = b.path("bundle/rootfs")
	return writeJSON(b.path("filtered/config.json"), config)
}

func writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// podmanConfig keeps podman from raising limits that this process can't raise,
// and from writing a journal that need not be there.
func (b *bench) podmanConfig() error {
	limits, err := currentLimits()
	if err != nil {
		return err
	}
	text := fmt.Sprintf(`[containers]
default_ulimits = [%s]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
runtime = "crun"
`, limits)
	return os.WriteFile(b.path("containers.conf"), []byte(text), 0o644)
}

// What the large root file system is like: as many bytes as the target names,
// in files as small and large as those of a distribution, which pack to a good
// third.
const (
	largeBytes = 200 << 20
	largeSeed  = 1
)

// largeImage writes a generated root file system as a packed ACI.
func largeImage(path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	zip := gzip.NewWriter(f)
	w := tar.NewWriter(zip)
	if err := writeLarge(w, largeBytes); err != nil {
		return err
	}
	return errors.Join(w.Close(), zip.Close())
}

func writeLarge(w *tar.Writer, total int) error {
	random := rand.New(rand.NewPCG(largeSeed, largeSeed))
	if err := writeFiles(w, "rootfs", random, makeWords(random), total); err != nil {
		return err
	}
	return writeEntry(w, images.File("manifest", 0o644, images.Manifest("example.com/large", "1.0", []string{"/bin/true"})))
}

func writeEntry(w *tar.Writer, e images.Entry) error {
	e.Size, e.ModTime = int64(len(e.Body)), images.Time
	if err := w.WriteHeader(&e.Header); err != nil {
		return err
	}
	_, err := w.Write(e.Body)
	return err
}

// writeFiles writes a folder with so many bytes of files.
func writeFiles(w *tar.Writer, root string, random *rand.Rand, words []string, total int) error {
	if err := writeEntry(w, images.Dir(root, 0o755)); err != nil {
		return err
	}
	for n := 0; total > 0; n++ {
		dir := fmt.Sprintf("%s/d%03d", root, n/100)
		if n%100 == 0 {
			if err := writeEntry(w, images.Dir(dir, 0o755)); err != nil {
				return err
			}
		}
		size := min(fileSize(random), total)
		if err := writeEntry(w, images.File(filepath.Join(dir, fmt.Sprintf("f%05d", n)), 0o644, body(random, words, size))); err != nil {
			return err
		}
		total -= size
	}
	return nil
}

// fileSize has a median of 4 KiB and a mean of about five times that.
func fileSize(random *rand.Rand) int {
	const biggest = 8 << 20
	size := 4096.0
	for range 4 {
		size *= 1 + 2*random.ExpFloat64()*random.Float64()
		size /= 1.5
	}
	if random.IntN(400) == 0 {
		size *= 200 // the libraries and the databases
	}
	return min(int(size), biggest)
}

func makeWords(random *rand.Rand) []string {
	words := make([]string, 4096)
	for i := range words {
		word := make([]byte, 3+random.IntN(9))
		for j := range word {
			word[j] = byte(random.IntN(256))
		}
		words[i] = string(word)
	}
	return words
}

// body repeats itself as programs and texts do.
func body(random *rand.Rand, words []string, size int) string {
	var b bytes.Buffer
	for b.Len() < size {
		b.WriteString(words[random.IntN(len(words))])
	}
	return b.String()[:size]
}
