package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/rkt-pods/rkt/tests/images"
	"github.com/rkt-pods/rkt/tests/registry"
)

// The images of the registry, each of the same files: by their repository.
const (
	oneLayer   = "one"
	fourLayers = "four"
	zstdLayer  = "zstd"
)

// layoutDir is the folder that the registry serves.
const layoutDir = "registry"

// writeLayouts writes the images of the registry, all but one tar at a time.
func writeLayouts(dir string) error {
	for repo, image := range map[string]struct {
		layers int
		pack   images.Compression
	}{oneLayer: {1, images.Gzip}, fourLayers: {4, images.Gzip}, zstdLayer: {1, images.Zstd}} {
		m := images.Image{Name: "1", Pack: image.pack, Config: map[string]any{"Cmd": []string{"/bin/true"}}}
		random := rand.New(rand.NewPCG(largeSeed, largeSeed))
		words := makeWords(random)
		for i := range image.layers {
			var layer bytes.Buffer
			w := tar.NewWriter(&layer)
			if err := writeFiles(w, fmt.Sprintf("l%d", i), random, words, largeBytes/image.layers); err != nil {
				return err
			}
			if err := w.Close(); err != nil {
				return err
			}
			m.Layers = append(m.Layers, layer.Bytes())
		}
		files, err := images.OCI(m)
		if err != nil {
			return err
		}
		if err := files.WriteDir(filepath.Join(dir, layoutDir, repo)); err != nil {
			return err
		}
	}
	return nil
}

// serve makes the images and serves them on loopback until stop is called. All
// contenders are served alike, so what that costs meets all of them.
func (b *bench) serve(ctx context.Context) (at string, stop func() error, err error) {
	if err := b.generate(ctx, "layouts"); err != nil {
		return "", nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	config := fmt.Sprintf(`{"rktKind":"registry","rktVersion":"v1","registries":[%q],"plainHTTP":true}`, l.Addr())
	folder := b.path("etc/registries.d")
	if err := errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, "bench.json"), []byte(config), 0o644)); err != nil {
		return "", nil, errors.Join(err, l.Close())
	}
	server := &http.Server{Handler: registry.New(b.path(layoutDir)), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }() // until it is closed
	return l.Addr().String(), func() error {
		return errors.Join(server.Close(), os.RemoveAll(b.path(layoutDir)), os.RemoveAll(b.path("etc")))
	}, nil
}

// blob is the digest of an image's first layer.
func (b *bench) blob(repo string) (string, error) {
	var index struct {
		Manifests []struct{ Digest string }
	}
	var manifest struct {
		Layers []struct{ Digest string }
	}
	layout := b.path(filepath.Join(layoutDir, repo))
	raw, err := os.ReadFile(filepath.Join(layout, "index.json"))
	if err == nil {
		err = json.Unmarshal(raw, &index)
	}
	if err != nil {
		return "", err
	}
	raw, err = os.ReadFile(filepath.Join(layout, "blobs/sha256", index.Manifests[0].Digest[len("sha256:"):]))
	if err == nil {
		err = json.Unmarshal(raw, &manifest)
	}
	if err != nil {
		return "", err
	}
	return manifest.Layers[0].Digest, nil
}

