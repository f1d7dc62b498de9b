package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// netHost is a host for pods with networks: links, rules and leases are made in
// namespaces of their own, with a data folder that is used in no other.
type netHost struct {
	b    *bench
	data string
	at   *hideaway
}

// openNetHost makes one with the small image in its data folder. hidden has it
// without the unified hierarchy too.
func (b *bench) openNetHost(ctx context.Context, data string, hidden bool) (*netHost, error) {
	at, err := newHideaway(func() error {
		enter := ownMounts
		if hidden && b.hidden != nil {
			enter = hide
		}
		if err := enter(); err != nil {
			return err
		}
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare the network namespace: %w", err)
		}
		out, err := exec.CommandContext(ctx, "sh", "-ec", "mkdir -p /run/rkt; mount -t tmpfs -o mode=755 tmpfs /run/rkt; ip link set lo up").CombinedOutput()
		if err != nil {
			return fmt.Errorf("a network of its own: %w: %s", err, out)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	h := &netHost{b: b, data: data, at: at}
	if hidden {
		return h, nil // a peer's
	}
	return h, b.meter.quiet(ctx, h.rkt("--insecure-options=image", "fetch", b.path(smallACI)))
}

func (h *netHost) rkt(args ...string) command {
	return h.b.rkt(h.data, append([]string{"--local-config=" + h.b.path("netconfig")}, args...)...).in(h.at.place())
}

func (h *netHost) podman(args ...string) command { return h.b.podman(args...).in(h.at.place()) }

// close collects the pods, and gives the namespaces up.
func (h *netHost) close(ctx context.Context) error {
	if h == nil {
		return nil
	}
	var err error
	if exists(h.b.path(h.data)) {
		h.b.noteStores()
		err = h.b.meter.quiet(ctx, h.rkt("gc", "--grace-period=0s"))
		err = errors.Join(err, os.RemoveAll(h.b.path(h.data)))
	}
	h.at.close()
	return err
}

// netPeers are the hosts of rkt's and podman's side of a case.
type netPeers struct{ rkt, podman *netHost }

func (b *bench) openNetPeers(ctx context.Context) (p netPeers, err error) {
	if p.rkt, err = b.openNetHost(ctx, "net", false); err == nil {
		p.podman, err = b.openNetHost(ctx, "net-podman", true)
	}
	return p, err
}

func (p netPeers) close(ctx context.Context) error {
	return errors.Join(p.rkt.close(ctx), p.podman.close(ctx))
}

// networked is oneApp with a network and a way out.
func (b *bench) networked() benchCase {
	var at netPeers
	return benchCase{
		name: "network", title: "One app `true`, with the default network", metrics: both,
		note: "rkt: an address of both families, by rkt's own plugin. podman: its bridge, made by netavark. Both with masquerade.",
		contenders: []contender{
			{name: "rkt", commands: func(int) []command { return []command{at.rkt.rkt("run", rktImage)} }},
			{name: "podman", peer: "podman", commands: func(int) []command {
				return []command{at.podman.podman("run", "--network=podman", podmanImage, "/bin/true")}
			}},
		},
		targets: []target{{who: "rkt", metric: wall, against: "podman", most: 0.35}},
		setUp: func(ctx context.Context) (err error) {
			at, err = b.openNetPeers(ctx)
			return err
		},
		tearDown: func(ctx context.Context) error { return errors.Join(b.removeAll(ctx), at.close(ctx)) },
	}
}

// networkAlone is what a network adds to the start and the end of an app.
func (b *bench) networkAlone() benchCase {
	const pairs = 3
	var at netPeers
	added := func(with, without func() command) func(ctx context.Context, _ int) (sample, error) {
		return func(ctx context.Context, _ int) (s sample, err error) {
			for range pairs {
				more, err := b.meter.run(ctx, with())
				if err != nil {
					return s, err
				}
				less, err := b.meter.run(ctx, without())
				if err != nil {
					return s, err
				}
				s.cpu += (more.cpu - less.cpu) / pairs
			}
			return s, nil
		}
	}
	return benchCase{
		name: "network-cpu", title: "CPU time that the network adds to the host's own", metrics: []metric{cpu},
		note: fmt.Sprintf("The difference of a run with the network of the case before and one in the host's network namespace, of %d such pairs.", pairs),
		contenders: []contender{
			{name: "rkt", sample: added(
				func() command { return at.rkt.rkt("run", rktImage) },
				func() command { return at.rkt.rkt("run", "--net=host", rktImage) })},
			{name: "podman", peer: "podman", sample: added(
				func() command { return at.podman.podman("run", "--network=podman", podmanImage, "/bin/true") },
				func() command { return at.podman.podman("run", "--network=host", podmanImage, "/bin/true") })},
		},
		targets: []target{{who: "rkt", metric: cpu, against: "podman", most: 0.6}},
		setUp: func(ctx context.Context) (err error) {
			at, err = b.openNetPeers(ctx)
			return err
		},
		tearDown: func(ctx context.Context) error { return errors.Join(b.removeAll(ctx), at.close(ctx)) },
	}
}

// crowd starts one more pod on networks that have a hundred already.
func (b *bench) crowd() benchCase {
	const pods = 100
	const networks = "--net=default,bench"
	var crowded, empty *netHost
	var running []*exec.Cmd
	start := func(h **netHost) func(int) []command {
		return func(int) []command { return []command{(*h).rkt("run", networks, rktImage)} }
	}
	return benchCase{
		name: "crowd", title: fmt.Sprintf("One app `true` on the default network and a bridge with %d running pods", pods), metrics: both,
		note: "On the other side both networks are of another network namespace, with no pod; what runs on the host is the same. The bridge is made by the plugins bridge and host-local.",
		contenders: []contender{
			{name: "rkt", commands: start(&crowded)},
			{name: "rkt, alone", commands: start(&empty)},
		},
		targets: []target{
			{who: "rkt", metric: wall, against: "rkt, alone", most: 1.1}, {who: "rkt", metric: cpu, against: "rkt, alone", most: 1.1},
		},
		setUp: func(ctx context.Context) (err error) {
			if err := b.bridgeConfig(); err != nil {
				return err
			}
			if empty, err = b.openNetHost(ctx, "alone", false); err != nil {
				return err
			}
			if crowded, err = b.openNetHost(ctx, "crowd", false); err != nil {
				return err
			}
			for range pods {
				cmd, err := crowded.background(networks)
				if cmd != nil {
					running = append(running, cmd)
					b.meter.staying[cmd.Process.Pid] = true
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
		tearDown: func(ctx context.Context) error {
			var err error
			for _, cmd := range running {
				err = errors.Join(err, stop(cmd))
				delete(b.meter.staying, cmd.Process.Pid)
			}
			running = nil
			return errors.Join(err, crowded.close(ctx), empty.close(ctx), os.RemoveAll(b.path("netconfig")))
		},
	}
}

// background starts a pod that stays, and returns once its app runs.
func (h *netHost) background(networks string) (*exec.Cmd, error) {
	c := h.rkt("run", networks, rktImage, "--exec=/bin/sh", "--stop-signal=SIGKILL", "--", "-c", idleApp)
	cmd := exec.Command(c.argv[0], c.argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.start(cmd); err != nil {
		return nil, err
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return cmd, fmt.Errorf("wait for a pod of the crowd: %w", err)
	}
	return cmd, nil
}

// bridgeConfig configures the network of the crowd.
func (b *bench) bridgeConfig() error {
	dir := filepath.Join(b.path("netconfig"), "net.d")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	data, err := json.Marshal(map[string]any{
		"cniVersion": "1.0.0", "name": "bench", "plugins": []any{map[string]any{
			"type": "bridge", "bridge": "rktbench0", "isGateway": true,
			"ipam": map[string]any{"type": "host-local", "subnet": "10.123.0.0/16", "dataDir": b.path("netconfig/leases")},
		}},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "bench.conflist"), data, 0o644)
}
