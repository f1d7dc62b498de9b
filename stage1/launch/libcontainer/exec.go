package libcontainer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	rlc "github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/stage1/launch"
)

const (
	stateFile  = "state.json"
	execPrefix = "exec-"
	maxExecs   = 1 << 16
)

// Exec implements launch.Launcher. The library knows one cgroup a container,
// and v2 allows none below one with processes; so the process is started as
// one of a second container, whose state is the app's but for the cgroup.
func (l *launcher) Exec(ctx context.Context, stateDir, id string, e launch.Exec) (launch.Process, error) {
	state, cmd, err := appState(stateDir, id)
	if err != nil {
		return nil, err
	}
	p := &process{timeout: l.killTimeout}
	if err := l.exec(ctx, p, stateDir, id, state, cmd, e); err != nil {
		return nil, named("run in", cmd.Name, e.Argv, errors.Join(err, p.abandon()))
	}
	return p, nil
}

func (l *launcher) exec(ctx context.Context, p *process, stateDir, id string, state *rlc.State, cmd command, e launch.Exec) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(e.Argv) == 0 {
		return errs.Newf(errs.Usage, "program: none given")
	}
	limits, err := inherit(state)
	if err != nil {
		return err
	}
	n, err := p.makeLeaf(state)
	if err != nil {
		return err
	}
	child := id + "." + execPrefix + strconv.Itoa(n)
	p.state = filepath.Join(stateDir, child)
	if err := writeState(p.state, state); err != nil {
		return err
	}
	c, err := rlc.Load(stateDir, child)
	if err != nil {
		return err
	}
	// Again, as late as can be: the namespaces are opened by pid.
	if status, err := c.Status(); err != nil || status != rlc.Running {
		return notRunning(id, err)
	}
	run := &rlc.Process{
		Args:             e.Argv,
		Env:              slices.Concat(cmd.Env, e.Env),
		Cwd:              cmd.Cwd,
		UID:              cmd.UID,
		GID:              cmd.GID,
		AdditionalGroups: cmd.Gids,
		Rlimits:          limits,
	}
	if e.Cwd != "" {
		run.Cwd = e.Cwd
	}
	if e.Root {
		run.UID, run.GID, run.AdditionalGroups = 0, 0, nil
	}
	if u := e.User; u != nil {
		if state.Config.NoNewPrivileges && u.UID != cmd.UID && cmd.UID != 0 {
			return errs.WithHint(errs.Newf(errs.Denied, "user %d: the app runs as %d with no-new-privileges: nothing in it can become another user", u.UID, cmd.UID),
				"leave the user out")
		}
		run.UID, run.GID, run.AdditionalGroups = u.UID, u.GID, u.Gids
	}
	return p.run(ctx, e.Stdio, run.UID, &job{container: c, process: run})
}

// appState reads the state of a running app.
func appState(stateDir, id string) (*rlc.State, command, error) {
	c, err := rlc.Load(stateDir, id)
	if errors.Is(err, rlc.ErrNotExist) || errors.Is(err, fs.ErrNotExist) {
		return nil, command{}, notRunning(id, nil)
	}
	if err != nil {
		return nil, command{}, fmt.Errorf("execution %s: %w", id, err)
	}
	// Running also says that the main process has left the fifo behind.
	if status, err := c.Status(); err != nil || status != rlc.Running {
		return nil, command{}, notRunning(id, err)
	}
	state, err := c.State()
	if err != nil {
		return nil, command{}, fmt.Errorf("execution %s: %w", id, err)
	}
	for _, label := range state.Config.Labels {
		if text, ok := strings.CutPrefix(label, commandLabel); ok {
			var cmd command
			if err := json.Unmarshal([]byte(text), &cmd); err != nil {
				return nil, command{}, errs.Newf(errs.Corrupt, "execution %s: state: %w", id, err)
			}
			return state, cmd, nil
		}
	}
	return nil, command{}, errs.Newf(errs.Corrupt, "execution %s: state: no command in it", id)
}

// inherit puts into the state what a process takes from whoever starts it and
// not from the container: the caller can be a root shell with no limits, in
// another network namespace, and protected from the OOM killer.
func inherit(state *rlc.State) ([]configs.Rlimit, error) {
	pid := state.InitProcessPid
	limits, err := rlimitsOf(pid)
	if err != nil {
		return nil, err
	}
	adj, err := oomScoreAdjOf(strconv.Itoa(pid))
	if err != nil {
		return nil, err
	}
	own, err := oomScoreAdjOf("self")
	if err != nil {
		return nil, err
	}
	exceed, err := mayExceed()
	if err != nil {
		return nil, err
	}
	if !exceed {
		adj = max(adj, own)
	}
	state.Config.OomScoreAdj = &adj
	// The library starts its child in the rootfs, which is mounted in the
	// supervisor's namespace only; joining the app's leads to it anyhow.
	state.Config.Rootfs = "/"
	if !state.Config.Namespaces.Contains(configs.NEWNET) {
		// With host networking the app's is the supervisor's. Nothing is
		// created: a process that is no init joins all of the app's.
		state.Config.Namespaces.Add(configs.NEWNET, "")
	}
	return limits, nil
}

// makeLeaf makes apps/<app>/exec-<n>, n being the first that is free, in all
// hierarchies and with the app's device rules, and puts it into the state.
func (p *process) makeLeaf(state *rlc.State) (int, error) {
	main := state.CgroupPaths
	if main[""] == "" {
		_, err := newLeaf(main)
		return 0, err
	}
	n, name, err := freeLeaf(filepath.Dir(main[""]))
	if err != nil {
		return 0, err
	}
	paths := map[string]string{}
	for controller, path := range main {
		paths[controller] = filepath.Join(filepath.Dir(path), name)
	}
	if p.leaf, err = newLeaf(paths); err != nil {
		return 0, err
	}
	conf := *state.Config.Cgroups
	if conf.Resources == nil {
		conf.Resources = &cgroups.Resources{}
	}
	conf.Path = filepath.Join(filepath.Dir(conf.Path), name)
	state.Config.Cgroups, state.CgroupPaths = &conf, paths
	m, err := manager.NewWithPaths(&conf, paths)
	if err == nil {
		err = m.Apply(-1)
	}
	if err == nil {
		err = m.Set(conf.Resources)
	}
	if err != nil {
		return 0, fmt.Errorf("cgroup %s: %w", conf.Path, err)
	}
	group, err := groupAt(conf.Path)
	if err != nil {
		return 0, err
	}
	return n, group.InheritThrottle()
}

func freeLeaf(app string) (int, string, error) {
	for n := range maxExecs {
		if err := fault.Step("launch.leaf"); err != nil {
			return 0, "", err
		}
		name := execPrefix + strconv.Itoa(n)
		err := os.Mkdir(filepath.Join(app, name), 0o755)
		if err == nil {
			return n, name, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return 0, "", err
		}
	}
	return 0, "", errs.Newf(errs.Busy, "cgroup %s: %d processes were started in it and none was cleared away", app, maxExecs)
}

// writeState writes a state that Load finds. The folder's name comes with the
// cgroup leaf's, so what is there is of a process that is gone.
func writeState(dir string, state *rlc.State) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := fault.Step("launch.state"); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return atomicfile.WriteJSON(filepath.Join(dir, stateFile), state, 0o600, atomicfile.Renamed)
}