// fetchCase pulls an image to ready-to-run, beside what does no more than
// download and unpack one layer with the same files. What was made stays until
// the end: a file system that has just removed as much is slower for whoever
// comes next.
func (b *bench) fetchCase(repo, title string, most float64) benchCase {
	var at, layer string
	var stop func() error
	place := func(what string, round int) string { return b.path(what + strconv.Itoa(round)) }
	return benchCase{
		name: "fetch-" + repo, title: title, metrics: []metric{cpu, wall, rss},
		note: "From a registry on loopback. curl and tar download and unpack one gzip layer with the same files, and check and sync nothing. Peak RSS is of one process, and never below what the bench itself has. containerd runs already when ctr asks it to pull; CPU and RSS are the daemon's.",
		contenders: []contender{
			{name: "rkt", commands: func(round int) []command {
				return []command{b.rkt("fetch"+strconv.Itoa(round), "--local-config="+b.path("etc"), "--insecure-options=image", "fetch", "--quiet", "docker://"+at+"/"+repo+":1")}
			}},
			{name: "curl and tar", commands: func(round int) []command {
				to := place("curl", round)
				return []command{sh("mkdir %s && curl -sS http://%s/v2/%s/blobs/%s | tar -xz -C %s", to, at, oneLayer, layer, to)}
			}},
			{name: "podman", peer: "podman", commands: func(round int) []command {
				return []command{b.podmanIn("pull"+strconv.Itoa(round), "pull", "-q", "--tls-verify=false", at+"/"+repo+":1")}
			}},
			{name: "containerd", peer: "containerd", sample: func(ctx context.Context, round int) (sample, error) {
				return b.pullWithContainerd(ctx, at+"/"+repo+":1", round)
			}},
		},
		targets: []target{
			{who: "rkt", metric: wall, against: "curl and tar", most: most},
			{who: "rkt", metric: wall, against: "podman", most: 1},
			{who: "rkt", metric: wall, against: "containerd", most: 1},
			{who: "rkt", metric: rss, most: 96},
		},
		setUp: func(ctx context.Context) (err error) {
			if at, stop, err = b.serve(ctx); err == nil {
				layer, err = b.blob(oneLayer)
			}
			return err
		},
		round: func(ctx context.Context, _ int) error { return b.meter.quiet(ctx, sh("sync -f %s", b.dir)) },
		tearDown: func(context.Context) error {
			var err error
			if stop != nil {
				err = stop()
			}
			b.noteStores()
			for round := range b.rounds + 1 {
				for _, what := range []string{"fetch", "curl", "pull", "containerd"} {
					err = errors.Join(err, os.RemoveAll(place(what, round)))
				}
			}
			return err
		},
	}
}

// fetchUnchanged asks for a tag whose image is there.
func (b *bench) fetchUnchanged() benchCase {
	var at string
	var stop func() error
	fetch := func() command {
		return b.rkt("fetch", "--local-config="+b.path("etc"), "--insecure-options=image", "fetch", "--quiet", "docker://"+at+"/"+oneLayer+":1")
	}
	pull := func() command { return b.podman("pull", "-q", "--tls-verify=false", at+"/"+oneLayer+":1") }
	return benchCase{
		name: "fetch-same", title: "Fetch of a tag that has not changed", metrics: both,
		contenders: []contender{
			{name: "rkt", commands: func(int) []command { return []command{fetch()} }},
			{name: "podman", peer: "podman", commands: func(int) []command { return []command{pull()} }},
		},
		targets: []target{{who: "rkt", metric: wall, against: "podman", most: 0.25}},
		setUp: func(ctx context.Context) (err error) {
			at, stop, err = b.serve(ctx)
			return err
		},
		tearDown: func(ctx context.Context) error {
			err := b.drop(ctx, "fetch")
			if stop != nil {
				err = errors.Join(err, stop())
			}
			if p := b.peer("podman"); p.path != "" && p.missing == "" {
				err = errors.Join(err, b.meter.quiet(ctx, b.podman("rmi", at+"/"+oneLayer+":1")))
			}
			return err
		},
	}
}

// removeImage removes an image that shares no layer, beside its files alone.
func (b *bench) removeImage() benchCase {
	return benchCase{
		name: "image-rm", title: "`rkt image rm` of an image that shares nothing", metrics: both,
		note: "The peer is rm -rf of a copy of its files.",
		contenders: []contender{
			{name: "rkt", commands: func(int) []command { return []command{b.rkt("rm", "image", "rm", "example.com/large:1.0")} }},
			{name: "rm", commands: func(int) []command { return []command{sh("rm -rf %s", b.path("rm.copy"))} }},
		},
		targets: []target{{who: "rkt", metric: wall, against: "rm", most: 1.1}},
		setUp:   func(ctx context.Context) error { return b.generate(ctx, "large") },
		round: func(ctx context.Context, _ int) error {
			return b.meter.quiet(ctx,
				b.rkt("rm", "--insecure-options=image", "fetch", "--quiet", b.path(largeACI)),
				sh("mkdir %s && cp -a %s/*/fs %[1]s && sync -f %[3]s", b.path("rm.copy"), b.path("rm/store/layers"), b.dir),
			)
		},
		tearDown: func(ctx context.Context) error {
			return errors.Join(b.drop(ctx, "rm"), os.RemoveAll(b.path("rm.copy")), os.RemoveAll(b.path(largeACI)))
		},
	}
}
