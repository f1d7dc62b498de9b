package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

var both = []metric{cpu, wall}

// cases lists what is measured, in the order of the tables.
func (b *bench) cases() []benchCase {
	return []benchCase{
		b.oneApp(), b.podOfTwo(), b.parallel(),
		b.networked(), b.networkAlone(), b.crowd(),
		b.version(), b.emptyList(), b.longList(),
		b.collect(), b.importImage(),
		b.fetchCase(oneLayer, fmt.Sprintf("Fetch of one gzip layer of %d MiB", largeBytes>>20), 1.05),
		b.fetchCase(fourLayers, "Fetch of the same files in four gzip layers", 0.95),
		b.fetchCase(zstdLayer, "Fetch of the same files in one zstd layer", 0.8),
		b.fetchUnchanged(), b.removeImage(),
		b.idle(),
	}
}

func (b *bench) oneApp() benchCase {
	c := benchCase{
		name: "run-true", title: "One app `true`, no network", metrics: both,
		note: "What has ended stays, where a peer keeps it: nobody removes it within the measured time. rkt and podman stack an overlay and set a system call filter. The OCI runtimes have the root file system as a folder, and no filter unless it is named; nspawn has a folder and a filter.",
		targets: []target{
			{who: "rkt", metric: cpu, against: "runc", most: 1.4},
			{who: "rkt", metric: wall, against: "podman", most: 0.33},
		},
		tearDown: b.removeAll,
	}
	for _, name := range []string{"rkt", "runc", filtered, "crun", "podman", "nspawn"} {
		peer, _, _ := strings.Cut(name, ",")
		c.contenders = append(c.contenders, contender{name: name, peer: peer, commands: func(round int) []command {
			return []command{b.runTrue(name, strconv.Itoa(round))}
		}})
	}
	return c
}

// podOfTwo compares two commands of rkt with the six that podman needs.
func (b *bench) podOfTwo() benchCase {
	pod := func(round int) string { return fmt.Sprintf("bench%d", round) }
	return benchCase{
		name: "pod-of-two", title: "A pod of two apps `true`, run to its end and removed", metrics: both,
		note: "rkt: run, rm. podman: pod create, create twice, pod start, wait, pod rm.",
		contenders: []contender{
			{name: "rkt", commands: func(int) []command {
				return []command{b.rktPodOfTwo("/bin/true"), b.rkt("data", "rm", "--uuid-file="+b.path("uuid"))}
			}},
			{name: "podman", peer: "podman", commands: func(round int) []command {
				p := pod(round)
				return append(b.podmanPodOfTwo(p, "/bin/true"),
					b.podman("wait", p+"a", p+"b"), b.podman("pod", "rm", p))
			}},
		},
		targets:  []target{{who: "rkt", metric: wall, against: "podman", most: 0.2}},
		tearDown: b.removeAll,
	}
}

func (b *bench) rktPodOfTwo(program string, args ...string) command {
	argv := []string{"run", "--net=none", "--uuid-file-save=" + b.path("uuid")}
	for i, app := range []string{"a", "b"} {
		argv = append(argv, rktImage, "--name="+app, "--exec="+program, "--")
		argv = append(argv, args...)
		if i == 0 {
			argv = append(argv, "---")
		}
	}
	return b.rkt("data", argv...)
}

func (b *bench) podmanPodOfTwo(pod string, argv ...string) []command {
	create := func(app string) command {
		return b.podman(append([]string{"create", "--pod=" + pod, "--name=" + pod + app, podmanImage}, argv...)...)
	}
	return []command{
		b.podman("pod", "create", "--network=none", "--name="+pod), create("a"), create("b"), b.podman("pod", "start", pod),
	}
}

// parallel starts many pods, some at a time, as a script would.
func (b *bench) parallel() benchCase {
	const starts, at = 32, 8
	many := func(c command) []command {
		return []command{sh("seq %d | xargs -P %d -I @ %s", starts, at, c.line()).in(c.place)}
	}
	c := benchCase{
		name: "parallel", title: fmt.Sprintf("%d starts of `true`, %d at a time", starts, at), metrics: both,
		note:     "What has ended stays, as with one app.",
		targets:  []target{{who: "rkt", metric: wall, against: "runc", most: 1.3}},
		tearDown: b.removeAll,
	}
	for _, name := range []string{"rkt", "runc", "crun"} {
		c.contenders = append(c.contenders, contender{
			name: name, peer: name,
			commands: func(round int) []command { return many(b.runTrue(name, fmt.Sprintf("%d-@", round))) },
		})
	}
	return c
}

func (b *bench) hello() contender {
	return contender{name: "hello-world", commands: func(int) []command {
		return []command{{argv: []string{b.path("hello")}}}
	}}
}

func (b *bench) version() benchCase {
	return benchCase{
		name: "version", title: "`rkt version`", metrics: both,
		contenders: []contender{
			{name: "rkt", commands: func(int) []command { return []command{b.rkt("empty", "version")} }},
			b.hello(),
			{name: "podman", peer: "podman", commands: func(int) []command { return []command{b.podman("--version")} }},
		},
		targets: []target{{who: "rkt", metric: cpu, against: "hello-world", most: 2}},
	}
}

func (b *bench) emptyList() benchCase {
	return benchCase{
		name: "list-none", title: "`rkt list` of no pods", metrics: both,
		contenders: []contender{
			{name: "rkt", commands: func(int) []command { return []command{b.rkt("empty", "list")} }},
			b.hello(),
			{name: "podman", peer: "podman", commands: func(int) []command { return []command{b.podman("ps")} }},
		},
		targets:  []target{{who: "rkt", metric: cpu, against: "hello-world", most: 2}},
		tearDown: func(context.Context) error { return os.RemoveAll(b.path("empty")) },
	}
}

// longList lists pods that were made and never started, which are the cheapest
// to make on both sides.
func (b *bench) longList() benchCase {
	const pods = 200
	return benchCase{
		name: "list-200", title: fmt.Sprintf("List of %d pods", pods), metrics: both,
		note: "rkt lists prepared pods of one app, podman (ps --all) created pods of one container.",
		contenders: []contender{
			{name: "rkt", commands: func(int) []command { return []command{b.rkt("list", "list")} }},
			{name: "podman", peer: "podman", commands: func(int) []command { return []command{b.podman("ps", "--all")} }},
		},
		targets: []target{{who: "rkt", metric: wall, against: "podman", most: 0.1}},
		setUp: func(ctx context.Context) error {
			if err := b.fetchSmall(ctx, "list"); err != nil {
				return err
			}
			for i := range pods {
				if err := b.meter.quiet(ctx, b.rkt("list", "prepare", rktImage)); err != nil {
					return err
				}
				if b.peer("podman").missing != "" {
					continue
				}
				create := b.podman("create", fmt.Sprintf("--pod=new:list%d", i), podmanImage, "/bin/true")
				if err := b.meter.quiet(ctx, create); err != nil {
					return err
				}
			}
			return nil
		},
		tearDown: func(ctx context.Context) error {
			return errors.Join(b.removeAll(ctx), b.drop(ctx, "list"))
		},
	}
}
