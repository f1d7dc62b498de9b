package main

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// collect lets pods end, copies their folders, and removes the pods by gc and
// the copies by rm. Both begin with a file system that has nothing to write.
func (b *bench) collect() benchCase {
	const pods = 100
	return benchCase{
		name: "gc-100", title: fmt.Sprintf("gc of %d pods that have ended", pods), metrics: both,
		note: "The peer is rm -rf of copies of the same folders, and sync -f. Each round runs its pods anew.",
		contenders: []contender{
			{
				name:     "rkt",
				commands: func(int) []command { return []command{b.rkt("gc", "gc", "--grace-period=0s")} },
			},
			{name: "rm and sync", commands: func(int) []command {
				return []command{sh("rm -rf %s && sync -f %s", b.path("gc.copy"), b.dir)}
			}},
		},
		targets: []target{{who: "rkt", metric: wall, against: "rm and sync", most: 1.5}},
		setUp:   func(ctx context.Context) error { return b.fetchSmall(ctx, "gc") },
		round: func(ctx context.Context, _ int) error {
			return b.meter.quiet(ctx,
				sh("seq %d | xargs -P %d -I @ %s", pods, b.cpus, b.rkt("gc", "run", "--net=none", rktImage).line()),
				sh("cp -a %s %s && sync -f %s", b.path("gc/pods/run"), b.path("gc.copy"), b.dir),
			)
		},
		tearDown: func(ctx context.Context) error {
			return errors.Join(b.drop(ctx, "gc"), os.RemoveAll(b.path("gc.copy")))
		},
	}
}

// importImage unpacks one and the same packed file by fetch, into a store that
// doesn't have it, and by tar.
func (b *bench) importImage() benchCase {
	remove := func(name string) func(context.Context, int) error {
		return func(ctx context.Context, _ int) error {
			return b.meter.quiet(ctx, sh("rm -rf %s && sync -f %s", b.path(name), b.dir))
		}
	}
	file := b.path(largeACI)
	return benchCase{
		name: "import", title: fmt.Sprintf("Import of a root file system of %d MiB, gzip", largeBytes>>20), metrics: []metric{cpu, wall, rss},
		note: "The peer is tar -xz of the same file, and sync -f. Peak RSS is of one process, and never below what the bench itself has.",
		contenders: []contender{
			{
				name:     "rkt",
				commands: func(int) []command { return []command{b.rkt("import", "--insecure-options=image", "fetch", file)} },
				after:    remove("import"),
			},
			{
				name: "tar and sync",
				commands: func(int) []command {
					to := b.path("import.tar")
					return []command{sh("mkdir %s && tar -xzf %s -C %s && sync -f %s", to, file, to, to)}
				},
				after: remove("import.tar"),
			},
		},
		targets: []target{
			{who: "rkt", metric: wall, against: "tar and sync", most: 1.15},
			{who: "rkt", metric: rss, most: 64},
		},
		setUp: func(ctx context.Context) error { return b.generate(ctx, "large") },
		tearDown: func(ctx context.Context) error {
			return errors.Join(remove("import")(ctx, 0), remove("import.tar")(ctx, 0), os.Remove(file))
		},
	}
}
